"""Seeded choices that are the same on every machine and version: splitmix64 counters, never a library's generator."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

U64: TypeAlias = NDArray[np.uint64]
I64: TypeAlias = NDArray[np.int64]
BLOCK = 1 << 16
"""Words are made so many at a time, in the cache."""


def seed64(text: str) -> int:
    """Return the seed of a text: the first 8 bytes, big-endian, of its SHA-256."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def splitmix64(values: U64) -> U64:
    """Return the splitmix64 output for each state.

    >>> f"{int(splitmix64(np.zeros(1, np.uint64))[0]):016x}"
    'e220a8397b1dcdaf'
    """
    state = values + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ state >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ state >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return np.asarray(state ^ state >> np.uint64(31))


def counter_keys(count: int, text: str) -> U64:
    """Return `count` random keys: splitmix64(number xor seed)."""
    return splitmix64(np.arange(count, dtype=np.uint64) ^ np.uint64(seed64(text)))


def shuffled(count: int, text: str) -> I64:
    """Return 0..count-1 in a seeded uniform order."""
    return seeded_order(np.zeros(count, np.uint8), text)


def seeded_order(group: NDArray[Any], text: str) -> I64:
    """Return the numbers of `group` by group (0 or more), and inside a group by splitmix64(number xor seed).

    Group, key and number share a word, so of the key only the bits that are left decide, and then the number: sorting
    words takes a fifth of the time of an indirect sort.
    """
    return _sorted(group, text)[0]


def seeded_values(group: NDArray[Any], values: NDArray[Any], text: str) -> tuple[I64, NDArray[Any]]:
    """Return that order, and the values (0 or more) in it: they ride along, as fetching them waits for memory."""
    return _sorted(group, text, values)


def _sorted(group: NDArray[Any], text: str, values: NDArray[Any] | None = None) -> tuple[I64, NDArray[Any]]:
    high, low = int(group.max(initial=0)).bit_length(), len(group).bit_length()
    middle = 0 if values is None else int(values.max(initial=0)).bit_length()
    words, found = np.arange(len(group), dtype=np.uint64), group[:0] if values is None else np.empty_like(values)
    for part in _blocks(len(group)):
        words[part] |= _keys(words[part], text, high, middle + low)
        words[part] |= group[part].astype(np.uint64) << np.uint64(64 - max(1, high))
        if values is not None:
            words[part] |= values[part].astype(np.uint64) << np.uint64(low)
    words.sort()
    for part in _blocks(len(found)):
        found[part] = words[part] >> np.uint64(low) & np.uint64((1 << middle) - 1)
    words &= np.uint64((1 << low) - 1)
    return words.view(np.int64), found


def largest_first(values: NDArray[Any]) -> I64:
    """Return the numbers of values (0 or more), largest first and equal ones in their order.

    Value and number share a word: a stable indirect sort takes three times as long as sorting those.
    """
    low, most = len(values).bit_length(), int(values.max(initial=0))
    words = np.arange(len(values), dtype=np.uint64)
    for part in _blocks(len(values)):
        words[part] |= (most - values[part]).astype(np.uint64) << np.uint64(low)
    words.sort()
    words &= np.uint64((1 << low) - 1)
    return words.view(np.int64)


def _blocks(count: int) -> Iterator[slice]:
    return (slice(begin, begin + BLOCK) for begin in range(0, count, BLOCK))


def _keys(numbers: NDArray[np.uint64], text: str, high: int, low: int) -> NDArray[np.uint64]:
    """Return the seeded keys of numbers, with `high` bits above them and `low` ones below free."""
    return splitmix64(numbers ^ np.uint64(seed64(text))) >> np.uint64(high) & ~np.uint64((1 << low) - 1)


def id_keys(high: U64, copies: NDArray[Any], text: str) -> U64:
    """Return the selection key of each document: splitmix64(first 8 id bytes, big-endian, xor seed).

    A copy above 0 (a further epoch) goes through a second round, so that every epoch has its own order.
    """
    keys = splitmix64(high ^ np.uint64(seed64(text)))
    return np.where(copies == 0, keys, splitmix64(keys ^ copies.astype(np.uint64)))
