"""Lengths and shares of characters and words.

A character is a code point; white space is one of the six ASCII bytes; a word is a maximal run of other bytes. Case is
ASCII case.
"""

from __future__ import annotations

from casebits_dagster.filters.block import MICRO, Block, Metrics, share
from casebits_dagster.filters.streams import DIGITS, LEAD, LETTERS, SPACE, SYMBOLS, Places

# The eight of Gopher (Rae et al. 2021, A.1).
STOP_WORDS = (b"the", b"be", b"to", b"of", b"and", b"that", b"have", b"with")


def _stop_words(block: Block) -> Places:
    return block.streams.counts(block.streams.one_of(STOP_WORDS, block.word_begins, block.word_ends))


def _spaces(block: Block) -> Places:
    # The line feed behind each document is not of its text.
    return block.of(SPACE) - 1


METRICS: Metrics = {
    "characters": lambda block: block.characters * MICRO,
    "bytes": lambda block: block.sizes * MICRO,
    "ascii_letter_share": lambda block: share(block.of(LETTERS), block.characters),
    "digit_share": lambda block: share(block.of(DIGITS), block.characters),
    "symbol_share": lambda block: share(block.of(SYMBOLS), block.characters),
    "non_ascii_share": lambda block: share(block.of(LEAD), block.characters),
    "mean_word_length": lambda block: share(block.characters - _spaces(block), block.words),
    "stop_word_share": lambda block: share(_stop_words(block), block.words),
}
