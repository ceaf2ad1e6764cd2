"""What the reports of mixes say, as lines for people: targets against achieved, conservation, context."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
        *_window_lines(report),
    ]


def _window_lines(report: MixReport) -> Iterator[str]:
    """Yield how full and how mixed the windows are, what a position sees, and how even the steps are."""
    found, loss = report.window_domains, report.loss_reference
    counts = ", ".join(f"{row.windows:,} of {row.domains}" for row in found.domains)
    yield f"  windows    full, without padding; by domains in one: {counts}"
    yield f"             {found.one_sided_windows:,} of {found.mixed_windows:,} mixed ones are > 95 % of one domain"
    for row in report.context:
        beside = f"concatenated {percent(row.concatenated_share)}, " if row.concatenated_share is not None else ""
        yield (
            f"  context    {percent(row.share)} see their own document {row.distance:,} tokens back "
            f"({beside}at most {percent(row.bound_share)})"
        )
    for order in report.orders or ():
        yield (
            f"  order      {order.order}: a step of {report.recipe.windows_per_step} windows is within "
            f"{order.step_tokens:,} tokens of the mix's share of each domain, any prefix {order.prefix_tokens:,}"
        )
    yield (
        f"  loss       nats a token: {loss.uniform_nats:.2f} knowing nothing ({loss.vocabulary_size:,} ids), "
        f"{loss.unigram_nats:.2f} knowing token frequencies"
    )


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
