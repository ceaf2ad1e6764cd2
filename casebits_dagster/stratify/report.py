"""Make the report of a prefix from its counts: shares in millionths, standard errors in thousandths, exact integers.

How far a draw strays is measured against drawing its documents without replacement (the hypergeometric distribution):
a region from the prefix, the validation documents from all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from casebits_dagster.records.record import micro_text
from casebits_dagster.records.stratification import Repeats, StratificationReport, Table
from casebits_dagster.stratify.repeats import Repeated, Spill, find_repeats
from casebits_dagster.stratify.strata import (
    BUCKETS,
    CASE_CLASSES,
    I64,
    LENGTH_NAMES,
    SPLITS,
    UNITS,
    Counts,
    Prefix,
    Sketch,
    cluster_names,
    count,
    quantile,
    sketch,
)

QUANTILES = (0, 10, 25, 50, 75, 90, 100)
COUNTED = tuple(f"{split}_{unit}" for split in SPLITS for unit in UNITS)
LEAST_COUNT = 20
"""A stratum is judged in a region that has, or should have, so many documents of it: below, errors are not normal."""


def tabulate(prefix: Prefix, scratch: Path) -> StratificationReport:
    """Return the report of a prefix; `scratch` is an empty folder for 28 bytes a document."""
    with Spill(scratch, sum(prefix.splits)) as spill:
        seen = sketch(prefix, spill)
        repeated = find_repeats(spill, prefix.regions)
    edges = seen.edges()
    counts = count(prefix, seen.clusters, edges)
    totals = counts.strata.sum(axis=(0, 1, 2, 3)).tolist()
    earlier = prefix.earlier.regions if prefix.earlier else 0
    return StratificationReport(
        generation=prefix.generation,
        version=prefix.version,
        manifest_sha256=prefix.manifest_sha256,
        regions=prefix.regions,
        documents=totals[0],
        tokens=totals[1],
        earlier=prefix.earlier,
        repeats=Repeats(
            documents=int(repeated.by_region.sum()),
            tokens=repeated.tokens,
            groups=repeated.groups,
            new=int(repeated.by_region[earlier:].sum()),
        ),
        tables={
            **_counted_tables(prefix, counts, edges),
            "scores": _scores(prefix, seen),
            "by_region": _by_region(counts),
            "control_chart": _control_chart(counts, repeated.by_region),
            "expectation": _expectation(prefix, counts),
            "validation": _validation(counts),
            "duplicates": _duplicates(repeated),
            "effective": _effective(counts),
            "changes": _changes(counts, earlier),
        },
    )


def share_micro(part: int, whole: int) -> int:
    """Return part / whole in millionths, towards zero; 0 of an empty whole."""
    return _signed(part * 1_000_000, whole)


def deviation_milli(inside: int, drawn: int, members: int, whole: int) -> int:
    """Return how far a draw strays, in thousandths of a standard error.

    Of `whole` documents `members` are of a stratum; of the `drawn` ones `inside` are. Exact: the root of a ratio of
    integers, rounded down. 0 where nothing could have come out otherwise.

    >>> deviation_milli(70, 100, 500, 1_000)  # 20 more than 50, of which 100 draws stray by 4.7
    4214
    """
    gap = inside * whole - drawn * members
    spread = drawn * members * (whole - members) * (whole - drawn)
    return _root_milli(gap, gap * gap * (whole - 1), spread)


def _root_milli(sign: int, squared: int, by: int) -> int:
    return int(math.copysign(math.isqrt(squared * 1_000_000 // by), sign)) if by else 0


def _signed(part: int, whole: int) -> int:
    return (abs(part) // whole) * (1 if part >= 0 else -1) if whole else 0


def _table(columns: Sequence[str], rows: Iterable[Sequence[int | str]]) -> Table:
    return Table(columns=tuple(columns), rows=tuple(map(tuple, rows)))


def _counted_tables(prefix: Prefix, counts: Counts, edges: I64) -> dict[str, Table]:
    names = {"cluster": cluster_names(counts.clusters), "tokens": LENGTH_NAMES, "case_class": CASE_CLASSES}
    tables = {"cluster": "by_cluster", "tokens": "by_length", "case_class": "by_case_class"}
    crossed = counts.strata[..., 1].sum(axis=(2, 3)).tolist()
    scored = np.moveaxis(counts.scored, 5, 4)  # the bucket among the strata, before split and unit
    quarters = _named([prefix.metrics, BUCKETS], scored.sum(axis=(1, 2, 3)), empty=True)
    begins = [begin for cuts in edges.tolist() for begin in ("", *map(micro_text, cuts))]
    return {
        **{
            tables[by]: _table((by, *COUNTED), _named([names[by]], margin, empty=True))
            for by, margin in counts.margins().items()
        },
        "cluster_by_length": _table(
            ("cluster", *LENGTH_NAMES), ((name, *row) for name, row in zip(names["cluster"], crossed, strict=True))
        ),
        "strata": _table((*names, *COUNTED), _named([*names.values()], counts.strata)),
        "by_score": _table(
            ("metric", "bucket", "from", *COUNTED),
            ((*row[:2], begin, *row[2:]) for row, begin in zip(quarters, begins, strict=True)),
        ),
        "strata_by_score": _table(
            ("metric", *names, "bucket", *COUNTED), _named([prefix.metrics, *names.values(), BUCKETS], scored)
        ),
    }


def _named(axes: Sequence[Sequence[str]], counts: I64, empty: bool = False) -> list[tuple[int | str, ...]]:
    """Return a row of names and counts for each stratum that has a document, or for every one. `counts` has an axis for
    each of `axes`, and then split and unit."""
    flat = counts.reshape(-1, len(COUNTED))
    rows = np.arange(len(flat)) if empty else np.flatnonzero(flat.any(axis=1))
    at = np.unravel_index(rows, counts.shape[:-2])
    columns = [[names[rank] for rank in ranks] for names, ranks in zip(axes, at, strict=True)]
    return [(*row[:-1], *row[-1]) for row in zip(*columns, flat[rows].tolist(), strict=True)]


def _scores(prefix: Prefix, seen: Sketch) -> Table:
    rows: list[tuple[int | str, ...]] = []
    for metric, name in enumerate(prefix.metrics):
        for split, of in enumerate(SPLITS):
            if prefix.splits[split]:
                sample = seen.sample[split][metric : metric + 1]
                inner = [int(quantile(sample, percent)[0]) for percent in QUANTILES[1:-1]]
                cuts = (int(seen.least[split][metric]), *inner, int(seen.most[split][metric]))
                rows.append((name, of, prefix.splits[split], *map(micro_text, cuts), sample.shape[1]))
    return _table(("metric", "split", "documents", *(f"p{percent}" for percent in QUANTILES), "sampled"), rows)


def _filled(counts: Counts) -> list[int]:
    return np.flatnonzero(counts.tokens.any(axis=1)).tolist()


def _by_region(counts: Counts) -> Table:
    names = cluster_names(counts.clusters)
    rows: list[tuple[int | str, ...]] = []
    for region in _filled(counts):
        tokens = counts.tokens[region].tolist()
        documents = int(counts.documents[region, : len(names)].sum())
        shares = [share_micro(part, sum(tokens)) for part in tokens]
        rows.append((f"{region:05d}", documents, sum(tokens), *shares))
    return _table(("region", "documents", "tokens", *(f"cluster_{name}_micro" for name in names)), rows)


def _control_chart(counts: Counts, repeated: I64) -> Table:
    """Return of each region the stratum in which it strays the most."""
    named, members = counts.marginals, counts.documents.sum(axis=0).tolist()
    whole = sum(members[: len(counts.clusters)])
    rows: list[tuple[int | str, ...]] = []
    for region in _filled(counts):
        inside = counts.documents[region].tolist()
        drawn = sum(inside[: len(counts.clusters)])
        strayed = [
            (deviation_milli(part, drawn, of, whole), *name)
            for part, of, name in zip(inside, members, named, strict=True)
            if part >= LEAST_COUNT or drawn * of >= LEAST_COUNT * whole
        ]
        most = max(strayed, key=lambda row: abs(row[0]), default=(0, "none", "none"))
        rows.append((f"{region:05d}", drawn, *most, int(repeated[region])))
    return _table(("region", "documents", "deviation_milli", "dimension", "stratum", "repeated_documents"), rows)


def _expectation(prefix: Prefix, counts: Counts) -> Table:
    """Return each cluster beside what is expected of it, in standard errors of drawing so many documents."""
    found = dict(zip(counts.clusters.tolist(), counts.margins()["cluster"][..., 0].sum(axis=1).tolist(), strict=True))
    documents, whole = sum(found.values()), sum(prefix.expected.values())
    rows: list[tuple[int | str, ...]] = []
    for cluster in sorted({*found, *prefix.expected}) if whole else ():
        here, there = found.get(cluster, 0), prefix.expected.get(cluster, 0)
        gap = here * whole - there * documents
        error = _signed(gap * 1_000_000, documents * whole)
        strays = _root_milli(gap, gap * gap, documents * there * (whole - there))
        (name,) = cluster_names(np.array([cluster]))
        rows.append((name, there, here, share_micro(there, whole), share_micro(here, documents), error, strays))
    columns = ("cluster", "expected_documents", "documents", "expected_micro", "share_micro", "error_micro")
    return _table((*columns, "deviation_milli"), rows)


def _validation(counts: Counts) -> Table:
    rows: list[tuple[int | str, ...]] = []
    margins = np.concatenate([margin[..., 0] for margin in counts.margins().values()]).tolist()
    whole_train, whole_validation = counts.strata[..., 0].sum(axis=(0, 1, 2)).tolist()
    for name, (train, validation) in zip(counts.marginals, margins, strict=True):
        if train or validation:
            gap = validation * whole_train - train * whole_validation
            rows.append(
                (
                    *name,
                    train,
                    validation,
                    share_micro(train, whole_train),
                    share_micro(validation, whole_validation),
                    _signed(gap * 1_000_000, whole_train * whole_validation),
                    deviation_milli(validation, whole_validation, train + validation, whole_train + whole_validation),
                )
            )
    columns = ("train_documents", "validation_documents", "train_micro", "validation_micro", "error_micro")
    return _table(("dimension", "stratum", *columns, "deviation_milli"), rows)


def _duplicates(repeated: Repeated) -> Table:
    rows = [(name, copies, tokens, first, last) for copies, tokens, name, first, last in repeated.largest]
    return _table(("document_id", "repeats", "tokens", "first", "last"), rows)


def _effective(counts: Counts) -> Table:
    """Return what the documents of each cluster are worth.

    `equal_length`: so many documents of one length would average tokens as well (Kish: squared sum over sum of
    squares). `design_effect_milli`: the variance of the cluster's share between regions over that of drawing documents;
    `independent_documents` drawn one by one would tell the share as well as all of these regions do.
    """
    regions, names = _filled(counts), cluster_names(counts.clusters)
    inside = counts.documents[regions, : len(names)]
    drawn, members = inside.sum(axis=1).tolist(), inside.sum(axis=0).tolist()
    whole, rows = sum(members), list[tuple[int | str, ...]]()
    for rank, name in enumerate(names):
        squares = [
            deviation_milli(part, all_of, members[rank], whole) ** 2
            for part, all_of in zip(inside[:, rank].tolist(), drawn, strict=True)
        ]
        effect = max(1_000, sum(squares) // (1_000 * len(squares)))
        kish = [
            _signed(int(tokens) ** 2, int(of_squares))
            for tokens, of_squares in zip(
                counts.strata[rank, ..., 1].sum(axis=(0, 1)), counts.squares[rank], strict=True
            )
        ]
        rows.append((name, members[rank], *kish, effect, whole * 1_000 // effect))
    kish_names = tuple(f"{split}_equal_length" for split in SPLITS)
    return _table(("cluster", "documents", *kish_names, "design_effect_milli", "independent_documents"), rows)


def _changes(counts: Counts, earlier: int) -> Table:
    before, now = counts.documents[:earlier].sum(axis=0).tolist(), counts.documents.sum(axis=0).tolist()
    clusters = len(counts.clusters)
    was, is_now = sum(before[:clusters]), sum(now[:clusters])
    rows: list[tuple[int | str, ...]] = []
    for name, past, present in zip(counts.marginals, before, now, strict=True):
        if earlier and present:
            change = _signed((present * was - past * is_now) * 1_000_000, was * is_now)
            shares = share_micro(past, was), share_micro(present, is_now)
            rows.append((*name, past, present, *shares, change))
    columns = ("documents_before", "documents", "before_micro", "share_micro", "change_micro")
    return _table(("dimension", "stratum", *columns), rows)
