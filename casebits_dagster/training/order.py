"""In which order windows are read: one endless stream that any number of ranks and workers share and that resumes.

Place n of the stream belongs to epoch n // W and holds window pi(n % W), where pi is the epoch's own permutation of the
W windows. It follows from the hash of the mix's manifest, the split, the seed and the epoch alone. A step takes the
next `global_batch` places, over the end of an epoch when it must: so every step is full, every window is read once an
epoch, and the same windows make up a step whatever the number of ranks. How many places were read is all of the state.

The permutation is a Feistel network on pairs of digits, walked back into range: any place of it costs the same, a
fraction of a microsecond, and no rank holds an array of W.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from casebits_dagster.mixing.seeds import I64, U64, seed64, splitmix64
from casebits_dagster.records.errors import RecordError

SCHEMA = "casebits/window-order/1"
ROUNDS = 8
"""With 8, permutations of 2 to 100 windows prefer no place and no neighbour; with 4, those of 6 windows do."""
BLOCK = 1 << 12
"""Places are looked up so many at a time."""


class Step(NamedTuple):
    """A rank's share of one step: places `begin` to `end` are those of all ranks, `windows` are this one's."""

    begin: int
    end: int
    windows: I64


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowOrder:
    """The stream of windows of one split of a mix. `epochs` is how often each window is read; None: without an end."""

    manifest_sha256: str
    split: str
    windows: int
    seed: int
    epochs: int | None = None

    def at(self, places: I64) -> I64:
        """Return the window at each place of the stream, same shape."""
        epochs, inside = np.divmod(places, max(1, self.windows))
        base = np.uint64(seed64(f"{SCHEMA} {self.manifest_sha256} {self.split} {self.seed}"))
        return permuted(inside, self.windows, splitmix64(epochs.astype(np.uint64) ^ base))

    def steps(
        self, place: int, global_batch: int, rank: int = 0, world: int = 1, worker: int = 0, workers: int = 1
    ) -> Iterator[Step]:
        """Yield the steps from `place` on: of each the share of `rank` of `world`, a run of its places.

        Shares differ by one window at most where the ranks do not divide the batch. The last step of the last epoch may
        be short. Of the steps, `worker` of `workers` yields every `workers`-th.
        """
        if not 0 <= rank < world or not 0 <= worker < workers or global_batch < 1 or place < 0:
            read = f"batch {global_batch}, rank {rank} of {world}, worker {worker} of {workers}, place {place}"
            raise RecordError(
                "ORDER_STEPS", "steps", expected="a batch of 1 or more, ranks below their number", read=read
            )
        end = math.inf if self.epochs is None else self.epochs * self.windows
        low, high = _share(global_batch, rank, world)
        stride, steps = workers * global_batch, max(1, BLOCK // max(1, high - low))
        place += worker * global_batch
        while self.windows and place < end:
            begins = place + stride * np.arange(steps)
            begins = begins[begins + global_batch <= end]
            found = self.at(begins[:, None] + np.arange(low, high))
            for begin, windows in zip(begins.tolist(), found, strict=True):
                yield Step(begin, begin + global_batch, windows)
            place += stride * len(begins)
            if len(begins) < steps and place < end:
                rest = int(end) - place
                yield Step(place, int(end), self.at(place + np.arange(*_share(rest, rank, world))))
                return

    def state(self, place: int) -> dict[str, Any]:
        """Return what a run that has read `place` windows, over all ranks, needs to go on, as JSON values."""
        return {"schema": SCHEMA, **self._identity, "place": place}

    def resume(self, state: Mapping[str, Any]) -> int:
        """Return the place of a state. Raises RecordError (ORDER_STATE) when it is of another mix, split or seed."""
        for key, expected in {"schema": SCHEMA, **self._identity}.items():
            if state.get(key) != expected:
                raise RecordError("ORDER_STATE", f"state: {key}", expected=expected, read=state.get(key))
        place = state.get("place")
        if type(place) is not int or place < 0:
            raise RecordError("ORDER_STATE", "state: place", expected="a number of windows", read=place)
        return place

    @property
    def _identity(self) -> dict[str, Any]:
        return {"manifest_sha256": self.manifest_sha256, "split": self.split, "seed": self.seed}


def permuted(places: I64, size: int, keys: U64) -> I64:
    """Return where each place below `size` goes in the permutation of its key, same shape."""
    wide = np.uint64(math.isqrt(max(0, size - 1)) + 1)
    high = np.uint64(-(-size // int(wide)) or 1)
    words, keys = places.ravel().astype(np.uint64), np.broadcast_to(keys, places.shape).ravel()
    outside = np.arange(len(words))
    # wide * high is size or a little more; what falls there goes through again, until it is below.
    while len(outside):
        words[outside] = _network(words[outside], wide, high, keys[outside])
        outside = outside[words[outside] >= size]
    return words.astype(np.int64).reshape(places.shape)


def _network(words: U64, wide: np.uint64, high: np.uint64, keys: U64) -> U64:
    left, right = np.divmod(words, wide)
    for number in range(ROUNDS):
        keys = splitmix64(keys + np.uint64(number))
        right = (right + splitmix64(left ^ keys)) % wide
        left = (left + splitmix64(right + keys)) % high
    return np.asarray(left * wide + right)


def _share(count: int, rank: int, world: int) -> tuple[int, int]:
    return rank * count // world, (rank + 1) * count // world
