"""Parquet with the column `text` (strings or binary, UTF-8) and perhaps `cluster_id`; a region is a row range."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from casebits_dagster.records.plan import RegionSpec
from casebits_dagster.sources.columns import PROBLEMS, RangeHash, Reading, SourceRows
from casebits_dagster.sources.parquet import CLUSTER, Column, clusters, read_batches
from casebits_dagster.sources.ranges import BLOCK
from casebits_dagster.sources.utf8 import utf8_rows
from casebits_dagster.stores.base import Store


def _is_text(found: pa.DataType) -> bool:
    return found in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


_COLUMNS = (Column("text", "strings", _is_text), Column(CLUSTER, "integers", pa.types.is_integer, optional=True))


def read_rows(
    store: Store, region: RegionSpec, reading: Reading, digest: RangeHash, block: int = BLOCK
) -> Iterator[SourceRows]:
    """Yield the rows of the region in blocks. Raises RecordError on other columns or types, or on too few rows."""
    for first, batch in read_batches(store, region, _COLUMNS, digest, block):
        yield utf8_rows(_stored(batch, first, region.path))


def _stored(batch: pa.RecordBatch, first: int, where: str) -> SourceRows:
    count = batch.num_rows
    null = batch["text"].is_null().to_numpy(zero_copy_only=False)
    # Adding nothing to it makes an array that begins at the beginning of its buffers, with nothing under a null.
    whole = pa.concat_arrays([batch["text"].cast(pa.large_binary()).fill_null(b""), pa.array([], pa.large_binary())])
    _, offsets, content = whole.buffers()
    cuts = np.frombuffer(offsets, "<i8", count + 1)
    nothing = np.zeros(count, "<i8")
    return SourceRows(
        np.arange(first, first + count, dtype="<i8"),
        clusters(batch[CLUSTER], where) if CLUSTER in batch.schema.names else np.full(count, -1, "<i4"),
        nothing,
        null * np.uint8(PROBLEMS.index("null_row")),
        nothing - 1,
        np.frombuffer(content, np.uint8, int(cuts[-1])) if content else np.empty(0, np.uint8),
        cuts,
    )
