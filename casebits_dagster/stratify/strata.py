"""Count a prefix by strata: one pass over its regions for the edges of the score buckets, one for the counts.

A stratum is cluster x length bucket x case class x split, and for each recorded score x quantile bucket. Memory: the
rows and scores of one region, a sample of the scores, counters for each stratum, and some dozens of counts a region.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.codec.mixture import COMPONENTS
from casebits_dagster.records.frontier import SplitTotal, SplitTotals
from casebits_dagster.records.stratification import Earlier
from casebits_dagster.stratify.repeats import Spill, id_words

I64: TypeAlias = NDArray[np.int64]

LENGTH_EDGES = (0, 256, 512, 1_024, 2_048, 4_096, 8_192, 16_384, 32_768)
CASE_CLASSES = (*COMPONENTS, "no letters")
SPLITS = ("train", "validation")
UNITS = ("documents", "tokens", "raw_bytes")
BUCKETS = ("lowest quarter", "second quarter", "third quarter", "highest quarter")
_MOST = 2**63 - 1
SAMPLE = 1 << 17
"""Quantiles are those of so many documents of a split: a rank is off by 0.14 % (one standard error)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Prefix:
    """A frontier version. Of region k, `rows(k)` are INDEX_DTYPE (D,), and `scores(k)` "<i8" (len(metrics), D) in
    millionths. `splits` are the train and validation documents; `expected` those that the source publishes, by cluster.
    """

    generation: str
    version: int
    manifest_sha256: str
    regions: int
    splits: tuple[int, int]
    metrics: tuple[str, ...]
    rows: Callable[[int], NDArray[np.void]]
    scores: Callable[[int], I64]
    earlier: Earlier | None = None
    expected: Mapping[int, int] = field(default_factory=dict)

    def filled(self) -> Iterator[tuple[int, NDArray[np.void], I64]]:
        """Yield region, rows and scores of each region that has a document."""
        for region in range(self.regions):
            if len(rows := self.rows(region)):
                yield region, rows, self.scores(region)


@dataclass(frozen=True, slots=True)
class Sketch:
    """What the first pass finds: `clusters` (C,), sorted; of each split a `sample` of scores, (M, n), each sorted; the
    `least` and `most` score of each split and metric, (2, M), which say nothing of a split without a document."""

    clusters: I64
    sample: list[I64]
    least: I64
    most: I64

    def edges(self) -> I64:
        """Return what parts the quarters of each score, (M, 3): observed values of train documents."""
        return np.stack([quantile(self.sample[0], percent) for percent in (25, 50, 75)], axis=1)


@dataclass(frozen=True, slots=True)
class Counts:
    """What the second pass counts. Axes: cluster, length, case class, split, unit; of `scored` metric, then the same
    with the bucket before the unit. `squares` are squared lengths, by cluster and split. Of each region its `documents`
    by cluster, length and case class side by side, and its `tokens` by cluster."""

    clusters: I64
    strata: I64
    scored: I64
    squares: NDArray[np.float64]
    documents: I64
    tokens: I64

    @property
    def marginals(self) -> list[tuple[str, str]]:
        """Dimension and stratum of each column of `documents`."""
        names = {"cluster": cluster_names(self.clusters), "tokens": LENGTH_NAMES, "case_class": CASE_CLASSES}
        return [(dimension, name) for dimension, strata in names.items() for name in strata]

    def margins(self) -> dict[str, I64]:
        """Return the counts of each cluster, length and case class: (its strata, splits, units)."""
        axes = {"cluster": (1, 2), "tokens": (0, 2), "case_class": (0, 1)}
        return {dimension: self.strata.sum(axis=axis) for dimension, axis in axes.items()}


def split_totals(index: NDArray[np.void]) -> SplitTotals:
    """Return documents, tokens and bytes of each split of some index rows."""

    def total(split: int) -> SplitTotal:
        rows = index[index["split"] == split]
        return SplitTotal(documents=len(rows), tokens=int(rows["tokens"].sum()), raw_bytes=int(rows["raw_bytes"].sum()))

    return SplitTotals(train=total(0), validation=total(1))


def length_name(rank: int) -> str:
    """Return how a length bucket is named: `1024-2047`, `32768+`."""
    if rank + 1 == len(LENGTH_EDGES):
        return f"{LENGTH_EDGES[rank]}+"
    return f"{LENGTH_EDGES[rank]}-{LENGTH_EDGES[rank + 1] - 1}"


