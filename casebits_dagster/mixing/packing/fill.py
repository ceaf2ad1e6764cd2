"""Fill windows exactly, all at once: best-fit decreasing in rounds, each over what the last one left open.

A round packs its items into the windows that they fill but for a reserve of small ones, keeps the windows that came out
with T tokens, and gives the others' items to the next round. With `spread` the large items go first, into windows that
keep seeded room for the small ones; these are poured over that room in a seeded order, and the rest fits best. (Best
fit alone puts items of like size together, and so documents of one domain.) Windows that are open then are closed by
one or two of the items left over, found by size: `have[a]` and `have[gap - a]`.

Guarantees: an item is in one window or in none, a pinned one in a window of its own; every window has T tokens; items
are cut only beside one that nothing left over fits beside, and only where such windows are many. The rounds end when
few windows are left, or when they no longer help. Costs O(items) and some 60 bytes an item.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.mixing.packing.best_fit import best_fit_decreasing
from casebits_dagster.mixing.packing.layout import Layout
from casebits_dagster.mixing.seeds import I64, counter_keys, seeded_values, shuffled

I32: TypeAlias = NDArray[np.int32]
Flags: TypeAlias = NDArray[np.bool]
SMALL, RESERVED = 1_024, 512
OPEN, TAKEN_OUT, ENOUGH = 3, 3, 16
"""Poured windows keep room for OPEN average items; up to TAKEN_OUT items leave a window that nothing else closes, for
which ENOUGH others are looked at."""
FEW, HELPFUL = 64, 8
"""Rounds end at FEW windows, or when less than one in HELPFUL was closed; so many lonely items are not cut."""


@dataclass(frozen=True, slots=True)
class Items:
    """What is packed into shared windows: short documents and tails. `pairs` are document and size, (n, 2); `size`
    counts the separator before a tail, if any, but for `pinned` tails: those start a window of their own."""

    pairs: I32
    tail: Flags
    pinned: Flags

    @property
    def document(self) -> I32:
        return self.pairs[:, 0]

    @property
    def size(self) -> I32:
        return self.pairs[:, 1]

    def first(self, count: int) -> Items:
        """Return the first ones: views, that share the memory."""
        return Items(self.pairs[:count], self.tail[:count], self.pinned[:count])

    def unpin(self, items: NDArray[np.integer], separator: int) -> None:
        """Let those of these tails that start a window stand anywhere."""
        items = items[self.pinned[items]]
        self.pinned[items] = False
        self.size[items] += separator


class Filled(NamedTuple):
    """The window of each item (-1: none), the number of windows, and the tokens kept of each item that is cut."""

    window: I32
    windows: int
    kept: dict[int, int]


def reserve_tokens(total: int, length: int) -> int:
    """Return how many tokens of small documents are kept back to close the last windows."""
    return min(max(total // 50, 2 * length), total // 10)


def fill_windows(items: Items, layout: Layout, few: int = FEW) -> Filled:
    """Return full windows, all but about `few`. Unpins the tails that could not start one, unless all must."""
    length = layout.sequence_length
    window, kept, windows = np.full(len(items.size), -1, np.int32), dict[int, int](), 0
    free: slice | I64 = slice(None)
    closed, wanted = 1, 0
    while closed * HELPFUL >= wanted:
        sizes = items.size[free]
        total, halves = int(sizes.sum(dtype=np.int64)), int(np.count_nonzero(sizes > length // 2))
        wanted = max((total - reserve_tokens(total, length)) // length, min(halves, total // length))
        if wanted <= few:
            break
        spread, seed = layout.spread or windows > 0, f"{layout.seed}/{len(sizes)}"
        found = _round(sizes, items.pinned[free], wanted, windows, length, seed, spread)
        closed, window[free] = found.windows, found.window
        numbers = np.arange(len(window))[free] if found.kept else np.empty(0, np.int64)
        kept |= {int(numbers[item]): tokens for item, tokens in found.kept.items()}
        windows += closed
        free = np.flatnonzero(window < 0)
        if layout.tails == "auto":
            items.unpin(free, layout.tail_separator)
    return Filled(window, windows, kept)


def _round(sizes: I32, pinned: Flags, wanted: int, before: int, length: int, seed: str, spread: bool) -> Filled:
    """Return about so many `wanted` windows, numbered after those `before`."""
    starts = np.flatnonzero(pinned)
    window = np.full(len(sizes), -1, np.int32)
    window[starts] = np.arange(len(starts))
    left = np.full(max(wanted, len(starts)), length)
    left[: len(starts)] -= sizes[starts]
    if spread:
        _spread(sizes, window, left, length, seed)
    free = np.flatnonzero(window < 0)
    fit = best_fit_decreasing(sizes[free], left)
    window[free[fit.item]], left = fit.window, fit.left
    free = free[fit.item[fit.window < 0]]
    inside = np.flatnonzero(np.append(left > 0, False)[window])
    _close_open(sizes, free, inside[~pinned[inside] & (sizes[inside] <= length // 2)], window, left)
    kept = _cut(sizes, free[window[free] < 0][::-1], inside, window, left, length)
    full = left == 0
    number = np.where(full, before + np.cumsum(full) - 1, -1).astype(np.int32)
    return Filled(np.append(number, np.int32(-1))[window], int(full.sum()), kept)


def _spread(sizes: I32, window: I32, left: I64, length: int, seed: str) -> None:
    """Place the large items beside room for the small ones, and pour these over it, but for a seeded reserve.

    Does nothing where so little is small that room for it would mostly stay open.
    """
    total = int(sizes.sum(dtype=np.int64))
    kind = (sizes > min(SMALL, max(1, length // 4))).astype(np.uint8)
    kind[window >= 0] = 2
    smalls, larges, _ = np.bincount(kind, minlength=3)
    item, size = seeded_values(kind, sizes, f"{seed}/items")
    small, large, line = item[:smalls], item[smalls : smalls + larges], size[:smalls].copy()
    closers = np.flatnonzero(line <= RESERVED)
    closers = closers[: int(np.searchsorted(np.cumsum(line[closers]), reserve_tokens(total, length)))]
    line[closers] = 0
    tokens = int(line.sum(dtype=np.int64))
    room = length * tokens // total
    if room * (smalls - len(closers)) <= OPEN * tokens:
        return
    kept_open = (counter_keys(len(left), f"{seed}/room") % np.uint64(2 * room + 1)).astype(np.int64)
    capacity = np.maximum(left - kept_open, 0)
    left -= capacity - _place(size[smalls : smalls + larges], large, capacity, window)
    into = _pour(line, OPEN * tokens // (smalls - len(closers)), left, f"{seed}/pour")
    into[closers] = -1
    window[small] = into


def _place(sizes: I32, items: I64, room: I64, window: I32) -> I64:
    """Place items of these sizes where they fit best; return what is left of the room."""
    fit = best_fit_decreasing(sizes, room)
    window[items[fit.item]] = fit.window
    return fit.left


def _pour(sizes: I32, few: int, left: I64, seed: str) -> I32:
    """Lay the items on a line over most of what is `left`, and take them off it; return their windows.

    Those that lie across a window's end are in none (-1). What stays open, so that it can be closed exactly, is 7 % of
    it or room for a few items.
    """
    order = shuffled(len(left), seed)
    cuts = np.cumsum(np.maximum(0, np.minimum(left - left * 7 // 100, left - few))[order])
    ends = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=ends[1:])
    after = np.searchsorted(ends[:-1], cuts)
    counts = np.diff(after, prepend=0)
    window = np.full(len(sizes), -1, np.int32)
    window[: after[-1]] = np.repeat(order.astype(np.int32), counts)
    across = (counts > 0) & (ends[after] > cuts)
    window[after[across] - 1] = -1
    left[order] -= np.diff(ends[after], prepend=0) - np.where(across, sizes[after - 1], 0)
    return window


def _close_open(sizes: I32, free: I64, members: I64, window: I32, left: I64) -> None:
    """Close open windows with `free` items, largest first; where that fails, take out the smallest of their `members`.

    Up to TAKEN_OUT of them, one after the other; so many free items of every size are looked at that some will fit.
    """
    opened = np.flatnonzero(left)
    members = members[np.lexsort((-sizes[members], window[members]))]
    begins, ends = (np.searchsorted(window[members], opened, side=side) for side in ("left", "right"))
    free = free[:: -max(1, len(free) // (ENOUGH * (len(opened) + 1)))]
    for _ in range(TAKEN_OUT + 1):
        free = _close_with_two(sizes, free, opened[left[opened] > 0], window, left)
        out = (left[opened] > 0) & (ends > begins)
        ends[out] -= 1
        taken = members[ends[out]]
        left[window[taken]] += sizes[taken]
        window[taken] = -1
        free = np.append(free, taken)


def _close_with_two(sizes: I32, free: I64, opened: I64, window: I32, left: I64) -> I64:
    """Close windows with one or two of the free items, the most plentiful sizes first; return those still free."""
    opened = opened[np.argsort(left[opened], kind="stable")]
    free = free[np.argsort(sizes[free], kind="stable")]
    have = np.bincount(sizes[free], minlength=1)
    begins, have[0] = np.cumsum(have) - have, 2 * len(opened)
    gaps, first, count = np.unique(left[opened], return_index=True, return_counts=True)
    larger = [_larger_of_two(have, *pair) for pair in zip(gaps.tolist(), count.tolist(), strict=True)]
    counts = np.array([len(half) for half in larger], np.int64)
    closed = opened[np.repeat(first, counts) + np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)]
    half = np.concatenate([*larger, gaps[:0]])
    asked = np.concatenate([half, left[closed] - half])
    order = np.argsort(asked, kind="stable")[np.count_nonzero(asked == 0) :]
    asked = asked[order]
    item = free[begins[asked] + np.arange(len(asked)) - np.searchsorted(asked, asked)]
    window[item] = np.tile(closed, 2)[order]
    left[closed] = 0
    return free[window[free] < 0]


def _larger_of_two(have: I64, gap: int, count: int) -> I64:
    """Return the larger sizes of up to `count` pairs that sum to the gap, and take the pairs off what we `have`.

    A pair with size 0 is a single item, so there are enough of those.
    """
    low, high = (gap + 1) // 2, min(gap, len(have) - 1)
    if low > high:
        return have[:0]
    pairs = np.minimum(have[low : high + 1], have[gap - high : gap - low + 1][::-1])
    pairs[0] //= 1 + (2 * low == gap)
    there = np.flatnonzero(pairs)
    if not len(there):
        return there
    there = there[np.argsort(-pairs[there], kind="stable")]
    used = np.diff(np.minimum(np.cumsum(pairs[there]), count), prepend=0)
    sizes, used = low + there[used > 0], used[used > 0]
    have[sizes] -= used
    have[gap - sizes] -= used
    return np.repeat(sizes, used)


def _cut(sizes: I32, free: I64, inside: I64, window: I32, left: I64, length: int) -> dict[int, int]:
    """Fill windows of one large item, beside which no free item fits, with parts of the smallest; return those parts.

    Only where such windows are many. `free` items come smallest first; `inside` are those of open windows.
    """
    alone = np.bincount(window[inside] + 1, minlength=len(left) + 1)[1:] == 1
    lonely = np.flatnonzero(
        alone & (left > 0) & (left < length - length // 2) & (left < sizes[free[:1]].min(initial=length))
    )
    if len(lonely) <= FEW:
        return {}
    cut = free[: len(lonely)]
    lonely = lonely[np.argsort(left[lonely], kind="stable")][: len(cut)]
    kept = dict(zip(cut.tolist(), left[lonely].tolist(), strict=True))
    window[cut], left[lonely] = lonely, 0
    return kept
