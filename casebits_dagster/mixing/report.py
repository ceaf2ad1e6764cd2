"""What `mix_report.json` and the mix's README say. Integers and exact decimals only, so equal mixes are equal bytes."""

from __future__ import annotations

from collections import Counter
from decimal import Context, Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.mixing.flow import Cells
from casebits_dagster.mixing.packing.layout import FLOATED_TAIL, TAIL, WindowPlan, lost_tokens
from casebits_dagster.mixing.seeds import I64
from casebits_dagster.mixing.select import cell_totals
from casebits_dagster.mixing.supply import Supply, Table
from casebits_dagster.mixing.targets import Margins, Targets
from casebits_dagster.records.mix import (
    CellReport,
    Conservation,
    ContextRow,
    CutDocument,
    DomainsInWindows,
    LossReference,
    MarginReport,
    ReturnedDocument,
    SelectionReport,
    Tails,
    WindowDomains,
)
from casebits_dagster.records.record import micro_text

EXACT = Context(prec=40)


def share(part: int, whole: int) -> Decimal:
    """Return part / whole, cut to 6 digits; 0 of nothing is 0."""
    return Decimal(micro_text(part * 1_000_000 // whole if whole else 0))


def selection_report(
    asked: int, targets: Targets, margins: Margins, supply: Supply, selected: Cells, used: Table
) -> SelectionReport:
    """Return targets against supply, selection and result, for every cell, row and column."""
    shape = len(targets.rows), len(targets.columns)
    stock = cell_totals(supply.train, *shape)
    achieved = cell_totals(used, *shape)
    stock_counts, used_counts = _cell_counts(supply.train, shape), _cell_counts(used, shape)
    cells = tuple(
        CellReport(
            domain=margins.row_names[i],
            lengths=margins.column_names[j],
            supply_documents=stock_counts[i][j],
            supply_tokens=stock[i][j],
            target_tokens=targets.cells[i][j],
            selected_tokens=selected[i][j],
            achieved_tokens=achieved[i][j],
            achieved_documents=used_counts[i][j],
            error_tokens=achieved[i][j] - targets.cells[i][j],
        )
        for i in range(shape[0])
        for j in range(shape[1])
    )
    turned_stock, turned = list(zip(*stock, strict=True)), list(zip(*achieved, strict=True))
    return SelectionReport(
        asked_tokens=asked,
        target_tokens=targets.total,
        feasible=targets.feasible,
        outcome=targets.outcome,
        sweeps=targets.sweeps,
        excluded_documents=supply.excluded,
        duplicate_documents=supply.duplicates,
        unfit_documents=supply.unfit,
        cells=cells,
        domains=_margin(margins.row_names, margins.row_weights, targets.rows, stock, achieved),
        lengths=_margin(margins.column_names, margins.column_weights, targets.columns, turned_stock, turned),
    )


def _margin(names: Any, weights: Any, targets: list[int], stock: Any, achieved: Any) -> tuple[MarginReport, ...]:
    total = sum(map(sum, achieved))
    return tuple(
        MarginReport(
            name=name,
            asked_share=share(weight, sum(weights)),
            supply_tokens=sum(have),
            target_tokens=target,
            achieved_tokens=sum(got),
            achieved_share=share(sum(got), total),
            error_tokens=sum(got) - target,
        )
        for name, weight, target, have, got in zip(names, weights, targets, stock, achieved, strict=True)
    )


def _cell_counts(table: Table, shape: tuple[int, int]) -> Cells:
    numbers = table["domain"].astype(np.int64) * shape[1] + table["bucket"]
    found: Cells = np.bincount(numbers, minlength=shape[0] * shape[1]).reshape(shape).tolist()
    return found


def conservation(lengths: I64, plan: WindowPlan, selected_tokens: int) -> Conservation:
    """Return where every selected token went; `lengths` are those of the documents that the mix holds."""
    return Conservation(
        selected_tokens=selected_tokens,
        inserted_separators=int(plan.segments["inserted"].sum(dtype=np.int64)),
        window_tokens=plan.windows * plan.sequence_length,
        cut_tokens=int(lost_tokens(lengths, plan.segments).sum()),
        returned_tokens=selected_tokens - int(lengths.sum()),
        rest_tokens=plan.rest_tokens,
    )


def cut_documents(lengths: I64, plan: WindowPlan) -> tuple[CutDocument, ...]:
    lost = lost_tokens(lengths, plan.segments)
    return tuple(CutDocument(document=int(row), lost_tokens=int(lost[row])) for row in np.flatnonzero(lost))


def returned_documents(rows: Table, generations: list[str]) -> tuple[ReturnedDocument, ...]:
    return tuple(
        ReturnedDocument(
            id=bytes(row["id"]).hex(),
            generation=generations[int(row["generation"])],
            region=int(row["region"]),
            index=int(row["index"]),
            tokens=int(row["tokens"]),
        )
        for row in rows
    )


def tails(lengths: I64, plan: WindowPlan) -> Tails:
    """Return where the tails of an aligned plan stand; the few in neither place are cut."""
    length, kinds = plan.sequence_length, plan.segments["kind"]
    total = int(((lengths > length) & (lengths % length > 0)).sum())
    return Tails(total=total, at_start=int((kinds == TAIL).sum()), floated=int((kinds == FLOATED_TAIL).sum()))


def context_table(lengths: I64, plan: WindowPlan, inserted: int) -> tuple[ContextRow, ...]:
    """Return the same-document context statistic at T/4, T/2 and 3T/4 with the most any layout could reach.

    A run of n tokens has max(0, n - d) positions that see a token of their own document d back. Chunks at multiples of
    T majorise every other way to cut documents into runs of at most T, and max(0, n - d) is convex. `inserted` is what
    a separator before a tail adds to it (0 or 1).
    """
    length = plan.sequence_length
    runs = plan.segments["length"][plan.segments["window"] < plan.windows].astype(np.int64)
    chunks, rest = lengths // length, lengths % length
    rest = rest + np.where((chunks > 0) & (rest > 0), inserted, 0)
    whole = plan.windows * length
    rows = []
    for distance in (length // 4, length // 2, 3 * length // 4):
        found = int(np.maximum(0, runs - distance).sum())
        bound = int((chunks * (length - distance) + np.maximum(0, rest - distance)).sum())
        rows.append(
            ContextRow(
                distance=distance,
                tokens=found,
                share=share(found, whole),
                bound_tokens=bound,
                bound_share=share(bound, whole),
            )
        )
    return tuple(rows)


def window_domains(plan: WindowPlan, domains: NDArray[Any]) -> WindowDomains:
    """Return how many domains share a window, and how many mixed windows are nearly of one."""
    rows = plan.segments[plan.segments["window"] < plan.windows]
    width = int(domains.max(initial=0)) + 1
    flat = np.zeros(plan.windows * width, np.int64)
    np.add.at(flat, rows["window"].astype(np.int64) * width + domains[rows["document"]], rows["length"])
    tokens = flat.reshape(plan.windows, width)
    mixed = np.bincount(rows["window"], minlength=plan.windows) > 1
    one_sided = mixed & (20 * tokens.max(axis=1, initial=0) > 19 * plan.sequence_length)
    counted = Counter((tokens > 0).sum(axis=1).tolist())
    return WindowDomains(
        domains=tuple(DomainsInWindows(domains=k, windows=count) for k, count in sorted(counted.items())),
        mixed_windows=int(mixed.sum()),
        one_sided_windows=int(one_sided.sum()),
    )


def loss_reference(counts: I64, vocabulary_size: int) -> LossReference:
    """Return ln(V) and the entropy of the id counts, in nats, by exactly rounded decimals (equal on every machine)."""
    total = int(counts.sum())
    weighted = Decimal(0)
    for count, ids in sorted(Counter(counts[counts > 0].tolist()).items()):
        weighted = EXACT.add(weighted, EXACT.multiply(Decimal(ids * count), EXACT.ln(Decimal(count))))
    unigram = EXACT.subtract(EXACT.ln(Decimal(total)), EXACT.divide(weighted, Decimal(total))) if total else Decimal(0)
    return LossReference(
        vocabulary_size=vocabulary_size,
        uniform_nats=_six(EXACT.ln(Decimal(vocabulary_size))),
        unigram_nats=_six(unigram),
    )


def _six(value: Decimal) -> Decimal:
    return EXACT.quantize(value, Decimal("0.000001"))
