"""The repetition statistics of Gopher (Rae et al. 2021, A.1.1), as `datatrove` computes them.

Words are runs of bytes that are not ASCII white space. Lines are parted by one line feed or more; paragraphs, of the
text without its outer white space, by two or more. A line, paragraph or n-gram is known by a 64-bit hash. Shares of
characters are of all characters of the document. `duplicate_*`: what stood before counts, the first time does not; a
duplicate n-gram is counted and stepped over as a whole. `top_*`: the characters of the most frequent n-gram (the first
of them), its words joined by one space, times how often it stands there.

Cost: one sort of all word pairs; a longer n-gram can repeat only where the shorter one does, so the rest is small. The
one loop is over n-grams of five words or more that repeat.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from casebits_dagster.filters.block import Block, Metrics, Spans, share
from casebits_dagster.filters.hashes import RangeHashes, kinds_of
from casebits_dagster.filters.streams import LINE_FEED, Places, after, before, ranks

TOP, DUPLICATE = range(2, 5), range(5, 11)


def _line_hashes(block: Block) -> RangeHashes:
    return RangeHashes(np.frombuffer(block.raw, np.uint8))


def duplicates(block: Block, spans: Spans) -> tuple[Places, Places]:
    """Return how many spans of each document stood in it before, and how many characters these have."""
    first, kinds = kinds_of(block.once(_line_hashes).of(spans.begins, spans.ends), spans.documents)
    again = first[kinds] != np.arange(len(kinds))
    return spans.sums(again), spans.sums(spans.counts(block.character_begins) * again)


def _lines(block: Block) -> tuple[Places, Places, Places]:
    """Return how many lines each document has, how many are duplicates, and the characters of these."""
    found = block.runs(~block.line_ends)
    again, characters = duplicates(block, found)
    # Splitting at line feeds leaves an empty line before a leading one and after a trailing one.
    text, filled = np.append(block.text, np.uint8(0)), block.sizes > 0
    leading = filled & np.isin(text[block.cuts[:-1]], list(LINE_FEED))
    trailing = filled & np.isin(text[block.cuts[1:] - 1], list(LINE_FEED))
    return np.diff(found.cuts) + leading + trailing, again + (leading & trailing), characters


def _paragraphs(block: Block) -> tuple[Places, Places, Places]:
    """Return how many paragraphs each document has, how many are duplicates, and the characters of these."""
    feeds = block.line_ends
    parting = feeds & (after(feeds) | before(feeds) | block.streams.document_ends)
    found, words = block.runs(~parting), block.word_spans
    # White space around the text is cut off, and what was nothing else.
    first, last = words.cuts[found.documents], words.cuts[found.documents + 1] - 1
    filled = np.flatnonzero(last >= first)
    begins = np.maximum(found.begins[filled], words.begins[first[filled]])
    ends = np.minimum(found.ends[filled], words.ends[last[filled]])
    inside = begins < ends
    cuts = np.searchsorted(found.documents[filled][inside], np.arange(len(found.cuts)))
    again, characters = duplicates(block, Spans(begins[inside], ends[inside], cuts))
    return np.diff(cuts), again, characters


@dataclass(frozen=True, slots=True)
class Grams:
    """The n-grams of one n that stand more than once in their document, in order, R of them of K kinds.

    `words` "<i8" (R,) the first word of each, counted from the start of the block; `kinds` "<i8" (R,); `first` "<i8"
    (K,) which of the R is the first of its kind; `characters` "<i8" (R,) of its words.
    """

    words: Places
    kinds: Places
    first: Places
    characters: Places


def _grams(block: Block) -> dict[int, Grams]:
    """Return the repeated n-grams for each n."""
    spans, rank = block.word_spans, ranks(block.visible)
    bits = [np.unpackbits(stream.view(np.uint8), bitorder="little") for stream in (block.visible, block.word_ends)]
    visible = bits[0].view(bool)
    # Without white space an n-gram is one range; the last byte of a word is marked, so "ab c" is not "a bc".
    hashes = RangeHashes(np.frombuffer(block.raw, np.uint8)[visible], bits[1][visible])
    begins, ends, documents = rank(spans.begins), rank(spans.ends), spans.documents
    letters = ranks(block.character_begins & block.visible)
    before_begin, before_end = letters(spans.begins), letters(spans.ends)
    words, found = np.arange(len(begins)), {}
    for n in (*TOP, *DUPLICATE):
        words = words[words + n <= spans.cuts[documents[words] + 1]]
        _, kinds = kinds_of(hashes.of(begins[words], ends[words + n - 1]), documents[words])
        often = np.bincount(kinds)[kinds] > 1
        words = words[often]
        _, first, kinds = np.unique(kinds[often], return_index=True, return_inverse=True)
        found[n] = Grams(words, kinds, first, before_end[words + n - 1] - before_begin[words])
    return found


def _top(block: Block, n: int) -> Places:
    """Return the characters that the most frequent n-gram of each document covers."""
    grams, spans = block.once(_grams)[n], block.word_spans
    covered = np.zeros(len(block.sizes), "<i8")
    # A document without a repeated one has its first n-gram on top.
    some = np.flatnonzero(np.diff(spans.cuts) >= n)
    letters, head = ranks(block.character_begins & block.visible), spans.cuts[some]
    covered[some] = letters(spans.ends[head + n - 1]) - letters(spans.begins[head]) + n - 1
    often, documents = np.bincount(grams.kinds), spans.documents[grams.words[grams.first]]
    order = np.lexsort((grams.first, -often, documents))
    document, place = np.unique(documents[order], return_index=True)
    best = order[place]
    covered[document] = (grams.characters[grams.first[best]] + n - 1) * often[best]
    return covered


def _duplicate(block: Block, n: int) -> Places:
    """Return the characters of the duplicate n-grams of each document."""
    grams = block.once(_grams)[n]
    covered, seen, free = np.zeros(len(block.sizes), "<i8"), set(), 0
    counted = []
    for row, (word, kind) in enumerate(zip(grams.words.tolist(), grams.kinds.tolist(), strict=True)):
        if word >= free:
            if kind in seen:
                counted.append(row)
                free = word + n
            seen.add(kind)
    rows = np.array(counted, "<i8")
    np.add.at(covered, block.word_spans.documents[grams.words[rows]], grams.characters[rows])
    return covered


def _share_of(covered: Callable[[Block, int], Places], n: int, block: Block) -> Places:
    return share(covered(block, n), block.characters)


METRICS: Metrics = {
    "duplicate_line_share": lambda block: share(block.once(_lines)[1], block.once(_lines)[0]),
    "duplicate_line_character_share": lambda block: share(block.once(_lines)[2], block.characters),
    "duplicate_paragraph_share": lambda block: share(block.once(_paragraphs)[1], block.once(_paragraphs)[0]),
    "duplicate_paragraph_character_share": lambda block: share(block.once(_paragraphs)[2], block.characters),
    **{f"top_{n}_gram_character_share": functools.partial(_share_of, _top, n) for n in TOP},
    **{f"duplicate_{n}_gram_character_share": functools.partial(_share_of, _duplicate, n) for n in DUPLICATE},
}
