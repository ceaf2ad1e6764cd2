from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from casebits_dagster.mixing.flow import maximum_flow
from casebits_dagster.mixing.targets import Margins, apportion, fit, plan_targets, round_cells
from casebits_dagster.records.errors import CasebitsError

NAMES = Margins(["code", "prose"], ["<512", ">=512"], [1, 1], [1, 3])
TABLES = st.tuples(st.integers(1, 4), st.integers(1, 4)).flatmap(
    lambda shape: st.lists(
        st.lists(st.integers(0, 10_000), min_size=shape[1], max_size=shape[1]), min_size=shape[0], max_size=shape[0]
    )
)


def divergence(table: Sequence[Sequence[float]], supply: list[list[int]]) -> float:
    pairs = [(x, s) for row, have in zip(table, supply, strict=True) for x, s in zip(row, have, strict=True)]
    return math.fsum(x * math.log(x / s) for x, s in pairs if x)


def test_flow_saturates_or_names_the_minimum_cut() -> None:
    flow = maximum_flow([5, 5], [4, 6], [[5, 5], [5, 5]])
    assert (flow.total, flow.rows, flow.columns) == (10, frozenset(), frozenset())
    flow = maximum_flow([4, 6], [7, 3], [[9, 1], [1, 9]])
    assert flow.total == 8
    assert (flow.rows, flow.columns) == (frozenset({1}), frozenset({1}))


def test_a_flow_is_rerouted_through_full_cells() -> None:
    flow = maximum_flow([1, 1], [1, 1], [[1, 1], [1, 0]], [[1, 0], [0, 0]])
    assert flow.cells == [[0, 1], [1, 0]]


@settings(max_examples=100, deadline=None)
@given(TABLES, st.data())
def test_targets_meet_every_sum_below_every_cap_and_minimise_the_divergence(
    supply: list[list[int]], data: st.DataObject
) -> None:
    used = [[data.draw(st.integers(0, have)) for have in row] for row in supply]
    rows, columns = [sum(row) for row in used], [sum(column) for column in zip(*used, strict=True)]
    fitted, _ = fit(rows, columns, supply)
    cells = round_cells(fitted, rows, columns, supply)
    assert [sum(row) for row in cells] == rows
    assert [sum(column) for column in zip(*cells, strict=True)] == columns
    assert all(0 <= x <= s for got, have in zip(cells, supply, strict=True) for x, s in zip(got, have, strict=True))

    # Rounding moves a cell by about one token; no other feasible table does better by more than that costs.
    assert divergence(cells, supply) <= divergence(used, supply) + 2 * len(supply) * len(supply[0]) * math.log(20_000)


def every_table(rows: list[int], columns: list[int], supply: list[list[int]]) -> list[list[list[int]]]:
    """Return all tables of whole numbers with these sums and caps."""
    if len(rows) == 1:
        last = [columns] if all(x <= s for x, s in zip(columns, supply[0], strict=True)) else []
        return [last] if last else []
    found = []
    for row in itertools.product(*(range(min(s, c) + 1) for s, c in zip(supply[0], columns, strict=True))):
        if sum(row) == rows[0]:
            left = [c - x for c, x in zip(columns, row, strict=True)]
            found += [[list(row), *rest] for rest in every_table(rows[1:], left, supply[1:])]
    return found


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 6), min_size=3, max_size=3), min_size=2, max_size=3), st.data())
def test_no_table_of_all_there_are_is_nearer_to_the_supply(supply: list[list[int]], data: st.DataObject) -> None:
    used = [[data.draw(st.integers(0, have)) for have in row] for row in supply]
    rows, columns = [sum(row) for row in used], [sum(column) for column in zip(*used, strict=True)]
    fitted, sweeps = fit(rows, columns, supply)

    best = min(divergence(table, supply) for table in every_table(rows, columns, supply))
    # Where only one table is possible the sweeps approach it as 1/n and stop at 2,000.
    assert divergence(fitted, supply) <= best + (1e-6 if sweeps < 2_000 else 0.05)


def test_the_fit_of_a_hand_made_table_with_one_cell_at_its_cap() -> None:
    fitted, sweeps = fit([50, 50], [50, 50], [[10, 100], [100, 100]])
    assert [[round(x, 4) for x in row] for row in fitted] == [[10, 40], [40, 10]]
    assert sweeps < 100


@pytest.mark.parametrize(
    ("total", "weights", "want"),
    [(10, [1, 1, 1], [4, 3, 3]), (7, [0, 5, 5], [0, 4, 3]), (0, [1, 2], [0, 0]), (5, [3, 1, 1], [3, 1, 1])],
)
def test_apportion_by_largest_remainder(total: int, weights: list[int], want: list[int]) -> None:
    assert apportion(total, weights) == want


def test_a_shortage_is_refused_with_the_minimum_cut_in_words() -> None:
    with pytest.raises(CasebitsError) as caught:
        plan_targets(NAMES, [[500, 100], [500, 900]], 10, 100, "fail")
    assert str(caught.value) == (
        "MIX_INFEASIBLE selection of 1,000 tokens: code need 500 tokens; lengths <512 want 250; "
        "lengths >=512 have 100 of code; short by 150; the largest budget that meets every share is 4 windows "
        "(400 tokens) (lower the budget, change the shares, or set when_infeasible)"
    )


