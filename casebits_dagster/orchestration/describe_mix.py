"""What a mix shows on its page: what was asked for beside what it holds, its windows, their order, what a loss means.

From the report, and from the tables of segments and documents: what every window holds is not in the report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from casebits_dagster.lineage.mix_summary import layout, left_out, percent, read_report
from casebits_dagster.mixing.build import BuiltMix
from casebits_dagster.mixing.packing.layout import WindowPlan, tokens_of_sources
from casebits_dagster.mixing.report import order_report, orders
from casebits_dagster.mixing.seeds import I64
from casebits_dagster.orchestration import plots
from casebits_dagster.orchestration.metadata import Metadata, Row, column_schema, share, table, upstream
from casebits_dagster.orchestration.partitions import MIXES, asset_key
from casebits_dagster.orchestration.stages import FRONTIER
from casebits_dagster.records.canonical import Json
from casebits_dagster.records.layout import Home
from casebits_dagster.records.mix import (
    DOCUMENT_FIELDS,
    SEGMENTS,
    TABLE,
    ContextRow,
    MarginReport,
    MixReport,
    SelectionReport,
)

_BLOCKS = 48
_LISTED = 20
_GRID = 400


@dataclass(frozen=True, slots=True)
class _Windows:
    """What the windows hold, in their order: `tokens` of each domain (W, K), and how many `documents` (W,)."""

    names: tuple[str, ...]
    tokens: I64
    documents: I64

    @classmethod
    def read(cls, report: MixReport, folder: Path) -> _Windows:
        names = tuple(row.name for row in report.selection.domains)
        segments, documents = (np.load(folder / name, mmap_mode="r") for name in (SEGMENTS, TABLE))
        files, length = report.train, report.recipe.sequence_length
        plan = WindowPlan(
            sequence_length=length,
            windows=files.windows,
            segments=segments,
            returned=np.empty(0, np.int64),
            file_tokens=files.file_tokens,
        )
        found = tokens_of_sources(plan, documents["domain"].astype(np.int64))
        counts = np.bincount(segments["window"], minlength=files.windows)[: files.windows]
        return cls(names, np.pad(found, ((0, 0), (0, len(names) - found.shape[1]))), counts)


def columns() -> Metadata:
    """Return the column schema of a mix's table of documents."""
    says = {
        "id": "first 16 bytes of the SHA-256 of the text",
        "region": "region of its generation",
        "index": "number of the document in its region",
        "tokens": "tokens, with its one separator",
        "generation": "which of the report's sources",
        "domain": "which of the report's domains",
        "bucket": "which of the report's lengths",
        "copy": "which epoch's copy of it, from 0",
    }
    return column_schema({name: (dtype, says[name]) for name, dtype in DOCUMENT_FIELDS})


def mix(done: BuiltMix, home: Home) -> Metadata:
    """Return the page of a packed mix; one that lays out an earlier mix's documents again is shown beside it."""
    report, windows = done.report, _Windows.read(done.report, done.folder)
    recipe, files, held = report.recipe, report.train, report.validation
    page: Metadata = {
        "dagster/row_count": files.documents,
        "what_it_is": recipe.description,
        "layout": layout(recipe),
        "windows": f"{files.windows:,} of {recipe.sequence_length:,} tokens, in {files.shards} shards",
        "documents": f"{files.documents:,} in {files.segments:,} segments",
        "validation": f"{held.windows:,} windows of {held.documents:,} other documents" if held.windows else "none",
    }
    return {
        **page,
        **_selection(report),
        **_contents(report, windows),
        **_context(report, home),
        **_order(report, windows),
        "conservation": _equation(report),
        "cut_documents": table([{"row": row.document, "lost_tokens": row.lost_tokens} for row in report.cut[:_LISTED]]),
        "returned_documents": table(
            [{"document": row.id, "tokens": f"{row.tokens:,}"} for row in report.returned[:_LISTED]]
        ),
        "loss_reference": _loss(report),
        "licences": ", ".join(report.licences),
        "manifest_sha256": done.manifest_sha256,
        "folder": done.folder,
        "written": "published now" if done.published else "identical bytes were published before",
        "made_from": _mix_sources(report),
        "audit": f"casebits audit --mix {recipe.mix} --window 0, or the job `audit` with mix: {recipe.mix}",
        "next": f"casebits report --mix {recipe.mix} --out FILE.html makes one page to mail, with ten windows audited.",
    }


