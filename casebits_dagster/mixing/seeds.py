"""Seeded choices that are the same on every machine and version: splitmix64 counters, never a library's generator."""

from __future__ import annotations

import hashlib
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

U64: TypeAlias = NDArray[np.uint64]
I64: TypeAlias = NDArray[np.int64]


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
    """Return 0..count-1 in a seeded uniform order (ties by number)."""
    return np.argsort(counter_keys(count, text), kind="stable")


def id_keys(high: U64, copies: NDArray[Any], text: str) -> U64:
    """Return the selection key of each document: splitmix64(first 8 id bytes, big-endian, xor seed).

    A copy above 0 (a further epoch) goes through a second round, so that every epoch has its own order.
    """
    keys = splitmix64(high ^ np.uint64(seed64(text)))
    return np.where(copies == 0, keys, splitmix64(keys ^ copies.astype(np.uint64)))
