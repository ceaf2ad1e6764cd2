"""GPT-2 tokens back to text, exactly, or a reason why not.

The usual decoders replace bad bytes silently; here a row whose bytes are not UTF-8 is quarantined with the place where
the bad sequence begins, and no byte is ever changed.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.codec.bytetable import Bytes, ByteTable, Cuts, read_vocabulary
from casebits_dagster.records.pins import gpt2_file
from casebits_dagster.sources.columns import PROBLEMS, SourceRows

GPT2_SEPARATOR = 50_256


@functools.cache
def gpt2_table() -> ByteTable:
    """Return GPT-2's byte table from its pinned vocabulary."""
    return ByteTable.of(read_vocabulary(gpt2_file("encoder.json")))


def detokenise(
    positions: NDArray[np.int64],
    clusters: NDArray[np.int32],
    null: NDArray[np.bool_],
    token_counts: NDArray[np.int64],
    tokens: NDArray[np.int64],
    token_cuts: Cuts,
) -> SourceRows:
    """Return the rows as text. Inputs are columns as stored: `tokens[token_cuts[i]:token_cuts[i+1]]` is row i.

    `token_counts` is what the source claims; `null` marks the rows where it, or the list, is null.
    """
    lengths = np.diff(token_cuts)
    problems, problem_at = _token_problems(null, token_counts, tokens, token_cuts)
    keep = np.repeat(problems == 0, lengths)
    # A trailing separator is stripped: it decodes to nothing. Rows with a problem give up all their tokens.
    kept = np.where(keep, tokens, GPT2_SEPARATOR).astype("<u2")
    table = gpt2_table()
    byte_cuts = table.cuts(kept)
    text, cuts = table.decode(kept, byte_cuts), byte_cuts[token_cuts]
    for row, start, kind in _utf8_problems(text, cuts):
        problems[row], problem_at[row] = PROBLEMS.index(kind), start
    return SourceRows(positions, clusters, lengths, problems, problem_at, *_without(text, cuts, problems))


def _token_problems(
    null: NDArray[np.bool_], token_counts: NDArray[np.int64], tokens: NDArray[np.int64], token_cuts: Cuts
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    lengths = np.diff(token_cuts)
    problems, problem_at = np.zeros(len(lengths), np.uint8), np.full(len(lengths), -1, "<i8")

    def mark(rows: NDArray[np.int64], kind: str, at: NDArray[np.int64]) -> None:
        rows, first = np.unique(rows, return_index=True)
        new = problems[rows] == 0
        problems[rows[new]], problem_at[rows[new]] = PROBLEMS.index(kind), at[first[new]]

    missing = np.flatnonzero(null)
    mark(missing, "null_row", np.full(len(missing), -1, "<i8"))
    mismatch = np.flatnonzero(token_counts != lengths)
    mark(mismatch, "count_mismatch", lengths[mismatch])
    for kind, places in (
        ("id_out_of_range", np.flatnonzero((tokens < 0) | (tokens > GPT2_SEPARATOR))),
        ("inner_separator", _inner(tokens, token_cuts)),
    ):
        rows = np.searchsorted(token_cuts, places, "right") - 1
        mark(rows, kind, places - token_cuts[rows])
    return problems, problem_at


def _inner(tokens: NDArray[np.int64], token_cuts: Cuts) -> NDArray[np.int64]:
    return np.setdiff1d(np.flatnonzero(tokens == GPT2_SEPARATOR), token_cuts[1:] - 1)


def _utf8_problems(text: Bytes, cuts: Cuts) -> list[tuple[int, int, str]]:
    """Return (row, byte position, reason) of every row that is not UTF-8 on its own."""
    if not (text >= 0x80).any():
        return []
    # Only rows with a byte beyond ASCII can fail; each is one call of the strict decoder.
    beyond = np.zeros(len(text) + 1, "<i8")
    np.cumsum(text >= 0x80, out=beyond[1:])
    found = []
    for row in np.flatnonzero(np.diff(beyond[cuts])):
        try:
            text[cuts[row] : cuts[row + 1]].tobytes().decode()
        except UnicodeDecodeError as error:
            kind = "truncated_utf8" if error.reason == "unexpected end of data" else "not_utf8"
            found.append((int(row), error.start, kind))
    return found


def _without(text: Bytes, cuts: Cuts, problems: NDArray[np.uint8]) -> tuple[Bytes, Cuts]:
    """Return text and cuts with the text of problem rows removed."""
    lengths = np.diff(cuts)
    if not lengths[problems > 0].any():
        return text, cuts
    shorter = np.zeros(len(cuts), "<i8")
    np.cumsum(np.where(problems > 0, 0, lengths), out=shorter[1:])
    return text[np.repeat(problems == 0, lengths)], shorter
