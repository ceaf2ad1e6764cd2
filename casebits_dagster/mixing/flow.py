"""Maximum flow through the small table of domains x lengths: can these targets be met, and if not, why not.

Source -> rows (capacity: row target) -> cells (capacity: supply) -> columns (capacity: column target). Exact integers;
augmenting paths found breadth first, so the cost is a few passes over a table of some dozens of cells.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from casebits_dagster.mixing.seeds import I64

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
    row, column = slice(0, len(rows)), slice(len(rows), len(rows) + len(columns))
    source, sink = column.stop, column.stop + 1
    cells = np.array(start if start else np.zeros((len(rows), len(columns))), np.int64)
    room = np.zeros((sink + 1, sink + 1), np.int64)
    room[source, row], room[column, sink] = rows - cells.sum(axis=1), columns - cells.sum(axis=0)
    room[row, column], room[column, row] = caps - cells, cells.T
    while sink in (before := _reach(room, source)):
        path = [sink]
        while path[-1] != source:
            path.append(before[path[-1]])
        begins, ends = path[1:], path[:-1]
        more = room[begins, ends].min()
        room[begins, ends] -= more
        room[ends, begins] += more
    found = room[column, row].T
    cut = [frozenset(k - part.start for k in before if part.start <= k < part.stop) for part in (row, column)]
    return Flow(found.tolist(), int(found.sum()), *cut)


def _reach(room: I64, source: int) -> dict[int, int]:
    """Return the nodes that have room on a way from the source, nearest first, each with the node before it."""
    before, waiting = {source: source}, [source]
    for node in waiting:
        for after in np.flatnonzero(room[node]).tolist():
            if after not in before:
                before[after] = node
                waiting.append(after)
    return before
