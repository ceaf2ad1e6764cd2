"""The stratification report: is the admitted prefix a fair picture of the plan?

Counts documents, tokens and bytes by cluster, length, casing pattern and split, the quantiles of every recorded score,
each region beside the whole, and documents whose text was seen before. Pure: index rows and scores in, tables out.
Memory: the index rows (42 bytes a document) and one score column at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.codec.mixture import COMPONENTS
from casebits_dagster.records.frontier import SplitTotal, SplitTotals
from casebits_dagster.records.record import micro_text
from casebits_dagster.records.stratification import StratificationReport, Table

LENGTH_EDGES = (0, 256, 512, 1_024, 2_048, 4_096, 8_192, 16_384, 32_768)
QUANTILES = (0, 10, 25, 50, 75, 90, 100)
CASE_CLASSES = (*COMPONENTS, "no letters")
SPLITS = ("train", "validation")


def tabulate(
    generation: str,
    version: int,
    manifest_sha256: str,
    index: NDArray[np.void],
    scores: Mapping[str, NDArray[np.int64]],
) -> StratificationReport:
    """Return the report over `index`, INDEX_DTYPE (N,), and the score columns in millionths, "<i8" (N,) each."""
    lengths = np.searchsorted(LENGTH_EDGES, index["tokens"], "right") - 1
    length_names = [length_name(rank) for rank in range(len(LENGTH_EDGES))]
    clusters = np.unique(index["cluster"])
    cluster_names = [str(cluster) if cluster >= 0 else "none" for cluster in clusters]
    cluster_rank = np.searchsorted(clusters, index["cluster"])
    return StratificationReport(
        generation=generation,
        version=version,
        manifest_sha256=manifest_sha256,
        documents=len(index),
        tokens=int(index["tokens"].sum()),
        tables={
            "by_cluster": _counted("cluster", cluster_names, cluster_rank, index),
            "by_length": _counted("tokens", length_names, lengths, index),
            "by_case_class": _counted("case_class", CASE_CLASSES, index["case_class"], index),
            "cluster_by_length": _crossed(cluster_names, length_names, cluster_rank, lengths, index["tokens"]),
            "scores": _quantiles(scores, index["split"]),
            "by_region": _by_region(cluster_names, cluster_rank, index),
            "duplicates": _duplicates(index),
        },
    )


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


def _sums(ranks: NDArray[np.int64], weights: NDArray[np.int64], size: int) -> list[int]:
    # Integer sums: bincount with weights would go through floats and lose exactness beyond 2^53.
    totals = np.zeros(size, "<i8")
    np.add.at(totals, ranks, weights)
    return [int(total) for total in totals]


def _counted(name: str, names: Sequence[str], ranks: NDArray[np.int64], index: NDArray[np.void]) -> Table:
    columns: list[Sequence[int | str]] = [names]
    headers = [name]
    for number, split in enumerate(SPLITS):
        rows = index["split"] == number
        for unit in ("documents", "tokens", "raw_bytes"):
            weights = np.ones(len(index), "<i8") if unit == "documents" else index[unit].astype("<i8")
            headers.append(f"{split}_{unit}")
            columns.append(_sums(ranks[rows], weights[rows], len(names)))
    return Table(columns=tuple(headers), rows=tuple(zip(*columns, strict=True)))


def _crossed(
    rows: list[str], columns: list[str], row: NDArray[np.int64], column: NDArray[np.int64], tokens: NDArray[np.int64]
) -> Table:
    sums = np.array(_sums(row * len(columns) + column, tokens.astype("<i8"), len(rows) * len(columns)), "<i8")
    body = sums.reshape(len(rows), len(columns)).tolist()
    return Table(
        columns=("cluster", *columns), rows=tuple((name, *line) for name, line in zip(rows, body, strict=True))
    )


def _quantiles(scores: Mapping[str, NDArray[np.int64]], split: NDArray[np.uint8]) -> Table:
    rows: list[tuple[int | str, ...]] = []
    for metric in sorted(scores):
        for number, name in enumerate(SPLITS):
            column = np.sort(scores[metric][split == number])
            if len(column):
                # The value at rank floor(q (n - 1) / 100): an observed value, so no float enters the report.
                cells = [micro_text(int(column[quantile * (len(column) - 1) // 100])) for quantile in QUANTILES]
                rows.append((metric, name, len(column), *cells))
    return Table(columns=("metric", "split", "documents", *(f"p{q}" for q in QUANTILES)), rows=tuple(rows))


def _by_region(names: list[str], cluster_rank: NDArray[np.int64], index: NDArray[np.void]) -> Table:
    rows: list[tuple[int | str, ...]] = []
    for region in np.unique(index["region"]):
        chosen = index["region"] == region
        sums = _sums(cluster_rank[chosen], index["tokens"][chosen].astype("<i8"), len(names))
        total = sum(sums)
        rows.append((f"{region:05d}", int(chosen.sum()), total, *(part * 1_000_000 // total for part in sums)))
    columns = ("region", "documents", "tokens", *(f"cluster_{name}_micro" for name in names))
    return Table(columns=columns, rows=tuple(rows))


def _duplicates(index: NDArray[np.void]) -> Table:
    """Return documents whose id stands earlier in the prefix: how many, their tokens, and each such group."""
    # A stable sort keeps prefix order inside a group, so the first of a group is the one seen first.
    order = np.argsort(index["id"], kind="stable")
    ids = index["id"][order]
    again = np.zeros(len(ids), bool)
    again[1:] = ids[1:] == ids[:-1]
    repeats = index[order][again]
    rows = [
        (document["id"].tobytes().hex(), f"{document['region']:05d}", int(document["index"]), int(document["tokens"]))
        for document in repeats
    ]
    return Table(columns=("document_id", "region", "index", "tokens"), rows=tuple(sorted(rows)))
