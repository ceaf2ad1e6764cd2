"""Document metrics in millionths, computed over whole blocks of bytes.

Every metric is an integer (floor of value * 10^6), so a threshold decides alike on every machine. A character is a
Unicode code point; white space is one of the six ASCII bytes; a word is a maximal run of other bytes. A share with
nothing to divide by is 0. Cost: a few vectorised passes over the bytes, none over documents.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.codec.bytetable import Bytes, Cuts

MICRO = 1_000_000
STOP_WORDS = (b"the", b"be", b"to", b"of", b"and", b"that", b"have", b"with")

_LETTER, _DIGIT, _SYMBOL, _SPACE, _CONTINUATION, _LEAD = (1 << bit for bit in range(6))


def _byte_classes() -> NDArray[np.uint8]:
    classes = np.zeros(256, np.uint8)
    letters = [*range(0x41, 0x5B), *range(0x61, 0x7B)]
    classes[letters] = _LETTER
    classes[0x30:0x3A] = _DIGIT
    classes[[code for code in range(0x21, 0x7F) if code not in letters and not 0x30 <= code < 0x3A]] = _SYMBOL
    classes[list(b" \t\n\r\v\f")] = _SPACE
    classes[0x80:0xC0] = _CONTINUATION
    classes[0xC0:] = _LEAD
    return classes


_CLASSES = _byte_classes()


class TextColumns:
    """Counts of a block of documents that several metrics share; each is computed once, when first asked for."""

    def __init__(self, text: Bytes, cuts: Cuts) -> None:
        self.text, self.cuts = text, cuts
        self.classes = _CLASSES[text]
        self._cache: dict[str, NDArray[np.int64]] = {}

    def bytes_of(self, kind: int) -> NDArray[np.int64]:
        """Return how many bytes of the class each document has, "<i8" (N,)."""
        return self._once(f"class {kind}", lambda: self._sums(self.classes & kind != 0))

    def characters(self) -> NDArray[np.int64]:
        """Return the number of code points: bytes that continue no character."""
        return np.diff(self.cuts) - self.bytes_of(_CONTINUATION)

    def words(self) -> NDArray[np.int64]:
        """Return the number of words of each document."""
        return self._once("words", lambda: self._sums(self._edges()[0]))

    def stop_words(self) -> NDArray[np.int64]:
        """Return how many words are stop words, ASCII case ignored."""
        return self._once("stop words", lambda: self._sums(self._is_stop_word()))

    def _edges(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which bytes begin a word and which end one; a document stands between white space."""
        word = self.classes != _SPACE
        gap = np.empty(len(word) + 1, bool)
        gap[:-1] = ~word
        gap[self.cuts] = True
        ends = word & gap[1:]
        gap[1:] = ~word
        gap[self.cuts] = True
        return word & gap[:-1], ends

    def _is_stop_word(self) -> NDArray[np.bool_]:
        begins, ends = self._edges()
        starts = np.flatnonzero(begins)
        sizes = np.flatnonzero(ends) - starts + 1
        # No stop word is longer than four bytes: each short word is read as one unaligned 4-byte word.
        padded = np.append(self.text, np.zeros(4, np.uint8))
        heads: NDArray[np.uint32] = np.ndarray((len(self.text) + 1,), "<u4", padded, 0, (1,))
        for size in sorted({len(word) for word in STOP_WORDS}):
            places = starts[sizes == size]
            lowered = (heads[places] | np.uint32(0x20202020)) & np.uint32((1 << 8 * size) - 1)
            wanted = [int.from_bytes(word, "little") for word in STOP_WORDS if len(word) == size]
            # Only a letter becomes a letter when 0x20 is set, so nothing else can pass for one.
            begins[places] = np.isin(lowered, np.array(wanted, "<u4"))
        begins[starts[~np.isin(sizes, [len(word) for word in STOP_WORDS])]] = False
        return begins

    def _sums(self, flags: NDArray[np.bool_]) -> NDArray[np.int64]:
        sums, filled = np.zeros(len(self.cuts) - 1, "<i8"), np.flatnonzero(np.diff(self.cuts))
        if len(filled):
            # Without the empty documents every slice ends where the next begins, as reduceat takes it.
            sums[filled] = np.add.reduceat(flags.view(np.uint8), self.cuts[filled], dtype="<i8")
        return sums

    def _once(self, name: str, compute: Callable[[], NDArray[np.int64]]) -> NDArray[np.int64]:
        if name not in self._cache:
            self._cache[name] = compute()
        return self._cache[name]


def _share(part: NDArray[np.int64], whole: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.where(whole > 0, part * MICRO // np.maximum(whole, 1), 0)


METRICS: dict[str, Callable[[TextColumns], NDArray[np.int64]]] = {
    "characters": lambda block: block.characters() * MICRO,
    "ascii_letter_share": lambda block: _share(block.bytes_of(_LETTER), block.characters()),
    "digit_share": lambda block: _share(block.bytes_of(_DIGIT), block.characters()),
    "symbol_share": lambda block: _share(block.bytes_of(_SYMBOL), block.characters()),
    "non_ascii_share": lambda block: _share(block.bytes_of(_LEAD), block.characters()),
    "mean_word_length": lambda block: _share(block.characters() - block.bytes_of(_SPACE), block.words()),
    "stop_word_share": lambda block: _share(block.stop_words(), block.words()),
}


def score(metrics: tuple[str, ...], text: Bytes, cuts: Cuts) -> NDArray[np.int64]:
    """Return the metrics of documents `text[cuts[i]:cuts[i+1]]` in millionths: "<i8" (N, len(metrics))."""
    block = TextColumns(text, cuts)
    return np.stack([METRICS[name](block) for name in metrics], axis=1).astype("<i8")
