"""Parquet with the columns `tokens` (a list of any integer type), `token_count`, `cluster_id`; a region is a row range.

Reads only the row groups that hold the range, one at a time, through the store's ranged reads.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from casebits_dagster.records.errors import RecordError
from casebits_dagster.records.plan import RegionSpec
from casebits_dagster.sources.columns import RangeHash, Reading, SourceRows
from casebits_dagster.sources.detokenise import detokenise
from casebits_dagster.stores.base import RangedFile, Store

COLUMNS = ("tokens", "token_count", "cluster_id")


def read_rows(store: Store, region: RegionSpec, reading: Reading, digest: RangeHash) -> Iterator[SourceRows]:
    """Yield the rows of the region, one block a row group. Raises RecordError on other columns or types."""
    file, where = _open(store, region.path), region.path
    _require_columns(file.schema_arrow, where)
    digest.update(_covered(store, file.metadata, region))
    for group, first, rows in _groups(file.metadata, region):
        table = file.read_row_group(group, columns=list(COLUMNS), use_threads=False)
        begin, end = max(region.begin, first) - first, min(region.end, first + rows) - first
        yield _block(table.slice(begin, end - begin), first + begin, where)


def _covered(store: Store, metadata: pq.FileMetaData, region: RegionSpec) -> bytes:
    """Return the file bytes of the row groups that hold the region."""
    begins, ends = [], []
    for group, _, _ in _groups(metadata, region):
        for number in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(number)
            begin = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
            begins.append(begin)
            ends.append(begin + chunk.total_compressed_size)
    return store.read_range(region.path, min(begins), max(ends))


def _open(store: Store, path: str) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(RangedFile(store, path))
    except pa.ArrowException as error:
        raise RecordError("SOURCE_FORMAT", path, f"not a Parquet file: {error}") from error


def _groups(metadata: pq.FileMetaData, region: RegionSpec) -> Iterator[tuple[int, int, int]]:
    """Yield (row group, first row, rows) of the groups that overlap the region."""
    first = 0
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group).num_rows
        if first < region.end and first + rows > region.begin:
            yield group, first, rows
        first += rows


def _require_columns(schema: pa.Schema, where: str) -> None:
    for name in COLUMNS:
        found = schema.field(name).type if name in schema.names else None
        inner = found.value_type if found is not None and name == "tokens" and pa.types.is_list(found) else found
        if inner is None or not pa.types.is_integer(inner):
            expected = "a list of integers" if name == "tokens" else "integers"
            raise RecordError("SOURCE_FORMAT", f"{where}: {name}", expected=expected, read=found or "no such column")


def _block(table: pa.Table, first: int, where: str) -> SourceRows:
    tokens, counts = table["tokens"].combine_chunks(), table["token_count"].combine_chunks()
    cuts = np.zeros(len(tokens) + 1, "<i8")
    np.cumsum(_integers(pc.list_value_length(tokens), 0), out=cuts[1:])
    clusters = _integers(table["cluster_id"].combine_chunks(), -1)
    if len(clusters) and not -(2**31) <= clusters.min() <= clusters.max() < 2**31:
        raise RecordError("SOURCE_FORMAT", f"{where}: cluster_id", expected="32-bit integers", read=clusters.max())
    return detokenise(
        np.arange(first, first + len(tokens), dtype="<i8"),
        clusters.astype("<i4"),
        pc.or_(tokens.is_null(), counts.is_null()).to_numpy(zero_copy_only=False),
        _integers(counts, 0),
        _integers(tokens.flatten(), -1),
        cuts,
    )


def _integers(column: pa.Array, default: int) -> NDArray[np.int64]:
    found: NDArray[np.int64] = column.cast(pa.int64()).fill_null(default).to_numpy(zero_copy_only=False)
    return found
