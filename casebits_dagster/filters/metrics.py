"""Every metric by name, and `score`, which computes those of a policy over a block of documents.

A metric is an integer, floor(value * 10^6), so that a threshold decides alike on every machine; a share with nothing
to divide by is 0. One module a family defines them; only what a policy names is computed. Cost: a few passes over the
bytes in pieces that stay in the cache; none of them loops over characters or words.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.codec.bytetable import Cuts
from casebits_dagster.filters import (
    basic,
    c4,
    code,
    english,
    fineweb,
    gopher_quality,
    gopher_repetition,
    language,
    token_weights,
)
from casebits_dagster.filters.block import Block, Metrics, Weighed
from casebits_dagster.filters.streams import Alphabet
from casebits_dagster.sources.columns import SourceRows

_FAMILIES = (basic, english, code, gopher_quality, gopher_repetition, c4, fineweb, token_weights, language)
METRICS: Metrics = {name: metric for family in _FAMILIES for name, metric in family.METRICS.items()}
CHUNK_BYTES = 1 << 19
Item = TypeVar("Item", np.uint8, np.uint16)


def score(metrics: tuple[str, ...], rows: SourceRows, weights: Path | None = None) -> NDArray[np.int64]:
    """Return the metrics of all rows in millionths: "<i8" (len(metrics), N). `weights` is the file the policy pins."""
    models, scores = (
        token_weights.read_weights(weights) if weights else None,
        np.empty((len(metrics), len(rows.positions)), "<i8"),
    )
    for first, last in itertools.pairwise(_chunks(rows.cuts)):
        block = Block(*_part(rows.text, rows.cuts, first, last), _alphabet(metrics))
        if rows.tokens is not None and rows.token_cuts is not None and models is not None:
            block.weighed = Weighed(*_part(rows.tokens, rows.token_cuts, first, last), models)
        for place, name in enumerate(metrics):
            scores[place, first:last] = METRICS[name](block)
    return scores


@functools.cache
def _alphabet(metrics: tuple[str, ...]) -> Alphabet:
    """Return the alphabet that blocks scored with these metrics share: what one learns, the next knows."""
    return Alphabet()


def _part(column: NDArray[Item], cuts: Cuts, first: int, last: int) -> tuple[NDArray[Item], Cuts]:
    """Return some rows of a ragged column, and their cuts from 0 on."""
    return column[cuts[first] : cuts[last]], cuts[first : last + 1] - cuts[first]


def _chunks(cuts: Cuts) -> Iterator[int]:
    """Yield the rows where the pieces begin: whole documents, of CHUNK_BYTES or (one long one) more; then the end."""
    row = 0
    while row < len(cuts) - 1:
        yield row
        row = max(row + 1, int(np.searchsorted(cuts, cuts[row] + CHUNK_BYTES, "right")) - 1)
    yield len(cuts) - 1
