"""The bench on which the last windows are closed, one after the other.

A window is closed by a subset of the pool that sums to its gap. When there is none, closed windows are opened again, so
that items change places; a cut is the last resort. Larger items go first, so that small ones are left for the end,
where the pool has few combinations. What cannot fill a window stays in the pool: less than two windows, and less than
one if a small cut can help it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from itertools import accumulate, chain

import numpy as np

from casebits_dagster.mixing.packing.exact import FEW, MANY, Pool, cheapest_cut, exact_subset
from casebits_dagster.mixing.packing.layout import Layout
from casebits_dagster.mixing.seeds import I64
from casebits_dagster.records.errors import CasebitsError

CLOSERS, REOPENED = 16, 48
"""A gap of more than CLOSERS is filled with seeded items first. REOPENED closed windows are tried when no subset of the
pool closes a gap."""


class Bench:
    """Items (numbers into `sizes`) in `closed` windows, which have T tokens and keep their first item, and in the pool.

    `at_start` marks the tails that start their window. One that no longer does grows by the separator (0 or 1) that is
    inserted before it. `kept` says how many tokens of a cut item are used.
    """

    def __init__(
        self,
        sizes: list[int],
        tail: list[bool],
        at_start: list[bool],
        closed: list[list[int]],
        kept: dict[int, int],
        layout: Layout,
    ) -> None:
        self.sizes, self.tail, self.at_start, self.closed, self.kept = sizes, tail, at_start, closed, kept
        self.length, self.separator = layout.sequence_length, layout.tail_separator
        placed = set(chain.from_iterable(closed))
        self.opened = [item for item, first in enumerate(at_start) if first and item not in placed]
        loose = [item for item, first in enumerate(at_start) if not first and item not in placed]
        self.pool = Pool([sizes[item] for item in loose], loose, f"{layout.seed}/pool")

    def close_windows(self, *, strict: bool) -> None:
        """Close the windows that tails start, small gaps first; other tails go to the pool. Raises MIX_TAILS."""
        for item in sorted(self.opened, key=lambda item: (-self.sizes[item], item)):
            gap = self.length - self.sizes[item]
            rest = self._whole(gap)
            rest = self._cut_or_put_back(item, strict) if rest is None else rest
            if rest is not None:
                self.closed.append([item, *rest])

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
        gap = self.length - self.sizes[item]
        rest = self._whole(gap)
        rest = self._cut(gap, most_lost) if rest is None else rest
        if rest is not None:
            return [item, *rest]
        self._put([item])
        return self._whole(self.length)

    def placed(self) -> tuple[I64, I64]:
        """Return item and window of everything that is in one."""
        item = np.array(list(chain.from_iterable(self.closed)), np.int64)
        window = np.repeat(np.arange(len(self.closed)), [len(members) for members in self.closed])
        return item, window

    def _put(self, items: list[int]) -> None:
        for item in items:
            self.pool.add(self.sizes[item], item)

    def _cut_or_put_back(self, item: int, strict: bool) -> list[int] | None:
        """Cut at once where no document is small enough for the gap; else the item waits in the pool."""
        gap, must_close = self.length - self.sizes[item], strict and self.at_start[item]
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

    def _whole(self, gap: int) -> list[int] | None:
        """Return whole items that fill the gap, or None."""
        rest = self._exact(gap)
        return self._exchange(gap) if rest is None else rest

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

        def fits(members: list[int]) -> bool:
            return min((self.sizes[item] for item in members[1:]), default=gap + 1) <= gap

        helpful = (number for number, members in enumerate(self.closed) if fits(members))
        for number in sorted(helpful, key=rank)[:REOPENED]:
            first, *free = self.closed[number]
            if not self.kept.keys().isdisjoint(free):
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
