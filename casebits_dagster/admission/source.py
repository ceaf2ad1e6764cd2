"""The verifier's own reading of a source range: hash the bytes, parse the rows, detokenise, judge their form, hash the
texts.

Guarantees: shares with the producer nothing but the ranged read. Works one Parquet batch at a time; costs about 30 ns
a token, most of it the decode and the hash. Quarantine reasons, first that applies: see `REASONS`.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from casebits_dagster.admission.checks import Array, Proof, owner, whole_ids
from casebits_dagster.admission.scores import measure
from casebits_dagster.admission.tables import GPT2_SEPARATOR, decode, gpt2_table
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.errors import RecordError
from casebits_dagster.records.layout import RECEIPT
from casebits_dagster.records.plan import RegionSpec
from casebits_dagster.records.region import Receipt
from casebits_dagster.stores.base import RangedFile, Store

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

    scores: dict[int, dict[str, int]]
    lengths: Array
    clusters: Array
    reasons: Array
    problem_at: Array
    digests: Array

    @property
    def quarantined(self) -> Array:
        return np.asarray(self.reasons != 0)

    @property
    def ids(self) -> Array:
        return whole_ids(self.digests[:, :16])

    @property
    def quarantine(self) -> Array:
        """The verdict that each row must have if it is quarantined."""
        return np.array([f"quarantined:{reason}" for reason in REASONS])[self.reasons]

    def digest(self) -> str:
        """Return the SHA-256 over all columns, one after the other."""
        columns = (self.lengths, self.clusters, self.reasons, self.problem_at, self.digests)
        return sha256(*(column.tobytes() for column in columns))


@dataclass(frozen=True, slots=True)
class SourceRange:
    """One region's rows of one file of the pinned source."""

    store: Store
    spec: RegionSpec

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
        blocks: list[tuple[Array, ...]] = []
        scores: dict[int, dict[str, int]] = {}
        row = 0
        for batch in read_batches(self.store, self.spec):
            lengths, clusters, reasons, problem_at, texts = _parse(batch)
            hashed = []
            for at, text in enumerate(texts):
                if not reasons[at]:
                    reasons[at], problem_at[at] = _judge(text)
                sound = not reasons[at]
                hashed.append(hashlib.sha256(text).digest() if sound else bytes(32))
                if sound and row in scored:
                    scores[row] = measure(text.tobytes(), metrics)
                row += 1
            digests = np.frombuffer(b"".join(hashed), "u1").reshape(-1, 32)
            blocks.append((lengths, clusters, reasons, problem_at, digests))
        return SourceRows(scores, *map(np.concatenate, zip(*blocks, strict=True)))

    def text(self, row: int) -> bytes:
        """Return the text of one row (read again: only a refusal asks for it)."""
        for batch in read_batches(self.store, self.spec):
            if row < batch.num_rows:
                *_, texts = _parse(batch)
                return texts[row].tobytes()
            row -= batch.num_rows
        raise IndexError(row)


def range_sha256(store: Store, spec: RegionSpec, metadata: Any) -> str:
    """Return the SHA-256 of the file's bytes from the first to the last column chunk of the row groups that hold the
    range."""
    groups = [metadata.row_group(group) for _, group in _groups(metadata, spec)]
    chunks = [group.column(number) for group in groups for number in range(metadata.num_columns)]
    starts = [_chunk_start(chunk) for chunk in chunks]
    end = max(start + chunk.total_compressed_size for start, chunk in zip(starts, chunks, strict=True))
    digest = hashlib.sha256()
    for at in range(min(starts), end, _CHUNK):
        digest.update(store.read_range(spec.path, at, min(at + _CHUNK, end)))
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


def _parse(batch: pa.RecordBatch) -> tuple[Array, Array, Array, Array, list[memoryview]]:
    """Return the rows' lengths, clusters, reasons and places of problems, before texts are judged, and their texts."""
    tokens, counts, clusters = (batch.column(name) for name in _COLUMNS)
    lengths = integers(pc.list_value_length(tokens), 0)
    ids = tokens.flatten()
    ids = integers(ids, -1) if ids.null_count else ids.to_numpy()
    cuts = np.concatenate([np.zeros(1, "<i8"), np.cumsum(lengths)])
    foreign = (ids < 0) | (ids > GPT2_SEPARATOR)
    separators = np.flatnonzero(ids == GPT2_SEPARATOR)
    inner = separators[separators + 1 != cuts[owner(cuts, separators) + 1]]
    foreign_at, inner_at = _first_places(np.flatnonzero(foreign), cuts), _first_places(inner, cuts)
    null = pc.or_(pc.is_null(tokens), pc.is_null(counts)).to_numpy(zero_copy_only=False)
    problems = [null, integers(counts, -1) != lengths, foreign_at >= 0, inner_at >= 0]
    reasons = np.select(problems, [NULL_ROW, COUNT_MISMATCH, ID_OUT_OF_RANGE, INNER_SEPARATOR], 0).astype("u1")
    problem_at = np.select(problems, [np.full(len(null), -1), lengths, foreign_at, inner_at], -1)
    text, starts = decode(gpt2_table(), np.where(foreign, GPT2_SEPARATOR, ids) if foreign.any() else ids)
    texts = [text.data[begin:end] for begin, end in itertools.pairwise(starts[cuts].tolist())]
    return lengths, integers(clusters, -1, pa.int32()), reasons, problem_at, texts


def _first_places(tokens: Array, cuts: Array) -> Array:
    """Return where in its row the first of these tokens stands; -1 for a row without one."""
    rows, firsts = np.unique(owner(cuts, tokens), return_index=True)
    places = np.full(len(cuts) - 1, -1)
    places[rows] = tokens[firsts] - cuts[rows]
    return places


def integers(column: Any, null: int, kind: Any = None) -> Array:
    """Return an Arrow column of integers as "<i8", or as the Arrow type `kind`, with `null` for nulls."""
    filled = pc.cast(pc.fill_null(pc.cast(column, pa.int64()), null), kind or pa.int64())
    return np.asarray(filled.to_numpy(zero_copy_only=False))


def _judge(text: memoryview) -> tuple[int, int]:
    try:
        str(text, "utf-8")
    except UnicodeDecodeError as error:
        return TRUNCATED_UTF8 if error.reason == "unexpected end of data" else NOT_UTF8, error.start
    return 0, -1
