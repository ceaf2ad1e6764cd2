"""Orders that a seed decides: of items, group by group; of windows, so that every training step has the mix's shares.

Costs one sort of 64-bit words for the first, and some microseconds a window for the second.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.mixing.seeds import I64, seed64, shuffled, splitmix64

BLOCK = 1 << 16


def seeded_order(group: NDArray[Any], text: str) -> I64:
    """Return the numbers of `group` by group (0 or more), and inside a group by splitmix64(number xor seed).

    Group, key and number share a word, so of the key only the bits that are left decide, and then the number: sorting
    words takes a fifth of the time of an indirect sort.
    """
    return seeded_values(group, np.zeros(len(group), np.uint8), text)[0]


def seeded_values(group: NDArray[Any], values: NDArray[Any], text: str) -> tuple[I64, NDArray[Any]]:
    """Return that order, and the values (0 or more) in it: they ride along, as fetching them waits for memory."""
    high, middle, low = (int(most).bit_length() for most in (group.max(initial=0), values.max(initial=0), len(group)))
    words, found = np.arange(len(group), dtype=np.uint64), np.empty_like(values)
    for part in _blocks(len(group)):
        words[part] |= _keys(words[part], text, high, middle + low)
        words[part] |= group[part].astype(np.uint64) << np.uint64(64 - max(1, high))
        words[part] |= values[part].astype(np.uint64) << np.uint64(low)
    words.sort()
    for part in _blocks(len(group)):
        found[part] = words[part] >> np.uint64(low) & np.uint64((1 << middle) - 1)
    words &= np.uint64((1 << low) - 1)
    return words.view(np.int64), found


def _blocks(count: int) -> Iterator[slice]:
    return (slice(begin, begin + BLOCK) for begin in range(0, count, BLOCK))


def _keys(numbers: NDArray[np.uint64], text: str, high: int, low: int) -> NDArray[np.uint64]:
    """Return the seeded keys of numbers, with `high` bits above them and `low` ones below free."""
    return splitmix64(numbers ^ np.uint64(seed64(text))) >> np.uint64(high) & ~np.uint64((1 << low) - 1)


@dataclass(frozen=True, slots=True)
class Deviation:
    """How far a source's tokens stray from its share, at most, in windows: in any prefix and in any step."""

    prefix: float
    step: float


def stratified(tokens: I64, seed: str) -> I64:
    """Return an order of windows in which every prefix has each source's share as nearly as whole windows allow.

    `tokens` are those of each source in each window, (W, K). Error diffusion: the next window is one of the source that
    lags furthest behind its share, and what the window holds of every source is paid off by those that follow. A window
    counts as one of the source it has most of; those of one source stand in a uniform seeded order.

    >>> stratified(np.array([[4, 0], [4, 0], [4, 0], [0, 4]]), "seed").tolist()
    [0, 1, 3, 2]
    """
    windows, sources = tokens.shape
    order = shuffled(windows, f"{seed}/stratified")
    most = tokens.argmax(axis=1)[order]
    queues = [order[most == source].tolist()[::-1] for source in range(sources)]
    waiting = np.array([source for source in range(sources) if queues[source]], np.int64)
    behind, due, paid, found = np.zeros(sources, np.int64), tokens.sum(axis=0), tokens * windows, list[int]()
    while len(waiting):
        behind += due
        source = waiting[behind[waiting].argmax()]
        found.append(queues[source].pop())
        behind -= paid[found[-1]]
        if not queues[source]:
            waiting = waiting[waiting != source]
    return np.array(found, np.int64)


def deviation(tokens: I64, windows_per_step: int) -> Deviation:
    """Return how far windows in this order stray from the shares of all; `tokens` as for `stratified`, W >= 1."""
    windows = len(tokens)
    straying = np.cumsum(tokens * windows - tokens.sum(axis=0), axis=0)
    steps = np.diff(straying[windows_per_step - 1 :: windows_per_step], axis=0, prepend=0)
    size = float(tokens.sum(dtype=np.int64))
    return Deviation(*(float(np.abs(part).max(initial=0)) / size for part in (straying, steps)))