def test_shrink_takes_the_largest_feasible_budget() -> None:
    targets = plan_targets(NAMES, [[500, 100], [500, 900]], 10, 100, "shrink")
    assert (targets.total, targets.rows, targets.columns, targets.feasible) == (400, [200, 200], [100, 300], False)
    assert targets.outcome.endswith("4 windows (400 tokens): taken, as the recipe says")


def test_keep_domains_moves_lengths_as_little_as_possible() -> None:
    targets = plan_targets(NAMES, [[500, 100], [500, 900]], 10, 100, "keep_domains")
    assert (targets.rows, targets.columns, targets.cells) == ([500, 500], [400, 600], [[400, 100], [0, 500]])


def test_keep_lengths_moves_domains_as_little_as_possible() -> None:
    targets = plan_targets(NAMES, [[500, 100], [500, 900]], 10, 100, "keep_lengths")
    assert (targets.rows, targets.columns, targets.cells) == ([350, 650], [250, 750], [[250, 100], [0, 650]])


@pytest.mark.parametrize("policy", ["shrink", "keep_domains", "keep_lengths"])
def test_a_policy_that_cannot_help_is_refused(policy: str) -> None:
    with pytest.raises(CasebitsError, match="MIX_INFEASIBLE"):
        plan_targets(NAMES, [[0, 0], [100, 90]], 10, 100, policy)  # type: ignore[arg-type]


def test_structural_zeros_need_no_special_case() -> None:
    targets = plan_targets(
        Margins(["a", "b"], ["x", "y", "z"], [3, 1], [1, 0, 1]), [[50, 9, 50], [60, 9, 0]], 1, 80, "fail"
    )
    assert (targets.rows, targets.columns) == ([60, 20], [40, 0, 40])
    assert targets.cells == [[20, 0, 40], [20, 0, 0]]


@settings(max_examples=60, deadline=None)
@given(TABLES, st.data())
def test_each_policy_gives_up_no_more_than_it_must(supply: list[list[int]], data: st.DataObject) -> None:
    def weights(count: int) -> list[int]:
        return data.draw(st.lists(st.integers(0, 5), min_size=count, max_size=count).filter(any))

    margins = Margins(
        [f"d{i}" for i in range(len(supply))],
        [f"l{j}" for j in range(len(supply[0]))],
        weights(len(supply)),
        weights(len(supply[0])),
    )
    windows, length = data.draw(st.integers(1, 40)), 250
    rows, columns = margins.totals(windows * length)
    flow = maximum_flow(rows, columns, supply)
    missing = windows * length - flow.total

    def feasible(count: int) -> bool:
        return maximum_flow(*margins.totals(count * length), supply).total == count * length

    most = max(count for count in range(windows + 1) if feasible(count))
    stock = [[sum(row) for row in supply], [sum(column) for column in zip(*supply, strict=True)]]
    for policy in ("fail", "shrink", "keep_domains", "keep_lengths"):
        helped = {
            "fail": False,
            "shrink": most > 0,
            "keep_domains": all(want <= have for want, have in zip(rows, stock[0], strict=True)),
            "keep_lengths": all(want <= have for want, have in zip(columns, stock[1], strict=True)),
        }[policy]
        if missing and not helped:
            with pytest.raises(CasebitsError, match=rf"short by {missing:,}; the largest .* is {most:,} windows"):
                plan_targets(margins, supply, windows, length, policy)
            continue
        got = plan_targets(margins, supply, windows, length, policy)
        assert [sum(row) for row in got.cells] == got.rows
        assert [sum(column) for column in zip(*got.cells, strict=True)] == got.columns
        assert min(s - x for x, s in zip(itertools.chain(*got.cells), itertools.chain(*supply), strict=True)) >= 0
        moved = [sum(map(abs, map(int.__sub__, *pair))) for pair in ((got.rows, rows), (got.columns, columns))]
        asked = (
            [0, 0] if not missing else {"keep_domains": [0, 2 * missing], "keep_lengths": [2 * missing, 0]}.get(policy)
        )
        assert (got.total, moved if asked else None) == (most * length if asked is None else windows * length, asked)


def test_the_published_shares_take_some_dozen_sweeps() -> None:
    # Twice the budget of each domain; code is short, long documents are scarce, chess lies in the first bucket.
    shares, profile = [370, 290, 280, 30, 30], [182, 0, 561, 166, 45, 46]
    parts = [[300, 80, 420, 150, 30, 20], [150, 90, 500, 170, 50, 40], [260, 90, 450, 120, 50, 30]]
    supply = [[2_000_000 * share * part for part in row] for share, row in zip(shares, parts, strict=False)]
    supply += [[60_000_000, 0, 0, 0, 0, 0]] * 2
    rows, columns = apportion(10**9, shares), apportion(10**9, profile)
    fitted, sweeps = fit(rows, columns, supply)
    assert [round(math.fsum(row), 0) for row in fitted] == rows
    assert [cell for row in fitted[3:] for cell in row[1:]] == [0] * 10
    assert sweeps == 17
