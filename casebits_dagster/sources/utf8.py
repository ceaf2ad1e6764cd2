"""Text is UTF-8, row by row, or the row is quarantined with the place where the first bad sequence begins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from casebits_dagster.codec.bytetable import Cuts
from casebits_dagster.sources.columns import PROBLEMS, SourceRows

_Item = TypeVar("_Item", bound=np.generic)


def utf8_rows(rows: SourceRows) -> SourceRows:
    """Return the rows with each text checked; a row that fails has its problem and no text (and no tokens) any more."""
    array = pa.LargeStringArray.from_buffers(len(rows.positions), pa.py_buffer(rows.cuts), pa.py_buffer(rows.text))
    failed = list(_failures(array, 0))
    if not failed:
        return rows
    problems, problem_at = rows.problems.copy(), rows.problem_at.copy()
    for row, problem_at[row], kind in failed:
        problems[row] = PROBLEMS.index(kind)
    bad = problems > 0
    text, cuts = without(rows.text, rows.cuts, bad)
    tokens, token_cuts = rows.tokens, rows.token_cuts
    if tokens is not None and token_cuts is not None:
        tokens, token_cuts = without(tokens, token_cuts, bad)
    return replace(
        rows, problems=problems, problem_at=problem_at, text=text, cuts=cuts, tokens=tokens, token_cuts=token_cuts
    )


def _failures(array: pa.LargeStringArray, first: int) -> Iterator[tuple[int, int, str]]:
    """Yield (row, byte position, reason) of the rows that are not UTF-8, by halves: most halves have none."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        half = len(array) // 2
        if half:
            yield from _failures(array[:half], first)
            yield from _failures(array[half:], first + half)
        else:
            try:
                array.cast(pa.large_binary())[0].as_py().decode()
            except UnicodeDecodeError as error:
                kind = "truncated_utf8" if error.reason == "unexpected end of data" else "not_utf8"
                yield first, error.start, kind


def without(values: NDArray[_Item], cuts: Cuts, rows: NDArray[np.bool_]) -> tuple[NDArray[_Item], Cuts]:
    """Return ragged columns with the values of the marked rows removed."""
    lengths = np.diff(cuts)
    if not lengths[rows].any():
        return values, cuts
    shorter = np.zeros(len(cuts), "<i8")
    np.cumsum(np.where(rows, 0, lengths), out=shorter[1:])
    return values[np.repeat(~rows, lengths)], shorter
