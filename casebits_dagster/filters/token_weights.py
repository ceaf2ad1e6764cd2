"""Advertising and expository scores: linear models over the source's own tokens, frozen as integers.

A model is one weight a token and a bias, in 1/65,536. With x = floor(mean weight of the document's tokens + bias), in
that unit, the score is (1 + x / (1 + |x|)) / 2, so it needs no floating point: 0.5 where the model cannot tell, towards
1 where it is sure. Documents of fewer than 64 tokens score 0: a mean over so few says nothing.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.filters.block import MICRO, Block, Metrics
from casebits_dagster.filters.streams import Places
from casebits_dagster.records.errors import RecordError

SHORTEST = 64
UNIT = 1 << 16
MODELS = ("advertisement", "exposition")
LARGEST, RUN = 1 << 21, 1 << 10
Weights: TypeAlias = "NDArray[np.int64]"


@functools.cache
def read_weights(path: Path) -> Weights:
    """Return both models of a pinned file in one word a token, "<i8" (V + 1,): first * 2^32 + second; last the bias."""
    with np.load(path, allow_pickle=False) as found:
        first, second = (found[model].astype("<i8") for model in MODELS)
    if max(np.abs(first).max(), np.abs(second).max()) >= LARGEST:
        raise RecordError("PIN_INVALID", str(path), expected=f"weights below {LARGEST // UNIT}", read="a larger one")
    packed: Weights = (first << 32) + second
    return packed


def _sums(block: Block) -> tuple[Places, Places]:
    """Return the weights and biases of each document's tokens summed, "<i8" (models, N), and its number of tokens."""
    if block.weighed is None:
        raise TypeError("a token model needs the tokens of the source and the weights of the policy")
    tokens, cuts, words = block.weighed.tokens, block.weighed.cuts, block.weighed.weights
    lengths = np.diff(cuts)
    sums = np.stack(_both(words[-1:])) * lengths
    if len(tokens):
        # Both models are added up in one word, over at most RUN tokens, so that neither half overflows.
        begins = np.unique(np.concatenate([cuts[:-1][lengths > 0], np.arange(0, len(tokens), RUN)]))
        parts = _both(np.add.reduceat(np.take(words, tokens, mode="clip"), begins))
        runs = np.searchsorted(begins, cuts)
        for model, part in enumerate(parts):
            sums[model] += np.diff(np.concatenate([[0], np.cumsum(part)])[runs])
    return sums, lengths


def _both(words: NDArray[np.int64]) -> tuple[Places, Places]:
    second = words.astype("<i4").astype("<i8")
    return (words - second) >> 32, second


def _score(model: int, block: Block) -> Places:
    sums, lengths = block.once(_sums)
    mean = sums[model] // np.maximum(lengths, 1)
    scores = (UNIT + np.abs(mean) + mean) * MICRO // (2 * (UNIT + np.abs(mean)))
    return np.where(lengths < SHORTEST, 0, scores)


METRICS: Metrics = {model: functools.partial(_score, place) for place, model in enumerate(MODELS)}
