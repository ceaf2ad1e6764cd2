"""What `mix_report.json` and the mix's README say. Integers and exact decimals only, so equal mixes are equal bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.mixing.entropy import EXACT, bigram, sampled_runs
from casebits_dagster.mixing.flow import Cells
from casebits_dagster.mixing.packing.layout import FLOATED_TAIL, TAIL, WindowPlan, lost_tokens
from casebits_dagster.mixing.packing.order import deviation, stratified
from casebits_dagster.mixing.seeds import I64, shuffled
from casebits_dagster.mixing.select import cell_counts, cell_totals
from casebits_dagster.mixing.supply import Supply, Table
from casebits_dagster.mixing.targets import Margins, Targets
from casebits_dagster.records import mix
from casebits_dagster.records.recipe import Recipe
from casebits_dagster.records.record import micro_text


def share(part: int, whole: int) -> Decimal:
    """Return part / whole, cut to 6 digits; 0 of nothing is 0."""
    return Decimal(micro_text(part * 1_000_000 // whole if whole else 0))


def selection_report(
    asked: int, targets: Targets, margins: Margins, supply: Supply, selected: Cells, used: Table
) -> mix.SelectionReport:
    """Return targets against supply, selection and result, for every cell, row and column."""
    shape = len(targets.rows), len(targets.columns)
    stock, achieved = (np.array(cell_totals(table, *shape)) for table in (supply.train, used))
    columns = {
        "supply_documents": cell_counts(supply.train, *shape),
        "supply_tokens": stock.tolist(),
        "target_tokens": targets.cells,
        "selected_tokens": selected,
        "achieved_tokens": achieved.tolist(),
        "achieved_documents": cell_counts(used, *shape),
        "error_tokens": (achieved - targets.cells).tolist(),
    }
    cells = tuple(
        mix.CellReport(
            domain=margins.row_names[i],
            lengths=margins.column_names[j],
            **{name: column[i][j] for name, column in columns.items()},
        )
        for i, j in np.ndindex(shape)
    )
    return mix.SelectionReport(
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
        lengths=_margin(margins.column_names, margins.column_weights, targets.columns, stock.T, achieved.T),
    )


def _margin(
    names: Sequence[str], weights: Sequence[int], targets: list[int], stock: I64, achieved: I64
) -> tuple[mix.MarginReport, ...]:
    rows = zip(names, weights, targets, stock.sum(axis=1).tolist(), achieved.sum(axis=1).tolist(), strict=True)
    return tuple(
        mix.MarginReport(
            name=name,
            asked_share=share(weight, sum(weights)),
            supply_tokens=have,
            target_tokens=target,
            achieved_tokens=got,
            achieved_share=share(got, int(achieved.sum())),
            error_tokens=got - target,
        )
        for name, weight, target, have, got in rows
    )


def conservation(lengths: I64, plan: WindowPlan, selected_tokens: int) -> mix.Conservation:
    """Return where every selected token went; `lengths` are those of the documents that the mix holds."""
    return mix.Conservation(
        selected_tokens=selected_tokens,
        inserted_separators=int(plan.segments["inserted"].sum(dtype=np.int64)),
        window_tokens=plan.windows * plan.sequence_length,
        cut_tokens=int(lost_tokens(lengths, plan.segments).sum()),
        returned_tokens=selected_tokens - int(lengths.sum()),
        rest_tokens=plan.rest_tokens,
    )


def cut_documents(lengths: I64, plan: WindowPlan) -> tuple[mix.CutDocument, ...]:
    lost = lost_tokens(lengths, plan.segments)
    return tuple(mix.CutDocument(document=int(row), lost_tokens=int(lost[row])) for row in np.flatnonzero(lost))


def returned_documents(rows: Table, generations: list[str]) -> tuple[mix.ReturnedDocument, ...]:
    return tuple(
        mix.ReturnedDocument(
            id=bytes(row["id"]).hex(),
            generation=generations[int(row["generation"])],
            region=int(row["region"]),
            index=int(row["index"]),
            tokens=int(row["tokens"]),
        )
        for row in rows
    )


def tails(lengths: I64, plan: WindowPlan) -> mix.Tails:
    """Return where the tails of an aligned plan stand; the few in neither place are cut."""
    length, kinds = plan.sequence_length, plan.segments["kind"]
    total = int(((lengths > length) & (lengths % length > 0)).sum())
    return mix.Tails(total=total, at_start=int((kinds == TAIL).sum()), floated=int((kinds == FLOATED_TAIL).sum()))


def context_table(lengths: I64, plan: WindowPlan, inserted: int, *, beside: bool) -> tuple[mix.ContextRow, ...]:
    """Return the same-document context statistic at T/4, T/2 and 3T/4 with the most any layout could reach.

    A run of n tokens has max(0, n - d) positions that see a token of their own document d back. Chunks at multiples of
    T majorise every other way to cut documents into runs of at most T, and max(0, n - d) is convex. `inserted` is what
    a separator before a tail adds to it (0 or 1). `beside` adds a concatenation of the same documents: of the L - d
    positions that have a token d back, those see it that do not stand in the first d of the T places of a window.
    """
    length, total = plan.sequence_length, int(lengths.sum())
    runs = plan.segments["length"][plan.segments["window"] < plan.windows].astype(np.int64)
    chunks, rest = lengths // length, lengths % length
    rest = rest + np.where((chunks > 0) & (rest > 0), inserted, 0)

    def row(distance: int) -> mix.ContextRow:
        found = int(np.maximum(0, runs - distance).sum())
        bound = int((chunks * (length - distance) + np.maximum(0, rest - distance)).sum())
        plain = int(np.maximum(0, lengths - distance).sum()) * (length - distance) // length
        shares = [share(tokens, plan.windows * length) for tokens in (found, bound)]
        return mix.ContextRow(
            distance=distance,
            tokens=found,
            share=shares[0],
            bound_tokens=bound,
            bound_share=shares[1],
            concatenated_tokens=plain if beside else None,
            concatenated_share=share(plain, total) if beside else None,
        )

    return tuple(row(distance) for distance in (length // 4, length // 2, 3 * length // 4))


def window_domains(plan: WindowPlan, tokens: I64) -> mix.WindowDomains:
    """Return how many domains share a window, and how many mixed windows are nearly of one."""
    windows = plan.segments["window"]
    mixed = np.bincount(windows[windows < plan.windows], minlength=plan.windows) > 1
    one_sided = mixed & (20 * tokens.max(axis=1, initial=0) > 19 * plan.sequence_length)
    counted = Counter((tokens > 0).sum(axis=1).tolist())
    return mix.WindowDomains(
        domains=tuple(mix.DomainsInWindows(domains=k, windows=count) for k, count in sorted(counted.items())),
        mixed_windows=int(mixed.sum()),
        one_sided_windows=int(one_sided.sum()),
    )


def order_report(order: mix.Order, tokens: I64, per_step: int) -> mix.OrderReport:
    """Return how far steps and prefixes are from the mix's shares; `tokens` are those of each window and domain."""
    found = deviation(tokens, per_step)
    return mix.OrderReport(order=order, step_tokens=found.step, prefix_tokens=found.prefix)


