"""The encode stage of one region: kept text in, the six claimed files published.

A region that is already published with the same claim is left as it is; a rerun that makes other bytes is refused.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from casebits_dagster.codec.bytetable import Bytes, ByteTable, Cuts
from casebits_dagster.codec.encode import EncodedDocuments, Encoder
from casebits_dagster.codec.mixture import COST_UNIT, Mixture
from casebits_dagster.filters.judge import KEEP
from casebits_dagster.filters.region import RANGE_SHA256, reasons, verdicts_digest
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.errors import Absent
from casebits_dagster.records.layout import Home
from casebits_dagster.records.pins import Generation
from casebits_dagster.records.region import Receipt
from casebits_dagster.regions.write import DocumentColumns, FilterOutcome, write_region
from casebits_dagster.stores.local import LocalStore

BLOCK_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class EncodedRegion:
    """A published region. `published` is False when identical bytes were there; `mask_bits_per_token` is the cost of
    the masks under the pinned mixture, in bits a token (a decimal for people)."""

    receipt: Receipt
    receipt_sha256: str
    folder: Path
    published: bool
    encoder: str
    mask_bits_per_token: float


def encode_region(generation: Generation, index: int, home: Home) -> EncodedRegion:
    """Encode the region's kept text and publish it. Raises Absent when its filter stage has not run."""
    folder = home.generation(generation.name)
    columns, outcome = _filter_record(generation, index, home)
    encoder = _encoder(generation.vocabulary)
    encoded = _joined([encoder.encode(text, cuts) for text, cuts in _text_blocks(folder.kept_text(index))])
    store = LocalStore(home.root)
    with store.staged(f"{generation.name}.{index:05d}") as staging:
        work = staging / "region"
        work.mkdir()
        receipt = write_region(work, generation, index, encoded, columns, outcome)
        target = folder.region(index)
        published = store.publish_folder(work, target.relative_to(home.root).as_posix())
    return EncodedRegion(
        receipt=receipt,
        receipt_sha256=sha256(receipt.to_bytes()),
        folder=target,
        published=published,
        encoder=encoder.engine,
        mask_bits_per_token=_mask_bits(generation, encoder.table, encoded),
    )


def _filter_record(generation: Generation, index: int, home: Home) -> tuple[DocumentColumns, FilterOutcome]:
    """Return the kept documents' columns and the outcome of the filter stage, from its verdict table."""
    path = home.generation(generation.name).verdicts(index)
    if not path.exists():
        raise Absent("FILE_MISSING", str(path), "not filtered yet", remedy="materialise filtered_documents first")
    table = pq.read_table(path)
    verdicts = table["verdict"].to_pylist()
    kept = table.filter(pa.array([verdict == KEEP for verdict in verdicts], pa.bool_()))
    metrics = generation.policy.metrics
    columns = DocumentColumns(
        positions=kept["position"].to_numpy(),
        clusters=kept["cluster"].to_numpy(),
        document_ids=np.frombuffer(b"".join(kept["document_id"].to_pylist()), "V16"),
        scores=np.stack([kept[f"score_{name}"].to_numpy() for name in metrics], axis=1),
        metrics=metrics,
    )
    counts = Counter(verdicts)
    outcome = FilterOutcome(
        rows_read=len(verdicts),
        dropped=reasons(counts, "dropped:"),
        quarantined=reasons(counts, "quarantined:"),
        verdicts_digest=verdicts_digest(table),
        range_sha256=table.schema.metadata[RANGE_SHA256].decode(),
    )
    return columns, outcome


def _text_blocks(path: Path) -> Iterator[tuple[Bytes, Cuts]]:
    """Yield the kept text in blocks of about BLOCK_BYTES, memory-mapped."""
    with pa.memory_map(str(path)) as source:
        reader = pa.ipc.open_file(source)
        for number in range(reader.num_record_batches):
            column = reader.get_batch(number)["text"]
            _, offsets, data = column.buffers()
            cuts = np.frombuffer(offsets, "<i8")[: len(column) + 1]
            text = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
            first = 0
            while first < len(column):
                last = int(np.searchsorted(cuts, cuts[first] + BLOCK_BYTES, "right")) - 1
                last = min(max(last, first + 1), len(column))
                yield text[cuts[first] : cuts[last]], cuts[first : last + 1] - cuts[first]
                first = last


def _joined(blocks: list[EncodedDocuments]) -> EncodedDocuments:
    offsets, total = [np.zeros(1, "<u8")], 0
    for block in blocks:
        offsets.append(block.offsets[1:] + np.uint64(total))
        total += len(block.ids)
    empty, empty_long = np.empty(0, "<u2"), np.empty(0, "<u8")
    return EncodedDocuments(
        ids=np.concatenate([empty, *(block.ids for block in blocks)]),
        cases=np.concatenate([empty, *(block.cases for block in blocks)]),
        offsets=np.concatenate(offsets),
        raw_bytes=np.concatenate([empty_long, *(block.raw_bytes for block in blocks)]),
    )


def _mask_bits(generation: Generation, table: ByteTable, encoded: EncodedDocuments) -> float:
    if not len(encoded.ids) or generation.mixture is None:
        return 0.0
    costs = Mixture.load(generation.mixture, table).costs(encoded.ids, encoded.cases)
    return float(costs.sum()) / COST_UNIT / len(encoded.ids)


@functools.lru_cache(maxsize=4)
def _encoder(vocabulary: Path) -> Encoder:
    return Encoder(vocabulary)
