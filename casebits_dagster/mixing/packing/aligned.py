"""Aligned packing: the reader sees no cut document.

A document of at most T tokens is one run inside one window. A longer one is cut at multiples of T from its own start:
every full chunk is a window of its own, what is left is its tail. By hand, T = 8, lengths 19, 5, 3, 3, 2:

    windows 0, 1   chunks [0, 8) and [8, 16) of document 0
    window 2       its tail [16, 19), which starts the window, then document 1 whole (3 + 5 = 8)
    window 3       documents 2, 3 and 4 whole (3 + 3 + 2 = 8), in a seeded order

Guarantees: every window has exactly T tokens, no padding; nothing is lost except in documents listed as cut, which are
taken only where no subset of what is left closes a window; what does not fill a window is returned, whole.
Costs: O(documents) for most of it, and a few dozen shifts of T-bit integers for each window that short documents close.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from casebits_dagster.mixing.packing.best_fit import best_fit_decreasing
from casebits_dagster.mixing.packing.close import Bench, Flags
from casebits_dagster.mixing.packing.layout import (
    CHUNK,
    CUT,
    FLOATED_TAIL,
    SEGMENT_DTYPE,
    TAIL,
    WHOLE,
    Layout,
    WindowPlan,
)
from casebits_dagster.mixing.seeds import I64, counter_keys, shuffled
from casebits_dagster.records.errors import CasebitsError

SMALL, RESERVED = 1_024, 512


@dataclass(frozen=True, slots=True)
class Items:
    """What is packed into shared windows: short documents and tails. `pinned` tails start a window of their own; `size`
    counts the separator that is inserted before the others, if any."""

    document: I64
    start: I64
    size: I64
    tail: Flags
    pinned: Flags


def plan(lengths: I64, layout: Layout) -> WindowPlan:
    """Return the windows of documents with these lengths (1 or more). Raises MIX_TAILS when strict tails do not fit."""
    items = _items(lengths, layout)
    bench = Bench(items.size, items.tail, layout.sequence_length, layout.seed, int(layout.separator == "start"))
    _open_windows(bench, items, layout)
    bench.close_windows(strict=layout.tails == "strict")
    bench.fill_new_windows()
    return _window_plan(lengths, layout, items, bench)


def _items(lengths: I64, layout: Layout) -> Items:
    length = layout.sequence_length
    short = np.flatnonzero(lengths < length)
    long = np.flatnonzero((lengths > length) & (lengths % length > 0))
    document = np.concatenate([short, long])
    tail = np.arange(len(document)) >= len(short)
    start = np.where(tail, lengths[document] // length * length, 0)
    size = lengths[document] - start
    separator = int(layout.separator == "start")
    pinned = tail & (layout.tails != "float")
    if layout.tails == "strict":
        _require_filling(size, int(pinned.sum()), lengths, length)
    if layout.tails == "auto":
        by_size = np.flatnonzero(tail)[np.argsort(size[tail], kind="stable")]
        windows = max(0, int(size.sum()) - _reserve_tokens(size, length)) // length
        pinned[by_size[: max(0, len(by_size) - windows)]] = False
    return Items(document, start, size + np.where(tail & ~pinned, separator, 0), tail, pinned)


def _require_filling(size: I64, tails: int, lengths: I64, length: int) -> None:
    missing = tails * length - int(size.sum())
    if missing > 0:
        windows = tails + int((lengths // length).sum())
        empty = f"{missing * 1_000_000 // (windows * length) / 10_000:.2f} % of the mix"
        problem = f"short documents leave {missing:,} tokens empty beside {tails:,} tails, {empty}"
        remedy = "float tails, or ask for more short documents"
        raise CasebitsError("MIX_TAILS", "tails = strict", problem, remedy=remedy)


def _reserve_tokens(size: I64, length: int) -> int:
    """Return how many tokens of small documents are kept back to close the last windows."""
    total = int(size.sum())
    return min(max(total // 50, 2 * length), total // 10)


def _open_windows(bench: Bench, items: Items, layout: Layout) -> None:
    """Pin the tails, place what is not small, pour small documents over all windows, and keep the reserve."""
    length = layout.sequence_length
    pinned, free = np.flatnonzero(items.pinned), np.flatnonzero(~items.pinned)
    limit = min(SMALL, max(1, length // 4))
    small = free[items.size[free] <= limit]
    small = small[np.argsort(counter_keys(len(small), f"{layout.seed}/small"), kind="stable")]
    kept = small[(items.size[small] <= RESERVED) & ~items.tail[small]]
    kept = kept[: int(np.searchsorted(np.cumsum(items.size[kept]), _reserve_tokens(items.size, length)))]
    small = small[~np.isin(small, kept)]
    large = free[items.size[free] > limit]
    total = int(items.size.sum())
    poured = int(items.size[small].sum()) if layout.spread else 0
    window, count = _place_large(items.size[large], items.size[pinned], length, poured / max(1, total), total // length)
    bench.open(pinned, large, window, count, windows=total // length)
    if layout.spread:
        bench.pour(small, windows=(total - int(items.size[kept].sum())) // length)


def _place_large(sizes: I64, pinned: I64, length: int, small_share: float, most: int) -> tuple[I64, int]:
    """Return best-fit windows that leave each about the small documents' share, or less if that takes too many."""
    for part in (4, 3, 2, 1, 0):
        capacity = length - int(length * small_share) * part // 4
        opened = np.maximum(capacity - pinned, 0)
        window, count = best_fit_decreasing(np.minimum(sizes, capacity), capacity, opened.tolist())
        if count <= most:
            break
    return window, count


