"""Entropies of a token stream, in nats a token: the losses that models of little context can reach.

The estimator is Grassberger's (2003, "Entropy estimates from insufficient sampling", equation 35): counts weigh by
G(n) where the plain estimate has ln n. It still falls short where most pairs were seen once, so the entropy of a token
given the one before it is told as a range. Its low end is the estimate itself. Its high end takes the information that
a shuffle of the same tokens seems to hold, which truly is none, off what the stream seems to hold: that is too much,
because a shuffle has more kinds of pairs than a text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.mixing.seeds import I64, shuffled

LAGS = (1, 2, 4, 8)
ID_BITS = 20
"""Ids are below 2^20: no vocabulary in use is larger, and an id that is tells of a wrong dtype."""
_NEAR = 0.3


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
    mixed = rows.ravel()[shuffled(rows.size, seed)].reshape(rows.shape)
    apparent = {lag: _information(rows, lag) for lag in LAGS if rows.shape[1] > lag}
    chance = _information(mixed, 1) if apparent else 0.0
    unigram = entropy(counts)
    ids = rows.ravel().astype(np.int64)
    return ReferencePoints(
        vocabulary_size=vocabulary_size,
        uniform=float(np.log(vocabulary_size)),
        unigram=unigram,
        bigram_low=max(0.0, entropy(np.bincount(ids)) - apparent.get(1, 0.0)),
        bigram_high=max(0.0, min(unigram, unigram - apparent.get(1, 0.0) + chance)),
        information={lag: value - chance for lag, value in apparent.items()},
    )


def entropy(counts: NDArray[Any]) -> float:
    """Return Grassberger's estimate of the entropy behind `counts`, in nats; 0 when there are none."""
    seen, times = np.unique(counts[counts > 0], return_counts=True)
    total = int((seen * times).sum())
    return float(np.log(total) - (times * seen * _g(seen)).sum() / total) if total else 0.0


def _g(counts: I64) -> NDArray[np.float64]:
    """Return G(n): G(1) = -gamma - ln 2, G(2) = 2 + G(1), G(2k + 1) = G(2k), G(2k + 2) = G(2k) + 2 / (2k + 1)."""
    exact = 1 << 12
    odd = np.arange(1, exact, 2)
    even = np.cumsum(2 / odd)
    table = -np.euler_gamma - np.log(2) + np.concatenate([[0, 0], np.repeat(even, 2)])
    return np.where(counts < exact, table[np.minimum(counts, exact - 1)], np.log(counts))


def _information(rows: NDArray[Any], lag: int) -> float:
    """Return the mutual information of the tokens `lag` apart within rows, in nats, as it appears."""
    first, second = (side.ravel().astype(np.int64) for side in (rows[:, :-lag], rows[:, lag:]))
    pairs = np.unique(first << ID_BITS | second, return_counts=True)[1]
    return entropy(np.bincount(first)) + entropy(np.bincount(second)) - entropy(pairs)
