"""Which records of a file belong to a byte range: lines, or documents between the separators of a flat array.

A record belongs to the range that holds its first byte. So any splitting of a file into ranges yields every record
exactly once, whatever the block size. Cost: one comparison an item; memory: one block, and one record.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.codec.bytetable import Cuts
from casebits_dagster.records.plan import RegionSpec
from casebits_dagster.sources.columns import RangeHash
from casebits_dagster.stores.base import Store

BLOCK = 1 << 24
LINE_LIMIT = 1 << 26
MOST_RECORDS = 1 << 16
_PAST_THE_END = 1 << 18
_CHUNK = 1 << 17
_CARRIAGE_RETURN = 0x0D


@dataclass(frozen=True, slots=True)
class Delimiter:
    """What parts records: an item of dtype `kind` that ends each record, or (`leads`) begins it."""

    kind: str
    item: int
    leads: bool = False

    @property
    def width(self) -> int:
        return np.dtype(self.kind).itemsize


LINE_FEED = Delimiter("u1", 0x0A)


@dataclass(frozen=True, slots=True)
class Records:
    """Consecutive records, none of them empty: record i is `items[cuts[i]:cuts[i+1]]`, its delimiter included, and
    begins at byte `positions[i]` of the file."""

    items: NDArray[Any]
    cuts: Cuts
    positions: NDArray[np.int64]


def owned_records(
    store: Store, region: RegionSpec, delimiter: Delimiter, digest: RangeHash, block: int = BLOCK, limit: int = 0
) -> Iterator[Records]:
    """Yield the records whose first byte lies in the region (of bytes). The hash sees the bytes [begin, end) alone."""
    blocks = _blocks(store, region, digest, max(block // delimiter.width, 1) * delimiter.width, delimiter.width)
    return split(blocks, delimiter, region.begin, region.end, limit)


def _blocks(store: Store, region: RegionSpec, digest: RangeHash, block: int, width: int) -> Iterator[tuple[int, bytes]]:
    # One item ahead, because a record begins where another one ends.
    at = max(0, region.begin - width) // width * width
    past = (region.end + _PAST_THE_END) // width * width
    while content := store.read_range(region.path, at, at + block if at + block <= past or at >= past else past):
        if at < region.end:
            digest.update(memoryview(content)[max(region.begin - at, 0) : region.end - at])
        yield at, content
        at += len(content)


def split(
    blocks: Iterator[tuple[int, bytes]], delimiter: Delimiter, begin: int, end: int, limit: int = 0
) -> Iterator[Records]:
    """Yield the records that begin in bytes [begin, end), given consecutive blocks of the file as (place, content).

    A record of several blocks stands alone. With a `limit` above 0 it is cut short when it has more than limit + 2
    items: too many, then, whatever of them ends it.
    """
    width, room = delimiter.width, limit + 2 if limit else None
    # The record that has begun and not ended: its first byte, -1 while there is none, and its items so far.
    first, held = (0 if begin == 0 else -1), np.empty(0, delimiter.kind)
    for at, content in blocks:
        items = np.frombuffer(content, delimiter.kind)
        starts = _found(items, delimiter.item) + (not delimiter.leads)
        starts = starts[at + starts * width >= max(begin, first + 1)]
        if len(starts):
            if len(held):
                yield _single(np.concatenate([held, items[: starts[0]]])[:room], first)
            elif first >= 0:
                starts = np.insert(starts, 0, 0)
            places = at + starts * width
            inside = int(np.searchsorted(places, end))
            # What is made for each record adds up where records are tiny, so only so many go together.
            for row in range(0, min(inside, len(starts) - 1), MOST_RECORDS):
                cuts = starts[row : min(row + MOST_RECORDS, inside) + 1]
                yield Records(items, cuts, places[row : row + len(cuts) - 1])
            if inside < len(places):
                return
            first, held = int(places[-1]), items[starts[-1] :][:room].copy()
        elif first >= 0:
            held = np.concatenate([held, items])[:room]
        if at + len(content) >= end and (first < 0 or len(held) == room):
            break
    if len(held):
        yield _single(held, first)


def _found(items: NDArray[Any], wanted: int) -> Cuts:
    """Return the places of an item, a cache-sized chunk at a time."""
    chunks = [np.flatnonzero(items[at : at + _CHUNK] == wanted) + at for at in range(0, len(items), _CHUNK)]
    return np.concatenate(chunks)


def _single(items: NDArray[Any], first: int) -> Records:
    return Records(items, np.array([0, len(items)]), np.array([first]))


def line_ends(lines: Records) -> Cuts:
    """Return where each line ends in `items`, without its line feed and one carriage return before that."""
    ends = lines.cuts[1:] - (lines.items[lines.cuts[1:] - 1] == LINE_FEED.item)
    ended = (ends < lines.cuts[1:]) & (ends > lines.cuts[:-1])
    stripped: Cuts = ends - (ended & (lines.items[ends - 1] == _CARRIAGE_RETURN))
    return stripped