def _selection(report: MixReport) -> Metadata:
    """Return targets beside what was achieved, by domain, by length, and by both."""
    chosen, whole = report.selection, "domains" if report.recipe.interleaved is None else "sources"
    page: Metadata = {
        "targets_met": chosen.outcome,
        "left_out": left_out(chosen) or "nothing",
        f"{whole}_plot": _target_plot(chosen.domains),
        whole: table([_margin(row) for row in chosen.domains]),
    }
    if len(chosen.lengths) > 1:
        page |= {
            "lengths_plot": _target_plot(chosen.lengths),
            "lengths": table([_margin(row) for row in chosen.lengths]),
            **({"cells_plot": _cells_plot(chosen)} if len(chosen.cells) <= _GRID else {}),
            "cells": table(
                [
                    {
                        "domain, lengths": f"{row.domain}, {row.lengths}",
                        "target": f"{row.target_tokens:,}",
                        "achieved": f"{row.achieved_tokens:,}",
                        "supply": f"{row.supply_tokens:,}",
                    }
                    for row in chosen.cells
                ]
            ),
        }
    return page


def _margin(row: MarginReport) -> Row:
    return {
        "name": row.name,
        "asked": percent(row.asked_share),
        "achieved": percent(row.achieved_share),
        "error": f"{row.error_tokens:+,}",
        "supply": f"{row.supply_tokens:,}",
    }


def _target_plot(rows: Sequence[MarginReport]) -> object:
    whole = sum(row.target_tokens for row in rows)
    asked = [100 * row.target_tokens / whole for row in rows]
    achieved = [100 * float(row.achieved_share) for row in rows]
    return plots.bars({"target": asked, "achieved": achieved}, [row.name for row in rows], "% of tokens")


def _cells_plot(chosen: SelectionReport) -> object:
    """Return the grid of domains by lengths: what a cell has of all tokens, and what it should have."""
    shape, whole = (len(chosen.domains), len(chosen.lengths)), max(1, chosen.target_tokens)
    shares = [[100 * row.achieved_tokens / whole, 100 * row.target_tokens / whole] for row in chosen.cells]
    texts = [f"{got:.2f} %\nof {asked:.2f}" if asked or got else "-" for got, asked in shares]
    return plots.grid(
        np.array([got for got, _ in shares]).reshape(shape).tolist(),
        np.array(texts).reshape(shape).tolist(),
        [row.name for row in chosen.domains],
        [row.name for row in chosen.lengths],
    )


def _contents(report: MixReport, windows: _Windows) -> Metadata:
    """Return how full the windows are, and how many documents and domains share one."""
    found, count = report.window_domains, report.train.windows
    rows = [
        {"domains in a window": row.domains, "windows": f"{row.windows:,}", "share": share(row.windows, count)}
        for row in found.domains
    ]
    return {
        "fullness": f"no padding; {np.mean(windows.documents):.2f} documents a window",
        "windows_plot": _documents_plot(windows),
        "domains_in_windows": table(rows),
        "one_sided": f"{found.one_sided_windows:,} of {found.mixed_windows:,} mixed ones: > 95 % of one domain",
    }


def _documents_plot(windows: _Windows) -> object:
    """Return how many windows hold so many documents; from 5 on, powers of two share a bar."""
    edges = [1, 2, 3, 4, *(2**power + 1 for power in range(2, 33))]
    place = np.searchsorted(edges, windows.documents, side="right") - 1
    bars = int(place.max(initial=0)) + 1
    ticks = [f"{low:,}" if high == low + 1 else f"{low:,}-{high - 1:,}" for low, high in pairwise(edges)]
    domains = (windows.tokens > 0).sum(axis=1)
    layers = {
        f"{number} domain{'s' * (number != 1)}": np.bincount(place[domains == number], minlength=bars).tolist()
        for number in np.unique(domains).tolist()
    }
    return plots.stacked(layers, ticks[:bars], "documents in a window", "windows")


def _context(report: MixReport, home: Home) -> Metadata:
    layouts = _layouts(report, home)
    return {
        "context_is": "positions that see their own text so far back",
        "context_plot": _context_plot(layouts),
        "context": table(_context_rows(layouts)),
    }


def _layouts(report: MixReport, home: Home) -> dict[str, dict[int, float]]:
    """Return the share of positions that see their own document so far back: of the mix, of the same documents in
    another layout, and the most that any could reach."""
    shown: dict[str, dict[int, float]] = {report.recipe.strategy: _shares(report.context)}
    bounds = [report.context]
    earlier = read_report(home.mix(report.recipe.documents_of)) if report.recipe.documents_of else None
    if earlier and earlier.recipe.sequence_length == report.recipe.sequence_length:
        shown.setdefault(earlier.recipe.strategy, _shares(earlier.context))
        bounds.append(earlier.context)
    beside = {
        row.distance: float(row.concatenated_share) for row in report.context if row.concatenated_share is not None
    }
    if beside:
        shown.setdefault("concatenated", beside)
    # Each layout's share is of its own windows; the bound shown is that of the layout that comes nearest to it.
    nearest = [max(same, key=lambda row: row.share) for same in zip(*bounds, strict=True)]
    return shown | {"upper bound": {row.distance: float(row.bound_share) for row in nearest}}


