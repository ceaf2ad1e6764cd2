"""The document statistics of FineWeb's quality filter (Penedo et al. 2024, 3.6), as `datatrove` computes them.

A line stands between line feeds and is more than ASCII white space; it is not stripped. A punctuated line ends in one
of `. ! ?` or, of the full stops of other scripts, in U+3002, FF0E, FF01, FF1F, 061F, 06D4, 0964, 0965, 203C or 2047; a
short one has at most 30 characters. Duplicate characters are those of lines that stood before, of all but line feeds.
Words are runs of bytes that are not ASCII white space.
"""

from __future__ import annotations

from casebits_dagster.filters.block import Block, Metrics, share
from casebits_dagster.filters.gopher_repetition import duplicates
from casebits_dagster.filters.streams import Places, after

STOPS = frozenset(b".!?")
STOPS_BEYOND = tuple(
    chr(code).encode() for code in (0x3002, 0xFF0E, 0xFF01, 0xFF1F, 0x61F, 0x6D4, 0x964, 0x965, 0x203C, 0x2047)
)
SHORT_LINE_CHARACTERS = 30


def _punctuated(block: Block) -> Places:
    stops = block.streams.of(STOPS)
    for stop in STOPS_BEYOND:
        stops = stops | block.streams.spelled(stop)
    return block.streams.counts(after(stops) & block.line_ends)


def _short_lines(block: Block) -> Places:
    short = block.lines.counts(block.character_begins) <= SHORT_LINE_CHARACTERS
    return block.lines.sums(short & (block.lines.counts(block.visible) > 0))


def _duplicate_characters(block: Block) -> Places:
    return duplicates(block, block.lines.where(block.lines.counts(block.visible) > 0))[1]


def _line_feeds(block: Block) -> Places:
    return block.streams.counts(block.line_ends) - 1


METRICS: Metrics = {
    "fineweb_punctuated_line_share": lambda block: share(_punctuated(block), block.filled_lines),
    "fineweb_short_line_share": lambda block: share(_short_lines(block), block.filled_lines),
    "fineweb_duplicate_character_share": lambda block: share(
        _duplicate_characters(block), block.characters - _line_feeds(block)
    ),
    "fineweb_line_feeds_per_word": lambda block: share(_line_feeds(block), block.words),
}
