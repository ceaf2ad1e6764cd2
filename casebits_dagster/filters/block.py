"""A block of documents as the metrics see it: what several of them share is made once, when first asked for."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.codec.bytetable import Bytes, Cuts, Ids
from casebits_dagster.filters.streams import (
    ALL,
    CONTINUATION,
    LINE_FEED,
    SPACE,
    Alphabet,
    ByteSet,
    Places,
    Stream,
    Streams,
    after,
    begins_of,
    ends_of,
    places,
    ranks,
    unmarked,
)

T = TypeVar("T")
MICRO = 1_000_000


@dataclass(frozen=True, slots=True)
class Spans:
    """Parts of documents, in order: span s is bytes [begins[s], ends[s]), document i has spans [cuts[i], cuts[i + 1]).

    All "<i8"; begins and ends (S,), cuts (N + 1,).
    """

    begins: Places
    ends: Places
    cuts: Places

    @property
    def documents(self) -> Places:
        """Which document each span is of, "<i8" (S,)."""
        return np.repeat(np.arange(len(self.cuts) - 1), np.diff(self.cuts))

    def counts(self, stream: Stream) -> Places:
        """Return how many ones of the stream each span has, "<i8" (S,)."""
        rank = ranks(stream)
        return rank(self.ends) - rank(self.begins)

    def sums(self, values: NDArray[np.int64] | NDArray[np.bool_]) -> Places:
        """Return the sum over the spans of each document, "<i8" (N,)."""
        total = np.zeros(len(values) + 1, "<i8")
        np.cumsum(values, out=total[1:])
        return np.diff(total[self.cuts])

    def where(self, chosen: NDArray[np.bool_]) -> Spans:
        """Return the chosen spans alone."""
        cuts = np.concatenate([[0], np.cumsum(self.sums(chosen))])
        return Spans(self.begins[chosen], self.ends[chosen], cuts)


@dataclass(frozen=True, slots=True)
class Weighed:
    """The source's tokens of a block, `tokens[cuts[i]:cuts[i+1]]` of document i, and the models of the policy.

    `weights` "<i8" (V + 1,), as `token_weights` packs them: those of every token, and last the biases.
    """

    tokens: Ids
    cuts: Cuts
    weights: NDArray[np.int64]


class Block:
    """Documents `text[cuts[i]:cuts[i+1]]`, N of them. Blocks scored with the same metrics share an `alphabet`."""

    weighed: Weighed | None = None

    def __init__(self, text: Bytes, cuts: Cuts, alphabet: Alphabet) -> None:
        self.text, self.cuts, self._alphabet = text, cuts, alphabet
        self._made: dict[Callable[[Block], object], object] = {}

    def once(self, make: Callable[[Block], T]) -> T:
        """Return make(block), made when first asked for."""
        if make not in self._made:
            self._made[make] = make(self)
        return cast("T", self._made[make])

    @functools.cached_property
    def raw(self) -> bytes:
        """The bytes that the streams are of: each document followed by a line feed, up to whole words of 64."""
        view = np.ascontiguousarray(self.text).data
        documents = [view[begin:end] for begin, end in itertools.pairwise(self.cuts.tolist())]
        size = len(view) + len(documents)
        return b"\n".join([*documents, b"\n" * (64 - size % 64)])

    @functools.cached_property
    def streams(self) -> Streams:
        return Streams(self.raw, self.cuts + np.arange(len(self.cuts)), self._alphabet)

    def of(self, members: ByteSet) -> Places:
        """Return how many bytes of each document are one of `members`, of which LF is none: "<i8" (N,)."""
        return self.streams.counts(self.streams.of(members))

    @functools.cached_property
    def sizes(self) -> Places:
        return np.diff(self.cuts)

    @functools.cached_property
    def characters(self) -> Places:
        """Code points: bytes that continue no character."""
        return self.sizes - self.of(CONTINUATION)

    @functools.cached_property
    def character_begins(self) -> Stream:
        return self.streams.of(ALL - CONTINUATION)

    @functools.cached_property
    def visible(self) -> Stream:
        """The bytes that are not white space; a word is a run of them."""
        return self.streams.of(ALL - SPACE)

    @functools.cached_property
    def word_begins(self) -> Stream:
        return begins_of(self.visible)

    @functools.cached_property
    def word_ends(self) -> Stream:
        return ends_of(self.visible)

    @functools.cached_property
    def words(self) -> Places:
        """How many words each document has, "<i8" (N,)."""
        return self.streams.counts(self.word_begins)

    @functools.cached_property
    def word_spans(self) -> Spans:
        return self.runs(self.visible)

    @functools.cached_property
    def line_ends(self) -> Stream:
        """The line feeds, and the end of each document: so "a LF" is two lines, the second one empty."""
        return self.streams.of(LINE_FEED)

    @functools.cached_property
    def line_begins(self) -> Stream:
        begins = after(self.line_ends)
        begins[:1] |= np.uint64(1)
        return begins

    def lines_with(self, marks: Stream) -> Stream:
        """Return the end of each line that has a mark, or has it at its end."""
        return self.line_ends & (marks | ~unmarked(self.line_begins, ~self.line_ends, marks))

    @functools.cached_property
    def filled_line_ends(self) -> Stream:
        """The ends of the lines that are more than white space."""
        return self.lines_with(self.visible)

    @functools.cached_property
    def filled_lines(self) -> Places:
        """How many lines of each document are more than white space, "<i8" (N,)."""
        return self.streams.counts(self.filled_line_ends)

    def spans(self, begins: Stream, ends: Stream) -> Spans:
        """Return the parts of the documents that begin at one byte and end before another."""
        cuts = ranks(begins)(self.streams.cuts)
        total = int(cuts[-1])
        return Spans(places(begins)[:total], places(ends)[:total], cuts)

    def runs(self, stream: Stream) -> Spans:
        """Return the runs of ones of a stream, which has no line feed, as spans."""
        return self.spans(begins_of(stream), after(ends_of(stream)))

    @functools.cached_property
    def lines(self) -> Spans:
        return self.spans(self.line_begins, self.line_ends)

    def ending_lines(self, ends: Stream) -> Stream:
        """Return the ends of the lines of which the last visible byte is one of `ends`."""
        gaps = self.streams.of(SPACE - LINE_FEED)
        return unmarked(after(self.word_ends & ends), gaps, np.zeros_like(gaps)) & self.line_ends


def share(part: Places, whole: Places) -> Places:
    """Return part / whole in millionths, rounded down; 0 over nothing."""
    return np.where(whole > 0, part * MICRO // np.maximum(whole, 1), 0)


Metrics: TypeAlias = "dict[str, Callable[[Block], Places]]"
