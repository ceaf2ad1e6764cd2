"""What a frontier and its stratification report show on their pages, and (`describe_mix`) a mix."""

from __future__ import annotations

from casebits_dagster.orchestration import describe_mix, plots
from casebits_dagster.orchestration.metadata import Metadata, Row, fields, table, upstream
from casebits_dagster.orchestration.partitions import asset_key
from casebits_dagster.orchestration.stages import ADMITTED, FRONTIER
from casebits_dagster.publication.frontier import Advanced
from casebits_dagster.publication.stratification import WrittenReport
from casebits_dagster.records.canonical import Json
from casebits_dagster.records.frontier import SplitTotal
from casebits_dagster.records.layout import ADMISSION, Home, region_id
from casebits_dagster.records.pins import Generation
from casebits_dagster.records.stratification import StratificationReport

mix = describe_mix.mix


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
        "admitted_beyond_the_gap": ", ".join(map(region_id, done.waiting)) or "none",
        "admitted_prefix": plots.prefix(tokens, done.waiting, manifest.plan.total),
        "splits": table([_split(name, getattr(manifest.splits, name)) for name in ("train", "validation")]),
        "newest_regions": table(
            [
                {"region": region_id(entry.index), **fields(entry, "documents", "tokens", "content_id")}
                for entry in manifest.regions[-20:]
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
    tables = {name: table(_rows(report, name)) for name in report.tables}
    return {
        "dagster/row_count": report.documents,
        "frontier_version": report.version,
        "documents": report.documents,
        "tokens": report.tokens,
        "cluster_shares_by_region": _cluster_shares(report),
        **tables,
        "duplicates_across_regions": len(report.tables["duplicates"].rows),
        "report": done.path,
        "report_sha256": done.sha256,
        "written": "now" if done.published else "identical bytes were there before",
        "made_from": [upstream(asset_key(report.generation, FRONTIER), report.manifest_sha256)],
    }


def _split(name: str, total: SplitTotal) -> Row:
    return {"split": name, "documents": total.documents, "tokens": total.tokens, "text_bytes": total.raw_bytes}


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


def _cluster_shares(report: StratificationReport) -> object:
    rows = _rows(report, "by_region")
    series = {
        column.removeprefix("cluster_").removesuffix("_micro"): [row[column] / 10_000 for row in rows]
        for column in report.tables["by_region"].columns
        if column.endswith("_micro")
    }
    return plots.stacked(series, [row["region"] for row in rows], "region", "% of tokens, by cluster")
