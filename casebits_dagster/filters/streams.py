"""Text as parallel bit streams: bit p of a stream says something of byte p, so 64 bytes are tested by one instruction.

The method of Parabix (Cameron, Herdy, Lin 2008): the eight bit planes of the bytes are packed once; every class of
bytes, word or line is then Boolean algebra on words of 64 bits, and "how many in document i" is a difference of ranks.
Each document is followed by a line feed of ours, so no word, line or pattern reaches into the next one. Cost: about
1 ns a byte for the planes, 0.01 ns a byte for each operation after that.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.codec.bytetable import Cuts

Stream: TypeAlias = "NDArray[np.uint64]"
Places: TypeAlias = "NDArray[np.int64]"
ByteSet: TypeAlias = "frozenset[int]"
_ONE, _TOP = np.uint64(1), np.uint64(63)
_FULL = np.uint64(2**64 - 1)

SPACE, LINE_FEED = frozenset(b" \t\n\r\v\f"), frozenset(b"\n")
LETTERS = frozenset(range(0x41, 0x5B)) | frozenset(range(0x61, 0x7B))
DIGITS = frozenset(range(0x30, 0x3A))
SYMBOLS = frozenset(range(0x21, 0x7F)) - LETTERS - DIGITS
CONTINUATION, LEAD = frozenset(range(0x80, 0xC0)), frozenset(range(0xC0, 0x100))
ALL = frozenset(range(256))


class Alphabet:
    """A code for each byte, such that bytes which no class tells apart share one: few codes need few bit planes.

    It learns the classes when they are first asked for, so the blocks after the first find it complete.
    """

    def __init__(self) -> None:
        self._classes: list[ByteSet] = []
        self.codes, self.bits = bytes(256), 0
        self.tables: dict[ByteSet, int] = {}
        """Of each class, which codes it has: bit c for code c."""

    def learn(self, members: ByteSet) -> None:
        self._classes.append(members)
        kinds = [tuple(byte in known for known in self._classes) for byte in range(256)]
        codes = {kind: code for code, kind in enumerate(sorted(set(kinds)))}
        self.codes, self.bits = bytes(codes[kind] for kind in kinds), (len(codes) - 1).bit_length()
        self.tables = {
            known: sum(1 << code for kind, code in codes.items() if kind[number])
            for number, known in enumerate(self._classes)
        }


class Streams:
    """The streams of documents that each end in a line feed of ours: "<u8" (W,), bit p in word p // 64.

    `text` is filled up with line feeds to 64 * W bytes; document i and its line feed are bytes [cuts[i], cuts[i + 1]).
    Streams are shared: never change one in place.
    """

    def __init__(self, text: bytes, cuts: Cuts, alphabet: Alphabet) -> None:
        self.cuts, self._text, self._alphabet = cuts, text, alphabet
        self._words, self._below = _place(cuts)
        self._read()

    def _read(self) -> None:
        """Pack the bit planes of the text in the code of the alphabet."""
        codes = np.frombuffer(self._text.translate(self._alphabet.codes), np.uint8)
        plane = np.empty_like(codes)
        self._planes: list[Stream] = []
        for bit in range(self._alphabet.bits):
            np.bitwise_and(codes, np.uint8(1 << bit), out=plane)
            self._planes.append(np.packbits(plane, bitorder="little").view("<u8"))
        self._no_planes: list[Stream] = [~plane for plane in self._planes]
        self._made: dict[tuple[int, int], Stream] = {}

    def of(self, members: ByteSet) -> Stream:
        """Return the bytes that are one of `members`, which are some but not all bytes."""
        if members not in self._alphabet.tables:
            self._alphabet.learn(members)
            self._read()
        return self._select(self._alphabet.tables[members], self._alphabet.bits)

    def _select(self, table: int, bits: int) -> Stream:
        """Return the stream of a truth table over the low bits; what several classes share is made once."""
        found = self._made.get((table, bits))
        if found is None:
            found = self._made[table, bits] = self._choose(table, bits - 1)
        return found

    def _choose(self, table: int, bits: int) -> Stream:
        plane, no_plane, full = self._planes[bits], self._no_planes[bits], (1 << (1 << bits)) - 1
        low, high = table & full, table >> (1 << bits)
        if low == high:
            return self._select(low, bits)
        if low == 0:
            return plane if high == full else plane & self._select(high, bits)
        if low == full:
            return no_plane if high == 0 else no_plane | self._select(high, bits)
        chosen = self._select(low, bits)
        if high in (0, full):
            return chosen | plane if high else chosen & no_plane
        return chosen ^ ((chosen ^ self._select(high, bits)) & plane)

    def spelled(self, word: bytes, any_case: bool = False) -> Stream:
        """Return the last byte of every place that spells `word`; ASCII case may be ignored."""
        found = self.of(_byte(word[0], any_case))
        for byte in word[1:]:
            found = after(found) & self.of(_byte(byte, any_case))
        return found

    def one_of(self, words: Iterable[bytes], begins: Stream, ends: Stream, any_case: bool = True) -> Stream:
        """Return the last byte of each run, from `begins` to `ends`, that is one of some words."""
        found = np.zeros_like(begins)
        for letter, group in itertools.groupby(sorted(words), key=lambda word: word[0]):
            rest = [word[1:] for word in group]
            here = begins & self.of(_byte(letter, any_case))
            if b"" in rest:
                found |= here & ends
            if longer := [word for word in rest if word]:
                found |= self.one_of(longer, after(here), ends, any_case)
        return found

    @functools.cached_property
    def document_ends(self) -> Stream:
        """The line feeds of ours, one behind each document."""
        ends = np.zeros_like(self._planes[0])
        words, below = _place(self.cuts[1:] - 1)
        np.bitwise_or.at(ends, words, below + _ONE)
        return ends

    def counts(self, stream: Stream) -> Places:
        """Return how many ones each document has, its line feed included: "<i8" (N,)."""
        before: Places = _ranks(stream)[self._words] + np.bitwise_count(stream[self._words] & self._below)
        return np.diff(before)


@functools.cache
def _byte(byte: int, any_case: bool) -> ByteSet:
    return frozenset((byte | 0x20, byte & ~0x20)) if any_case and byte in LETTERS else frozenset((byte,))


def after(stream: Stream) -> Stream:
    """Return the bytes whose predecessor is in the stream."""
    moved = stream << _ONE
    moved[1:] |= stream[:-1] >> _TOP
    return moved


def before(stream: Stream) -> Stream:
    """Return the bytes whose successor is in the stream."""
    moved = stream >> _ONE
    moved[:-1] |= stream[1:] << _TOP
    return moved


def begins_of(runs: Stream) -> Stream:
    """Return the first byte of each run of ones."""
    return runs & ~after(runs)


def ends_of(runs: Stream) -> Stream:
    """Return the last byte of each run of ones."""
    return runs & ~before(runs)


def unmarked(begins: Stream, runs: Stream, marks: Stream) -> Stream:
    """Return the byte behind each run that has no mark; an empty run begins, and is found, behind itself.

    As in Parabix, one addition moves every mark of `begins` forward at once, over all that is free.
    """
    return _sum(begins, runs & ~marks) & ~runs


def _sum(one: Stream, other: Stream) -> Stream:
    """Return the sum of two streams as whole numbers; its carries between words are a sum 64 times shorter."""
    total = one + other
    out = total < one
    if len(total) > 1 and out.any():
        through = _bits(total == _FULL)
        total += np.unpackbits((_sum(after(_bits(out)), through) ^ through).view(np.uint8), bitorder="little")[
            : len(total)
        ]
    return total


def _bits(flags: NDArray[np.bool_]) -> Stream:
    packed = np.zeros(8 * -(-len(flags) // 64), np.uint8)
    packed[: -(-len(flags) // 8)] = np.packbits(flags, bitorder="little")
    return packed.view("<u8")


def ranks(stream: Stream) -> Callable[[Places], Places]:
    """Return the function that gives how many ones stand before each of some places."""
    before_word = _ranks(stream)

    def rank(places: Places) -> Places:
        words, below = _place(places)
        found: Places = before_word[words] + np.bitwise_count(stream[words] & below)
        return found

    return rank


def _ranks(stream: Stream) -> Places:
    counted = np.zeros(len(stream), "<i8")
    np.cumsum(np.bitwise_count(stream[:-1]), out=counted[1:])
    return counted


def _place(places: Places) -> tuple[Places, Stream]:
    """Return the word of each place, and the bits of that word before it."""
    return places >> 6, (_ONE << (places & 63).astype("<u8")) - _ONE


def places(stream: Stream) -> Places:
    """Return where the ones of a stream are, "<i8", rising."""
    raw = stream.view(np.uint8)
    filled = np.flatnonzero(raw)
    bits = np.flatnonzero(np.unpackbits(raw[filled], bitorder="little"))
    found: Places = (filled[bits >> 3] << 3) + (bits & 7)
    return found
