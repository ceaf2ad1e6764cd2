"""English by its markers: how many words, punctuation aside, are the commonest English words.

Here a word is a maximal run of ASCII letters, so "(the" and "the," count. A text in another language, a table or a
program has next to none.
"""

from __future__ import annotations

from casebits_dagster.filters.block import MICRO, Block, Metrics, share
from casebits_dagster.filters.streams import LETTERS, Places, Stream, begins_of, ends_of

# A tenth of the words of English prose, and next to none of any other large language.
MARKERS = (b"the", b"of", b"to")


def _runs(block: Block) -> tuple[Stream, Stream]:
    letters = block.streams.of(LETTERS)
    return begins_of(letters), ends_of(letters)


def _hits(block: Block) -> Places:
    return block.streams.counts(block.streams.one_of(MARKERS, *block.once(_runs)))


METRICS: Metrics = {
    "english_marker_hits": lambda block: block.once(_hits) * MICRO,
    "english_marker_share": lambda block: share(block.once(_hits), block.streams.counts(block.once(_runs)[0])),
}
