"""Parquet with the columns `tokens` (lists of integers), `token_count`, `cluster_id`; a region is a row range."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from casebits_dagster.records.plan import RegionSpec
from casebits_dagster.sources.columns import PROBLEMS, RangeHash, Reading, SourceRows
from casebits_dagster.sources.detokenise import TokenRows, detokenise
from casebits_dagster.sources.parquet import CLUSTER, Column, clusters, integers, read_batches
from casebits_dagster.sources.ranges import BLOCK
from casebits_dagster.stores.base import Store


def _is_list_of_integers(found: pa.DataType) -> bool:
    kinds = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(kind(found) for kind in kinds) and bool(pa.types.is_integer(found.value_type))


_COLUMNS = (
    Column("tokens", "a list of integers", _is_list_of_integers),
    Column("token_count", "integers", pa.types.is_integer),
    Column(CLUSTER, "integers", pa.types.is_integer),
)


def read_rows(
    store: Store, region: RegionSpec, reading: Reading, digest: RangeHash, block: int = BLOCK
) -> Iterator[SourceRows]:
    """Yield the rows of the region in blocks. Raises RecordError on other columns or types, or on too few rows."""
    for first, batch in read_batches(store, region, _COLUMNS, digest, block):
        yield detokenise(_stored(batch, first, region.path), reading.vocabulary)


def _stored(batch: pa.RecordBatch, first: int, where: str) -> TokenRows:
    tokens, counts, cluster = (batch[column.name] for column in _COLUMNS)
    cuts = np.zeros(len(tokens) + 1, "<i8")
    np.cumsum(integers(pc.list_value_length(tokens), 0), out=cuts[1:])
    null = pc.or_(tokens.is_null(), counts.is_null()).to_numpy(zero_copy_only=False)
    return TokenRows(
        np.arange(first, first + len(tokens), dtype="<i8"),
        clusters(cluster, where),
        null * np.uint8(PROBLEMS.index("null_row")),
        integers(counts, 0),
        integers(tokens.flatten(), -1),
        cuts,
    )