LENGTH_NAMES = tuple(map(length_name, range(len(LENGTH_EDGES))))


def cluster_names(clusters: I64) -> list[str]:
    """Return how clusters are named; -1 is a document without one."""
    return [str(cluster) if cluster >= 0 else "none" for cluster in clusters]


def quantile(ordered: I64, percent: int) -> I64:
    """Return the values at rank floor(percent (n - 1) / 100) of each row: observed ones, so no float is made. Zeros of
    a row without values."""
    count = ordered.shape[1]
    return ordered[:, percent * (count - 1) // 100] if count else np.zeros(len(ordered), "<i8")


def sketch(prefix: Prefix, spill: Spill) -> Sketch:
    """Look at every region once, and hand its ids to `spill`."""
    # Ids are uniform and know nothing of scores, so those below a bound are a random sample that anyone draws again.
    bounds = [min(2**64 - 1, SAMPLE * 2**64 // max(1, documents)) for documents in prefix.splits]
    clusters, metrics = set[int](), len(prefix.metrics)
    samples = [[np.empty((metrics, 0), "<i8")] for _ in SPLITS]
    least, most = (np.full((len(SPLITS), metrics), far) for far in (_MOST, -_MOST))
    for region, rows, scores in prefix.filled():
        high, low = id_words(rows["id"])
        spill.add(region, rows, high, low)
        clusters.update(np.unique(rows["cluster"]).tolist())
        for split, bound in enumerate(bounds):
            inside = rows["split"] == split
            samples[split].append(scores[:, inside & (high <= np.uint64(bound))])
            least[split] = np.minimum(least[split], scores.min(axis=1, where=inside, initial=_MOST))
            most[split] = np.maximum(most[split], scores.max(axis=1, where=inside, initial=-_MOST))
    sample = [np.sort(np.concatenate(parts, axis=1), axis=1) for parts in samples]
    return Sketch(np.array(sorted(clusters), "<i8"), sample, least, most)


def count(prefix: Prefix, clusters: I64, edges: I64) -> Counts:
    """Count every document of the prefix. `edges` (M, 3) part the quarters of each score."""
    shape, metrics = (len(clusters), len(LENGTH_EDGES), len(CASE_CLASSES), len(SPLITS)), len(prefix.metrics)
    made = Counts(
        clusters=clusters,
        strata=np.zeros((*shape, len(UNITS)), "<i8"),
        scored=np.zeros((metrics, *shape, len(BUCKETS), len(UNITS)), "<i8"),
        squares=np.zeros((len(clusters), len(SPLITS))),
        documents=np.zeros((prefix.regions, sum(shape[:3])), "<i8"),
        tokens=np.zeros((prefix.regions, len(clusters)), "<i8"),
    )
    for region, rows, scores in prefix.filled():
        weights = [rows["tokens"].astype(float), rows["raw_bytes"].astype(float)]
        cluster = np.searchsorted(clusters, rows["cluster"])
        length = np.searchsorted(LENGTH_EDGES, rows["tokens"], "right") - 1
        split = rows["split"].astype("<i8")
        cell = np.ravel_multi_index((cluster, length, rows["case_class"], split), shape)
        counted = _summed(cell, weights, made.strata)
        made.strata[...] += counted
        by_stratum = counted[..., 0].sum(axis=3)
        parts = [by_stratum.sum(axis=axes) for axes in ((1, 2), (0, 2), (0, 1))]
        made.documents[region] = np.concatenate(parts)
        made.tokens[region] = counted[..., 1].sum(axis=(1, 2, 3))
        # In the order of the documents, so the rounding of these sums is the same everywhere.
        squares = np.bincount(cluster * len(SPLITS) + split, weights[0] ** 2, made.squares.size)
        made.squares[...] += squares.reshape(made.squares.shape)
        for metric, column in enumerate(scores):
            bucket = cell * len(BUCKETS)
            for edge in edges[metric]:
                bucket += column >= edge
            made.scored[metric] += _summed(bucket, weights, made.scored[metric])
    return made


def _summed(cell: I64, weights: list[NDArray[np.float64]], like: I64) -> I64:
    """Return documents and the sums of the weights of each cell. The sums of a region stay below 2^53: exact."""
    size = like.size // len(UNITS)
    sums = [np.bincount(cell, weight, size) for weight in (None, *weights)]
    return np.stack(sums, axis=-1).astype("<i8").reshape(like.shape)
