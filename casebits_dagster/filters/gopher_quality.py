"""The document statistics of Gopher's quality filter (Rae et al. 2021, A.1.1), as `datatrove` computes them.

A word is a run of bytes that are not ASCII white space, where the published code asks a tokenizer of the language. A
line is what a line feed ends, and the rest behind the last one unless it is empty. A letter is an ASCII letter or a
character beyond ASCII outside U+0080-00BF, U+2000-2BFF and U+3000-303F, which hold punctuation and symbols; a word of
symbols has no letter and no digit. `gopher_words` and `gopher_mean_word_length` (in characters) leave words of symbols
out; the other shares are of all words or all lines.
"""

from __future__ import annotations

import numpy as np

from casebits_dagster.filters.basic import STOP_WORDS
from casebits_dagster.filters.block import MICRO, Block, Metrics, share
from casebits_dagster.filters.streams import (
    DIGITS,
    LEAD,
    LETTERS,
    LINE_FEED,
    SPACE,
    Places,
    Stream,
    after,
    before,
    ranks,
    unmarked,
)

_AFTER_E2, _AFTER_E3 = frozenset(range(0xB0, 0xC0)), frozenset(range(0x81, 0xC0))
BULLET, ELLIPSIS, ELLIPSIS_CHARACTER = "•".encode(), b"...", "…".encode()


def _letters(block: Block) -> Stream:
    of = block.streams.of
    beyond = of(LEAD - {0xC2, 0xE2, 0xE3})
    beyond |= (after(of(frozenset({0xE2}))) & of(_AFTER_E2)) | (after(of(frozenset({0xE3}))) & of(_AFTER_E3))
    return of(LETTERS) | beyond


def _word_characters(block: Block) -> Places:
    """Return the characters of each word, 0 for a word of symbols."""
    words = block.word_spans
    named = words.counts(block.once(_letters) | block.streams.of(DIGITS)) > 0
    return words.where(named).sums(words.where(named).counts(block.character_begins))


def _words(block: Block) -> Places:
    named = block.once(_letters) | block.streams.of(DIGITS)
    return block.words - block.streams.counts(unmarked(block.word_begins, block.visible, named))


def _alphabetic(block: Block) -> Places:
    without = block.streams.counts(unmarked(block.word_begins, block.visible, block.once(_letters)))
    return share(block.words - without, block.words)


def _lines(block: Block) -> Places:
    empty = block.line_ends & block.line_begins
    last = block.streams.cuts[1:] - 1
    rank = ranks(empty)
    # The line that our own line feed ends is one only if there is something in it.
    return block.streams.counts(block.line_ends) - (rank(last + 1) - rank(last))


def _ellipses(block: Block) -> Places:
    # Counted as `str.count` does: without overlap, so a run of n points has n // 3.
    points = block.runs(block.streams.of(frozenset(b".")))
    dots = points.sums((points.ends - points.begins) // len(ELLIPSIS))
    return dots + block.streams.counts(block.streams.spelled(ELLIPSIS_CHARACTER))


def _bullet_lines(block: Block) -> Places:
    """Return how many lines begin, white space aside, with a bullet or a hyphen."""
    bullets = block.streams.of(frozenset(b"-")) | before(before(block.streams.spelled(BULLET)))
    lines = block.lines
    first = unmarked(block.line_begins, block.streams.of(SPACE - LINE_FEED), np.zeros_like(bullets))
    return lines.sums(lines.counts(first & bullets) > 0)


def _ellipsis_lines(block: Block) -> Places:
    """Return how many lines end, white space aside, with an ellipsis."""
    ends = block.streams.spelled(ELLIPSIS) | block.streams.spelled(ELLIPSIS_CHARACTER)
    return block.streams.counts(block.ending_lines(ends))


def _stop_words(block: Block) -> Places:
    """Return how many different stop words there are, in lower case."""
    one_of, counts = block.streams.one_of, block.streams.counts
    found = [counts(one_of([word], block.word_begins, block.word_ends, any_case=False)) > 0 for word in STOP_WORDS]
    return np.asarray(np.sum(found, axis=0), "<i8")


METRICS: Metrics = {
    "gopher_words": lambda block: _words(block) * MICRO,
    "gopher_mean_word_length": lambda block: share(_word_characters(block), _words(block)),
    "gopher_hashes_per_word": lambda block: share(block.of(frozenset(b"#")), block.words),
    "gopher_ellipses_per_word": lambda block: share(_ellipses(block), block.words),
    "gopher_bullet_line_share": lambda block: share(_bullet_lines(block), _lines(block)),
    "gopher_ellipsis_line_share": lambda block: share(_ellipsis_lines(block), _lines(block)),
    "gopher_alphabetic_word_share": _alphabetic,
    "gopher_stop_words": lambda block: _stop_words(block) * MICRO,
}
