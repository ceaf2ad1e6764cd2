"""Byte tables built from vocabulary files, and the one decoder that both sides of the proof use.

Guarantees: nothing here is shared with the producer; an id decodes to exactly the bytes its vocabulary spells.
Cost: about 16 ns a token to decode (one Arrow `take`), 40 ms once to build the GPT-2 table.
"""

from __future__ import annotations

import functools
import json
import operator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from casebits_dagster.admission.checks import Array
from casebits_dagster.records.pins import gpt2_file

GPT2_SEPARATOR = 50256
LONGEST = 16
CAPITALS = frozenset(range(0x41, 0x5B))


@dataclass(frozen=True, slots=True)
class CaseTable:
    """What a mask may say about each id: `letters` "<u2" (bit b: byte b is a-z) and `inside` "<u2" (bit b: there is a
    byte b); `capital` marks the ids that are a capital byte, `lower` holds the bytes of all."""

    lower: pa.LargeBinaryArray
    letters: Array
    inside: Array
    capital: Array

    @classmethod
    def of(cls, tokens: list[bytes]) -> CaseTable:
        letters = [sum(1 << bit for bit, byte in enumerate(token) if 0x61 <= byte <= 0x7A) for token in tokens]
        inside = [(1 << len(token)) - 1 for token in tokens]
        capital = [not CAPITALS.isdisjoint(token) for token in tokens]
        lower = pa.array(tokens, pa.large_binary())
        return cls(lower, np.array(letters, "<u2"), np.array(inside, "<u2"), np.array(capital))

    def decode(self, ids: Array, cases: Array) -> tuple[Array, Array]:
        """Return the text of ids and masks, and where each token starts in it. Masks must stand on letters only."""
        shared, starts = decode(self.lower, ids)
        text = shared.copy()
        marked = np.flatnonzero(cases != 0)
        bits = np.flatnonzero(np.unpackbits(cases[marked].view("u1"), bitorder="little").view(bool))
        text[starts[marked[bits >> 4]] + (bits & 15)] -= 0x20
        return text, starts


def decode(table: pa.LargeBinaryArray, ids: Array) -> tuple[Array, Array]:
    """Return the text of `ids` as "u1", and where each token starts in it: "<i8", one more than ids."""
    if not len(ids):
        return np.empty(0, "u1"), np.zeros(1, "<i8")
    _, starts, text = table.take(pa.array(ids)).buffers()
    return np.frombuffer(text, "u1"), np.frombuffer(starts, "<i8")[: len(ids) + 1]


@functools.cache
def gpt2_table() -> pa.LargeBinaryArray:
    """Return the bytes of every GPT-2 id; the separator has none."""
    spelled = json.loads(gpt2_file("encoder.json").read_bytes())
    return pa.array(spelled_tokens(spelled, GPT2_SEPARATOR), pa.large_binary())


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
