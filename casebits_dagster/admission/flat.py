"""Flat files of little-endian uint16 token ids, whose documents are parted by a separator.

A document belongs to the range that holds its first id. With the separator at the end, a document is closed by it; at
the start, opened by it; in both cases what the file's edge cuts off is a document too, if anything is there.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from casebits_dagster.admission.checks import Array, blocks
from casebits_dagster.admission.rows import Block, Digest, fetch, token_block
from casebits_dagster.admission.tables import source_tokens
from casebits_dagster.records.errors import RecordError
from casebits_dagster.records.pins import Source
from casebits_dagster.records.plan import RegionSpec
from casebits_dagster.stores.base import Store

# Ids of whole documents that are decoded at once.
PARSED = 1 << 16


def read_flat(store: Store, spec: RegionSpec, source: Source, digest: Digest) -> Iterator[Block]:
    """Yield the range's documents. An id that the vocabulary does not have is the one thing that can be wrong."""
    if store.size(spec.path) % 2:
        raise RecordError("SOURCE_INVALID", spec.path, expected="uint16", read="an odd number of bytes")
    table, opens = source_tokens(source.vocabulary()), source.pin.separator_at == "start"
    for at, ids, cuts in _documents(store, spec, digest, table[1], opens):
        for first, end in blocks(cuts, PARSED):
            part, rows = cuts[first : end + 1], end - first
            columns = np.full(rows, -1, "<i4"), np.zeros(rows, "u1"), np.full(rows, -1)
            some = ids[part[0] : part[-1]]
            yield token_block(table, at + 2 * part[:-1], *columns, some, part - part[0], inner=False)


def _documents(
    store: Store, spec: RegionSpec, digest: Digest, separator: int, opens: bool
) -> Iterator[tuple[int, Array, Array]]:
    """Yield (position of the first id, ids, "<i8" cuts between whole documents), piece by piece."""
    # A document begins at its separator, or behind that of the one before.
    behind = 0 if opens else 1
    at, entered, rest = max(spec.begin - 2 * behind, 0), spec.begin == 0, np.empty(0, "<u2")
    for piece in fetch(store, spec, digest, at):
        ids = np.concatenate([rest, np.frombuffer(piece, "<u2")])
        starts = np.flatnonzero(ids == separator) + behind
        cuts = np.concatenate([[0], starts[starts > 0]]) if entered else starts
        if len(cuts):
            entered = True
            yield at, ids, cuts[: np.searchsorted(at + 2 * cuts[:-1], spec.end) + 1]
        last = int(cuts[-1]) if entered else len(ids)
        at, rest = at + 2 * last, ids[last:]
        if at >= spec.end:
            return
    if len(rest):
        yield at, rest, np.array([0, len(rest)])
