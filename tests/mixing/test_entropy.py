"""Entropies: the estimator, the range for pairs, and what a loss means."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from casebits_dagster.mixing.entropy import ReferencePoints, entropy, reference_points
from casebits_dagster.mixing.seeds import counter_keys

POINTS = ReferencePoints(
    vocabulary_size=40_000, uniform=10.6, unigram=7.8, bigram_low=3.5, bigram_high=4.2, information={1: 3.6}
)


def _draws(count: int, text: str) -> NDArray[np.float64]:
    """Return uniform numbers in [0, 1)."""
    return counter_keys(count, text) / 2.0**64


@given(st.lists(st.integers(0, 9), max_size=6))
def test_the_estimate_is_that_of_the_paper(counts: list[int]) -> None:
    """G(n) by its definition: digamma(n) + (-1)^n times the integral of x^(n-1) / (x + 1) over [0, 1]."""
    total = sum(counts)

    def g(n: int) -> float:
        digamma = -np.euler_gamma + sum(1 / k for k in range(1, n))
        steps = (np.arange(20_000) + 0.5) / 20_000
        return float(digamma + (-1) ** n * (steps ** (n - 1) / (steps + 1)).mean())

    expected = math.log(total) - sum(n * g(n) for n in counts if n) / total if total else 0.0
    assert entropy(np.array(counts, np.int64)) == pytest.approx(expected, abs=1e-6)


def test_counts_beyond_the_table_weigh_by_their_logarithm() -> None:
    assert entropy(np.array([10**9] * 32)) == pytest.approx(math.log(32), abs=1e-9)
    assert entropy(np.array([4095, 4096, 4097])) == pytest.approx(math.log(3), abs=1e-3)


def test_the_estimate_is_nearer_than_the_plain_one() -> None:
    """2,000 draws of 5,000 ids by Zipf's law, whose entropy is known."""
    chances = 1 / np.arange(1, 5001)
    chances /= chances.sum()
    truth = -float((chances * np.log(chances)).sum())
    ids = np.searchsorted(np.cumsum(chances), _draws(2000, "zipf"))
    counts = np.bincount(ids)
    shares = counts[counts > 0] / 2000
    plain = -float((shares * np.log(shares)).sum())
    assert (round(truth, 2), round(plain, 2), round(entropy(counts), 2)) == (6.19, 5.5, 5.9)


@pytest.mark.parametrize("tokens", [3_000, 30_000, 300_000])
def test_the_range_for_pairs_holds_the_truth(tokens: int) -> None:
    """A chain of 200 ids with 8 followers each: ln 8 nats, once the id before is known."""
    followers = np.argsort(counter_keys(200 * 200, "followers").reshape(200, 200), axis=1)[:, :8]
    steps, ids = (_draws(tokens, "steps") * 8).astype(int).tolist(), [0]
    for step in steps:
        ids.append(int(followers[ids[-1], step]))
    rows = np.array([ids], np.uint16)
    points = reference_points(np.bincount(rows[0]), rows, 200, "seed")
    assert (points.uniform, round(points.unigram, 1)) == (math.log(200), 5.2)
    assert points.bigram_low - 0.001 <= math.log(8) <= points.bigram_high
    assert [*points.information] == [1, 2, 4, 8]
    assert sorted(points.information.values(), reverse=True)[0] == points.information[1]


@pytest.mark.parametrize(
    ("loss", "meaning"),
    [
        (11.0, "worse than guessing: a fault in the loss, the data or the vocabulary's size"),
        (10.7, "has not learned the token frequencies yet"),
        (8.2, "has not learned the token frequencies yet"),
        (8.0, "has learned token frequencies only"),
        (7.5, "has learned token frequencies only"),
        (7.4, "has learned more than token frequencies, but not all that one token tells of the next"),
        (4.4, "has learned about what one token tells of the next"),
        (3.3, "has learned about what one token tells of the next"),
        (3.1, "has learned from more context than one token"),
    ],
)
def test_what_a_loss_means(loss: float, meaning: str) -> None:
    assert POINTS.meaning(loss) == meaning


@pytest.mark.parametrize("tokens", [0, 1, 2])
def test_a_stream_of_almost_nothing_has_reference_points(tokens: int) -> None:
    rows = np.zeros((1, tokens), np.uint16)
    points = reference_points(np.bincount(rows[0], minlength=1), rows, 1, "seed")
    assert (points.uniform, points.bigram_low >= 0, [*points.information]) == (0.0, True, [1] * (tokens > 1))
