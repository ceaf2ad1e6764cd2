"""Tokens back to text, exactly, or a reason why not.

The usual decoders replace bad bytes silently; here a row whose bytes are not UTF-8 is quarantined with the place where
the bad sequence begins, and no byte is ever changed.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.codec.bytetable import ByteTable, Cuts, read_vocabulary
from casebits_dagster.records.pins import SourceVocabulary
from casebits_dagster.sources.columns import PROBLEMS, SourceRows
from casebits_dagster.sources.utf8 import utf8_rows, without


@functools.cache
def byte_table(vocabulary: SourceVocabulary) -> ByteTable:
    """Return the byte table of a source's vocabulary."""
    return ByteTable.of(read_vocabulary(vocabulary.path, vocabulary.separator))


@dataclass(frozen=True, slots=True)
class TokenRows:
    """Rows as stored: `tokens[cuts[i]:cuts[i+1]]` is row i, of any integer dtype.

    `positions`, `clusters`, `problems` as in `SourceRows`; `counts` is what the source claims, None where it is silent.
    """

    positions: NDArray[np.int64]
    clusters: NDArray[np.int32]
    problems: NDArray[np.uint8]
    counts: NDArray[np.int64] | None
    tokens: NDArray[Any]
    cuts: Cuts


def detokenise(rows: TokenRows, vocabulary: SourceVocabulary, leads: bool = False) -> SourceRows:
    """Return the rows as text. A row's separator belongs at its end, or (`leads`) at its start, and is no text."""
    table, lengths = byte_table(vocabulary), np.diff(rows.cuts)
    separators = np.flatnonzero(rows.tokens == vocabulary.separator)
    outer = rows.cuts[:-1] if leads else rows.cuts[1:] - 1
    own = np.isin(separators, outer)
    problems, problem_at = _token_problems(rows, lengths, separators[~own], len(table.lengths))
    tokens, cuts = _without_places(rows.tokens, rows.cuts, separators)
    tokens, cuts = without(tokens, cuts, problems > 0)
    tokens = tokens.astype("<u2", copy=False)
    text, byte_cuts = table.spell(tokens)
    return utf8_rows(
        SourceRows(rows.positions, rows.clusters, lengths, problems, problem_at, text, byte_cuts[cuts], tokens, cuts)
    )


def _token_problems(
    rows: TokenRows, lengths: NDArray[np.int64], inner: NDArray[np.int64], size: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    problems, problem_at = rows.problems.copy(), np.full(len(lengths), -1, "<i8")

    def mark(found: NDArray[np.int64], kind: str, at: NDArray[np.int64]) -> None:
        found, first = np.unique(found, return_index=True)
        new = problems[found] == 0
        problems[found[new]], problem_at[found[new]] = PROBLEMS.index(kind), at[first[new]]

    if rows.counts is not None:
        mismatch = np.flatnonzero(rows.counts != lengths)
        mark(mismatch, "count_mismatch", lengths[mismatch])
    for kind, places in (("id_out_of_range", _foreign(rows.tokens, size)), ("inner_separator", inner)):
        found = np.searchsorted(rows.cuts, places, "right") - 1
        mark(found, kind, places - rows.cuts[found])
    return problems, problem_at


def _foreign(tokens: NDArray[Any], size: int) -> NDArray[np.int64]:
    """Return the places of ids that are not in a vocabulary of that size."""
    if not len(tokens) or 0 <= int(tokens.min()) <= int(tokens.max()) < size:
        return np.empty(0, "<i8")
    return np.flatnonzero((tokens < 0) | (tokens >= size))


def _without_places(tokens: NDArray[Any], cuts: Cuts, places: NDArray[np.int64]) -> tuple[NDArray[Any], Cuts]:
    if not len(places):
        return tokens, cuts
    return np.delete(tokens, places), cuts - np.searchsorted(places, cuts)
