"""Write the files that a producer claims for one region, into an empty local folder.

The bytes depend on the pins and the source alone. Every file is written once and hashed on the way; memory: a block of
tokens and the columns of the documents. Publishing the folder, and making it durable, is the store's work.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from casebits_dagster.codec.encode import EncodedDocuments
from casebits_dagster.records.layout import ARRAY_NAMES, DOCUMENTS, RECEIPT, region_id
from casebits_dagster.records.pins import Generation
from casebits_dagster.records.region import ArrayFile, Counts, Receipt, RegionName, SourceSlice, SplitPin, Stage
from casebits_dagster.stores.source import published_sha256

WORKER = Stage(name="casebits-encoder", version=1)
_LINES = 1 << 16


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
    blocks: Iterable[EncodedDocuments],
    columns: DocumentColumns,
    outcome: FilterOutcome,
) -> Receipt:
    """Write arrays, documents.jsonl and receipt.json into the empty `folder` and return the receipt."""
    validation = in_validation(columns.document_ids, generation.pins.split)
    names = ARRAY_NAMES[generation.pins.codec.format]
    offsets, raw_bytes = [np.zeros(1, "<u8")], [np.empty(0, "<u8")]
    with contextlib.ExitStack() as stack:
        files = {name: stack.enter_context(_File(folder / name)) for name in (*names.dtypes, DOCUMENTS)}
        for block in blocks:
            files[names.ids].write(block.ids)
            if names.cases:
                files[names.cases].write(block.cases)
            offsets.append(block.offsets[1:] + offsets[-1][-1])
            raw_bytes.append(block.raw_bytes)
        cuts, sizes = np.concatenate(offsets), np.concatenate(raw_bytes)
        files[names.offsets].write(cuts)
        files[names.raw_bytes].write(sizes)
        for lines in _document_lines(cuts, sizes, columns, validation):
            files[DOCUMENTS].write(lines)
    receipt = Receipt(
        generation=generation.name,
        region=RegionName(index=index, id=region_id(index)),
        source=_source_slice(generation, index, outcome.range_sha256),
        worker=WORKER,
        pins=generation.pins,
        counts=Counts(
            rows_read=outcome.rows_read,
            documents=len(sizes),
            tokens=int(cuts[-1]),
            raw_bytes=int(sizes.sum()),
            train_documents=len(sizes) - int(validation.sum()),
            validation_documents=int(validation.sum()),
            dropped=outcome.dropped,
            quarantined=outcome.quarantined,
        ),
        verdicts_digest=outcome.verdicts_digest,
        files=tuple(files[name].claim(names.dtypes.get(name), len(sizes)) for name in sorted(files)),
    ).sealed()
    (folder / RECEIPT).write_bytes(receipt.to_bytes())
    return receipt


class _File:
    """A new file that is hashed while it is written."""

    def __init__(self, path: Path) -> None:
        self._name, self._digest, self._size = path.name, hashlib.sha256(), 0
        self._stream = path.open("xb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stream.close()

    def write(self, content: NDArray[Any] | pa.Buffer) -> None:
        raw = memoryview(content).cast("B") if len(content) else memoryview(b"")  # type: ignore[arg-type]
        self._digest.update(raw)
        self._size += self._stream.write(raw)

    def claim(self, dtype: Literal["<u2", "<u8"] | None, documents: int) -> ArrayFile:
        """Return what the receipt says of the file; without a dtype it has a line a document."""
        return ArrayFile(
            name=self._name,
            dtype=dtype or "jsonl",
            items=self._size // np.dtype(dtype).itemsize if dtype else documents,
            bytes=self._size,
            sha256=self._digest.hexdigest(),
        )


def in_validation(document_ids: NDArray[np.void], split: SplitPin) -> NDArray[np.bool_]:
    """Return which documents belong to validation: by salt and id alone, so equal texts fall on one side."""
    salt, ids, sha256 = split.salt.encode() + b"\0", document_ids.tobytes(), hashlib.sha256
    digests = b"".join([sha256(salt + ids[at : at + 16]).digest() for at in range(0, len(ids), 16)])
    heads: NDArray[np.uint64] = np.frombuffer(digests, ">u8")[::4]
    return heads < np.uint64(split.threshold)


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


def _document_lines(
    cuts: NDArray[np.uint64], sizes: NDArray[np.uint64], columns: DocumentColumns, validation: NDArray[np.bool_]
) -> Iterator[pa.Buffer]:
    """Yield documents.jsonl: canonical JSON spelled out, since every value is a number, hex or a fixed word."""
    byte_offsets = np.cumsum(sizes) - sizes
    for first in range(0, len(sizes), _LINES):
        part = slice(first, first + _LINES)
        clusters = pa.array(columns.clusters[part])
        scores = dict(zip(columns.metrics, columns.scores[part].T, strict=True))
        score_texts = [piece for name in sorted(scores) for piece in (f',"{name}":"', _micro_texts(scores[name]), '"')]
        lines = pc.binary_join_element_wise(
            '{"byte_offset":',
            _texts(byte_offsets[part]),
            ',"cluster":',
            pc.if_else(pc.equal(clusters, -1), "null", clusters.cast(pa.string())),
            ',"id":"',
            _hex_texts(columns.document_ids[part]),
            '","index":',
            _texts(np.arange(first, first + len(clusters))),
            ',"scores":{' + score_texts[0][1:],
            *score_texts[1:],
            '},"source_position":',
            _texts(columns.positions[part]),
            ',"split":"',
            pc.if_else(pa.array(validation[part]), "validation", "train"),
            '","token_offset":',
            _texts(cuts[:-1][part]),
            "}\n",
            "",
        )
        yield lines.buffers()[2]


def _texts(numbers: NDArray[Any]) -> pa.StringArray:
    return pa.array(numbers).cast(pa.string())


def _micro_texts(values: NDArray[np.int64]) -> pa.StringArray:
    """Return counts of millionths as `records.record.micro_text` spells them."""
    wide = np.stack([values, values >> 63], axis=1).astype("<i8")
    decimals = pa.Decimal128Array.from_buffers(pa.decimal128(19, 6), len(values), [None, pa.py_buffer(wide)])
    return decimals.cast(pa.string())


def _hex_texts(document_ids: NDArray[np.void]) -> pa.StringArray:
    cuts = np.arange(len(document_ids) + 1, dtype="<i4") * 32
    text = document_ids.tobytes().hex().encode()
    return pa.StringArray.from_buffers(len(document_ids), pa.py_buffer(cuts), pa.py_buffer(text))
