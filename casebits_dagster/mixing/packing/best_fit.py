"""Best-fit decreasing, all items of one size at a time.

Guarantees: the same window fullness as placing one item after another, largest first, into the fullest window that
takes it. Costs O(items + sizes * distinct capacities): the non-empty capacities are the bits of one integer.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from casebits_dagster.mixing.seeds import I64


def best_fit_decreasing(sizes: I64, capacity: int, opened: Iterable[int] = (), gap: int = 1) -> tuple[I64, int]:
    """Return the window of each item and the number of windows.

    `opened` are the capacities of windows that exist already, numbered first; new ones have `capacity`. Every size must
    be in 1..capacity. A window is filled exactly or keeps `gap` or more (a new one takes its first item whatever is
    left). Items of one size are placed in their order.
    """
    bins = _Windows(capacity, opened)
    window = np.empty(len(sizes), np.int64)
    order = np.argsort(-sizes, kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(sizes[order])) + 1) if len(order) else []:
        size, placed = int(sizes[group[0]]), 0
        while placed < len(group):
            numbers = bins.place(size, len(group) - placed, gap)
            window[group[placed : placed + len(numbers)]] = numbers
            placed += len(numbers)
    return window, bins.count


class _Windows:
    """Open windows by what is left in them."""

    def __init__(self, capacity: int, opened: Iterable[int]) -> None:
        self.capacity, self.count, self.filled = capacity, 0, 0
        self.by_left: dict[int, list[int]] = {}
        for left in opened:
            self._add(left, [self.count])
            self.count += 1

    def place(self, size: int, items: int, gap: int) -> I64:
        """Return windows for some of `items` items of one size: those with the least room that may take one."""
        left, numbers = self._take(size, gap)
        each = (left - gap) // size
        each = max(1, each + (left - each * size == size))
        if not numbers:
            numbers = list(range(self.count, self.count - (-items // each)))
            self.count += len(numbers)
        used = numbers[: -(-items // each)]
        whole = min(len(used), items // each)
        self._add(left, numbers[len(used) :])
        self._add(left - each * size, used[:whole])
        self._add(left - (items - whole * each) * size, used[whole:])
        return np.repeat(np.array(used, np.int64), each)[:items]

    def _take(self, size: int, gap: int) -> tuple[int, list[int]]:
        roomy = self.filled >> (size + gap)
        if self.filled >> size & 1:
            left = size
        elif roomy:
            left = size + gap + (roomy & -roomy).bit_length() - 1
        else:
            return self.capacity, []
        self.filled ^= 1 << left
        return left, self.by_left.pop(left)

    def _add(self, left: int, numbers: list[int]) -> None:
        if numbers:
            self.by_left.setdefault(left, []).extend(numbers)
            self.filled |= 1 << left
