"""The encode stage of one region: kept text in, the claimed files published.

A region that is already published with the same claim is left as it is; see `stores.regions` for one that differs.
Memory: a block of text with its tokens, and the columns of the region's documents.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from casebits_dagster.codec.bytetable import Bytes, Cuts
from casebits_dagster.codec.encode import EncodedDocuments, Encoder, Engine
from casebits_dagster.codec.mixture import COST_UNIT, Mixture, PairCounter
from casebits_dagster.filters.judge import KEEP
from casebits_dagster.filters.region import RANGE_SHA256, count_verdicts, document_id_column, reasons, verdicts_digest
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.errors import Absent
from casebits_dagster.records.layout import Home
from casebits_dagster.records.pins import Generation
from casebits_dagster.records.region import Receipt, Separator
from casebits_dagster.regions.write import DocumentColumns, FilterOutcome, write_region
from casebits_dagster.stores.local import LocalStore
from casebits_dagster.stores.regions import publish_region, push_region

# Text encoded at once: its columns stay in the cache.
BLOCK_BYTES = 2 << 20


@dataclass(frozen=True, slots=True)
class EncodedRegion:
    """A published region. `published` is False when identical bytes were there.

    What its masks cost, in bits a token (decimals for people, 0 without a mixture): `mask_bits_per_token` under the
    pinned mixture, `independent_bits_per_token` were every bit of an id a coin of its own, with the mixture's chances.
    """

    receipt: Receipt
    receipt_sha256: str
    folder: Path
    published: bool
    encoder: str
    mask_bits_per_token: float
    independent_bits_per_token: float


def encode_region(generation: Generation, index: int, home: Home, engine: Engine | None = None) -> EncodedRegion:
    """Encode the region's kept text and publish it. Raises Absent when its filter stage has not run.

    Every engine gives the same bytes; the default is the fastest that is installed.
    """
    folder = home.generation(generation.name)
    columns, outcome = _filter_record(generation, index, home)
    encoder, mixture = _codec(generation.vocabulary, generation.mixture, generation.pins.codec.separator, engine)
    counter = PairCounter()
    blocks = _encoded(encoder, folder.kept_text(index), counter)
    store = LocalStore(home.root)
    with store.staged(f"{generation.name}.{index:05d}") as staging:
        work = staging / "region"
        work.mkdir()
        receipt = write_region(work, generation, index, blocks, columns, outcome)
        published = publish_region(work, receipt, home)
    push_region(home, generation, receipt)
    pairs, tokens = counter.pairs(), max(1, receipt.counts.tokens)
    return EncodedRegion(
        receipt=receipt,
        receipt_sha256=sha256(receipt.to_bytes()),
        folder=folder.region(index),
        published=published,
        encoder=encoder.engine,
        mask_bits_per_token=mixture.cost(pairs) / COST_UNIT / tokens if mixture else 0.0,
        independent_bits_per_token=mixture.independent_bits(pairs) / tokens if mixture else 0.0,
    )


def _filter_record(generation: Generation, index: int, home: Home) -> tuple[DocumentColumns, FilterOutcome]:
    """Return the kept documents' columns and the outcome of the filter stage, from its verdict table."""
    folder = home.generation(generation.name)
    path = folder.verdicts(index)
    for needed in (path, folder.kept_text(index)):
        if not needed.exists():
            raise Absent("FILE_MISSING", str(needed), "not filtered yet", remedy="materialise filtered_documents first")
    table = pq.read_table(path)
    kept = table.filter(pc.equal(table["verdict"], KEEP))
    metrics = generation.policy.metrics
    columns = DocumentColumns(
        positions=kept["position"].to_numpy(),
        clusters=kept["cluster"].to_numpy(),
        document_ids=document_id_column(kept),
        scores=np.stack([kept[f"score_{name}"].to_numpy() for name in metrics], axis=1),
        metrics=metrics,
    )
    counts = count_verdicts(table)
    outcome = FilterOutcome(
        rows_read=len(table),
        dropped=reasons(counts, "dropped:"),
        quarantined=reasons(counts, "quarantined:"),
        verdicts_digest=verdicts_digest(table),
        range_sha256=table.schema.metadata[RANGE_SHA256].decode(),
    )
    return columns, outcome


def _encoded(encoder: Encoder, kept: Path, counter: PairCounter) -> Iterator[EncodedDocuments]:
    """Yield the encoded blocks of the kept text, and count their pairs of id and mask on the way.

    Where the filter stage kept the ids of the source, since they are the codec's own, they stay as they are.
    """
    first = 0
    for batch in _batches(kept):
        text, cuts = _column(batch, "text")
        if "tokens" in batch.schema.names:
            ids, id_cuts = _column(batch, "tokens")
            sizes = np.diff(cuts).astype("<u8")
            block = encoder.keep(ids.view("<u2"), id_cuts // 2, sizes, str(kept), first)
        else:
            block = encoder.encode(text, cuts)
        counter.add(block.ids, block.cases)
        first += len(batch)
        yield block


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a kept text with about BLOCK_BYTES of text each, memory-mapped."""
    with pa.memory_map(str(path)) as source:
        reader = pa.ipc.open_file(source)
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            cuts = np.frombuffer(batch["text"].buffers()[1], "<i8")
            first = 0
            while first < len(batch):
                last = int(np.searchsorted(cuts[: len(batch) + 1], cuts[first] + BLOCK_BYTES, "right")) - 1
                last = min(max(last, first + 1), len(batch))
                yield batch.slice(first, last - first)
                first = last


def _column(batch: pa.RecordBatch, name: str) -> tuple[Bytes, Cuts]:
    """Return the bytes of a column end to end, and where each value begins among them."""
    column = batch[name]
    _, offsets, content = column.buffers()
    cuts = np.frombuffer(offsets, "<i8")[column.offset : column.offset + len(column) + 1]
    whole = np.frombuffer(content, np.uint8) if content is not None else np.empty(0, np.uint8)
    return whole[cuts[0] : cuts[-1]], cuts - cuts[0]


@functools.lru_cache(maxsize=4)
def _codec(
    vocabulary: Path, mixture: Path | None, separator: Separator | None, engine: Engine | None
) -> tuple[Encoder, Mixture | None]:
    encoder = Encoder(vocabulary, separator, engine)
    return encoder, Mixture.load(mixture, encoder.table) if mixture else None
