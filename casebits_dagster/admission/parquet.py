"""Parquet files of tokens or of texts, whose regions are row ranges.

Row groups that hold the range are fetched and hashed one after the other and read from memory, so nothing is fetched
twice. The range's bytes are those from the first to the last column chunk of these groups, whatever is between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from casebits_dagster.admission.checks import Array, integers
from casebits_dagster.admission.rows import (
    COUNT_MISMATCH,
    NULL_ROW,
    SOUND,
    Block,
    Digest,
    cuts_of,
    text_block,
    token_block,
)
from casebits_dagster.admission.tables import source_tokens
from casebits_dagster.records.errors import RecordError
from casebits_dagster.records.pins import Source
from casebits_dagster.records.plan import RegionSpec
from casebits_dagster.stores.base import RangedFile, Store

_BATCH_ROWS = 128


def _is_list(kind: pa.DataType) -> bool:
    return any(test(kind) for test in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list))


def _is_text(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(test(kind) for test in tests)


_INTEGERS = ("integers", pa.types.is_integer)
_TOKENS = {
    "tokens": ("a list of integers", lambda kind: _is_list(kind) and pa.types.is_integer(kind.value_type)),
    "token_count": _INTEGERS,
    "cluster_id": _INTEGERS,
}
_TEXT = {"text": ("text", _is_text), "cluster_id": _INTEGERS}


def read_tokens(store: Store, spec: RegionSpec, source: Source, digest: Digest) -> Iterator[Block]:
    """Yield rows of the columns `tokens` (lists of integers), `token_count` and `cluster_id`."""
    table = source_tokens(source.vocabulary())
    for first, batch in read_batches(store, spec, _TOKENS, digest):
        tokens, counts = batch.column("tokens"), integers(batch.column("token_count"), -1)
        null = pc.or_(tokens.is_null(), batch.column("token_count").is_null()).to_numpy(zero_copy_only=False)
        lengths = integers(pc.list_value_length(tokens), 0)
        # Null lists of a fixed size would keep their values when flattened as they are.
        ids = pc.list_flatten(tokens)
        ids = integers(ids, -1) if ids.null_count else ids.to_numpy()
        miscounted = ~null & (counts != lengths)
        reasons = np.select([null, miscounted], [NULL_ROW, COUNT_MISMATCH], SOUND).astype("u1")
        problem_at = np.where(miscounted, lengths, -1)
        positions = np.arange(first, first + len(null))
        yield token_block(table, positions, _clusters(batch), reasons, problem_at, ids, cuts_of(lengths))


def read_text(store: Store, spec: RegionSpec, source: Source, digest: Digest) -> Iterator[Block]:
    """Yield rows of the columns `text` (strings or bytes) and, where there is one, `cluster_id`."""
    for first, batch in read_batches(store, spec, _TEXT, digest):
        texts = batch.column("text").cast(pa.large_binary())
        null = texts.is_null().to_numpy(zero_copy_only=False)
        texts = texts.fill_null(b"")
        _, cuts, text = texts.buffers()
        cuts = np.frombuffer(cuts, "<i8")[texts.offset : texts.offset + len(null) + 1]
        columns = np.frombuffer(text or b"", "u1")[cuts[0] : cuts[-1]], cuts - cuts[0]
        reasons = np.where(null, NULL_ROW, SOUND).astype("u1")
        positions, problem_at = np.arange(first, first + len(null)), np.full(len(null), -1)
        yield text_block(positions, _clusters(batch), reasons, problem_at, *columns)


def _clusters(batch: pa.RecordBatch) -> Array:
    if "cluster_id" not in batch.schema.names:
        return np.full(batch.num_rows, -1, "<i4")
    found: Array = batch.column("cluster_id").cast(pa.int32()).fill_null(-1).to_numpy(zero_copy_only=False)
    return found


class _Window(RangedFile):
    """A ranged file that holds one window of its bytes, so that reads inside it are no second fetch."""

    def __init__(self, store: Store, path: str) -> None:
        super().__init__(store, path)
        self._begin, self._window = 0, b""

    def hold(self, begin: int, end: int, digest: Digest) -> None:
        """Fetch the window, and hash it."""
        self._begin, self._window = begin, self._store.read_range(self._path, begin, end)
        digest.update(self._window)

    def read(self, size: int | None = -1) -> bytes:
        at = self.tell() - self._begin
        if size is None or size < 0 or at < 0 or at + size > len(self._window):
            return super().read(size)
        self.seek(size, 1)
        return self._window[at : at + size]


def read_batches(
    store: Store, spec: RegionSpec, columns: dict[str, Any], digest: Digest
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield (number of the first row, rows) of the range, a few at a time. Raises RecordError on other columns."""
    window = _Window(store, spec.path)
    file = pq.ParquetFile(window)
    names = _require_columns(spec.path, file.schema_arrow, columns)
    groups = list(_groups(file.metadata, spec))
    if spec.end > file.metadata.num_rows:
        raise RecordError("SOURCE_INVALID", spec.path, expected=f"{spec.end} rows", read=file.metadata.num_rows)
    hashed = min(_extent(file.metadata, group)[0] for _, group in groups)
    for first, group in groups:
        end = max(hashed, _extent(file.metadata, group)[1])
        window.hold(hashed, end, digest)
        hashed = end
        for batch in file.iter_batches(_BATCH_ROWS, row_groups=[group], columns=names, use_threads=False):
            begin, end = max(first, spec.begin), min(first + batch.num_rows, spec.end)
            if begin < end:
                yield begin, batch.slice(begin - first, end - begin)
            first += batch.num_rows


def _require_columns(path: str, schema: pa.Schema, columns: dict[str, Any]) -> list[str]:
    """Return which of the columns the file has, refusing other types; tokens and text need all but the cluster."""
    types = {field.name: field.type for field in schema}
    optional = {"cluster_id"} - types.keys() if "text" in columns else set()
    for name, (expected, fits) in columns.items():
        if schema.names.count(name) > 1:
            raise RecordError("SOURCE_INVALID", f"{path}: {name}", "the file has this column twice")
        if name not in optional and not fits(types.get(name, pa.null())):
            read = types.get(name, "no such column")
            raise RecordError("SOURCE_INVALID", f"{path}: {name}", expected=expected, read=read)
    return [name for name in columns if name not in optional]


def _groups(metadata: Any, spec: RegionSpec) -> Iterator[tuple[int, int]]:
    """Yield (first row, number) of the row groups that overlap the range."""
    first = 0
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group).num_rows
        if first < spec.end and first + rows > spec.begin:
            yield first, group
        first += rows


def _extent(metadata: Any, group: int) -> tuple[int, int]:
    """Return where the column chunks of a row group begin and end in the file."""
    chunks = [metadata.row_group(group).column(number) for number in range(metadata.num_columns)]
    starts = [chunk.dictionary_page_offset or chunk.data_page_offset for chunk in chunks]
    return min(starts), max(start + chunk.total_compressed_size for start, chunk in zip(starts, chunks, strict=True))
