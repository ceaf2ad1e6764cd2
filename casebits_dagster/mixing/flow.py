"""Maximum flow through the small table of domains x lengths: can these targets be met, and if not, why not.

Source -> rows (capacity: row target) -> cells (capacity: supply) -> columns (capacity: column target). Exact integers;
augmenting paths found breadth first, so the cost is a few passes over a table of some dozens of cells.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

Cells = list[list[int]]


@dataclass(frozen=True, slots=True)
class Flow:
    """`cells` is the flow; `rows` and `columns` are the source's side of a minimum cut (empty when it saturates)."""

    cells: Cells
    total: int
    rows: frozenset[int]
    columns: frozenset[int]


def maximum_flow(rows: list[int], columns: list[int], caps: Cells, start: Cells | None = None) -> Flow:
    """Return a maximum flow, grown from the feasible flow `start` (whose rows and columns it never lowers)."""
    cells = [list(row) for row in start] if start else [[0] * len(columns) for _ in rows]
    row_left = [want - sum(row) for want, row in zip(rows, cells, strict=True)]
    column_left = [want - sum(column) for want, column in zip(columns, zip(*cells, strict=True), strict=True)]
    while True:
        from_row, from_column = _reach(row_left, column_left, caps, cells)
        end = next((j for j in from_column if column_left[j]), None)
        if end is None:
            return Flow(cells, sum(map(sum, cells)), frozenset(from_row), frozenset(from_column))
        _augment(end, from_row, from_column, row_left, column_left, caps, cells)


def _reach(
    row_left: list[int], column_left: list[int], caps: Cells, cells: Cells
) -> tuple[dict[int, int], dict[int, int]]:
    """Return which rows and columns have room, each with the node before it (-1: the source), nearest first."""
    from_row = {i: -1 for i, left in enumerate(row_left) if left > 0}
    from_column: dict[int, int] = {}
    waiting = deque(from_row)
    while waiting:
        i = waiting.popleft()
        for j in range(len(column_left)):
            if j not in from_column and cells[i][j] < caps[i][j]:
                from_column[j] = i
                for other in range(len(row_left)):
                    if other not in from_row and cells[other][j] > 0:
                        from_row[other] = j
                        waiting.append(other)
    return from_row, from_column


def _augment(
    end: int,
    from_row: dict[int, int],
    from_column: dict[int, int],
    row_left: list[int],
    column_left: list[int],
    caps: Cells,
    cells: Cells,
) -> None:
    path: list[tuple[int, int, int]] = []
    j, room = end, column_left[end]
    while True:
        i = from_column[j]
        path.append((i, j, 1))
        room = min(room, caps[i][j] - cells[i][j])
        j = from_row[i]
        if j < 0:
            break
        path.append((i, j, -1))
        room = min(room, cells[i][j])
    room = min(room, row_left[i])
    for row, column, sign in path:
        cells[row][column] += sign * room
    row_left[i] -= room
    column_left[end] -= room
