"""Close a gap exactly: which of some documents' lengths sum to it, or which cut loses least.

Reachable sums are the bits of one integer, so a gap of T tokens over k candidates costs k shifts of T bits.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from casebits_dagster.mixing.seeds import seed64, splitmix64

FEW, MANY = 32, 256


class Cut(NamedTuple):
    """`whole` candidates are used whole, then `kept` tokens of candidate `cut`."""

    whole: list[int]
    cut: int
    kept: int


def exact_subset(sizes: Sequence[int], gap: int) -> list[int] | None:
    """Return positions whose sizes sum to `gap`, earlier ones preferred, or None.

    >>> exact_subset([5, 4, 3], 7)
    [1, 2]
    """
    reached = _sums(sizes, gap)
    return _walk_back(sizes, reached, gap) if reached[-1] >> gap & 1 else None


def cheapest_cut(sizes: Sequence[int], gap: int) -> Cut | None:
    """Return the fill of `gap` that cuts one candidate and loses the fewest tokens; None when all are too few.

    >>> cheapest_cut([5, 5, 5], 12)
    Cut(whole=[0, 1], cut=2, kept=2)
    """
    best: Cut | None = None
    for cut in sorted(range(len(sizes)), key=lambda k: (sizes[k], -k)):
        others = [*sizes[:cut], *sizes[cut + 1 :]]
        reached = _sums(others, gap - 1)
        low = max(0, gap - sizes[cut])
        above = reached[-1] >> low
        start = low + (above & -above).bit_length() - 1
        if above and (best is None or sizes[cut] - (gap - start) < sizes[best.cut] - best.kept):
            whole = [k + (k >= cut) for k in _walk_back(others, reached, start)]
            best = Cut(whole, cut, gap - start)
    return best


def _sums(sizes: Sequence[int], most: int) -> list[int]:
    """Return, for each number of first sizes, which sums up to `most` they reach: the bits of an integer."""
    mask = (1 << most + 1) - 1
    return list(accumulate(sizes, lambda sums, size: (sums | sums << size) & mask, initial=1))


def _walk_back(sizes: Sequence[int], reached: list[int], total: int) -> list[int]:
    chosen = []
    for k in range(len(reached) - 1, 0, -1):
        if not reached[k - 1] >> total & 1:
            chosen.append(k - 1)
            total -= sizes[k - 1]
    return chosen[::-1]


class Pool:
    """Items not placed yet, sorted by size, from which a seeded sample is drawn."""

    def __init__(self, sizes: Sequence[int], items: Sequence[int], seed: str) -> None:
        ranked = sorted(zip(sizes, items, strict=True))
        self.sizes, self.items = [size for size, _ in ranked], [item for _, item in ranked]
        self.total, self.draws, self.seed = sum(sizes), 0, np.uint64(seed64(seed))

    @property
    def smallest(self) -> int:
        """Return the smallest size, 0 when the pool is empty."""
        return self.sizes[0] if self.sizes else 0

    def add(self, size: int, item: int) -> None:
        place = bisect_left(self.sizes, size)
        self.sizes.insert(place, size)
        self.items.insert(place, item)
        self.total += size

    def take(self, places: Sequence[int]) -> list[int]:
        """Remove the items at these places and return them."""
        found = [self.items[place] for place in places]
        self.total -= sum(self.sizes[place] for place in places)
        for place in sorted(places, reverse=True):
            del self.sizes[place], self.items[place]
        return found

    def remove(self, entries: Sequence[tuple[int, int]]) -> None:
        """Remove items that are known to be there, by size and item."""
        for size, item in entries:
            self.take([self.items.index(item, bisect_left(self.sizes, size))])

    def sample(self, largest: int, count: int) -> list[int]:
        """Return up to `count` places of items no larger than `largest`, in seeded order."""
        fitting = bisect_right(self.sizes, largest)
        keys = splitmix64(np.arange(self.draws, self.draws + min(2 * count, fitting), dtype=np.uint64) ^ self.seed)
        self.draws += len(keys)
        if fitting <= 2 * count:
            return [int(place) for place in np.argsort(keys, kind="stable")[:count]]
        return list(dict.fromkeys(int(key) % fitting for key in keys))[:count]
