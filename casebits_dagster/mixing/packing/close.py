"""The bench on which shared windows are filled and closed exactly.

A window is closed by a subset of the pool that sums to its gap. When there is none, its smallest items go back to the
pool, one by one, and larger gaps are tried; then closed windows are opened again, so that items change places; a cut
is the last resort. Larger items go first, so that small ones are left for the end, where the pool has few combinations.
What cannot fill a window stays in the pool: less than two windows, and less than one if a small cut can help it.
"""

from __future__ import annotations

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
    `members` and `left` are open windows, `closed` those that have T tokens; the first item of a window stays in it.
    """

    def __init__(self, sizes: I64, tail: Flags, length: int, seed: str, separator: int) -> None:
        self.sizes, self.tail, self.length, self.seed = sizes.tolist(), tail, length, seed
        self.separator = separator
        self.at_start = np.zeros(len(sizes), bool)
        self.members: list[list[int]] = []
        self.left: list[int] = []
        self.closed: list[list[int]] = []
        self.kept: dict[int, int] = {}
        self.loose: list[int] = []
        self.pool = Pool([], [], "")

    def open(self, pinned: I64, large: I64, window: I64, count: int, windows: int) -> None:
        """Open a window for each pinned tail and place the large items; at most `windows` stay open, fullest first."""
        self.at_start[pinned] = True
        self.members = [[item] for item in pinned.tolist()] + [[] for _ in range(count - len(pinned))]
        for item, number in zip(large.tolist(), window.tolist(), strict=True):
            self.members[number].append(item)
        self.left = [self.length - sum(self.sizes[item] for item in members) for members in self.members]
        free = sorted(range(len(pinned), count), key=lambda number: (self.left[number], number))
        excess = free[max(0, windows - len(pinned)) :]
        for number in sorted(excess, reverse=True):
            self.loose += self.members.pop(number)
            del self.left[number]

    def add_windows(self, windows: int) -> None:
        """Open empty windows until there are so many."""
        missing = max(0, windows - len(self.members))
        self.members += [[] for _ in range(missing)]
        self.left += [self.length] * missing

    def pour(self, small: I64) -> I64:
        """Lay the items on a line over most of each window's gap; return those that lie across a window's end.

        What stays open is 7 % of the gap and room for a few items, so that it can be closed exactly.
        """
        order = shuffled(len(self.members), f"{self.seed}/pour")
        sizes = np.array(self.sizes, np.int64)[small]
        gaps = np.array(self.left, np.int64)[order]
        few = OPEN * int(sizes.sum()) // max(1, len(sizes))
        ends = np.cumsum(np.maximum(0, np.minimum(gaps - gaps * 7 // 100, gaps - few)))
        item_ends = np.cumsum(sizes)
        starts = item_ends - sizes
        at = np.searchsorted(ends, starts, side="right")
        inside = (at < len(ends)) & (item_ends <= np.append(ends, 0)[at])
        for item, number in zip(small[inside].tolist(), order[at[inside]].tolist(), strict=True):
            self.members[number].append(item)
            self.left[number] -= self.sizes[item]
        return np.asarray(small[~inside])

    def pool_items(self, items: I64) -> None:
        """Put items that are not placed, and those of windows that were not opened, into the pool."""
        every = [*self.loose, *items.tolist()]
        self.pool = Pool([self.sizes[item] for item in every], every, f"{self.seed}/pool")

    def close_windows(self, *, strict: bool) -> None:
        """Close the open windows, pinned tails first, small gaps first; take apart those that cannot be closed."""
        for number in sorted(range(len(self.members)), key=lambda n: (not self._pinned(n), self.left[n], n)):
            if self._close(number, strict):
                self.closed.append(self.members[number])

    def fill_new_windows(self) -> None:
        """Make further windows of the pool, tails and then the largest first, while it holds a window's tokens."""
        while self.pool.total >= self.length:
            found = self._new_window()
            if found is None:
                break
            self.closed.append(found)

    def _new_window(self) -> list[int] | None:
        """Return a closed window; None when short documents are left for less than two, and only a large cut helps."""
        pool = self.pool
        place = next((k for k in reversed(range(len(pool.items))) if self.tail[pool.items[k]]), len(pool.items) - 1)
        size = pool.sizes[place]
        [item] = pool.take([place])
        rest = self._exact_or_exchange(self.length - size)
        if rest is not None:
            return [item, *rest]
        must_cut = self.tail[item] or pool.total + size >= 2 * self.length
        rest = self._cut(self.length - size, self.length if must_cut else self.length // 16)
        if rest is not None:
            return [item, *rest]
        pool.add(size, item)
        return self._exact_or_exchange(self.length)

    def placed(self) -> tuple[I64, I64, I64]:
        """Return item, window and tokens used of everything that stands in a window."""
        item = np.array([item for members in self.closed for item in members], np.int64)
        window = np.repeat(np.arange(len(self.closed)), [len(members) for members in self.closed])
        used = np.array([self.kept.get(number, self.sizes[number]) for number in item.tolist()], np.int64)
        return item, window, used

    def _pinned(self, number: int) -> bool:
        members = self.members[number]
        return bool(members) and bool(self.at_start[members[0]])

    def _close(self, number: int, strict: bool) -> bool:
        members, left = self.members[number], self.left[number]
        first = int(self._pinned(number))
        members[first:] = sorted(members[first:], key=lambda item: (-self.sizes[item], item))
        while members:
            rest = self._exact(left)
            if rest is not None:
                members += rest
                return True
            if len(members) == 1:
                break
            item = members.pop()
            left += self.sizes[item]
            self.pool.add(self.sizes[item], item)
        if not members:
            return False
        rest = self._exchange(left)
        members += rest or []
        return rest is not None or self._close_by_cut(number, left, strict)

    def _close_by_cut(self, number: int, left: int, strict: bool) -> bool:
        """Cut at once where no document is small enough for the gap; else the item waits in the pool."""
        [item] = self.members[number]
        if (strict and self.at_start[item]) or left < self.pool.smallest:
            rest = self._cut(left, self.length)
            if rest is not None:
                self.members[number] += rest
                return True
        if strict and self.at_start[item]:
            problem = f"no short document is left for a gap of {left:,} tokens"
            raise CasebitsError("MIX_TAILS", "tails = strict", problem, remedy="float tails, or add short documents")
        if self.at_start[item]:
            self.at_start[item] = False
            self.sizes[item] += self.separator
        self.pool.add(self.sizes[item], item)
        return False

    def _exact_or_exchange(self, gap: int) -> list[int] | None:
        found = self._exact(gap)
        return self._exchange(gap) if found is None else found

    def _exact(self, gap: int) -> list[int] | None:
        if gap == 0:
            return []
        if gap == self.pool.total:
            return self.pool.take(range(len(self.pool.items)))
        filled = self._fill(gap)
        gap -= sum(self.sizes[item] for item in filled)
        for count in (FEW, MANY):
            places = sorted(self.pool.sample(gap, count), reverse=True)
            chosen = exact_subset([self.pool.sizes[place] for place in places], gap)
            if chosen is not None:
                return filled + self.pool.take([places[k] for k in chosen])
        self._put(filled)
        return None

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

    def _put(self, items: list[int]) -> None:
        for item in items:
            self.pool.add(self.sizes[item], item)

    def _fill(self, gap: int) -> list[int]:
        """Take seeded items from the pool until about CLOSERS of them are missing."""
        mean = max(1, self.pool.total // max(1, len(self.pool.items)))
        room = gap - CLOSERS * mean
        if room <= mean:
            return []
        places = self.pool.sample(room, room // mean)
        ends = np.cumsum([self.pool.sizes[place] for place in places])
        return self.pool.take(places[: int(np.searchsorted(ends, room, side="right"))])

    def _cut(self, gap: int, most: int) -> list[int] | None:
        """Return items that fill the gap with the last of them cut, or None when that would lose more than `most`."""
        filled = self._fill(gap)
        gap -= sum(self.sizes[item] for item in filled)
        places = _cut_candidates(self.pool, gap)
        cut = cheapest_cut([self.pool.sizes[place] for place in places], gap)
        if cut is None or self.pool.sizes[places[cut.cut]] - cut.kept > most:
            self._put(filled)
            return None
        taken = self.pool.take([places[k] for k in [*cut.whole, cut.cut]])
        if cut.kept < self.sizes[taken[-1]]:
            self.kept[taken[-1]] = cut.kept
        return filled + taken


def _cut_candidates(pool: Pool, gap: int) -> list[int]:
    """Return places of the smallest items, and as many of the largest as are needed to reach the gap."""
    places = list(range(min(CLOSERS, len(pool.sizes))))
    total = sum(pool.sizes[place] for place in places)
    for place in reversed(range(len(places), len(pool.sizes))):
        if total >= gap:
            break
        places.append(place)
        total += pool.sizes[place]
    return places
