"""Rows of a source as columns, and what can be wrong with one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.codec.bytetable import Bytes, Cuts, Ids
from casebits_dagster.records.errors import RecordError
from casebits_dagster.records.pins import SourceVocabulary
from casebits_dagster.records.plan import RegionSpec
from casebits_dagster.stores.base import Store

# The reasons a row is quarantined, in the order they are looked for; column value = rank here, 0 = nothing is wrong.
PROBLEMS = (
    "",
    "null_row",
    "count_mismatch",
    "id_out_of_range",
    "inner_separator",
    "truncated_utf8",
    "not_utf8",
    "malformed_line",
    "line_too_long",
)


@dataclass(frozen=True, slots=True)
class SourceRows:
    """A block of consecutive source rows, N of them, D bytes of text.

    `positions` "<i8" (N,) row or byte position in the file; `clusters` "<i4" (N,), -1 where the source has none;
    `source_tokens` "<i8" (N,) tokens as stored; `problems` uint8 (N,), an index into PROBLEMS; `problem_at` "<i8" (N,),
    token position (byte position in the text for UTF-8 problems), -1 for none; `text` uint8 (D,) the UTF-8 of all rows
    end to end, empty for rows with a problem; `cuts` "<i8" (N + 1,) where each begins. Formats of tokens also give
    `tokens` "<u2" (n,) without separators, empty for rows with a problem, and `token_cuts` "<i8" (N + 1,).
    """

    positions: NDArray[np.int64]
    clusters: NDArray[np.int32]
    source_tokens: NDArray[np.int64]
    problems: NDArray[np.uint8]
    problem_at: NDArray[np.int64]
    text: Bytes
    cuts: Cuts
    tokens: Ids | None = None
    token_cuts: Cuts | None = None

    @classmethod
    def none(cls) -> SourceRows:
        """Return a block without rows: what a range holds that lies inside one row."""
        longs, cut = np.empty(0, "<i8"), np.zeros(1, "<i8")
        return cls(
            longs, np.empty(0, "<i4"), longs, np.empty(0, "u1"), longs, np.empty(0, "u1"), cut, np.empty(0, "<u2"), cut
        )


@dataclass(frozen=True, slots=True)
class Reading:
    """What a format has to know beside the range: what spells the ids, and where a flat file has its separators."""

    vocabulary: SourceVocabulary
    separator_at: Literal["start", "end"] | None = None


class RangeHash(Protocol):
    """A running hash (of `hashlib`), fed with the bytes that a range covers, in order."""

    def update(self, content: bytes | memoryview, /) -> None: ...


def damaged(error: Exception, path: str, kind: str) -> Exception:
    """Return the refusal of a file that Arrow cannot read; an error of the machine, which has a number, is itself."""
    if isinstance(error, OSError) and error.errno is not None:
        return error
    return RecordError("SOURCE_FORMAT", path, f"not {kind}: {error}")


# A format reads one region of one file: blocks of rows in order. When all were taken, the hash has seen exactly the
# bytes that the range covers (`Receipt.source.range_sha256`), so nothing is fetched twice.
RowReader: TypeAlias = Callable[[Store, RegionSpec, Reading, RangeHash], Iterator[SourceRows]]
