"""The verifier's own reading of a source range: hash the bytes, parse the rows, detokenise, judge their form, hash the
texts.

Guarantees: shares with the producer nothing but the ranged read. Works one Parquet batch at a time; costs about 30 ns
a token, most of it the decode and the hash. Quarantine reasons, first that applies: see `REASONS`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from casebits_dagster.admission.checks import Array, Proof
from casebits_dagster.admission.scores import measure
from casebits_dagster.admission.tables import GPT2_SEPARATOR, ByteTable, gpt2_table
from casebits_dagster.records.errors import RecordError
from casebits_dagster.records.layout import RECEIPT
from casebits_dagster.records.pins import Generation, RegionSpec, gpt2_file
from casebits_dagster.records.region import Receipt
from casebits_dagster.stores.base import RangedFile, Store
from casebits_dagster.stores.local import LocalStore

REASONS = ("", "null_row", "count_mismatch", "id_out_of_range", "inner_separator", "truncated_utf8", "not_utf8")
NULL_ROW, COUNT_MISMATCH, ID_OUT_OF_RANGE, INNER_SEPARATOR, TRUNCATED_UTF8, NOT_UTF8 = range(1, 7)
_COLUMNS = ["tokens", "token_count", "cluster_id"]
_BATCH_ROWS = 256
_CHUNK = 1 << 24


@dataclass(frozen=True, slots=True)
class SourceRows:
    """The rows of a range: `lengths` "<i8" as stored, `clusters` "<i4" (-1: null), `reasons` "u1" (index in REASONS),
    `problem_at` "<i8" (-1: none), `digests` "u1" (rows, 32): the text's SHA-256, zeros when quarantined; `scores` by
    row, where they were asked for."""

    lengths: Array
    clusters: Array
    reasons: Array
    problem_at: Array
    digests: Array
    scores: dict[int, dict[str, int]]

    @property
    def quarantined(self) -> Array:
        return np.asarray(self.reasons != 0)

    def digest(self) -> str:
        """Return the SHA-256 over all columns, one after the other."""
        columns = (self.lengths, self.clusters, self.reasons, self.problem_at, self.digests)
        return hashlib.sha256(b"".join(column.tobytes() for column in columns)).hexdigest()


@dataclass(frozen=True, slots=True)
class SourceRange:
    """One region's rows of one file of the pinned source."""

    store: Store
    spec: RegionSpec

    @classmethod
    def of(cls, generation: Generation, index: int) -> SourceRange:
        return cls(LocalStore(generation.source_folder), generation.plan[index])

    def check_bytes(self, receipt: Receipt, proof: Proof) -> str:
        """Return the SHA-256 of the bytes that the range covers, after comparing it with the receipt's."""
        size = self.store.size(self.spec.path)
        proof.require_equal("L4_SOURCE_RANGE", f"{RECEIPT}: source.file_bytes", size, receipt.source.file_bytes)
        try:
            metadata = pq.ParquetFile(RangedFile(self.store, self.spec.path)).metadata
        except pa.ArrowException as error:
            raise proof.rejected("L4_SOURCE_RANGE", f"{RECEIPT}: source.path", str(error)) from error
        if self.spec.end > metadata.num_rows:
            problem = f"the file has {metadata.num_rows} rows"
            raise proof.rejected("L4_SOURCE_RANGE", f"{RECEIPT}: source.end", problem, position=self.spec.end)
        read = range_sha256(self.store, self.spec, metadata)
        proof.require_equal("L4_SOURCE_RANGE", f"{RECEIPT}: source.range_sha256", read, receipt.source.range_sha256)
        proof.passed("L4_SOURCE_RANGE", 1)
        return read

    def rows(self, scored: set[int], metrics: tuple[str, ...]) -> SourceRows:
        """Return all rows, with the scores of those in `scored` (numbers counted from the start of the range)."""
        blocks: list[SourceRows] = []
        first, table = 0, gpt2_table(gpt2_file("encoder.json"))
        for batch in read_batches(self.store, self.spec):
            block = _parse(batch, table)
            wanted = [row for row in range(batch.num_rows) if first + row in scored]
            blocks.append(_judge(block, wanted, metrics, first))
            first += batch.num_rows
        return _joined(blocks)

    def text(self, row: int) -> bytes:
        """Return the text of one row (read again: only a refusal asks for it)."""
        for batch in read_batches(self.store, self.spec):
            if row < batch.num_rows:
                block = _parse(batch.slice(row, 1), gpt2_table(gpt2_file("encoder.json")))
                return bytes(block.text)
            row -= batch.num_rows
        raise IndexError(row)


def range_sha256(store: Store, spec: RegionSpec, metadata: Any) -> str:
    """Return the SHA-256 of the file's bytes from the first to the last column chunk of the row groups that hold the
    range."""
    begin, end = [], []
    for _, group in _groups(metadata, spec):
        chunks = [metadata.row_group(group).column(number) for number in range(metadata.num_columns)]
        starts = [_chunk_start(chunk) for chunk in chunks]
        begin.append(min(starts))
        end.append(max(start + chunk.total_compressed_size for start, chunk in zip(starts, chunks, strict=True)))
    digest = hashlib.sha256()
    for at in range(min(begin), max(end), _CHUNK):
        digest.update(store.read_range(spec.path, at, min(at + _CHUNK, max(end))))
    return digest.hexdigest()


def _chunk_start(chunk: Any) -> int:
    first = chunk.dictionary_page_offset
    return int(chunk.data_page_offset if first is None else first)


