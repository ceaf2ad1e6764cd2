"""What the reports of mixes say, as lines for people: targets against achieved, conservation, context."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path

from casebits_dagster.records.mix import REPORT, MarginReport, MixReport, SelectionReport
from casebits_dagster.records.recipe import Recipe


def read_report(folder: Path) -> MixReport:
    """Return the report of the mix in a folder."""
    path = folder / REPORT
    return MixReport.parse(path.read_bytes(), str(path))


def mix_lines(report: MixReport) -> list[str]:
    """Return what a mix is made of, what it was asked for, and the equation that loses no token."""
    recipe, train, used = report.recipe, report.train, report.conservation
    lines = [
        f"mix {recipe.mix}: {recipe.description}",
        f"  layout     {layout(recipe)}; {train.windows:,} windows of {recipe.sequence_length:,} tokens in "
        f"{train.shards} shards; {train.documents:,} documents in {train.segments:,} segments",
        f"  validation {report.validation.windows:,} windows; {report.validation.documents:,} documents",
    ]
    if gone := report.withdrawn:
        lines.append(f"  withdrawn  {gone.documents:,} documents left out, of {len(gone.ids):,} texts")
    if recipe.documents_of:
        lines.append(f"  selection  the documents of {recipe.documents_of}")
    else:
        lines += _selection_lines(report.selection, "by source" if recipe.interleaved else "by domain")
    return [
        *lines,
        f"  conserved  {used.selected_tokens:,} selected + {used.inserted_separators:,} separators inserted",
        f"             = {used.window_tokens:,} in windows + {used.cut_tokens:,} cut + {used.returned_tokens:,} "
        f"returned + {used.rest_tokens:,} rest: {'holds' if used.holds else 'DOES NOT HOLD'}",
        *_window_lines(report),
    ]


def left_out(chosen: SelectionReport) -> str:
    """Return what the supply did not count, in words; nothing when it counted every document."""
    parts = {
        "that no other fits behind": chosen.unfit_documents,
        "of excluded mixes": chosen.excluded_documents,
        "whose text stands elsewhere": chosen.duplicate_documents,
    }
    return "; ".join(f"{count:,} document{'s' * (count != 1)} {why}" for why, count in parts.items() if count)


def _selection_lines(chosen: SelectionReport, title: str) -> Iterator[str]:
    yield f"  selection  {chosen.outcome}"
    if without := left_out(chosen):
        yield f"  left out   {without}"
    yield from _margins(title, chosen.domains)
    if len(chosen.lengths) > 1:
        yield from _margins("by length", chosen.lengths)


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
    before = f", {loss.bigram.low_nats:.2f} to {loss.bigram.high_nats:.2f} the token before" if loss.bigram else ""
    yield (
        f"  loss       nats a token: {loss.uniform_nats:.2f} knowing nothing ({loss.vocabulary_size:,} ids), "
        f"{loss.unigram_nats:.2f} token frequencies{before}"
    )


def context_lines(reports: Mapping[str, MixReport]) -> list[str]:
    """Return one table over all mixes: their windows, and the share of positions that see their own document so far
    back."""
    distances = ("T / 4", "T / 2", "3 T / 4")
    rows = [("mix", "layout", "windows", "T", *(f"{distance} back" for distance in distances))]
    for name, report in reports.items():
        recipe, shares = report.recipe, [f"{percent(row.share)} ({percent(row.bound_share)})" for row in report.context]
        rows.append((name, layout(recipe), f"{report.train.windows:,}", f"{recipe.sequence_length:,}", *shares))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "context: the share of positions that see a token of their own document that far back (best possible)",
        *("  " + "  ".join(_cell(at, *cell) for at, cell in enumerate(zip(row, widths, strict=True))) for row in rows),
    ] * bool(reports)


def layout(recipe: Recipe) -> str:
    """Return how the windows of a mix were laid out, and put into order."""
    return f"{recipe.strategy}, {recipe.order}" if recipe.order else recipe.strategy


def _cell(column: int, text: str, width: int) -> str:
    return f"{text:<{width}}" if column < 2 else f"{text:>{width}}"


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
