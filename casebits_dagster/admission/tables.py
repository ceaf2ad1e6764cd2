"""Byte tables built from vocabulary files, and the one decoder that both sides of the proof use.

Guarantees: nothing here is shared with the producer; an id decodes to exactly the bytes its vocabulary spells.
Cost: about 11 ns a token to decode, 60 ms once to build GPT-2's table.
"""

from __future__ import annotations

import functools
import json
import operator
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pyarrow as pa

from casebits_dagster.admission.checks import Array
from casebits_dagster.records.layout import EOD_ID
from casebits_dagster.records.pins import SourceVocabulary
from casebits_dagster.records.region import Separator

LONGEST = 16
CAPITALS = frozenset(range(0x41, 0x5B))


@dataclass(frozen=True, slots=True)
class Spelling:
    """The bytes of every id as Arrow's binary views: `views` "V16" has the length, and the bytes of a token of up to
    12, or their place in `longer`."""

    views: Array
    longer: list[pa.Buffer]

    @classmethod
    def of(cls, tokens: list[bytes]) -> Spelling:
        _, views, *longer = pa.array(tokens, pa.binary_view()).buffers()
        return cls(np.frombuffer(views, "V16")[: len(tokens)], longer)

    def decode(self, ids: Array) -> tuple[Array, Array]:
        """Return the text of `ids`, a new array "u1", and where each token starts in it: "<i8", one more than ids."""
        if not len(ids):
            return np.empty(0, "u1"), np.zeros(1, "<i8")
        # A gather of fixed size, then one pass that lays the tokens end to end: faster than one gather of both.
        buffers = [None, pa.py_buffer(self.views.take(ids)), *self.longer]
        tokens = pa.Array.from_buffers(pa.binary_view(), len(ids), buffers).cast(pa.large_binary())
        _, starts, text = tokens.buffers()
        return np.frombuffer(text, "u1"), np.frombuffer(starts, "<i8")[: len(ids) + 1]


@dataclass(frozen=True, slots=True)
class CaseTable:
    """What a mask may say about each id: `inside` "<u2" (bit b: there is a byte b), `forbidden` "<u4" (bit b: byte b is
    not a-z; CAPITAL: the id is a capital byte). `spelling` is that of all ids, then of all ids with a capital in
    front."""

    CAPITAL: ClassVar[np.uint32] = np.uint32(1 << 16)
    separator: ClassVar[Separator] = Separator(id=EOD_ID, at="end")

    spelling: Spelling
    inside: Array
    forbidden: Array

    @property
    def size(self) -> int:
        return len(self.inside)

    @classmethod
    def of(cls, tokens: list[bytes]) -> CaseTable:
        letters = [sum(1 << bit for bit, byte in enumerate(token) if 0x61 <= byte <= 0x7A) for token in tokens]
        inside = [(1 << len(token)) - 1 for token in tokens]
        forbidden = np.array(letters, "<u4") ^ np.uint32(0xFFFF)
        forbidden[[not CAPITALS.isdisjoint(token) for token in tokens]] |= cls.CAPITAL
        spelled = [*tokens, *(token[:1].upper() + token[1:] for token in tokens)]
        return cls(Spelling.of(spelled), np.array(inside, "<u2"), forbidden)

    def decode(self, ids: Array, cases: Array) -> tuple[Array, Array]:
        """Return the text of ids and masks, and where each token starts in it. Masks must stand on letters only."""
        text, starts = self.spelling.decode(ids + (cases == 1) * np.uint32(len(self.inside)))
        marked = np.flatnonzero(cases > 1)
        bits = np.flatnonzero(np.unpackbits(cases[marked].view("u1"), bitorder="little").view(bool))
        text[starts[marked[bits >> 4]] + (bits & 15)] -= 0x20
        return text, starts


@dataclass(frozen=True, slots=True)
class PlainTable:
    """The spelling of a plain codec's ids. Its separator is spelled by no bytes."""

    spelling: Spelling
    separator: Separator

    @property
    def size(self) -> int:
        return len(self.spelling.views)

    def decode(self, ids: Array, cases: Array) -> tuple[Array, Array]:
        """Return the text of ids, and where each token starts in it. There are no masks."""
        return self.spelling.decode(ids)


Table: TypeAlias = CaseTable | PlainTable


@functools.lru_cache(maxsize=4)
def source_tokens(vocabulary: SourceVocabulary) -> tuple[Spelling, int]:
    """Return the spelling of every id of a source, and its separator, which has none."""
    named = named_ids(json.loads(vocabulary.path.read_bytes()))
    return Spelling.of(spelled_tokens(named, vocabulary.separator)), vocabulary.separator


def named_ids(found: dict[str, Any]) -> dict[str, int]:
    """Return the names and ids of a `tokenizers` file, or of a bare table of them as GPT-2's."""
    # In GPT-2's table "model" is one of the tokens.
    model = found.get("model")
    return dict(model["vocab"] if isinstance(model, dict) else found)


def spelled_tokens(vocabulary: dict[str, int], structural: int) -> list[bytes]:
    """Return the bytes of the tokens in the order of their ids; the structural one has none."""
    spelled = sorted(vocabulary.items(), key=operator.itemgetter(1))
    return [b"" if number == structural else spelled_bytes(text) for text, number in spelled]


def spelled_bytes(text: str) -> bytes:
    """Return the bytes of a token as byte-level vocabularies spell it: one printable character a byte.

    Raises KeyError on a character outside that alphabet.
    """
    return bytes(_alphabet()[character] for character in text)


@functools.cache
def _alphabet() -> dict[str, int]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(0x100) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + n): byte for n, byte in enumerate(hidden)}
