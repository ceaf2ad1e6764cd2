"""Program text in a document: by its lines, by its fences, by its characters.

A code line ends in `;`, `{` or `}` (a carriage return may follow), or has one of `= ! < + - * : /` before `=` or `>`:
comparisons, assignments, arrows and tags, which prose does not have. Their share is of the lines that are not blank. A
fence is a line that begins with three backticks; fenced code goes from an odd fence to the end of the next one, or of
the document. Code symbols are the ASCII punctuation but for ``! " ' ( ) , - . : ; ?``.
"""

from __future__ import annotations

import numpy as np

from casebits_dagster.filters.block import Block, Metrics, share
from casebits_dagster.filters.streams import SYMBOLS, Places, after, before, places, ranks, unmarked

CODE_SYMBOLS = SYMBOLS - frozenset(b"!\"'(),-.:;?")
# Two bytes side by side, one of the first set and one of the second, make their line a code line.
PAIRS = (frozenset(b"=!<+-*:/"), frozenset(b"=>")), (frozenset(b";{}"), frozenset(b"\r\n"))
FENCE = b"```"


def _code_lines(block: Block) -> Places:
    streams = block.streams
    (one, two), (end, line_break) = PAIRS
    marks = (after(streams.of(one)) & streams.of(two)) | (after(streams.of(end)) & streams.of(line_break))
    return share(streams.counts(block.lines_with(marks)), block.filled_lines)


def _fenced(block: Block) -> Places:
    streams, fenced = block.streams, np.zeros(len(block.sizes), "<i8")
    ticks = streams.of(frozenset(FENCE))
    begins = block.line_begins & ticks & before(ticks) & before(before(ticks)) if ticks.any() else ticks
    if begins.any():
        at, ends = places(begins), places(unmarked(begins, ~block.line_ends, ticks & ~ticks))
        document = np.searchsorted(streams.cuts, at, "right") - 1
        opens = (np.arange(len(at)) - np.searchsorted(at, streams.cuts[document])) % 2 == 0
        closed = np.append(document[1:], -1) == document
        ends = np.where(closed, np.roll(ends, -1), streams.cuts[document + 1] - 1)
        rank = ranks(block.character_begins)
        np.add.at(fenced, document[opens], (rank(ends) - rank(at))[opens])
    return fenced


METRICS: Metrics = {
    "code_line_share": _code_lines,
    "fenced_code_share": lambda block: share(_fenced(block), block.characters),
    "code_symbol_share": lambda block: share(block.of(CODE_SYMBOLS), block.characters),
}
