from __future__ import annotations

import math

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

    def divergence(table: list[list[int]]) -> float:
        pairs = [(x, s) for row, have in zip(table, supply, strict=True) for x, s in zip(row, have, strict=True)]
        return math.fsum(x * math.log(x / s) for x, s in pairs if x)

    # Rounding moves a cell by about one token; no other feasible table does better by more than that costs.
    assert divergence(cells) <= divergence(used) + 2 * len(supply) * len(supply[0]) * math.log(20_000)


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
