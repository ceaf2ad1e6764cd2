"""Aligned packing: the reader sees no cut document.

A document of at most T tokens is one run inside one window. A longer one is cut at multiples of T from its own start:
every full chunk is a window of its own, what is left is its tail. By hand, T = 8, lengths 19, 5, 3, 3, 2:

    windows 0, 1   chunks [0, 8) and [8, 16) of document 0
    window 2       its tail [16, 19), which starts the window, then document 1 whole (3 + 5 = 8)
    window 3       documents 2, 3 and 4 whole (3 + 3 + 2 = 8), in a seeded order

Guarantees: every window has exactly T tokens, no padding; nothing is lost except in documents listed as cut, which are
taken only where nothing that is left closes a window; what does not fill a window is returned, whole.
Costs: O(documents), some 60 bytes each, and a few milliseconds for each of the last windows (`fill`, then `close`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.mixing.packing.close import Bench
from casebits_dagster.mixing.packing.fill import FEW, I32, Filled, Items, fill_windows, reserve_tokens
from casebits_dagster.mixing.packing.layout import (
    CHUNK,
    CUT,
    FLOATED_TAIL,
    SEGMENT_DTYPE,
    TAIL,
    WHOLE,
    Layout,
    WindowPlan,
    lost_tokens,
    reordered,
    tokens_of_sources,
)
from casebits_dagster.mixing.packing.order import stratified
from casebits_dagster.mixing.seeds import BLOCK, I64, seeded_order, shuffled
from casebits_dagster.records.errors import CasebitsError

SMALLEST, MEMBERS = 256, 64
"""The windows of so many of the smallest items may change when the last gaps are closed, but those of many members."""
CLOSED_ONE_BY_ONE = 512
"""Mixes of so many windows are planned a second way when the first loses anything."""


def plan(lengths: I64, layout: Layout) -> WindowPlan:
    """Return the windows of documents with these lengths (1 or more). Raises MIX_TAILS when strict tails do not fit."""
    made = _planned(lengths, layout, FEW)
    if int(lengths.sum(dtype=np.int64)) <= CLOSED_ONE_BY_ONE * layout.sequence_length and _lost(lengths, made):
        # Without rounds every window is closed with care, where there are so few that it does not take long.
        made = min(made, _planned(lengths, layout, CLOSED_ONE_BY_ONE), key=lambda plan: _lost(lengths, plan))
    if layout.order == "shuffled":
        return made
    return reordered(made, stratified(tokens_of_sources(made, layout.sources_of(len(lengths))), layout.seed))


def _planned(lengths: I64, layout: Layout, few: int) -> WindowPlan:
    pieces, shared = _pieces(lengths, layout)
    items = pieces.first(shared)
    return _window_plan(lengths, layout, pieces, _close_rest(items, fill_windows(items, layout, few), layout))


def _lost(lengths: I64, plan: WindowPlan) -> int:
    """Return how many tokens are in no window."""
    return int(lost_tokens(lengths, plan.segments).sum())


def _pieces(lengths: I64, layout: Layout) -> tuple[Items, int]:
    """Return short documents and tails, then all full chunks, and how many the former are."""
    length = layout.sequence_length
    tokens = lengths.astype(np.uint32)
    chunks = tokens // np.uint32(length)
    rest = (tokens - chunks * np.uint32(length)).astype(np.int32)
    long, has_rest = np.flatnonzero(chunks), rest > 0
    shared, full = int(np.count_nonzero(has_rest)), int(chunks[long].sum())
    pairs = np.empty((shared + full, 2), np.int32)
    pairs[:shared, 0], pairs[shared:, 0] = np.flatnonzero(has_rest), np.repeat(long, chunks[long])
    pairs[:shared, 1], pairs[shared:, 1] = rest[has_rest], length
    size = pairs[:, 1]
    tail = np.append((chunks > 0)[has_rest], np.zeros(full, bool))
    pinned = tail & (layout.tails != "float")
    if layout.tails == "strict":
        _require_filling(size[:shared], int(pinned.sum()), lengths, length)
    if layout.tails == "auto":
        tails, total = np.flatnonzero(tail), int(size[:shared].sum(dtype=np.int64))
        windows = max(0, total - reserve_tokens(total, length)) // length
        pinned[tails[np.argsort(size[tails], kind="stable")][: max(0, len(tails) - windows)]] = False
    size[tail & ~pinned] += layout.tail_separator
    return Items(pairs, tail, pinned), shared


def _require_filling(size: I32, tails: int, lengths: I64, length: int) -> None:
    missing = tails * length - int(size.sum(dtype=np.int64))
    if missing > 0:
        windows = tails + int((lengths // length).sum())
        empty = f"{missing * 1_000_000 // (windows * length) / 10_000:.2f} % of the mix"
        problem = f"short documents leave {missing:,} tokens empty beside {tails:,} tails, {empty}"
        remedy = "float tails, or ask for more short documents"
        raise CasebitsError("MIX_TAILS", "tails = strict", problem, remedy=remedy)


def _close_rest(items: Items, filled: Filled, layout: Layout) -> Filled:
    """Close further windows with the items that are in none; some full ones may change theirs. Unpins the tails that
    start no window after all."""
    window, windows, kept = filled
    taken, reopened = _taken(items, window, windows)
    in_windows = np.flatnonzero(window[taken] >= 0)
    closed = np.split(in_windows, np.flatnonzero(np.diff(window[taken[in_windows]])) + 1)[: len(reopened)]
    sizes, tail, pinned = (array[taken].tolist() for array in (items.size, items.tail, items.pinned))
    cut = {k: kept[item] for k, item in enumerate(taken.tolist()) if item in kept}
    bench = Bench(sizes, tail, pinned, [members.tolist() for members in closed], cut, layout)
    bench.close_windows(strict=layout.tails == "strict")
    bench.fill_new_windows()
    more = len(bench.closed) - len(reopened)
    item, number = bench.placed()
    items.size[taken], items.pinned[taken], window[taken] = bench.sizes, bench.at_start, -1
    window[taken[item]] = np.append(reopened, np.arange(windows, windows + more))[number]
    kept |= {int(taken[k]): tokens for k, tokens in bench.kept.items()}
    return Filled(window, windows + more, kept)


def _taken(items: Items, window: I32, windows: int) -> tuple[I64, I64]:
    """Return the items that are in no window, and those of the windows that may change, pinned first; and the windows.

    They hold the smallest items, which fit the last gaps. Those of many items are not among them: they take long.
    """
    most = int(np.searchsorted(np.cumsum(np.bincount(items.size, minlength=1)), SMALLEST))
    smallest = window[items.size <= most]
    may_change = np.zeros(windows + 1, bool)
    may_change[smallest[smallest >= 0]], may_change[-1] = True, True
    taken = np.flatnonzero(may_change[window])
    taken = taken[np.lexsort((~items.pinned[taken], window[taken]))]
    numbers, count = np.unique(window[taken], return_counts=True)
    few = (count <= MEMBERS) | (numbers < 0)
    return taken[np.repeat(few, count)], numbers[few & (numbers >= 0)].astype(np.int64)


def _window_plan(lengths: I64, layout: Layout, pieces: Items, filled: Filled) -> WindowPlan:
    """Return the segments of the filled windows, and a window for each full chunk, all windows permuted."""
    length, shared = layout.sequence_length, len(filled.window)
    cut = list(filled.kept)
    pieces.size[cut] = list(filled.kept.values())
    kind = np.full(len(pieces.size), WHOLE, np.uint8)
    kind[pieces.tail], kind[pieces.pinned], kind[cut] = FLOATED_TAIL, TAIL, CUT
    kind[shared:][lengths[pieces.document[shared:]] > length] = CHUNK
    order, windows = _ordered(kind, layout, filled)
    rows, before = np.zeros(len(order), SEGMENT_DTYPE), 0
    block = min(BLOCK, (1 << 32) // length - 1)
    for begin in range(0, len(order), block):
        part = order[begin : begin + block]
        before += _describe(rows[begin : begin + block], pieces, kind, part, before, length)
    tails = np.flatnonzero(rows["kind"] > CHUNK)
    tails = tails[pieces.tail[order[tails]]]
    rows["document_start"][tails] = lengths[rows["document"][tails]] // length * length
    rows["inserted"][tails] = ~pieces.pinned[order[tails]] * layout.tail_separator
    full, owner = np.flatnonzero(order >= shared), pieces.document[shared:]
    number = np.arange(len(owner)) - np.searchsorted(owner, owner)
    rows["document_start"][full] = number[order[full] - shared] * length
    return WindowPlan(
        sequence_length=length,
        windows=windows,
        segments=rows,
        returned=pieces.document[:shared][(filled.window < 0) & ~pieces.tail[:shared]].astype(np.int64),
        file_tokens=windows * length + 1,
    )


def _describe(rows: NDArray[Any], pieces: Items, kind: NDArray[np.uint8], part: I64, before: int, length: int) -> int:
    """Fill in these pieces after so many tokens of others; return how many tokens they have."""
    pairs = pieces.pairs.view(np.int64).ravel().take(part).view(np.int32).reshape(-1, 2)
    rows["kind"], rows["document"], size = kind[part], pairs[:, 0], pairs[:, 1]
    rows["length"] = size
    begins = np.cumsum(size, dtype=np.uint32) - size.view(np.uint32) + np.uint32(before % length)
    window = begins // np.uint32(length)
    rows["window"], rows["position"] = window + np.uint32(before // length), begins - window * np.uint32(length)
    return int(size.sum(dtype=np.int64))


def _ordered(kind: NDArray[np.uint8], layout: Layout, filled: Filled) -> tuple[I64, int]:
    """Return the placed pieces, window after window, the windows permuted, and their number.

    Inside a window: the tail that starts it, the others in a seeded order, a cut one last.
    """
    windows = filled.windows + len(kind) - len(filled.window)
    place = np.empty(windows + 1, np.uint32)
    place[shuffled(windows, f"{layout.seed}/windows")], place[-1] = np.arange(windows), windows
    group = np.empty(len(kind), np.uint32)
    place.take(filled.window, out=group[: len(filled.window)], mode="wrap")
    group[len(filled.window) :] = place[filled.windows : windows]
    placed = np.count_nonzero(group < windows)
    group *= np.uint32(3)
    group += np.uint32(1)
    group[kind == TAIL] -= np.uint32(1)
    group[kind == CUT] += np.uint32(1)
    return seeded_order(group, f"{layout.seed}/inside")[:placed], windows
