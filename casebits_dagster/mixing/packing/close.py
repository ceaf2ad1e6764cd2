"""The bench on which shared windows are filled and closed exactly.

A window is closed by a subset of the pool that sums to its gap. When there is none, its smallest items go back to the
pool, one by one, and larger gaps are tried; then closed windows are opened again, so that items change places; a cut
is the last resort. Larger items go first, so that small ones are left for the end, where the pool has few combinations.
What cannot fill a window stays in the pool: less than two windows, and less than one if a small cut can help it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from itertools import accumulate, chain
from typing import TypeAlias

import numpy as np

from casebits_dagster.mixing.packing.exact import FEW, MANY, Pool, cheapest_cut, exact_subset
from casebits_dagster.mixing.seeds import I64, shuffled
from casebits_dagster.records.errors import CasebitsError

Flags: TypeAlias = np.ndarray[tuple[int], np.dtype[np.bool]]
OPEN, CLOSERS, REOPENED = 3, 16, 48
"""Poured windows keep room for OPEN average items; a gap of more than CLOSERS is filled with seeded items first.
REOPENED closed windows are tried when no subset of the pool closes a gap."""


class Bench:
    """Windows being filled with items (numbers into `sizes`). `at_start` marks the tails that start their window.

    A tail that no longer does grows by the `separator` (0 or 1) that is inserted before it.
    `windows` are open, `closed` those that have T tokens; the first item of a window stays in it.
    """

    def __init__(self, sizes: I64, tail: Flags, length: int, seed: str, separator: int) -> None:
        self.sizes: list[int] = sizes.tolist()
        self.tail, self.length, self.seed, self.separator = tail, length, seed, separator
        self.at_start = np.zeros(len(sizes), bool)
        self.windows: list[list[int]] = []
        self.closed: list[list[int]] = []
        self.kept: dict[int, int] = {}
        self.pool = Pool([], [], "")

    def open(self, pinned: I64, large: I64, window: I64, count: int, windows: int) -> None:
        """Open a window for each pinned tail and place the large items; at most `windows` stay open, fullest first."""
        self.at_start[pinned] = True
        opened = [[item] for item in pinned.tolist()] + [[] for _ in range(count - len(pinned))]
        for item, number in zip(large.tolist(), window.tolist(), strict=True):
            opened[number].append(item)
        fullest = sorted(range(len(pinned), count), key=lambda number: self._left(opened[number]))
        excess = set(fullest[max(0, windows - len(pinned)) :])
        self.windows = [members for number, members in enumerate(opened) if number not in excess]

    def pour(self, small: I64, windows: int) -> None:
        """Lay the items on a line over most of each window's gap; those that lie across a window's end are left out.

        Empty windows are opened first, until there are `windows`. What stays open is 7 % of the gap and room for a few
        items, so that it can be closed exactly.
        """
        self.windows += [[] for _ in range(windows - len(self.windows))]
        order = shuffled(len(self.windows), f"{self.seed}/pour")
        sizes = np.array(self.sizes, np.int64)[small]
        gaps = np.array([self._left(members) for members in self.windows], np.int64)[order]
        few = OPEN * int(sizes.sum()) // max(1, len(sizes))
        ends = np.cumsum(np.maximum(0, np.minimum(gaps - gaps * 7 // 100, gaps - few)))
        item_ends = np.cumsum(sizes)
        at = np.searchsorted(ends, item_ends - sizes, side="right")
        inside = (at < len(ends)) & (item_ends <= np.append(ends, 0)[at])
        for item, number in zip(small[inside].tolist(), order[at[inside]].tolist(), strict=True):
            self.windows[number].append(item)

    def close_windows(self, *, strict: bool) -> None:
        """Close the open windows with the items that stand in none of them, pinned tails first, small gaps first; take
        apart those that cannot be closed."""
        placed = set(chain.from_iterable(self.windows))
        loose = [item for item in range(len(self.sizes)) if item not in placed]
        self.pool = Pool([self.sizes[item] for item in loose], loose, f"{self.seed}/pool")
        opened = [members for members in self.windows if members]
        for members in sorted(opened, key=lambda members: (not self.at_start[members[0]], self._left(members))):
            if self._close(members, strict):
                self.closed.append(members)

    def fill_new_windows(self) -> None:
        """Make further windows of the pool, tails and then the largest first, while it holds a window's tokens."""
        while self.pool.total >= self.length and (found := self._new_window()) is not None:
            self.closed.append(found)

    def _new_window(self) -> list[int] | None:
        """Return a closed window; None when short documents are left for less than two, and only a large cut helps."""
        pool = self.pool
        tails = (place for place in reversed(range(len(pool.items))) if self.tail[pool.items[place]])
        [item] = pool.take([next(tails, len(pool.items) - 1)])
        must_cut = self.tail[item] or pool.total + self.sizes[item] >= 2 * self.length
        most_lost = self.length if must_cut else self.length // 16
        gap = self._left([item])
        rest = self._exact(gap) or self._exchange(gap) or self._cut(gap, most_lost)
        if rest:
            return [item, *rest]
        self._put([item])
        return self._exact(self.length) or self._exchange(self.length)

    def placed(self) -> tuple[I64, I64, I64]:
        """Return item, window and tokens used of everything that stands in a window."""
        item = np.array(list(chain.from_iterable(self.closed)), np.int64)
        window = np.repeat(np.arange(len(self.closed)), [len(members) for members in self.closed])
        used = np.array([self.kept.get(number, self.sizes[number]) for number in item.tolist()], np.int64)
        return item, window, used

    def _left(self, members: list[int]) -> int:
        return self.length - sum(self.sizes[item] for item in members)

    def _put(self, items: list[int]) -> None:
        for item in items:
            self.pool.add(self.sizes[item], item)

    def _close(self, members: list[int], strict: bool) -> bool:
        first = int(self.at_start[members[0]])
        members[first:] = sorted(members[first:], key=lambda item: (-self.sizes[item], item))
        rest = self._exact(self._left(members))
        while rest is None and len(members) > 1:
            self._put([members.pop()])
            rest = self._exact(self._left(members))
        if rest is None:
            rest = self._exchange(self._left(members)) or self._cut_or_put_back(members[0], strict)
        members += rest or []
        return rest is not None

    def _cut_or_put_back(self, item: int, strict: bool) -> list[int] | None:
        """Cut at once where no document is small enough for the gap; else the item waits in the pool."""
        gap, must_close = self._left([item]), strict and bool(self.at_start[item])
        if must_close or gap < self.pool.smallest:
            rest = self._cut(gap, self.length)
            if rest is not None:
                return rest
        if must_close:
            problem = f"no short document is left for a gap of {gap:,} tokens"
            raise CasebitsError("MIX_TAILS", "tails = strict", problem, remedy="float tails, or add short documents")
        if self.at_start[item]:
            self.at_start[item] = False
            self.sizes[item] += self.separator
        self._put([item])
        return None

    def _exact(self, gap: int) -> list[int] | None:
        """Return items taken from the pool that sum to the gap, or None."""
        if gap in (0, self.pool.total):
            return self.pool.take(range(len(self.pool.items) if gap else 0))
        return self._filled(gap, self._subset)

    def _cut(self, gap: int, most: int) -> list[int] | None:
        """Return items that fill the gap with the last of them cut, or None when that would lose more than `most`."""
        return self._filled(gap, lambda rest: self._cut_subset(rest, most))

    def _filled(self, gap: int, close: Callable[[int], list[int] | None]) -> list[int] | None:
        """Take seeded items from the pool until about CLOSERS of them are missing, which `close` finds."""
        mean = max(1, self.pool.total // max(1, len(self.pool.items)))
        room, items = gap - CLOSERS * mean, list[int]()
        if room > mean:
            places = self.pool.sample(room, room // mean)
            ends = np.cumsum([self.pool.sizes[place] for place in places])
            items = self.pool.take(places[: int(np.searchsorted(ends, room, side="right"))])
        rest = close(gap - sum(self.sizes[item] for item in items))
        if rest is None:
            self._put(items)
            return None
        return items + rest

    def _subset(self, gap: int) -> list[int] | None:
        for count in (FEW, MANY):
            places = sorted(self.pool.sample(gap, count), reverse=True)
            chosen = exact_subset([self.pool.sizes[place] for place in places], gap)
            if chosen is not None:
                return self.pool.take([places[k] for k in chosen])
        return None

    def _cut_subset(self, gap: int, most: int) -> list[int] | None:
        places = _cut_candidates(self.pool, gap)
        cut = cheapest_cut([self.pool.sizes[place] for place in places], gap)
        if cut is None or self.pool.sizes[places[cut.cut]] - cut.kept > most:
            return None
        taken = self.pool.take([places[k] for k in [*cut.whole, cut.cut]])
        if cut.kept < self.sizes[taken[-1]]:
            self.kept[taken[-1]] = cut.kept
        return taken

    def _exchange(self, gap: int) -> list[int] | None:
        """Return items that fill the gap, some out of a closed window that the pool closes again, or None."""

        def rank(number: int) -> tuple[bool, int, int]:
            free = self.closed[number][1:]
            return gap not in {self.sizes[item] for item in free}, -len(free), number

        for number in sorted(range(len(self.closed)), key=rank)[:REOPENED]:
            first, *free = self.closed[number]
            if not free or free[-1] in self.kept:
                continue
            self._put(free)
            rest = self._exact(gap)
            again = self._exact(sum(self.sizes[item] for item in free)) if rest is not None else None
            if again is not None:
                self.closed[number] = [first, *again]
                return rest
            self._put(rest or [])
            self.pool.remove([(self.sizes[item], item) for item in free])
        return None


def _cut_candidates(pool: Pool, gap: int) -> list[int]:
    """Return places of the smallest items, and as many of the largest as are needed to reach the gap."""
    few = min(CLOSERS, len(pool.sizes))
    places = [*range(few), *reversed(range(few, len(pool.sizes)))]
    totals = list(accumulate(pool.sizes[place] for place in places))
    return places[: max(few, bisect_left(totals, gap) + 1)]
