"""Best-fit decreasing, all items of one size at a time.

Guarantees: the same window fullness as placing one item after another, largest first, into the fullest window that
takes it. Costs O(items), and a few microseconds for each run: items of one size that go into windows of one capacity.
Windows of one capacity are ranges of numbers, so a run of one item costs as much as a run of a million.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.mixing.seeds import I64, largest_first


class Fit(NamedTuple):
    """`item` numbers, largest first, the `window` of each (-1: none took it), and what is `left` in all windows."""

    item: I64
    window: NDArray[np.int32]
    left: I64


def best_fit_decreasing(sizes: NDArray[Any], opened: NDArray[Any], capacity: int = 0) -> Fit:
    """Place items of these sizes (1 or more) into windows with `opened` tokens left, numbered first.

    Items that none of them takes open windows of `capacity`, which must hold any of them; with 0 they stay out. Items
    of one size are placed in their order.
    """
    item, groups = _by_size(sizes)
    number, rooms = _by_size(opened)
    windows = _Windows(rooms, capacity)
    first, each, items = np.array(_runs(windows, groups), np.int64).reshape(-1, 3).T
    used = -(-items // each)
    ends = np.cumsum(used)
    window = np.repeat((first - ends + used).astype(np.int32), used)
    window += np.arange(len(window), dtype=np.int32)
    left = windows.left()
    if len(opened):
        number = np.append(number, np.arange(len(opened), len(left)))
        window = np.append(number, -1).astype(np.int32)[window]
        left[number] = left.copy()
    held = np.repeat(each, used)
    held[ends - 1] = items - (used - 1) * each
    return Fit(item, np.repeat(window, held), left)


def _by_size(sizes: NDArray[Any]) -> tuple[I64, list[tuple[int, int]]]:
    """Return the items, largest first, and each size with how many items have it."""
    counts = np.bincount(sizes)
    there = np.flatnonzero(counts)[::-1]
    return largest_first(sizes), list(zip(there.tolist(), counts[there].tolist(), strict=True))


def _runs(windows: _Windows, groups: Iterable[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Return first window (-1: none), items in each and items of each run, in the order of the items."""
    runs = []
    for size, items in groups:
        while items:
            left, first, count = windows.take(size, items)
            each = left // size if count else items
            if items >= count * each > 0:
                taken = count * each
                windows.put(left - each * size, first, count)
            else:
                taken, (whole, part) = items, divmod(items, each)
                windows.put(left - each * size, first, whole)
                partly = int(part > 0)
                windows.put(left - part * size, first + whole, partly)
                windows.put(left, first + whole + partly, count - whole - partly)
            runs.append((first, each, taken))
            items -= taken
    return runs


class _Windows:
    """Ranges (first, count) of windows by what is left in them, and which such numbers there are: bits of `words`."""

    def __init__(self, rooms: list[tuple[int, int]], capacity: int) -> None:
        self.capacity, self.count = capacity, 0
        self.ranges: dict[int, list[tuple[int, int]]] = {}
        self.words, self.filled = [0] * (max([capacity, *(left for left, _ in rooms[:1])]) // 128 + 1), 0
        for left, count in rooms:
            self.put(left, self.count, count)
            self.count += count

    def take(self, size: int, items: int) -> tuple[int, int, int]:
        """Remove the range with the least left that may take an item of this size; open one if there is none."""
        word = size // 128
        found = self.words[word] >> size % 128 << size % 128 if word < len(self.words) else 0
        if not found:
            above = self.filled >> word + 1
            if not above:
                return self._open(size, items)
            word += (above & -above).bit_length()
            found = self.words[word]
        left = word * 128 + (found & -found).bit_length() - 1
        ranges = self.ranges[left]
        first, count = ranges.pop()
        if not ranges:
            self.words[word] ^= 1 << left % 128
            if not self.words[word]:
                self.filled ^= 1 << word
        return left, first, count

    def put(self, left: int, first: int, count: int) -> None:
        """Add a range, unless it has no windows or they are full."""
        if left > 0 < count:
            self.ranges.setdefault(left, []).append((first, count))
            self.words[left // 128] |= 1 << left % 128
            self.filled |= 1 << left // 128

    def _open(self, size: int, items: int) -> tuple[int, int, int]:
        if not self.capacity:
            return 0, -1, 0
        count = -(-items // (self.capacity // size))
        self.count += count
        return self.capacity, self.count - count, count

    def left(self) -> I64:
        """Return what is left in each window."""
        left = np.zeros(self.count, np.int64)
        for room, ranges in self.ranges.items():
            for first, count in ranges:
                left[first : first + count] = room
        return left