def _window_plan(lengths: I64, layout: Layout, items: Items, bench: Bench) -> WindowPlan:
    length = layout.sequence_length
    item, window, used = bench.placed()
    dropped = np.ones(len(items.document), bool)
    dropped[item] = False
    returned = items.document[dropped & ~items.tail]
    chunked = np.flatnonzero(lengths >= length)
    chunks = lengths[chunked] // length
    owner = np.repeat(chunked, chunks)
    number = np.arange(len(owner)) - np.repeat(np.cumsum(chunks) - chunks, chunks)
    rows = np.zeros(len(item) + len(owner), SEGMENT_DTYPE)
    shared, alone = rows[: len(item)], rows[len(item) :]
    shared["window"], shared["document"], shared["length"] = window, items.document[item], used
    floated = items.tail[item] & ~bench.at_start[item]
    shared["document_start"], shared["inserted"] = items.start[item], floated * bench.separator
    kinds = np.select([floated, items.tail[item]], [FLOATED_TAIL, TAIL], WHOLE)
    shared["kind"] = np.where(used < np.array(bench.sizes, np.int64)[item], CUT, kinds)
    alone["window"] = len(bench.closed) + np.arange(len(owner))
    alone["document"], alone["document_start"], alone["length"] = owner, number * length, length
    alone["kind"] = np.where(lengths[owner] == length, WHOLE, CHUNK)
    return _ordered(rows, len(bench.closed) + len(owner), returned, layout)


def _ordered(
    rows: np.ndarray[tuple[int], np.dtype[np.void]], windows: int, returned: I64, layout: Layout
) -> WindowPlan:
    """Permute the windows; inside one: the tail that starts it, the others in a seeded order, a cut one last."""
    place = np.empty(windows, np.int64)
    place[shuffled(windows, f"{layout.seed}/windows")] = np.arange(windows)
    rows["window"] = place[rows["window"]]
    rank = np.select([rows["kind"] == TAIL, rows["kind"] == CUT], [0, 2], 1)
    keys = counter_keys(len(rows), f"{layout.seed}/inside")
    rows = rows[np.lexsort((keys, rank, rows["window"]))]
    ends = np.cumsum(rows["length"].astype(np.int64))
    rows["position"] = (ends - rows["length"]) % layout.sequence_length
    return WindowPlan(
        sequence_length=layout.sequence_length,
        windows=windows,
        segments=rows,
        returned=np.sort(returned),
        file_tokens=windows * layout.sequence_length + 1,
    )
