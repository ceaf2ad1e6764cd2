"""What every planner takes and returns: lengths and a layout in, a table of segments out. Never a token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.mixing.seeds import I64
from casebits_dagster.records.mix import KINDS, SEGMENT_FIELDS

SEGMENT_DTYPE = np.dtype(SEGMENT_FIELDS)
WHOLE, CHUNK, TAIL, FLOATED_TAIL, CUT = range(len(KINDS))


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """T, the seed text of every random choice, and what the aligned strategy is asked to do."""

    sequence_length: int
    seed: str
    tails: Literal["strict", "float", "auto"] = "auto"
    spread: bool = True
    separator: Literal["end", "start"] = "end"


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
