"""Write the six files that a producer claims for one region, into an empty local folder.

The bytes depend on the pins and the source alone. Publishing the folder is the store's work.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.codec.encode import EncodedDocuments
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.layout import (
    ARRAY_DTYPES,
    CASES,
    DOCUMENTS,
    IDS,
    OFFSETS,
    RAW_BYTES,
    RECEIPT,
    region_id,
)
from casebits_dagster.records.pins import Generation
from casebits_dagster.records.record import micro_text
from casebits_dagster.records.region import ArrayFile, Counts, Receipt, RegionName, SourceSlice, SplitPin, Stage
from casebits_dagster.stores.local import write_durably
from casebits_dagster.stores.source import published_sha256

WORKER = Stage(name="casebits-encoder", version=1)


@dataclass(frozen=True, slots=True)
class DocumentColumns:
    """What is known of each of D documents beside its text: `positions` "<i8", `clusters` "<i4" (-1 = none),
    `document_ids` "V16", `scores` "<i8" (D, M) in millionths, named by `metrics`."""

    positions: NDArray[np.int64]
    clusters: NDArray[np.int32]
    document_ids: NDArray[np.void]
    scores: NDArray[np.int64]
    metrics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FilterOutcome:
    """The filter stage's counts and digests, as the receipt claims them."""

    rows_read: int
    dropped: dict[str, int]
    quarantined: dict[str, int]
    verdicts_digest: str
    range_sha256: str


def write_region(
    folder: Path,
    generation: Generation,
    index: int,
    encoded: EncodedDocuments,
    columns: DocumentColumns,
    outcome: FilterOutcome,
) -> Receipt:
    """Write arrays, documents.jsonl and receipt.json into the empty `folder` and return the receipt."""
    validation = in_validation(columns.document_ids, generation.pins.split)
    contents: dict[str, bytes] = {
        IDS: encoded.ids.astype("<u2").tobytes(),
        CASES: encoded.cases.astype("<u2").tobytes(),
        OFFSETS: encoded.offsets.astype("<u8").tobytes(),
        RAW_BYTES: encoded.raw_bytes.astype("<u8").tobytes(),
        DOCUMENTS: _document_lines(encoded, columns, validation),
    }
    for name, content in contents.items():
        write_durably(folder / name, content)
    count = len(encoded.raw_bytes)
    receipt = Receipt(
        generation=generation.name,
        region=RegionName(index=index, id=region_id(index)),
        source=_source_slice(generation, index, outcome.range_sha256),
        worker=WORKER,
        pins=generation.pins,
        counts=Counts(
            rows_read=outcome.rows_read,
            documents=count,
            tokens=len(encoded.ids),
            raw_bytes=int(encoded.raw_bytes.sum()),
            train_documents=count - int(validation.sum()),
            validation_documents=int(validation.sum()),
            dropped=outcome.dropped,
            quarantined=outcome.quarantined,
        ),
        verdicts_digest=outcome.verdicts_digest,
        files=tuple(_array_file(name, contents[name], count) for name in sorted(contents)),
    ).sealed()
    write_durably(folder / RECEIPT, receipt.to_bytes())
    return receipt


def in_validation(document_ids: NDArray[np.void], split: SplitPin) -> NDArray[np.bool_]:
    """Return which documents belong to validation: by salt and id alone, so equal texts fall on one side."""
    salt = split.salt.encode() + b"\0"
    heads = (sha256(salt, document_id.tobytes())[:16] for document_id in document_ids)
    return np.fromiter((int(head, 16) < split.threshold for head in heads), bool, len(document_ids))


def _source_slice(generation: Generation, index: int, range_sha256: str) -> SourceSlice:
    source, region = generation.source.pin, generation.plan[index]
    file = generation.source.file(region.path)
    return SourceSlice(
        repo=source.repo,
        repo_type=source.repo_type,
        revision=source.revision,
        path=file.path,
        file_bytes=file.bytes,
        file_sha256=published_sha256(generation.source, file.path),
        unit=region.unit,
        begin=region.begin,
        end=region.end,
        range_sha256=range_sha256,
        licence_spdx=source.licence_spdx,
    )


def _array_file(name: str, content: bytes, documents: int) -> ArrayFile:
    dtype = ARRAY_DTYPES.get(name)
    items = len(content) // np.dtype(dtype).itemsize if dtype else documents
    # mypy cannot see that ARRAY_DTYPES holds only these.
    kind = {"<u2": "<u2", "<u8": "<u8", None: "jsonl"}[dtype]
    return ArrayFile.from_dict(
        {"name": name, "dtype": kind, "items": items, "bytes": len(content), "sha256": sha256(content)}, name
    )


def _document_lines(encoded: EncodedDocuments, columns: DocumentColumns, validation: NDArray[np.bool_]) -> bytes:
    """Return documents.jsonl: canonical JSON spelled out, since every value is a number, hex or a fixed word."""
    order = sorted(range(len(columns.metrics)), key=lambda number: columns.metrics[number])
    score_text = ",".join(f'"{columns.metrics[number]}":"%s"' for number in order)
    line = (
        '{"byte_offset":%d,"cluster":%s,"id":"%s","index":%d,"scores":{%s},'
        '"source_position":%d,"split":"%s","token_offset":%d}\n'
    )
    byte_offsets = np.cumsum(encoded.raw_bytes) - encoded.raw_bytes
    rows = zip(
        byte_offsets.tolist(),
        ["null" if cluster == -1 else str(cluster) for cluster in columns.clusters.tolist()],
        [document_id.tobytes().hex() for document_id in columns.document_ids],
        range(len(byte_offsets)),
        [score_text % tuple(map(micro_text, row)) for row in columns.scores[:, order].tolist()],
        columns.positions.tolist(),
        ["validation" if one else "train" for one in validation],
        encoded.offsets[:-1].tolist(),
        strict=True,
    )
    return "".join(line % row for row in rows).encode()
