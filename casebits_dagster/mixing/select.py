"""Choose whole documents to the targets.

Guarantees: the choice does not depend on the order of files or regions; a smaller budget chooses a subset of a larger
one's documents up to a few rounding documents a cell; the total is exact when some document or pair of documents fits
the residue; a cell without a target stays empty. Inside a cell documents stand in the order of a hash of their id, and
a prefix is taken.
Costs: one pass over the columns a cell, and memory for what is chosen: documents whose hash is beyond the share that
the cell needs are never sorted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from casebits_dagster.mixing.flow import Cells
from casebits_dagster.mixing.seeds import I64
from casebits_dagster.mixing.supply import Documents, Stock, Table
from casebits_dagster.mixing.targets import Targets
from casebits_dagster.records.errors import CasebitsError

MARGIN = 1_000


@dataclass(frozen=True, slots=True)
class Selected:
    """Chosen documents, in order of generation, region, index, copy; `cells` are the tokens chosen in each cell."""

    documents: Table
    cells: Cells


@dataclass(slots=True)
class Taken:
    """One cell and what is taken of it: `rows` with the `copies` they are used as, in no order."""

    documents: Documents
    numbers: range
    epochs: int
    seed: str
    rows: I64
    copies: I64

    def settle(self, residue: int) -> bool:
        """Add, leave out or swap one document so that the cell holds `residue` tokens more; say whether that worked."""
        tokens = self.documents.tokens
        lengths, counts = np.unique(tokens[self.documents.rows(self.numbers)], return_counts=True)
        inside, used = np.unique(tokens[self.rows], return_counts=True)
        spare = counts * self.epochs
        spare[np.searchsorted(lengths, inside)] -= used
        # Number 0 stands for no document, on either side.
        enter, leave = np.append(0, lengths[spare > 0]).astype(np.int64), np.append(0, inside).astype(np.int64)
        fitting = np.intersect1d(enter, leave + residue)
        if not len(fitting):
            return False
        entering, leaving = int(fitting[0]), int(fitting[0]) - residue
        if entering:
            self._enter(entering)
        if leaving:
            self._leave(leaving)
        return True

    def _enter(self, length: int) -> None:
        rows = self.documents.rows(self.numbers)
        rows = rows[self.documents.tokens[rows] == length]
        for copy in range(self.epochs):
            free = np.setdiff1d(rows, self.rows[self.copies == copy])
            if len(free):
                first = self.documents.order(free, np.full(len(free), copy), self.seed)[0]
                self.rows, self.copies = np.append(self.rows, free[first]), np.append(self.copies, copy)
                return

    def _leave(self, length: int) -> None:
        at = np.flatnonzero(self.documents.tokens[self.rows] == length)
        first = at[self.documents.order(self.rows[at], self.copies[at], self.seed)[0]]
        self.rows, self.copies = np.delete(self.rows, first), np.delete(self.copies, first)


def select(documents: Documents, stock: Stock, targets: Targets, seed: str) -> Selected:
    """Return the train documents that meet the targets."""
    shape = len(targets.rows), len(targets.columns)
    cells: dict[tuple[int, int], Taken] = {}
    total_residue = 0
    for i in range(shape[0]):
        carry = 0
        for j in reversed(range(shape[1])):
            if targets.cells[i][j]:
                want = targets.cells[i][j] + carry
                cells[i, j] = _take(documents, stock, (i, j), want, seed)
                carry = want - int(documents.tokens[cells[i, j].rows].sum(dtype=np.int64))
        total_residue += _settle([cell for at, cell in sorted(cells.items()) if at[0] == i], carry)
    _settle([cell for _, cell in sorted(cells.items(), key=lambda item: item[0][::-1])], total_residue)
    nothing = np.empty(0, np.int64)
    rows = np.concatenate([nothing, *(cell.rows for cell in cells.values())])
    copies = np.concatenate([nothing, *(cell.copies for cell in cells.values())])
    order = np.lexsort((copies, rows))
    chosen = documents.table(rows[order], copies[order])
    return Selected(chosen, cell_totals(chosen, *shape))


def select_validation(documents: Documents, tokens: int, seed: str) -> Table:
    """Return validation documents in selection order, just enough for `tokens` tokens, or raise MIX_VALIDATION."""
    rows = documents.rows(documents.validation)
    supply = int(documents.tokens[rows].sum(dtype=np.int64))
    if supply < tokens:
        where, problem, remedy = "validation_windows", "too few validation tokens", "ask for fewer validation windows"
        raise CasebitsError("MIX_VALIDATION", where, problem, expected=tokens, read=supply, remedy=remedy)
    rows = _prefix(documents, documents.validation, seed, 0, tokens, supply, len(rows))
    ends = np.cumsum(documents.tokens[rows], dtype=np.int64)
    count = int(np.searchsorted(ends, tokens)) + 1 if tokens else 0
    return documents.table(rows[:count], np.zeros(count))


def cell_totals(found: Table | Stock, rows: int, columns: int) -> Cells:
    """Return the tokens of each domain and length bucket."""
    return found.tokens if isinstance(found, Stock) else _cell_sums(found, rows, columns, found["tokens"])


def cell_counts(found: Table | Stock, rows: int, columns: int) -> Cells:
    """Return the documents of each domain and length bucket."""
    return found.documents if isinstance(found, Stock) else _cell_sums(found, rows, columns, 1)


def _cell_sums(table: Table, rows: int, columns: int, values: Any) -> Cells:
    sums = np.zeros((rows, columns), np.int64)
    np.add.at(sums, (table["domain"], table["bucket"]), values)
    found: Cells = sums.tolist()
    return found


def _take(documents: Documents, stock: Stock, at: tuple[int, int], want: int, seed: str) -> Taken:
    """Return the cell with the prefix whose tokens are nearest to `want`, copy by copy: a text is repeated only when
    every other text of its cell is in."""
    i, j = at
    number, epochs = i * documents.buckets + j, stock.epochs[i][j]
    have, count = stock.tokens[i][j] // epochs, stock.documents[i][j] // epochs
    numbers = range(number, number + 1)
    whole = min(max(want - 1, 0) // have, epochs)
    rows = [documents.rows(numbers)] * whole
    if whole < epochs:
        left = want - whole * have
        prefix = _prefix(documents, numbers, seed, whole, left, have, count)
        ends = np.cumsum(documents.tokens[prefix], dtype=np.int64)
        rows.append(prefix[: _nearest(ends, left)])
    copies = np.repeat(np.arange(len(rows)), [len(part) for part in rows])
    return Taken(documents, numbers, epochs, seed, np.concatenate(rows), copies)


def _prefix(documents: Documents, cells: range, seed: str, copy: int, want: int, have: int, count: int) -> I64:
    """Return rows in selection order, the first ones, enough for `want` of the `have` tokens in `count` documents.

    Keys are uniform, so a share of the documents is below the same share of the largest key; a margin makes a second
    look rare, and none of this decides what is returned.
    """
    share = 1.05 * want / have + MARGIN / count if count else 1.0
    while True:
        limit = 2**64 - 1 if share >= 1 else int(max(share, 0) * 2**64)
        rows = documents.rows(cells, seed, copy, limit)
        if share >= 1 or int(documents.tokens[rows].sum(dtype=np.int64)) >= want:
            return rows[documents.order(rows, np.full(len(rows), copy), seed)]
        share *= 2


def _nearest(ends: I64, want: int) -> int:
    """Return the length of the prefix whose tokens are nearest to `want`, the shorter one when two are."""
    after = int(np.searchsorted(ends, want))
    if after == len(ends):
        return after
    below = int(ends[after - 1]) if after else 0
    return after + 1 if int(ends[after]) - want < want - below else after


def _settle(cells: list[Taken], residue: int) -> int:
    """Close the residue exactly inside the first cell that can; return what remains."""
    return 0 if residue == 0 or any(cell.settle(residue) for cell in cells) else residue
