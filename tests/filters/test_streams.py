"""Bit streams against sets of places, in texts of one word of 64 bits and of many."""

from __future__ import annotations

import itertools
import re

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from casebits_dagster.filters.block import Block
from casebits_dagster.filters.hashes import RangeHashes, kinds_of
from casebits_dagster.filters.streams import (
    DIGITS,
    LETTERS,
    Alphabet,
    Streams,
    after,
    before,
    begins_of,
    ends_of,
    places,
    ranks,
    unmarked,
)

# Long runs carry over many words; line feeds fill up the last one.
TEXT = st.lists(
    st.sampled_from([b"a", b"b", b"0", b" ", b"\0", b"\xff", b"the", b"of", b"a" * 64, b"a" * 5000]), max_size=12
).map(b"".join)


def streams_of(text: bytes) -> Streams:
    return Streams(text + b"\n" * (64 - len(text) % 64), np.array([0, len(text) + 1]), Alphabet())


@settings(max_examples=100, deadline=None)
@given(TEXT)
def test_classes_and_their_neighbours(text: bytes) -> None:
    streams = streams_of(text)
    letters = streams.of(LETTERS)
    want = [place for place, byte in enumerate(text) if byte in LETTERS]
    assert places(letters).tolist() == want
    assert places(streams.of(frozenset({0, 0xFF}) | DIGITS)).tolist() == [
        place for place, byte in enumerate(text) if byte in b"\0\xff0"
    ]
    size = 64 * len(letters)
    assert places(after(letters)).tolist() == [place + 1 for place in want if place + 1 < size]
    assert places(before(letters)).tolist() == [place - 1 for place in want if place]
    runs = [match.span() for match in re.finditer(rb"[a-zA-Z]+", text)]
    assert places(begins_of(letters)).tolist() == [begin for begin, _ in runs]
    assert places(ends_of(letters)).tolist() == [end - 1 for _, end in runs]
    at = np.arange(len(text) + 1)
    assert ranks(letters)(at).tolist() == np.searchsorted(want, at).tolist()


@settings(max_examples=100, deadline=None)
@given(TEXT)
def test_runs_without_a_mark_are_found_behind_them(text: bytes) -> None:
    streams = streams_of(text)
    letters, marks = streams.of(LETTERS), streams.of(frozenset(b"bhf"))
    want = [match.end() for match in re.finditer(rb"[a-zA-Z]+", text) if not re.search(rb"[bhf]", match.group())]
    assert places(unmarked(begins_of(letters), letters, marks)).tolist() == want


@settings(max_examples=100, deadline=None)
@given(TEXT)
def test_spellings(text: bytes) -> None:
    streams = streams_of(text.upper())
    letters = streams.of(LETTERS)
    found = streams.spelled(b"the", any_case=True)
    assert places(found).tolist() == [match.end() - 1 for match in re.finditer(b"THE", text.upper())]
    assert places(streams.spelled(b"the")).tolist() == []
    words = streams.one_of((b"the", b"of", b"off"), begins_of(letters), ends_of(letters))
    want = [match.end() - 1 for match in re.finditer(rb"[A-Z]+", text.upper()) if match.group() in (b"THE", b"OF")]
    assert places(words).tolist() == want


def test_an_alphabet_learns_as_it_is_asked_and_is_shared() -> None:
    alphabet = Alphabet()
    text = np.frombuffer(b"a1 b2", np.uint8)
    first = Block(text, np.array([0, 5]), alphabet)
    letters = first.streams.of(LETTERS)
    assert alphabet.bits == 1
    assert places(first.streams.of(DIGITS)).tolist() == [1, 4]
    assert alphabet.bits == 2
    second = Block(text, np.array([0, 2, 5]), alphabet)
    # Behind each document stands a line feed of ours.
    assert places(second.streams.of(LETTERS)).tolist() == [0, 4]
    assert second.streams.counts(second.streams.of(LETTERS)).tolist() == [1, 1]
    assert places(letters).tolist() == [0, 3]
    assert len(alphabet.tables) == 2


@settings(max_examples=100, deadline=None)
@given(TEXT, st.lists(st.integers(0, 5000), min_size=2, max_size=12))
def test_ranges_hash_alike_when_their_bytes_are_equal(text: bytes, drawn: list[int]) -> None:
    cuts = sorted(min(cut, len(text)) for cut in drawn)
    pairs = [*itertools.pairwise(cuts), (0, cuts[0])]
    begins, ends = np.array(pairs).T
    hashes = RangeHashes(np.frombuffer(text, np.uint8)).of(begins, ends)
    ranges = [text[begin:end] for begin, end in pairs]
    first, kinds = kinds_of(hashes, np.zeros(len(pairs), "<i8"))
    assert [ranges.index(one) for one in ranges] == first[kinds].tolist()
    assert len(set(kinds_of(hashes, np.arange(len(pairs)))[1].tolist())) == len(pairs)
