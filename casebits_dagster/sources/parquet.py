"""Row groups of a Parquet file that hold a range of rows: their bytes are fetched once, hashed, and parsed from memory.

Memory: one row group as it is stored, and a batch of its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from casebits_dagster.records.errors import RecordError
from casebits_dagster.records.plan import RegionSpec
from casebits_dagster.sources.columns import RangeHash, damaged
from casebits_dagster.stores.base import RangedFile, Store

CLUSTER = "cluster_id"
_MOST_ROWS = 1024


@dataclass(frozen=True, slots=True)
class Column:
    """A column that is read: what it must be, in words, and whether an Arrow type is that."""

    name: str
    expected: str
    fits: Callable[[pa.DataType], bool]
    optional: bool = False

    def is_in(self, schema: pa.Schema, where: str) -> bool:
        """Return whether a file has the column, or raise RecordError when it does not have it as it must."""
        if schema.names.count(self.name) > 1:
            raise RecordError("SOURCE_FORMAT", f"{where}: {self.name}", "the file has this column twice")
        found = schema.field(self.name).type if self.name in schema.names else None
        if (found is None and not self.optional) or (found is not None and not self.fits(found)):
            read = found or "no such column"
            raise RecordError("SOURCE_FORMAT", f"{where}: {self.name}", expected=self.expected, read=read)
        return found is not None


def read_batches(
    store: Store, region: RegionSpec, columns: Sequence[Column], digest: RangeHash, block: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield (first row, batch of about `block` bytes with those columns that are there).

    Raises RecordError when the file has fewer rows, lacks a needed column, or has one of another type.
    """
    window = _Window(store, region.path)
    file = _open(window, region.path)
    names = [column.name for column in columns if column.is_in(file.schema_arrow, region.path)]
    if file.metadata.num_rows < region.end:
        raise RecordError(
            "SOURCE_FORMAT", region.path, expected=f"{region.end} rows or more", read=file.metadata.num_rows
        )
    spans = {group: _span(file.metadata.row_group(group)) for group, _ in _groups(file.metadata, region)}
    at = min((begin for begin, _ in spans.values()), default=0)
    for group, first in _groups(file.metadata, region):
        end = max(at, spans[group][1])
        digest.update(window.fetch(at, end))
        at = end
        held = file.metadata.row_group(group)
        # What is stored says little of what it becomes: a dictionary holds equal values once.
        rows = min(_MOST_ROWS, max(1, held.num_rows * block // max(held.total_byte_size, 1)))
        for batch in _batches(file, rows, group, names, region.path):
            begin, end = (min(max(bound - first, 0), batch.num_rows) for bound in (region.begin, region.end))
            if begin < end:
                yield first + begin, batch.slice(begin, end - begin)
            first += batch.num_rows
            if first >= region.end:
                break


def _batches(file: pq.ParquetFile, rows: int, group: int, names: list[str], path: str) -> Iterator[pa.RecordBatch]:
    try:
        yield from file.iter_batches(rows, row_groups=[group], columns=names, use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise damaged(error, path, "a Parquet file") from error


class _Window(RangedFile):
    """A file of a store, of which one range is in memory."""

    _begin, _held = 0, b""

    def fetch(self, begin: int, end: int) -> bytes:
        self._begin, self._held = begin, self._store.read_range(self._path, begin, end)
        return self._held

    def read(self, size: int | None = -1) -> bytes:
        wanted = self._size - self._position if size is None or size < 0 else size
        begin = self._position - self._begin
        if begin >= 0 and begin + wanted <= len(self._held):
            self._position += wanted
            return self._held[begin : begin + wanted]
        return super().read(wanted)


def _open(file: RangedFile, path: str) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(file)
    except (pa.ArrowException, OSError) as error:
        raise damaged(error, path, "a Parquet file") from error


def _groups(metadata: pq.FileMetaData, region: RegionSpec) -> Iterator[tuple[int, int]]:
    """Yield (row group, first row) of the groups that overlap the region."""
    first = 0
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group).num_rows
        if first < region.end and first + rows > region.begin:
            yield group, first
        first += rows


def _span(group: pq.RowGroupMetaData) -> tuple[int, int]:
    """Return the bytes [begin, end) that a row group's columns lie in."""
    chunks = [group.column(number) for number in range(group.num_columns)]
    begins = [chunk.dictionary_page_offset or chunk.data_page_offset for chunk in chunks]
    return min(begins), max(at + chunk.total_compressed_size for at, chunk in zip(begins, chunks, strict=True))


def clusters(column: pa.Array, where: str) -> NDArray[np.int32]:
    """Return a column of clusters, "<i4", -1 for null."""
    try:
        found: NDArray[np.int32] = column.cast(pa.int32()).fill_null(-1).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid as error:
        read = pc.max(column).as_py()
        raise RecordError("SOURCE_FORMAT", f"{where}: {CLUSTER}", expected="32-bit integers", read=read) from error
    return found


def integers(column: pa.Array, default: int) -> NDArray[np.int64]:
    """Return integers of any type, "<i8", with `default` for nulls; what is beyond 63 bits is some negative number."""
    found: NDArray[np.int64] = column.cast(pa.int64(), safe=False).fill_null(default).to_numpy(zero_copy_only=False)
    return found
