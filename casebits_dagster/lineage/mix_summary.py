"""What the reports of mixes say, as lines for people: targets against achieved, conservation, context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path

from casebits_dagster.records.mix import REPORT, MarginReport, MixReport


def read_report(folder: Path) -> MixReport:
    """Return the report of the mix in a folder."""
    path = folder / REPORT
    return MixReport.parse(path.read_bytes(), str(path))


def mix_lines(report: MixReport) -> list[str]:
    """Return what a mix is made of, what it was asked for, and the equation that loses no token."""
    recipe, train, used = report.recipe, report.train, report.conservation
    lines = [
        f"mix {recipe.mix}: {recipe.description}",
        f"  layout     {recipe.strategy}; {train.windows:,} windows of {recipe.sequence_length:,} tokens in "
        f"{train.shards} shards; {train.documents:,} documents in {train.segments:,} segments",
        f"  validation {report.validation.windows:,} windows; {report.validation.documents:,} documents",
    ]
    if recipe.documents_of:
        lines.append(f"  selection  the documents of {recipe.documents_of}")
    else:
        chosen = report.selection
        lines.append(f"  selection  {chosen.outcome}")
        lines.append(
            f"  left out   {chosen.unfit_documents:,} documents that no other could follow to their window's end, "
            f"{chosen.excluded_documents:,} of excluded mixes, {chosen.duplicate_documents:,} repeats"
        )
        lines += _margins("by domain", chosen.domains) + _margins("by length", chosen.lengths)
    return [
        *lines,
        f"  conserved  {used.selected_tokens:,} selected + {used.inserted_separators:,} separators inserted",
        f"             = {used.window_tokens:,} in windows + {used.cut_tokens:,} cut + {used.returned_tokens:,} "
        f"returned + {used.rest_tokens:,} rest: {'holds' if used.holds else 'DOES NOT HOLD'}",
    ]


def context_lines(reports: Mapping[str, MixReport]) -> list[str]:
    """Return one table over all mixes: the share of positions that see their own document so far back."""
    distances = sorted({row.distance for report in reports.values() for row in report.context})
    width = max((len(name) for name in reports), default=0)
    lines = [
        "context: the share of positions that see a token of their own document this far back (best possible)",
        f"  {'mix':<{width}}" + "".join(f"{f'{distance:,} tokens':>24}" for distance in distances),
    ]
    for name, report in reports.items():
        rows = {row.distance: f"{percent(row.share)} ({percent(row.bound_share)})" for row in report.context}
        lines.append(f"  {name:<{width}}" + "".join(f"{rows.get(distance, '-'):>24}" for distance in distances))
    return lines if reports else []


def _margins(title: str, margins: Sequence[MarginReport]) -> list[str]:
    width = max(12, *(len(margin.name) for margin in margins))
    lines = [
        f"  {title:<{width + 2}}{'asked':>10}{'target':>12}{'achieved':>12}{'share':>10}{'error':>8}{'supply':>12}"
    ]
    for margin in margins:
        lines.append(
            f"    {margin.name:<{width}}{percent(margin.asked_share):>10}{margin.target_tokens:>12,}"
            f"{margin.achieved_tokens:>12,}{percent(margin.achieved_share):>10}{margin.error_tokens:>+8,}"
            f"{margin.supply_tokens:>12,}"
        )
    return lines


def percent(share: Decimal) -> str:
    """Return an exact share as a percentage.

    >>> percent(Decimal("0.253100"))
    '25.31 %'
    """
    return f"{100 * share:.2f} %"
