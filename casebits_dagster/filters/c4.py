"""What C4's heuristics look for (Raffel et al. 2020, 2.2), as numbers of a document.

C4 cuts lines, a policy drops documents. A line stands between line feeds and is more than ASCII white space, which is
stripped; case is ASCII case. A terminated line ends in `. ? ! " '` but not in `...`; a short one has fewer than three
words. A sentence ends with a word that ends in `. ? !`, perhaps before one `"` or `'`; the published code asks a
tokenizer of the language.
"""

from __future__ import annotations

from casebits_dagster.filters.block import MICRO, Block, Metrics, share
from casebits_dagster.filters.streams import Places, after

TERMINAL, STOPS, QUOTES = frozenset(b".?!\"'"), frozenset(b".?!"), frozenset(b"\"'")
SHORT_LINE_WORDS = 3
POLICY = (
    b"terms of use",
    b"privacy policy",
    b"cookie policy",
    b"uses cookies",
    b"use of cookies",
    b"use cookies",
)


def _terminated(block: Block) -> Places:
    ends = block.streams.of(TERMINAL) & ~block.streams.spelled(b"...")
    return block.streams.counts(block.ending_lines(ends))


def _short_lines(block: Block) -> Places:
    words = block.lines.counts(block.word_begins)
    return block.lines.sums((words > 0) & (words < SHORT_LINE_WORDS))


def _lines_with(block: Block, *phrases: bytes) -> Places:
    marks = block.streams.spelled(phrases[0], any_case=True)
    for phrase in phrases[1:]:
        marks = marks | block.streams.spelled(phrase, any_case=True)
    return block.streams.counts(block.lines_with(marks))


def _sentences(block: Block) -> Places:
    stops = block.streams.of(STOPS)
    ends = block.word_ends & (stops | (after(stops) & block.streams.of(QUOTES)))
    return block.streams.counts(ends)


METRICS: Metrics = {
    "c4_unterminated_line_share": lambda block: share(block.filled_lines - _terminated(block), block.filled_lines),
    "c4_short_line_share": lambda block: share(_short_lines(block), block.filled_lines),
    "c4_javascript_line_share": lambda block: share(_lines_with(block, b"javascript"), block.filled_lines),
    "c4_policy_line_share": lambda block: share(_lines_with(block, *POLICY), block.filled_lines),
    "c4_lorem_ipsum": lambda block: block.streams.counts(block.streams.spelled(b"lorem ipsum", True)) * MICRO,
    "c4_curly_brackets": lambda block: block.of(frozenset(b"{")) * MICRO,
    "c4_sentences": lambda block: _sentences(block) * MICRO,
}
