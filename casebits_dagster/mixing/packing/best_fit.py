"""Best-fit decreasing, all items of one size at a time.

Guarantees: the same window fullness as placing one item after another, largest first, into the fullest window that
takes it. Costs O(items + sizes * distinct capacities): the non-empty capacities are the bits of one integer.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from casebits_dagster.mixing.seeds import I64


def best_fit_decreasing(sizes: I64, capacity: int, opened: Iterable[int] = ()) -> tuple[I64, int]:
    """Return the window of each item and the number of windows.

    `opened` are the capacities of windows that exist already, numbered first; new ones have `capacity`. Every size must
    be in 1..capacity. Items of one size are placed in their order.
    """
    windows = _Windows(capacity)
    for left in opened:
        windows.open(left, 1)
    window = np.empty(len(sizes), np.int64)
    order = np.argsort(-sizes, kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(sizes[order])) + 1) if len(order) else []:
        placed = 0
        while placed < len(group):
            numbers = windows.place(int(sizes[group[0]]), len(group) - placed)
            window[group[placed : placed + len(numbers)]] = numbers
            placed += len(numbers)
    return window, windows.count


class _Windows:
    """Open windows by what is left in them; `filled` has a bit for each such number."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.count, self.filled = capacity, 0, 0
        self.by_left: dict[int, list[int]] = {}

    def open(self, left: int, windows: int) -> None:
        self._add(left, list(range(self.count, self.count + windows)))
        self.count += windows

    def place(self, size: int, items: int) -> I64:
        """Return windows for some of `items` items of one size: those with the least room that may take one."""
        if not self.filled >> size:
            self.open(self.capacity, -(-items // (self.capacity // size)))
        roomy = self.filled >> size
        left = size + (roomy & -roomy).bit_length() - 1
        self.filled ^= 1 << left
        numbers, each = self.by_left.pop(left), left // size
        used = numbers[: -(-items // each)]
        whole = min(len(used), items // each)
        self._add(left, numbers[len(used) :])
        self._add(left - each * size, used[:whole])
        self._add(left - (items - whole * each) * size, used[whole:])
        return np.repeat(np.array(used, np.int64), each)[:items]

    def _add(self, left: int, numbers: list[int]) -> None:
        if numbers:
            self.by_left.setdefault(left, []).extend(numbers)
            self.filled |= 1 << left
