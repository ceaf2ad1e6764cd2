"""A flat array of little-endian 16-bit ids, with a separator at the start or at the end of each document.

A region is a byte range; a row is a document, at the place of its first id. No clusters, and no counts to compare.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from casebits_dagster.records.errors import RecordError
from casebits_dagster.records.plan import RegionSpec
from casebits_dagster.sources.columns import RangeHash, Reading, SourceRows
from casebits_dagster.sources.detokenise import TokenRows, detokenise
from casebits_dagster.sources.ranges import BLOCK, Delimiter, owned_records
from casebits_dagster.stores.base import Store


def read_rows(
    store: Store, region: RegionSpec, reading: Reading, digest: RangeHash, block: int = BLOCK
) -> Iterator[SourceRows]:
    """Yield the documents of the region in blocks. Raises RecordError when the file ends inside an id."""
    if (size := store.size(region.path)) % 2:
        raise RecordError("SOURCE_FORMAT", region.path, expected="an even number of bytes", read=size)
    leads = reading.separator_at == "start"
    for found in owned_records(store, region, Delimiter("<u2", reading.vocabulary.separator, leads), digest, block):
        count = len(found.positions)
        problems, clusters = np.zeros(count, np.uint8), np.full(count, -1, "<i4")
        # A block may begin before its first document and end behind its last.
        tokens, cuts = found.items[found.cuts[0] : found.cuts[-1]], found.cuts - found.cuts[0]
        yield detokenise(TokenRows(found.positions, clusters, problems, None, tokens, cuts), reading.vocabulary, leads)
