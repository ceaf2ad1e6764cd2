"""Target shares by domain and by length under supply caps, as integers.

Guarantees: minimises KL(X || supply) with the row and column sums asked for and 0 <= X <= supply (capped iterative
proportional fitting, exact water-filling a row or column); the integers meet every row and column sum exactly. What
supply cannot meet is refused or answered by the recipe's policy, never rescaled silently. Plain Python floats and
`fsum`, so every machine gets the same integers. Costs milliseconds for some dozens of cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from typing import Literal

from casebits_dagster.mixing.flow import Cells, Flow, maximum_flow
from casebits_dagster.records.errors import CasebitsError

Policy = Literal["fail", "shrink", "keep_domains", "keep_lengths"]
SWEEPS = 2_000


@dataclass(frozen=True, slots=True)
class Targets:
    """Integer token targets; `outcome` says in words how they came about, `feasible` whether they are as asked."""

    rows: list[int]
    columns: list[int]
    cells: Cells
    feasible: bool
    outcome: str
    sweeps: int

    @property
    def total(self) -> int:
        return sum(self.rows)


@dataclass(frozen=True, slots=True)
class Margins:
    """Names and integer weights of domains (rows) and length buckets (columns)."""

    row_names: Sequence[str]
    column_names: Sequence[str]
    row_weights: Sequence[int]
    column_weights: Sequence[int]

    def totals(self, tokens: int) -> tuple[list[int], list[int]]:
        return apportion(tokens, self.row_weights), apportion(tokens, self.column_weights)


def apportion(total: int, weights: Sequence[int]) -> list[int]:
    """Return integers in proportion to the weights that sum to `total`: largest remainder, ties by number.

    >>> apportion(10, [1, 1, 1])
    [4, 3, 3]
    """
    whole = sum(weights)
    parts = [total * weight // whole for weight in weights]
    order = sorted(range(len(weights)), key=lambda k: (-(total * weights[k] % whole), k))
    for k in order[: total - sum(parts)]:
        parts[k] += 1
    return parts


def plan_targets(margins: Margins, supply: Cells, windows: int, sequence_length: int, policy: Policy) -> Targets:
    """Return the targets of a mix of `windows` windows, or raise MIX_INFEASIBLE with the minimum cut in words."""
    asked = windows * sequence_length
    rows, columns = margins.totals(asked)
    flow = maximum_flow(rows, columns, supply)
    if flow.total == asked:
        return _fitted(rows, columns, supply, True, f"supply meets every target of {asked:,} tokens")
    why = shortage(margins, rows, columns, supply, flow)
    most = largest_feasible(margins, supply, windows, sequence_length)
    why += f"; the largest budget that meets every share is {most:,} windows ({most * sequence_length:,} tokens)"
    if policy == "shrink" and most:
        rows, columns = margins.totals(most * sequence_length)
        return _fitted(rows, columns, supply, False, f"{why}: taken, as the recipe says")
    if policy == "keep_domains" and (kept := _relaxed(rows, supply, flow.cells)):
        return _fitted(rows, kept, supply, False, f"{why}: domain shares kept, length shares moved")
    if policy == "keep_lengths" and (kept := _relaxed(columns, _turned(supply), _turned(flow.cells))):
        return _fitted(kept, columns, supply, False, f"{why}: length shares kept, domain shares moved")
    remedy = "lower the budget, change the shares, or set when_infeasible"
    raise CasebitsError("MIX_INFEASIBLE", f"selection of {asked:,} tokens", why, remedy=remedy)


def shortage(margins: Margins, rows: list[int], columns: list[int], supply: Cells, flow: Flow) -> str:
    """Return the minimum cut in words: what some domains need, where it can go, and how much is missing."""
    outside = [j for j in range(len(columns)) if j not in flow.columns]
    need = sum(rows[i] for i in flow.rows)
    wanted = sum(columns[j] for j in flow.columns)
    stock = sum(supply[i][j] for i in flow.rows for j in outside)
    domains = _names(margins.row_names, flow.rows)
    said = f"{domains} need {need:,} tokens"
    if flow.columns:
        said += f"; lengths {_names(margins.column_names, flow.columns)} want {wanted:,}"
    said += f"; lengths {_names(margins.column_names, outside)} have {stock:,} of {domains}"
    return f"{said}; short by {need - wanted - stock:,}"


def largest_feasible(margins: Margins, supply: Cells, windows: int, sequence_length: int) -> int:
    """Return the largest number of windows, at most `windows`, whose targets supply can meet."""
    low, high = 0, windows
    while low < high:
        middle = (low + high + 1) // 2
        rows, columns = margins.totals(middle * sequence_length)
        if maximum_flow(rows, columns, supply).total == middle * sequence_length:
            low = middle
        else:
            high = middle - 1
    return low


def fit(rows: list[int], columns: list[int], supply: Cells) -> tuple[list[list[float]], int]:
    """Return X = min(S, a b S) with the given sums (to 1e-10 of the total) and the number of sweeps it took."""
    turned = _turned(supply)
    a, b = [1.0] * len(rows), [1.0] * len(columns)
    close = max(1e-10 * sum(rows), 1e-6)
    sweeps = 0
    while True:
        sweeps += 1
        a = [_water_fill(want, row, b) for want, row in zip(rows, supply, strict=True)]
        b = [_water_fill(want, column, a) for want, column in zip(columns, turned, strict=True)]
        cells = [[min(s, a[i] * b[j] * s) for j, s in enumerate(row)] for i, row in enumerate(supply)]
        off = max(abs(fsum(row) - want) for row, want in zip(cells, rows, strict=True))
        if off <= close or sweeps == SWEEPS:
            return cells, sweeps


def round_cells(fitted: list[list[float]], rows: list[int], columns: list[int], supply: Cells) -> Cells:
    """Return integers near `fitted` with exactly these row and column sums: largest remainder first, ties by cell."""
    cells = [[0] * len(columns) for _ in rows]
    row_left, column_left = list(rows), list(columns)

    def take(i: int, j: int, amount: int) -> None:
        amount = min(amount, row_left[i], column_left[j], supply[i][j] - cells[i][j])
        cells[i][j] += amount
        row_left[i] -= amount
        column_left[j] -= amount

    every = [(i, j) for i in range(len(rows)) for j in range(len(columns))]
    for i, j in every:
        take(i, j, int(fitted[i][j]))
    for i, j in sorted(every, key=lambda ij: (-(fitted[ij[0]][ij[1]] % 1.0), ij)):
        take(i, j, 1)
    return maximum_flow(rows, columns, supply, cells).cells


def _fitted(rows: list[int], columns: list[int], supply: Cells, feasible: bool, outcome: str) -> Targets:
    fitted, sweeps = fit(rows, columns, supply)
    return Targets(rows, columns, round_cells(fitted, rows, columns, supply), feasible, outcome, sweeps)


def _water_fill(want: int, stock: Sequence[int], weights: Sequence[float]) -> float:
    """Return the factor f with sum(min(s, f * w * s)) == want; everything saturates when stock is short."""
    open_cells = sorted(((w, s) for w, s in zip(weights, stock, strict=True) if w * s > 0), reverse=True)
    if want == 0 or not open_cells:
        return 0.0
    saturated = 0
    for k, (weight, amount) in enumerate(open_cells):
        factor = (want - saturated) / fsum(w * s for w, s in open_cells[k:])
        if factor * weight <= 1.0:
            return factor
        saturated += amount
    return 1.0 / open_cells[-1][0]


def _relaxed(rows: list[int], supply: Cells, flow: Cells) -> list[int] | None:
    """Return column sums that can be met with these rows: the flow, and what is missing in proportion to spare; None
    where a row asks for more than its supply."""
    if any(want > sum(stock) for want, stock in zip(rows, supply, strict=True)):
        return None
    cells = [list(row) for row in flow]
    for want, stock, row in zip(rows, supply, cells, strict=True):
        if want > sum(row):
            more = apportion(want - sum(row), [have - used for have, used in zip(stock, row, strict=True)])
            row[:] = [used + extra for used, extra in zip(row, more, strict=True)]
    return [sum(column) for column in zip(*cells, strict=True)]


def _turned(cells: Cells) -> Cells:
    return [list(column) for column in zip(*cells, strict=True)]


def _names(names: Sequence[str], numbers: frozenset[int] | list[int]) -> str:
    return ", ".join(names[k] for k in sorted(numbers))
