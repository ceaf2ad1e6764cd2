"""Rows of a source as columns, and what can be wrong with one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.codec.bytetable import Bytes, Cuts
from casebits_dagster.records.pins import RegionSpec

# The reasons a row is quarantined, in the order they are looked for; column value = rank here, 0 = nothing is wrong.
PROBLEMS = (
    "",
    "null_row",
    "count_mismatch",
    "id_out_of_range",
    "inner_separator",
    "truncated_utf8",
    "not_utf8",
)


@dataclass(frozen=True, slots=True)
class SourceRows:
    """A block of consecutive source rows, N of them, D bytes of text.

    `positions` "<i8" (N,) row or byte position in the file; `clusters` "<i4" (N,), -1 where the source has none;
    `source_tokens` "<i8" (N,) tokens as stored; `problems` uint8 (N,), an index into PROBLEMS; `problem_at` "<i8" (N,),
    token position (byte position in the text for UTF-8 problems), -1 for none; `text` uint8 (D,) the UTF-8 of all rows
    end to end, empty for rows with a problem; `cuts` "<i8" (N + 1,) where each begins.
    """

    positions: NDArray[np.int64]
    clusters: NDArray[np.int32]
    source_tokens: NDArray[np.int64]
    problems: NDArray[np.uint8]
    problem_at: NDArray[np.int64]
    text: Bytes
    cuts: Cuts


# A format reads one region: (folder, region) -> blocks in order. The range digest is asked for apart.
RowReader: TypeAlias = Callable[[Path, RegionSpec], Iterator[SourceRows]]
RangeDigest: TypeAlias = Callable[[Path, RegionSpec], str]
RowCount: TypeAlias = Callable[[Path, str], int]
