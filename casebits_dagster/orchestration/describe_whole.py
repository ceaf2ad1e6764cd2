"""What a frontier and its stratification report show on their pages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from casebits_dagster.orchestration import plots
from casebits_dagster.orchestration.metadata import Metadata, Row, plain, share, table, upstream
from casebits_dagster.orchestration.partitions import asset_key
from casebits_dagster.orchestration.stages import ADMITTED, FRONTIER
from casebits_dagster.publication.frontier import Advanced
from casebits_dagster.publication.stratification import WrittenReport
from casebits_dagster.records.canonical import Json
from casebits_dagster.records.frontier import SplitTotal
from casebits_dagster.records.layout import ADMISSION, Home, region_id
from casebits_dagster.records.pins import Generation
from casebits_dagster.records.stratification import StratificationReport

_LISTED = 20
_BARS = 200


def frontier(generation: Generation, done: Advanced, home: Home) -> Metadata:
    """Return the page of a frontier version."""
    manifest, folder = done.manifest, home.generation(generation.name)
    tokens = [entry.tokens for entry in manifest.regions]
    waits = f"region {region_id(done.first_missing)}" if done.first_missing is not None else "nothing: it is complete"
    return {
        "dagster/row_count": sum(entry.documents for entry in manifest.regions),
        "version": manifest.version,
        "regions": f"{manifest.count} of {manifest.plan.total}",
        "documents": sum(entry.documents for entry in manifest.regions),
        "tokens": sum(tokens),
        "status": done.latest.status,
        "waits_for": waits,
        "beyond_the_gap": _listed(done.waiting),
        "prefix_plot": plots.prefix(tokens, done.waiting, manifest.plan.total),
        "splits": table([_split(name, getattr(manifest.splits, name)) for name in ("train", "validation")]),
        "newest_regions": table(
            [
                {
                    "region": region_id(entry.index),
                    "documents": f"{entry.documents:,}",
                    "tokens": f"{entry.tokens:,}",
                    "content_id begins": entry.content_id[:16],
                }
                for entry in manifest.regions[-_LISTED:]
            ]
        ),
        "manifest": folder.manifest(manifest.version),
        "latest": folder.latest,
        "manifest_sha256": done.manifest_sha256,
        "tree_root": manifest.tree_root,
        "written": "a new version" if done.changed else "nothing new was admitted: no byte changed",
        "made_from": _admissions(generation, done),
        "next": "stratification_report says whether the prefix is a fair picture; the mixes draw on it.",
    }


def stratification(done: WrittenReport) -> Metadata:
    """Return the page of a stratification report."""
    report = done.report
    return {
        "dagster/row_count": report.documents,
        "frontier_version": report.version,
        "documents": report.documents,
        "tokens": report.tokens,
        "by_region_plot": _cluster_shares(report),
        "by_cluster": table(_strata(report, "by_cluster", "cluster")),
        "by_length": table(_strata(report, "by_length", "tokens", "length in tokens")),
        "by_case_class": table(_strata(report, "by_case_class", "case_class")),
        "cluster_by_length_plot": _cells(report),
        "train_scores": table(_scores(report)),
        "duplicates": len(report.tables["duplicates"].rows),
        "which_duplicates": table(_rows(report, "duplicates")[:_LISTED]),
        "report": done.path,
        "report_sha256": done.sha256,
        "written": "now" if done.published else "identical bytes were there before",
        "made_from": [upstream(asset_key(report.generation, FRONTIER), report.manifest_sha256)],
        "next": "a mix takes its own shares of these clusters and lengths from the frontier.",
    }


def _split(name: str, total: SplitTotal) -> Row:
    counts = {"documents": total.documents, "tokens": total.tokens, "text bytes": total.raw_bytes}
    return {"split": name, **{key: f"{count:,}" for key, count in counts.items()}}


def _listed(regions: Sequence[int]) -> str:
    """Return the first regions of a list by name, and how many there are."""
    names = ", ".join(map(region_id, regions[:_LISTED]))
    return f"{len(regions)}: {names}{', ...' if len(regions) > _LISTED else ''}" if regions else "none"


def _admissions(generation: Generation, done: Advanced) -> list[dict[str, Json]]:
    asset = asset_key(generation.name, ADMITTED)
    return [
        upstream(asset, file.sha256, region_id(entry.index))
        for entry in done.manifest.regions
        for file in entry.files
        if file.name == ADMISSION
    ]


def _rows(report: StratificationReport, name: str) -> list[Row]:
    found = report.tables[name]
    return [dict(zip(found.columns, row, strict=True)) for row in found.rows]


def _strata(report: StratificationReport, name: str, by: str, shown: str = "") -> list[Row]:
    """Return documents and tokens of each stratum, with its share of all tokens, and what of it is for validation."""
    return [
        {
            shown or by: row[by],
            "documents": f"{row['train_documents'] + row['validation_documents']:,}",
            "tokens": f"{(tokens := row['train_tokens'] + row['validation_tokens']):,}",
            "of all tokens": share(tokens, report.tokens),
            "validation": share(row["validation_tokens"], tokens),
        }
        for row in _rows(report, name)
    ]


def _cells(report: StratificationReport) -> object:
    """Return the grid of clusters by lengths: what each has of all tokens."""
    found = report.tables["cluster_by_length"]
    shares = [[100 * int(count) / max(1, report.tokens) for count in row[1:]] for row in found.rows]
    texts = [[f"{value:.1f} %" if value else "-" for value in row] for row in shares]
    return plots.grid(shares, texts, [f"cluster {row[0]}" for row in found.rows], found.columns[1:])


def _scores(report: StratificationReport) -> list[Row]:
    cuts = ("p0", "p10", "p50", "p90", "p100")
    rows = [row for row in _rows(report, "scores") if row["split"] == "train"]
    return [{"metric": row["metric"], **{cut: plain(str(row[cut])) for cut in cuts}} for row in rows]


def _cluster_shares(report: StratificationReport) -> object:
    rows = _rows(report, "by_region")
    names = [column for column in report.tables["by_region"].columns if column.endswith("_micro")]
    cuts = np.arange(0, len(rows), 1 + len(rows) // _BARS)
    tokens = np.array([row["tokens"] for row in rows], float)
    shares = np.array([[row[name] for name in names] for row in rows], float).reshape(len(rows), len(names)) / 10_000
    if len(rows):
        shares = np.add.reduceat(shares * tokens[:, None], cuts) / np.maximum(1, np.add.reduceat(tokens, cuts))[:, None]
    labels = [name.removeprefix("cluster_").removesuffix("_micro") for name in names]
    series = dict(zip(labels, shares.T.tolist(), strict=True))
    return plots.stacked(series, [rows[cut]["region"] for cut in cuts], "region", "% of tokens, by cluster")
