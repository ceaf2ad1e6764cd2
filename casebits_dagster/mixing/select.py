"""Choose whole documents to the targets.

Guarantees: the choice does not depend on the order of files or regions; a smaller budget chooses a subset of a larger
one's documents up to a few rounding documents a cell; the total is exact when some document or pair of documents fits
the residue. Inside a cell documents stand in the order of a hash of their id, and a prefix is taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from casebits_dagster.mixing.flow import Cells
from casebits_dagster.mixing.seeds import I64, id_keys
from casebits_dagster.mixing.supply import Table
from casebits_dagster.mixing.targets import Targets
from casebits_dagster.records.errors import CasebitsError


@dataclass(frozen=True, slots=True)
class Selected:
    """Chosen rows of the supply, in their order; `cells` are the tokens chosen in each cell."""

    documents: Table
    cells: Cells


def hash_order(table: Table, seed: str) -> I64:
    """Return rows in selection order: epoch by epoch, then by key, ties by id.

    A text is repeated only when every other text of its cell is in.
    """
    words = np.ascontiguousarray(table["id"]).view(">u8").reshape(-1, 2)
    return np.lexsort((words[:, 1], words[:, 0], id_keys(table["id"], table["copy"], seed), table["copy"]))


def cell_totals(table: Table, rows: int, columns: int) -> Cells:
    """Return the tokens of each domain and length bucket."""
    return _cell_sums(table, rows, columns, table["tokens"])


def cell_counts(table: Table, rows: int, columns: int) -> Cells:
    """Return the documents of each domain and length bucket."""
    return _cell_sums(table, rows, columns, 1)


def _cell_sums(table: Table, rows: int, columns: int, values: Any) -> Cells:
    sums = np.zeros((rows, columns), np.int64)
    np.add.at(sums, (table["domain"], table["bucket"]), values)
    found: Cells = sums.tolist()
    return found


def select(table: Table, targets: Targets, seed: str) -> Selected:
    """Return the documents of `table` (train supply) that meet the targets."""
    shape = len(targets.rows), len(targets.columns)
    tokens = table["tokens"].astype(np.int64)
    cells = _cell_members(table, shape, seed)
    taken = np.zeros(len(table), bool)
    total_residue = 0
    for i in range(shape[0]):
        carry = 0
        for j in reversed(range(shape[1])):
            if not targets.cells[i][j]:
                continue
            want = targets.cells[i][j] + carry
            ends = np.cumsum(tokens[cells[i][j]])
            count = _nearest(ends, want)
            taken[cells[i][j][:count]] = True
            carry = want - (int(ends[count - 1]) if count else 0)
        total_residue += _settle(cells[i], tokens, taken, carry)
    by_column = [cells[i][j] for j in range(shape[1]) for i in range(shape[0])]
    _settle(by_column, tokens, taken, total_residue)
    chosen = table[taken]
    return Selected(chosen, cell_totals(chosen, *shape))


def select_validation(table: Table, tokens: int, seed: str) -> Table:
    """Return validation documents in selection order, just enough for `tokens` tokens, or raise MIX_VALIDATION."""
    ordered = table[hash_order(table, seed)]
    ends = np.cumsum(ordered["tokens"].astype(np.int64))
    supply = int(ends[-1]) if len(ends) else 0
    if supply < tokens:
        where, problem, remedy = "validation_windows", "too few validation tokens", "ask for fewer validation windows"
        raise CasebitsError("MIX_VALIDATION", where, problem, expected=tokens, read=supply, remedy=remedy)
    return ordered[: int(np.searchsorted(ends, tokens)) + 1] if tokens else ordered[:0]


def _cell_members(table: Table, shape: tuple[int, int], seed: str) -> list[list[I64]]:
    order = hash_order(table, seed)
    numbers = (table["domain"].astype(np.int64) * shape[1] + table["bucket"])[order]
    cuts = np.cumsum(np.bincount(numbers, minlength=shape[0] * shape[1]))[:-1]
    members = np.split(order[np.argsort(numbers, kind="stable")], cuts)
    return [members[i * shape[1] : (i + 1) * shape[1]] for i in range(shape[0])]


def _nearest(ends: I64, want: int) -> int:
    """Return the length of the prefix whose tokens are nearest to `want`, the shorter one when two are."""
    after = int(np.searchsorted(ends, want))
    if after == len(ends):
        return after
    below = int(ends[after - 1]) if after else 0
    return after + 1 if int(ends[after]) - want < want - below else after


def _settle(cells: list[I64], tokens: I64, taken: np.ndarray[tuple[int], np.dtype[np.bool]], residue: int) -> int:
    """Close the residue exactly by adding, leaving out or swapping one document inside a cell; return what remains."""
    for members in cells if residue else []:
        inside, outside = members[taken[members]], members[~taken[members]]
        # Number 0 stands for no document, on either side.
        leave, enter = (np.concatenate([[0], tokens[side]]) for side in (inside, outside))
        _, at_enter, at_leave = np.intersect1d(enter, leave + residue, return_indices=True)
        if len(at_enter):
            if at_enter[0]:
                taken[outside[at_enter[0] - 1]] = True
            if at_leave[0]:
                taken[inside[at_leave[0] - 1]] = False
            return 0
    return residue
