"""Entropies of a token stream, in nats a token: the losses that models of little context can reach.

The estimator is Grassberger's (2003, "Entropy estimates from insufficient sampling", equation 35): counts weigh by
G(n) where the plain estimate has ln n. It still falls short where most pairs were seen once, so the entropy of a token
given the one before it is told as a range. Its low end is the estimate itself. Its high end takes the information that
a shuffle of the same tokens seems to hold, which truly is none, off what the stream seems to hold: that is too much,
because a shuffle has more kinds of pairs than a text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.mixing.seeds import I64, counter_keys, shuffled

LAGS = (1, 2, 4, 8)
ID_BITS = 20
"""Ids are below 2^20: no vocabulary in use is larger, and an id that is tells of a wrong dtype."""
EXACT = Context(prec=40)
RUN, RUNS = 256, 4096
_NEAR = 0.3
_EULER = Decimal("0.5772156649015328606065120900824024310422")
_TABLE = 1 << 12


class Bigram(NamedTuple):
    """Entropy of a token given the one before it, between `low` and `high`; what the one before seems to tell of it
    (`apparent`), and seems to in a shuffle (`chance`)."""

    low: Decimal
    high: Decimal
    apparent: Decimal
    chance: Decimal


@dataclass(frozen=True, kw_only=True, slots=True)
class ReferencePoints:
    """Losses in nats a token. `information` is what a token tells of the one `LAGS` later, over that of a shuffle."""

    vocabulary_size: int
    uniform: float
    unigram: float
    bigram_low: float
    bigram_high: float
    information: dict[int, float]

    def meaning(self, loss: float) -> str:
        """Say which reference point a run's loss sits on."""
        if loss > self.uniform + _NEAR:
            return "worse than guessing: a fault in the loss, the data or the vocabulary's size"
        if abs(loss - self.unigram) <= _NEAR:
            return "has learned token frequencies only"
        if loss > self.unigram:
            return "has not learned the token frequencies yet"
        if loss > self.bigram_high + _NEAR:
            return "has learned more than token frequencies, but not all that one token tells of the next"
        if loss >= self.bigram_low - _NEAR:
            return "has learned about what one token tells of the next"
        return "has learned from more context than one token"


def reference_points(counts: I64, rows: NDArray[Any], vocabulary_size: int, seed: str) -> ReferencePoints:
    """Return the reference points of a stream.

    `counts` are those of every id in all of it, `rows` (n, length) a sample of its runs. 4 M sampled tokens take 2 s.
    """
    unigram = entropy(counts)
    pairs = bigram(unigram, rows, seed)
    apparent = {lag: pairs.apparent if lag == 1 else _information(rows, lag) for lag in LAGS if rows.shape[1] > lag}
    return ReferencePoints(
        vocabulary_size=vocabulary_size,
        uniform=float(np.log(vocabulary_size)),
        unigram=float(unigram),
        bigram_low=float(pairs.low),
        bigram_high=float(pairs.high),
        information={lag: float(value - pairs.chance) for lag, value in apparent.items()},
    )


def bigram(unigram: Decimal, rows: NDArray[Any], seed: str) -> Bigram:
    """Return the entropy of a token given the one before it, from a sample of runs (n, length).

    With H the estimate above, of the ids and of the pairs of neighbours in the runs: apparent = H(first) + H(second) -
    H(pairs), and chance is the same of a seeded shuffle of the ids. low = H(ids) - apparent, high = unigram - apparent
    + chance, where 0 <= low <= high <= unigram. 1 M tokens take 0.1 s.
    """
    mixed = rows.ravel()[shuffled(rows.size, seed)].reshape(rows.shape)
    apparent, chance = (_information(each, 1) if rows.shape[1] > 1 else Decimal(0) for each in (rows, mixed))
    low = max(Decimal(0), min(unigram, entropy(np.bincount(rows.ravel())) - apparent))
    return Bigram(low, max(low, min(unigram, unigram - apparent + chance)), apparent, chance)


def sampled_runs(shards: Sequence[NDArray[np.uint16]], length: int, seed: str) -> NDArray[np.uint16]:
    """Return runs of neighbours inside windows, (n, run): run = min(RUN, T), n = RUNS or all that there are.

    Windows of `length` T begin the shards, each of which has a token or more after them; window k holds T // run runs
    from its start on. The runs of all windows in order are cut into n equal parts, and of each one is drawn.
    """
    run = min(RUN, length)
    here = np.array([(len(shard) - 1) // length * (length // run) for shard in shards], np.int64)
    ends = np.cumsum(here)
    total = int(ends[-1]) if len(ends) else 0
    count = min(RUNS, total)
    cuts = np.arange(count + 1) * total // max(1, count)
    drawn = counter_keys(count, seed) % np.diff(cuts).astype(np.uint64)
    numbers = cuts[:-1] + drawn.astype(np.int64)
    rows = np.empty((count, run), np.uint16)
    for shard, first, end in zip(shards, ends - here, ends, strict=True):
        part = slice(*np.searchsorted(numbers, [first, end]))
        window, place = np.divmod(numbers[part] - first, length // run)
        rows[part] = shard[(window * length + place * run)[:, None] + np.arange(run)]
    return rows


def entropy(counts: NDArray[Any]) -> Decimal:
    """Return Grassberger's estimate of the entropy behind `counts`, in nats; 0 when there are none.

    Exact decimals: no machine's logarithm or order of summing shows in it.
    """
    seen, times = np.unique(counts[counts > 0], return_counts=True)
    total = int((seen * times).sum())
    weighted = Decimal(0)
    for count, ids in zip(seen.tolist(), times.tolist(), strict=True):
        weighted = EXACT.add(weighted, EXACT.multiply(Decimal(ids * count), _g(count)))
    return EXACT.subtract(EXACT.ln(Decimal(total)), EXACT.divide(weighted, Decimal(total))) if total else Decimal(0)


def _g(count: int) -> Decimal:
    """Return G(n): G(1) = -gamma - ln 2, G(2) = 2 + G(1), G(2k + 1) = G(2k), G(2k + 2) = G(2k) + 2 / (2k + 1); from
    4,096 on, ln n."""
    return _small_g()[count // 2] if count < _TABLE else EXACT.ln(Decimal(count))


@cache
def _small_g() -> list[Decimal]:
    """Return G(2k) for each k, beginning with what is G(1) for k = 0."""
    found = [EXACT.subtract(EXACT.minus(_EULER), EXACT.ln(Decimal(2)))]
    for odd in range(1, _TABLE, 2):
        found.append(EXACT.add(found[-1], EXACT.divide(Decimal(2), Decimal(odd))))
    return found


def _information(rows: NDArray[Any], lag: int) -> Decimal:
    """Return the mutual information of the tokens `lag` apart within rows, in nats, as it appears."""
    # Pairs of 16-bit ids are sorted as 32-bit words, twice as fast as wider ones.
    bits, word = (16, "<u4") if rows.dtype.itemsize <= 2 else (ID_BITS, "<i8")
    first, second = (side.ravel().astype(word) for side in (rows[:, :-lag], rows[:, lag:]))
    pairs = np.sort(np.left_shift(first, bits, dtype=word) | second)
    runs = np.diff(np.flatnonzero(np.append(pairs[1:] != pairs[:-1], pairs.size > 0)), prepend=-1)
    return entropy(np.bincount(first)) + entropy(np.bincount(second)) - entropy(runs)
