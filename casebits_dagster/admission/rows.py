"""Rows of a source as the verifier reads them: what can be wrong with one, and ids turned into text.

Guarantees: no byte is ever repaired; a row that is not sound has the first reason that applies, and where it does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from casebits_dagster.admission.checks import Array, owner
from casebits_dagster.admission.tables import Spelling
from casebits_dagster.records.errors import RecordError
from casebits_dagster.records.pins import Source
from casebits_dagster.records.plan import RegionSpec
from casebits_dagster.stores.base import Store

REASONS = (
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
SOUND, NULL_ROW, COUNT_MISMATCH, ID_OUT_OF_RANGE, INNER_SEPARATOR, TRUNCATED_UTF8, NOT_UTF8, MALFORMED, TOO_LONG = (
    range(len(REASONS))
)
BLOCK = 1 << 22


class Digest(Protocol):
    """A running hash that is fed the bytes that a range covers."""

    def update(self, content: bytes | memoryview, /) -> None: ...


@dataclass(slots=True)
class Block:
    """Consecutive rows, N of them, before their texts are judged: `positions` "<i8" as the file counts, `lengths` "<i8"
    in tokens as stored, `clusters` "<i4" (-1: none), `reasons` "u1" (index in REASONS), `problem_at` "<i8" (-1: none),
    `text` "u1" of all rows end to end, cut at `cuts` "<i8" (N + 1). A source of tokens adds `ids`, cut at `id_cuts`,
    and the `separator` among them."""

    positions: Array
    lengths: Array
    clusters: Array
    reasons: Array
    problem_at: Array
    text: Array
    cuts: Array
    ids: Array | None = None
    id_cuts: Array | None = None
    separator: int = -1

    def text_of(self, row: int) -> bytes:
        return self.text[self.cuts[row] : self.cuts[row + 1]].tobytes()

    def bare_ids(self) -> tuple[Array, Array]:
        """Return the ids of all rows without separators, "<u2" (those of rows that are not sound mean nothing), and
        where each row is cut: "<i8" (N + 1). For sources of tokens."""
        if self.ids is None or self.id_cuts is None:
            raise TypeError("a source of text has no ids")
        bare = self.ids != self.separator
        return self.ids[bare].astype("<u2"), cuts_of(bare)[self.id_cuts]

    def tokens_of(self, row: int) -> list[int] | None:
        """Return the ids of a row without separators, or None when the source has none."""
        if self.ids is None or self.id_cuts is None:
            return None
        ids = self.ids[self.id_cuts[row] : self.id_cuts[row + 1]]
        return [number for number in ids.tolist() if number != self.separator]

    def judge(self) -> None:
        """Give each sound row whose text is not UTF-8 its reason and place."""
        texts = pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), len(self.reasons), [None, pa.py_buffer(self.cuts), pa.py_buffer(self.text)]
        )
        try:
            texts.cast(pa.large_string())
        except pa.ArrowInvalid:
            for row in np.flatnonzero(self.reasons == SOUND).tolist():
                self.reasons[row], self.problem_at[row] = _judge(self.text.data[self.cuts[row] : self.cuts[row + 1]])


def _judge(text: memoryview) -> tuple[int, int]:
    try:
        str(text, "utf-8")
    except UnicodeDecodeError as error:
        return TRUNCATED_UTF8 if error.reason == "unexpected end of data" else NOT_UTF8, error.start
    return SOUND, -1


# What reads one format: the rows of a range in order. When the last one was taken, the hash has seen the whole range.
Reader: TypeAlias = Callable[[Store, RegionSpec, Source, Digest], Iterator[Block]]


def fetch(store: Store, spec: RegionSpec, digest: Digest, at: int) -> Iterator[bytes]:
    """Yield the file's bytes from `at` on, once each and no piece across the range's end; the range's own are hashed.

    Behind the range, where only its last row may end, pieces are small at first.
    """
    size, step = store.size(spec.path), 1 << 16
    while at < size:
        inside = at < spec.end
        end = min(at + BLOCK, spec.end) if inside else min(at + step, size)
        piece = store.read_range(spec.path, at, end)
        if len(piece) < end - at:
            raise RecordError("SOURCE_INVALID", spec.path, expected=f"{end} bytes", read=at + len(piece))
        if inside:
            digest.update(memoryview(piece)[max(spec.begin - at, 0) :])
        else:
            step = min(2 * step, BLOCK)
        yield piece
        at = end


def token_block(
    tokens: tuple[Spelling, int],
    positions: Array,
    clusters: Array,
    reasons: Array,
    problem_at: Array,
    ids: Array,
    cuts: Array,
    *,
    inner: bool = True,
) -> Block:
    """Return rows of token ids as text. Row i is `ids[cuts[i]:cuts[i+1]]`; `reasons` has what is known to be wrong;
    `tokens` are the spelling of ids and the separator; `inner`: a separator may only be a row's last id."""
    spelling, separator = tokens
    size = len(spelling.views)
    if len(ids) and (ids.max() >= size or ids.min() < 0):
        foreign = (ids < 0) | (ids >= size)
        mark(reasons, problem_at, cuts, np.flatnonzero(foreign), ID_OUT_OF_RANGE)
        ids = np.where(foreign, separator, ids)
    if inner:
        places = np.flatnonzero(ids == separator)
        places = places[places + 1 != cuts[owner(cuts, places) + 1]]
        mark(reasons, problem_at, cuts, places, INNER_SEPARATOR)
    text, starts = spelling.decode(ids)
    lengths = np.diff(cuts)
    return Block(positions, lengths, clusters, reasons, problem_at, text, starts[cuts], ids, cuts, separator)


def mark(reasons: Array, problem_at: Array, cuts: Array, places: Array, reason: int) -> None:
    """Give the reason to each sound row that has one of these places (ascending), at the first one."""
    if not len(places):
        return
    rows, firsts = np.unique(owner(cuts, places), return_index=True)
    new = reasons[rows] == SOUND
    rows = rows[new]
    reasons[rows], problem_at[rows] = reason, places[firsts[new]] - cuts[rows]


def text_block(positions: Array, clusters: Array, reasons: Array, problem_at: Array, text: Array, cuts: Array) -> Block:
    """Return rows of a source that has text and no tokens."""
    return Block(positions, np.zeros(len(reasons), "<i8"), clusters, reasons, problem_at, text, cuts)


def cuts_of(lengths: Array) -> Array:
    """Return where slices of these lengths are cut, end to end: "<i8", one more than lengths."""
    cuts = np.zeros(len(lengths) + 1, "<i8")
    np.cumsum(lengths, out=cuts[1:])
    return cuts
