"""What every planner takes and returns: lengths and a layout in, a table of segments out. Never a token."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.mixing.seeds import I64
from casebits_dagster.records.mix import KINDS, SEGMENT_FIELDS

SEGMENT_DTYPE = np.dtype(SEGMENT_FIELDS)
WHOLE, CHUNK, TAIL, FLOATED_TAIL, CUT = range(len(KINDS))


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """T, the seed text of every random choice, and what the strategies are asked to do.

    `sources` is the source or domain of each document: what `interleaved` takes in turn, `chunk_tokens` at a time, and
    what the `stratified` order of aligned windows evens out.
    """

    sequence_length: int
    seed: str
    tails: Literal["strict", "float", "auto"] = "auto"
    spread: bool = True
    separator: Literal["end", "start"] = "end"
    order: Literal["shuffled", "stratified"] = "shuffled"
    sources: I64 | None = None
    chunk_tokens: int = 1_000_000

    @property
    def tail_separator(self) -> int:
        """Return how many separators are inserted before a tail that does not start its window: 0 or 1."""
        return int(self.separator == "start")

    def sources_of(self, documents: int) -> I64:
        """Return the source of each document: all of one where none are told."""
        return np.zeros(documents, np.int64) if self.sources is None else self.sources


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowPlan:
    """`segments` (SEGMENT_FIELDS) sorted by window and position; `returned` are the documents left out, whole, sorted.

    `file_tokens` is what the file holds: windows * T and the extra token, or all tokens of a concatenation.
    """

    sequence_length: int
    windows: int
    segments: NDArray[Any]
    returned: I64
    file_tokens: int

    @property
    def rest_tokens(self) -> int:
        """Return the document tokens after the last full window (concatenated only)."""
        return int(self.segments["length"][self.segments["window"] == self.windows].sum(dtype=np.int64))


def lost_tokens(lengths: I64, segments: NDArray[Any]) -> I64:
    """Return how many tokens of each document are in no segment."""
    used = np.zeros(len(lengths), np.int64)
    np.add.at(used, segments["document"], segments["length"].astype(np.int64) - segments["inserted"])
    return lengths - used


def reordered(plan: WindowPlan, order: I64) -> WindowPlan:
    """Return the plan of aligned windows in another order: `order` are the numbers of windows."""
    place = np.empty(plan.windows, np.int64)
    place[order] = np.arange(plan.windows)
    window = place[plan.segments["window"]]
    segments = plan.segments[np.argsort(window, kind="stable")]
    segments["window"] = np.sort(window)
    return replace(plan, segments=segments)


def tokens_of_sources(plan: WindowPlan, sources: I64) -> I64:
    """Return how many tokens each full window has of each source, (W, K)."""
    rows = plan.segments[plan.segments["window"] < plan.windows]
    count = int(sources.max(initial=0)) + 1
    cells = rows["window"].astype(np.int64) * count + sources[rows["document"]]
    return np.bincount(cells, rows["length"], plan.windows * count).astype(np.int64).reshape(-1, count)