def train_runs(folder: Path, recipe: Recipe, windows: int, codec: mix.CodecFormat) -> NDArray[np.uint16]:
    """Return sampled runs of ids of the train shards in a folder, see `entropy.sampled_runs`."""
    shards = range(-(-windows // recipe.windows_per_shard))
    paths = [folder / mix.shard_name(mix.TRAIN, shard, "ids", codec) for shard in shards]
    ids = [np.memmap(path, "<u2", "r") for path in paths]
    return sampled_runs(ids, recipe.sequence_length, f"{recipe.seed}/bigram/runs")


def orders(recipe: Recipe, tokens: I64) -> dict[mix.Order, I64]:
    """Return the tokens of each window and domain in the order of the mix, and in the one that it could have had.

    `tokens` are those of the mix; nothing is returned where the recipe has no steps.
    """
    if recipe.windows_per_step is None or recipe.aligned is None:
        return {}
    if recipe.order == "stratified":
        return {"stratified": tokens, "shuffled": tokens[shuffled(len(tokens), f"{recipe.seed}/beside")]}
    return {"shuffled": tokens, "stratified": tokens[stratified(tokens, recipe.seed)]}


def order_reports(recipe: Recipe, tokens: I64) -> tuple[mix.OrderReport, ...] | None:
    """Return how even the steps of the mix are, and those of the same windows in the other order; None: no steps."""
    per_step = recipe.windows_per_step or 1
    return tuple(order_report(order, found, per_step) for order, found in orders(recipe, tokens).items()) or None


def loss_reference(
    counts: I64, vocabulary_size: int, runs: NDArray[np.uint16] | None = None, seed: str = ""
) -> mix.LossReference:
    """Return ln(V), the entropy of the id counts, and of a token given the one before it in sampled runs, in nats.

    By exactly rounded decimals, equal on every machine. `seed` is the recipe's.
    """
    total = int(counts.sum())
    weighted = Decimal(0)
    for count, ids in sorted(Counter(counts[counts > 0].tolist()).items()):
        weighted = EXACT.add(weighted, EXACT.multiply(Decimal(ids * count), EXACT.ln(Decimal(count))))
    unigram = EXACT.subtract(EXACT.ln(Decimal(total)), EXACT.divide(weighted, Decimal(total))) if total else Decimal(0)
    return mix.LossReference(
        vocabulary_size=vocabulary_size,
        uniform_nats=_six(EXACT.ln(Decimal(vocabulary_size))),
        unigram_nats=_six(unigram),
        bigram=_bigram(unigram, runs, seed) if runs is not None and len(runs) else None,
    )


def _bigram(unigram: Decimal, runs: NDArray[np.uint16], seed: str) -> mix.BigramReference:
    found = bigram(unigram, runs, f"{seed}/bigram/shuffle")
    sampled, run = runs.shape
    return mix.BigramReference(runs=sampled, run_tokens=run, low_nats=_six(found.low), high_nats=_six(found.high))


def _six(value: Decimal) -> Decimal:
    return EXACT.quantize(value, Decimal("0.000001"))
