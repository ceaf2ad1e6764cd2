"""Entropies: the estimator, the range for pairs, and what a loss means."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from casebits_dagster.mixing.entropy import ReferencePoints, bigram, entropy, reference_points, sampled_runs
from casebits_dagster.mixing.report import loss_reference
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
    assert float(entropy(np.array(counts, np.int64))) == pytest.approx(expected, abs=1e-6)


def test_counts_beyond_the_table_weigh_by_their_logarithm() -> None:
    assert float(entropy(np.array([10**9] * 32))) == pytest.approx(math.log(32), abs=1e-9)
    assert float(entropy(np.array([4095, 4096, 4097]))) == pytest.approx(math.log(3), abs=1e-3)


def test_the_estimate_is_nearer_than_the_plain_one() -> None:
    """2,000 draws of 5,000 ids by Zipf's law, whose entropy is known."""
    chances = 1 / np.arange(1, 5001)
    chances /= chances.sum()
    truth = -float((chances * np.log(chances)).sum())
    ids = np.searchsorted(np.cumsum(chances), _draws(2000, "zipf"))
    counts = np.bincount(ids)
    shares = counts[counts > 0] / 2000
    plain = -float((shares * np.log(shares)).sum())
    assert (round(truth, 2), round(plain, 2), round(float(entropy(counts)), 2)) == (6.19, 5.5, 5.9)


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


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.sampled_from([2, 3, 256, 300, 600]), st.integers(1, 40))
def test_runs_are_drawn_from_equal_parts_and_stay_inside_their_windows(
    windows: list[int], length: int, rest: int
) -> None:
    # Every id is its own place in the file; a shard has at most `length` tokens after its last window.
    rest, total = min(rest, length), sum(windows)
    ids = np.arange(total * length + 1 + length, dtype=np.uint16)
    begins = np.cumsum([0, *windows]) * length
    shards = [ids[begin : end + rest] for begin, end in pairwise(begins)]
    rows = sampled_runs(shards, length, "seed")
    run, slots = min(256, length), total * (length // min(256, length))
    # So few runs are all drawn, in order.
    starts = [window * length + place for window in range(total) for place in range(0, length - run + 1, run)]
    assert rows.shape == (slots, run)
    assert rows[:, 0].tolist() == starts
    assert (np.diff(rows.astype(np.int64), axis=1) == 1).all()


def test_of_many_runs_one_is_drawn_from_each_part() -> None:
    ids = np.arange(3 * 4096 * 2 + 1, dtype=np.uint16)
    drawn = sampled_runs([ids[: 5000 * 2 + 1], ids[5000 * 2 :]], 2, "seed")[:, 0].astype(int) // 2
    assert (drawn // 3).tolist() == list(range(4096))
    assert sorted(np.bincount(drawn % 3).tolist())[0] > 1200
    assert sampled_runs([], 2, "seed").shape == (0, 2)


def test_a_bigram_stays_between_nothing_and_the_unigram() -> None:
    """Two ids that take turns: the next one is known. In a shuffle it is not."""
    rows = np.tile(np.array([3, 5], np.uint16), (50, 32))
    found = bigram(entropy(np.bincount(rows.ravel())), rows, "seed")
    assert [round(float(value), 2) for value in (found.low, found.high, found.apparent, found.chance)] == [
        0.0, 0.0, 0.69, 0.0,
    ]  # fmt: skip
    assert bigram(entropy(np.array([1, 1])), rows[:1, :1], "seed").high == entropy(np.array([1, 1]))


def test_the_reference_points_of_a_report_are_exact_decimals() -> None:
    # What seems to be known of the next id is more in a shuffle than here: the ends of the range meet.
    rows = np.array([[1, 2, 1, 2], [1, 3, 1, 3]], np.uint16)
    counts = np.bincount(rows.ravel())
    assert loss_reference(counts, 4, rows, "seed").to_dict() == {
        "vocabulary_size": 4,
        "uniform_nats": "1.386294",
        "unigram_nats": "1.039721",
        "bigram": {"runs": 2, "run_tokens": 4, "low_nats": "0.398793", "high_nats": "0.398793"},
    }
    assert loss_reference(counts, 4).bigram is None
