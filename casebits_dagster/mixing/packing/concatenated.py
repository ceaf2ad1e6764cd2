"""Concatenation: whole documents in a seeded order, one after the other; windows are cut wherever T tokens end.

The control for an aligned mix: the same documents, only the layout differs. By hand, T = 4, lengths 3, 6, 2 in the
order 1, 0, 2: the file holds 11 tokens; window 0 is [0, 4) of document 1; window 1 is its [4, 6) and [0, 2) of
document 0; the rest of 3 tokens, of which the first is the last target, is in no window: (11 - 1) // 4 = 2.

Guarantees: nothing is lost, cut, inserted or returned; the file holds the sum of the lengths. Costs O(segments).
"""

from __future__ import annotations

import numpy as np

from casebits_dagster.mixing.packing.layout import CHUNK, SEGMENT_DTYPE, TAIL, WHOLE, Layout, WindowPlan
from casebits_dagster.mixing.seeds import I64, shuffled


def plan(lengths: I64, layout: Layout) -> WindowPlan:
    """Return the windows of these documents in a seeded order."""
    return in_order(lengths, shuffled(len(lengths), f"{layout.seed}/order"), layout.sequence_length)


def in_order(lengths: I64, order: I64, length: int, file_tokens: int | None = None) -> WindowPlan:
    """Return the windows of these documents in this order; `file_tokens` ends the file early."""
    ends = np.cumsum(lengths[order])
    total = int(ends[-1]) if len(ends) else 0
    total = total if file_tokens is None else file_tokens
    windows = max(0, total - 1) // length
    cuts = np.arange(windows + 1, dtype=np.int64) * length
    begins = np.concatenate([ends - lengths[order], cuts])
    begins.sort(kind="stable")  # Two sorted runs: a merge.
    begins = begins[(begins < total) & (np.diff(begins, prepend=-1) > 0)]
    owner = np.searchsorted(ends, begins, side="right")
    rows = np.zeros(len(begins), SEGMENT_DTYPE)
    rows["window"] = np.minimum(begins // length, windows)
    rows["position"] = begins - rows["window"].astype(np.int64) * length
    rows["document"] = order[owner]
    start = begins - (ends - lengths[order])[owner]
    rows["document_start"] = start
    rows["length"] = np.diff(begins, append=total)
    whole = lengths[order[owner]]
    last = start + rows["length"] == whole
    rows["kind"] = np.where(rows["length"] == whole, WHOLE, np.where(last, TAIL, CHUNK))
    return WindowPlan(
        sequence_length=length,
        windows=windows,
        segments=rows,
        returned=np.empty(0, np.int64),
        file_tokens=total,
    )
