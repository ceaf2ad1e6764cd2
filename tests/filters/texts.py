"""Texts that are hard on metrics, and how to score texts without a source."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from casebits_dagster.filters.metrics import score
from casebits_dagster.sources.columns import SourceRows

PIECES = (
    *("the", "The ", " of", "to ", "AND", "be", "have.", "\nthat\n", "a", "zZ", "0", "9 ", "x" * 70, "y" * 31),
    *(" ", "  ", "\t", "\n", "\n\n", "\r\n", "\r", "\x0b", "\x0c", "\x85", "\xa0", "\u2003", "\x1c", "\0", " " * 130),
    *("\u00e9", "\u00df", "\u0130", "\u212a", "\u4e2d", "\U0001f642", "\u00aa", "\u20ac", "\u2c00", "\u2fff", "\u3000"),
    *("\u3041", "...", "..", ".", "!", "?", '"', "'", "\u2026", "\u2022", "- ", "-", "#", "\u3002", "\uff1f", "\u203c"),
    *("```", "\n```", "``", "{", "}", "; ", "=", "=>", "->", "</", ":", "/", "lorem ipsum", "Lorem ", "ipsum"),
    *("JavaScript", "javascript", "use cookies", "Terms of Use", "foo bar baz qux ", "foo bar baz qux quux corge "),
    *("\nfoo bar\n", "ab c ", "a bc ", "\n\nfoo\n\nfoo", "a\n\n"),
)
# Of few letters much is made twice.
TEXT = st.one_of([st.lists(st.sampled_from(pieces), max_size=40).map("".join) for pieces in (PIECES, "ab \n\n")])


def rows_of(texts: list[str], tokens: list[list[int]] | None = None) -> SourceRows:
    """Return texts, and the tokens of each, as a block of rows without a problem."""
    raw, count = [text.encode() for text in texts], len(texts)
    none = np.zeros(count, "<i8")
    cuts = np.cumsum([0, *map(len, raw)]).astype("<i8")
    rows = SourceRows(none, none.astype("<i4"), none, none.astype(np.uint8), none, _bytes(b"".join(raw)), cuts)
    if tokens is None:
        return rows
    token_cuts = np.cumsum([0, *map(len, tokens)]).astype("<i8")
    flat = np.array([token for row in tokens for token in row], "<u2")
    return replace(rows, tokens=flat, token_cuts=token_cuts)


def scores_of(texts: list[str], *metrics: str) -> list[list[int]]:
    """Return one list of millionths a metric, with a number a text."""
    found: list[list[int]] = score(metrics, rows_of(texts)).tolist()
    return found


def _bytes(raw: bytes) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.frombuffer(raw, np.uint8)