def _shares(rows: Sequence[ContextRow]) -> dict[int, float]:
    return {row.distance: float(row.share) for row in rows}


def _context_rows(layouts: dict[str, dict[int, float]]) -> list[Row]:
    return [
        {"tokens back": f"{distance:,}", **{name: share(shares[distance], 1) for name, shares in layouts.items()}}
        for distance in layouts["upper bound"]
    ]


def _context_plot(layouts: dict[str, dict[int, float]]) -> object:
    series = {name: [100 * value for value in shares.values()] for name, shares in layouts.items()}
    ticks = [f"{distance:,} back" for distance in layouts["upper bound"]]
    return plots.bars(series, ticks, "% of positions")


def _order(report: MixReport, windows: _Windows) -> Metadata:
    """Return what a trainer that reads from the first window to the last meets when, and how even the steps are."""
    recipe, tokens = report.recipe, windows.tokens
    page: Metadata = {"order_plot": _shares_plot(windows)}
    per_step = recipe.windows_per_step or max(1, len(tokens) // _BLOCKS)
    compared = {str(name): found for name, found in orders(recipe, tokens).items()} or {"this one": tokens}
    if recipe.windows_per_step:
        deviations = {name: _deviations(found, per_step) for name, found in compared.items()}
        page["steps_plot"] = plots.lines(deviations, f"step of {per_step:,} windows", "% of the step, worst domain")
    rows = []
    for name, found in compared.items():
        worst = order_report("shuffled", found, per_step)
        rows.append(
            {
                "order": name,
                "worst step": share(worst.step_tokens, per_step * recipe.sequence_length),
                "worst prefix": f"{worst.prefix_tokens / recipe.sequence_length:.1f} windows",
            }
        )
    page["off_the_shares"] = table(rows)
    page["steps"] = (
        f"{per_step:,} windows each" if recipe.windows_per_step else f"none declared; {per_step:,} windows taken as one"
    )
    return page


def _deviations(tokens: I64, per_step: int) -> list[float]:
    """Return how far each full step is from the shares of all windows, in % of its tokens, in its worst domain."""
    steps = len(tokens) // per_step
    found = tokens[: steps * per_step].reshape(steps, per_step, tokens.shape[1]).sum(axis=1)
    share_of_all = tokens.sum(axis=0) / max(1, tokens.sum())
    off = np.abs(found / np.maximum(1, found.sum(axis=1, keepdims=True)) - share_of_all)
    return [float(worst) for worst in 100 * off.max(axis=1, initial=0)]


def _shares_plot(windows: _Windows) -> object:
    count = len(windows.tokens)
    cuts = np.unique(np.arange(min(_BLOCKS, count)) * count // min(_BLOCKS, count))
    blocks = np.add.reduceat(windows.tokens, cuts, axis=0)
    shares = 100 * blocks / blocks.sum(axis=1, keepdims=True)
    series = {name: shares[:, column].tolist() for column, name in enumerate(windows.names)}
    return plots.stacked(series, [f"{cut:,}" for cut in cuts.tolist()], "window", "% of tokens")


def _equation(report: MixReport) -> object:
    kept = report.conservation
    terms = {
        "tokens selected": kept.selected_tokens,
        "+ separators inserted": kept.inserted_separators,
        "= in windows": kept.window_tokens,
        "+ cut off documents": kept.cut_tokens,
        "+ in documents returned whole": kept.returned_tokens,
        "+ rest after the last window": kept.rest_tokens,
    }
    rows = [{"term": term, "tokens": f"{count:,}"} for term, count in terms.items()]
    return table([*rows, {"term": "the equation", "tokens": "holds" if kept.holds else "DOES NOT HOLD"}])


def _loss(report: MixReport) -> object:
    """Return what a run has learned whose loss settles near a reference point."""
    loss = report.loss_reference
    rows = [
        (f"nothing: ln({loss.vocabulary_size:,})", f"{loss.uniform_nats:.2f}"),
        ("token frequencies only: is the order lost?", f"{loss.unigram_nats:.2f}"),
    ]
    if loss.bigram:
        rows.append(("what one token tells of the next", f"{loss.bigram.low_nats:.2f} to {loss.bigram.high_nats:.2f}"))
    return table([{"nats a token": nats, "who settles there knows": known} for known, nats in rows])


def _mix_sources(report: MixReport) -> list[dict[str, Json]]:
    frontiers = [
        upstream(asset_key(source.generation, FRONTIER), source.manifest_sha256, version=source.manifest_version)
        for source in report.sources
    ]
    earlier = [upstream(asset_key(MIXES, used.mix), used.manifest_sha256, role=used.role) for used in report.mixes]
    return frontiers + earlier