def _groups(metadata: Any, spec: RegionSpec) -> Iterator[tuple[int, int]]:
    """Yield (first row, number) of the row groups that overlap the range."""
    first = 0
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group).num_rows
        if first < spec.end and first + rows > spec.begin:
            yield first, group
        first += rows


def read_batches(store: Store, spec: RegionSpec) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the range in order, a few at a time. Raises RecordError on other columns or types."""
    file = pq.ParquetFile(RangedFile(store, spec.path))
    types = {field.name: field.type for field in file.schema_arrow}
    for name in _COLUMNS:
        found = types.get(name, pa.null())
        listed = pa.types.is_list(found) or pa.types.is_large_list(found)
        if listed != (name == "tokens") or not pa.types.is_integer(found.value_type if listed else found):
            expected = "a list of integers" if name == "tokens" else "integers"
            raise RecordError("SOURCE_INVALID", f"{spec.path}: {name}", expected=expected, read=found)
    for first, group in _groups(file.metadata, spec):
        for batch in file.iter_batches(_BATCH_ROWS, row_groups=[group], columns=_COLUMNS, use_threads=False):
            begin, end = max(first, spec.begin), min(first + batch.num_rows, spec.end)
            if begin < end:
                yield batch.slice(begin - first, end - begin)
            first += batch.num_rows
            if first >= spec.end:
                break


@dataclass(frozen=True, slots=True)
class _Block:
    """Rows as parsed: `cuts` are where each row starts in `text` (separators have no bytes)."""

    lengths: Array
    clusters: Array
    reasons: Array
    problem_at: Array
    text: Array
    cuts: Array


def _parse(batch: pa.RecordBatch, table: ByteTable) -> _Block:
    tokens, counts, clusters = (batch.column(name) for name in _COLUMNS)
    lengths = _integers(pc.list_value_length(tokens), 0, "<i8")
    ids = tokens.flatten()
    ids = _integers(ids, -1, "<i8") if ids.null_count else ids.to_numpy()
    cuts = np.concatenate([np.zeros(1, "<i8"), np.cumsum(lengths)])
    reasons, problem_at = np.zeros(len(lengths), "u1"), np.full(len(lengths), -1, "<i8")

    def mark(reason: int, rows: Array, places: Array) -> None:
        rows, firsts = np.unique(rows, return_index=True)
        new = reasons[rows] == 0
        reasons[rows[new]], problem_at[rows[new]] = reason, places[firsts[new]]

    null = np.flatnonzero(_flags(pc.or_(pc.is_null(tokens), pc.is_null(counts))))
    mark(NULL_ROW, null, np.full(len(null), -1))
    odd = np.flatnonzero(_integers(counts, -1, "<i8") != lengths)
    mark(COUNT_MISMATCH, odd, lengths[odd])
    foreign = (ids < 0) | (ids > GPT2_SEPARATOR)
    places = np.flatnonzero(foreign)
    rows = _rows_of(places, cuts)
    mark(ID_OUT_OF_RANGE, rows, places - cuts[rows])
    places = np.flatnonzero(ids == GPT2_SEPARATOR)
    places = places[places + 1 != cuts[_rows_of(places, cuts) + 1]]
    rows = _rows_of(places, cuts)
    mark(INNER_SEPARATOR, rows, places - cuts[rows])
    text, starts = table.decode(np.where(foreign, GPT2_SEPARATOR, ids) if foreign.any() else ids)
    return _Block(lengths, _integers(clusters, -1, "<i4"), reasons, problem_at, text, starts[cuts])


def _rows_of(places: Array, cuts: Array) -> Array:
    """Return the row that holds each token place."""
    return np.searchsorted(cuts, places, side="right") - 1


def _integers(column: Any, null: int, dtype: str) -> Array:
    filled = pc.fill_null(pc.cast(column, pa.int64()), null)
    if dtype == "<i4":
        filled = pc.cast(filled, pa.int32())
    return np.asarray(filled.to_numpy(zero_copy_only=False))


def _flags(column: Any) -> Array:
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _judge(block: _Block, wanted: list[int], metrics: tuple[str, ...], first: int) -> SourceRows:
    digests: list[bytes] = []
    reasons, problem_at = block.reasons.copy(), block.problem_at.copy()
    view, edges = block.text.data, block.cuts.tolist()
    for row, quarantined in enumerate((block.reasons != 0).tolist()):
        text = view[edges[row] : edges[row + 1]]
        if not quarantined:
            try:
                str(text, "utf-8")
            except UnicodeDecodeError as error:
                cut = error.reason == "unexpected end of data"
                reasons[row], problem_at[row] = (TRUNCATED_UTF8 if cut else NOT_UTF8), error.start
        digests.append(bytes(32) if reasons[row] else hashlib.sha256(text).digest())
    scores = {
        first + row: measure(view[edges[row] : edges[row + 1]].tobytes(), metrics) for row in wanted if not reasons[row]
    }
    stacked = np.frombuffer(b"".join(digests), "u1").reshape(-1, 32)
    return SourceRows(block.lengths, block.clusters, reasons, problem_at, stacked, scores)


def _joined(blocks: list[SourceRows]) -> SourceRows:
    return SourceRows(
        np.concatenate([block.lengths for block in blocks]),
        np.concatenate([block.clusters for block in blocks]),
        np.concatenate([block.reasons for block in blocks]),
        np.concatenate([block.problem_at for block in blocks]),
        np.concatenate([block.digests for block in blocks]),
        {row: scores for block in blocks for row, scores in block.scores.items()},
    )
