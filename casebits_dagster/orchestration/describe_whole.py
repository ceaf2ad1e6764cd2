"""What a frontier, its stratification report and a mix show on their pages."""

from __future__ import annotations

from collections.abc import Sequence

from casebits_dagster.lineage.mix_summary import percent, read_report
from casebits_dagster.mixing.build import BuiltMix
from casebits_dagster.orchestration import plots
from casebits_dagster.orchestration.metadata import Metadata, Row, fields, table, upstream
from casebits_dagster.orchestration.partitions import MIXES, asset_key
from casebits_dagster.orchestration.stages import ADMITTED, FRONTIER
from casebits_dagster.publication.frontier import Advanced
from casebits_dagster.publication.stratification import WrittenReport
from casebits_dagster.records.canonical import Json
from casebits_dagster.records.frontier import SplitTotal
from casebits_dagster.records.layout import ADMISSION, Home, region_id
from casebits_dagster.records.mix import ContextRow, MarginReport, MixReport
from casebits_dagster.records.pins import Generation
from casebits_dagster.records.stratification import StratificationReport

_CELL_COLUMNS = ("domain", "lengths", "supply_tokens", "target_tokens", "achieved_tokens", "error_tokens")


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


def mix(done: BuiltMix, home: Home) -> Metadata:
    """Return the page of a packed mix; one that lays out an earlier mix's documents again is shown beside it."""
    report = done.report
    chosen, kept, domains = report.selection, report.conservation, report.window_domains
    layouts = _layouts(report, home)
    return {
        "dagster/row_count": report.train.documents,
        "strategy": report.recipe.strategy,
        "windows": report.train.windows,
        "sequence_length": report.recipe.sequence_length,
        "documents": report.train.documents,
        "tokens": kept.window_tokens,
        "validation_windows": report.validation.windows,
        "targets_met": chosen.outcome,
        "unfit_documents": chosen.unfit_documents,
        "domains_plot": _target_plot(chosen.domains),
        "domains": table([_margin(row) for row in chosen.domains]),
        "lengths_plot": _target_plot(chosen.lengths),
        "lengths": table([_margin(row) for row in chosen.lengths]),
        "cells": table([fields(row, *_CELL_COLUMNS) for row in chosen.cells]),
        "context_plot": _context_plot(layouts),
        "context": table(_context_rows(layouts)),
        "conservation": _equation(report),
        "cut_documents": len(report.cut),
        "returned_documents": len(report.returned),
        "one_sided_windows": f"{domains.one_sided_windows} of {domains.mixed_windows} mixed windows",
        "loss_reference": report.loss_reference.to_dict(),
        "licences": ", ".join(report.licences),
        "manifest_sha256": done.manifest_sha256,
        "folder": done.folder,
        "written": "published now" if done.published else "identical bytes were published before",
        "made_from": _mix_sources(report),
        "next": f"casebits audit --mix {report.recipe.mix} --window 0 follows one window back to its source rows.",
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


def _target_plot(rows: Sequence[MarginReport]) -> object:
    whole = sum(row.target_tokens for row in rows)
    asked = [100 * row.target_tokens / whole for row in rows]
    achieved = [100 * float(row.achieved_share) for row in rows]
    return plots.bars({"target": asked, "achieved": achieved}, [row.name for row in rows], "% of tokens")


def _margin(row: MarginReport) -> Row:
    return {
        "name": row.name,
        "asked": percent(row.asked_share),
        "achieved": percent(row.achieved_share),
        **fields(row, "target_tokens", "achieved_tokens", "error_tokens", "supply_tokens"),
    }


def _layouts(report: MixReport, home: Home) -> dict[str, tuple[ContextRow, ...]]:
    """Return the context rows of the mix, and of the earlier mix that holds the same documents, by strategy."""
    shown: dict[str, tuple[ContextRow, ...]] = {report.recipe.strategy: report.context}
    if report.recipe.documents_of:
        earlier = read_report(home.mix(report.recipe.documents_of))
        shown |= {earlier.recipe.strategy: earlier.context}
    return shown


def _context_rows(layouts: dict[str, tuple[ContextRow, ...]]) -> list[Row]:
    rows = []
    for number, nearest in enumerate(_nearest(layouts)):
        shares = {name: percent(context[number].share) for name, context in layouts.items()}
        rows.append({"tokens_back": nearest.distance, **shares, "upper_bound": percent(nearest.bound_share)})
    return rows


def _nearest(layouts: dict[str, tuple[ContextRow, ...]]) -> list[ContextRow]:
    # Each layout's share is of its own windows; the bound shown is that of the layout that comes nearest to it.
    return [max(same, key=lambda row: row.share) for same in zip(*layouts.values(), strict=True)]


def _context_plot(layouts: dict[str, tuple[ContextRow, ...]]) -> object:
    nearest = _nearest(layouts)
    series = {name: [100 * float(row.share) for row in rows] for name, rows in layouts.items()}
    series["upper bound"] = [100 * float(row.bound_share) for row in nearest]
    ticks = [f"{row.distance:,} back" for row in nearest]
    return plots.bars(series, ticks, "% of positions, same document")


def _equation(report: MixReport) -> str:
    c = report.conservation
    left = f"{c.selected_tokens:,} selected + {c.inserted_separators:,} inserted"
    parts = {"in windows": c.window_tokens, "cut": c.cut_tokens, "returned": c.returned_tokens, "rest": c.rest_tokens}
    right = " + ".join(f"{count:,} {name}" for name, count in parts.items())
    return f"{left} {'=' if c.holds else '!='} {right}"


def _mix_sources(report: MixReport) -> list[dict[str, Json]]:
    frontiers = [
        upstream(asset_key(source.generation, FRONTIER), source.manifest_sha256, version=source.manifest_version)
        for source in report.sources
    ]
    earlier = [upstream(asset_key(MIXES, used.mix), used.manifest_sha256, role=used.role) for used in report.mixes]
    return frontiers + earlier
