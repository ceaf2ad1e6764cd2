from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from casebits_dagster.mixing.packing import aligned, concatenated
from casebits_dagster.mixing.packing.best_fit import best_fit_decreasing
from casebits_dagster.mixing.packing.exact import Pool, cheapest_cut, exact_subset
from casebits_dagster.mixing.packing.layout import CHUNK, CUT, FLOATED_TAIL, TAIL, Layout, WindowPlan, lost_tokens
from casebits_dagster.mixing.seeds import I64, largest_first
from casebits_dagster.records.errors import CasebitsError
from casebits_dagster.records.mix import KINDS

SEPARATORS, TAILS = st.sampled_from(["end", "start"]), st.sampled_from(["strict", "float", "auto"])
LENGTHS = st.integers(2, 64).flatmap(
    lambda t: st.tuples(
        st.just(t),
        st.one_of(
            st.lists(st.integers(1, max(1, t // 4)), max_size=40),
            st.lists(st.integers(1, t), max_size=40),
            st.lists(st.integers(1, 5 * t), max_size=40),
        ),
    )
)

SHAPES: dict[str, Callable[[np.random.Generator, int, int], NDArray[Any]]] = {
    "small": lambda drawn, length, count: drawn.integers(1, max(2, length // 8), count),
    "like pages": lambda drawn, length, count: np.maximum(1, drawn.lognormal(np.log(length) - 1.5, 1.0, count)),
    "like books": lambda drawn, length, count: drawn.integers(length // 2 + 1, 5 * length, count // 5),
    "like epics": lambda drawn, length, count: drawn.integers(1, 300 * length, count // 50),
    "without small ones": lambda drawn, length, count: drawn.integers(length // 6 + 1, 2 * length, count),
    "all alike": lambda drawn, length, count: np.full(count // 4, drawn.integers(1, 3 * length)),
}


def lines(plan: WindowPlan) -> list[str]:
    """Return each window as text: document[start:end]kind ..."""
    found = []
    for _, rows in itertools.groupby(plan.segments, key=lambda row: int(row["window"])):
        runs = []
        for row in rows:
            start, length = int(row["document_start"]), int(row["length"])
            runs.append(f"{row['document']}[{start}:{start + length - row['inserted']}]{KINDS[row['kind']]}")
        found.append(" ".join(runs))
    return found


def test_the_aligned_example_of_the_docstring_window_by_window() -> None:
    plan = aligned.plan(np.array([19, 5, 3, 3, 2]), Layout(sequence_length=8, seed="hand"))
    assert sorted(lines(plan)) == [
        "0[0:8]chunk",
        "0[16:19]tail 1[0:5]whole",
        "0[8:16]chunk",
        "3[0:3]whole 2[0:3]whole 4[0:2]whole",
    ]
    assert (plan.windows, plan.file_tokens, plan.returned.tolist()) == (4, 33, [])


def test_the_concatenated_example_of_the_docstring_window_by_window() -> None:
    plan = concatenated.in_order(np.array([3, 6, 2]), np.array([1, 0, 2]), 4)
    assert lines(plan) == ["1[0:4]chunk", "1[4:6]tail 0[0:2]chunk", "0[2:3]tail 2[0:2]whole"]
    assert (plan.windows, plan.file_tokens, plan.rest_tokens) == (2, 11, 3)


def test_a_floated_tail_has_one_separator_before_it_where_separators_stand_at_the_start() -> None:
    layout = Layout(sequence_length=8, seed="x", tails="float", separator="start")
    plan = aligned.plan(np.array([10, 5]), layout)
    assert sorted(lines(plan)) in (
        ["0[0:8]chunk", "0[8:10]floated_tail 1[0:5]whole"],
        ["0[0:8]chunk", "1[0:5]whole 0[8:10]floated_tail"],
    )
    assert plan.segments["inserted"].sum() == 1
    assert (plan.windows * 8, plan.returned.tolist()) == (10 + 5 + 1, [])


def test_tails_float_smallest_first_and_only_where_short_documents_cannot_fill_their_windows() -> None:
    lengths = np.array([8 + 1, 8 + 2, 8 + 5, 3, 3, 2], np.int64)
    rows = aligned.plan(lengths, Layout(sequence_length=8, seed="x")).segments
    assert rows["document"][rows["kind"] == TAIL].tolist() == [2]
    assert sorted(rows["document"][rows["kind"] == FLOATED_TAIL].tolist()) == [0, 1]
    more = np.concatenate([lengths, np.full(40, 2)])
    kinds = aligned.plan(more, Layout(sequence_length=8, seed="x", spread=False)).segments["kind"]
    assert ((kinds == TAIL).sum(), (kinds == FLOATED_TAIL).sum()) == (3, 0)


def test_strict_tails_without_enough_short_documents_are_refused_with_the_empty_share() -> None:
    with pytest.raises(CasebitsError) as caught:
        aligned.plan(np.array([10, 10, 5]), Layout(sequence_length=8, seed="x", tails="strict"))
    assert str(caught.value) == (
        "MIX_TAILS tails = strict: short documents leave 7 tokens empty beside 2 tails, 21.88 % of the mix "
        "(float tails, or ask for more short documents)"
    )


def test_strict_tails_whose_gaps_no_document_is_left_for_are_refused() -> None:
    lengths = np.array([8 + 5] * 3 + [7, 7], np.int64)
    with pytest.raises(CasebitsError, match="MIX_TAILS tails = strict"):
        aligned.plan(lengths, Layout(sequence_length=8, seed="x", tails="strict"))


def test_a_cut_is_the_last_resort_and_loses_least() -> None:
    plan = aligned.plan(np.array([7] * 6, np.int64), Layout(sequence_length=8, seed="x"))
    lost = lost_tokens(np.full(6, 7), plan.segments)
    lost[plan.returned] = 0
    assert (plan.windows, len(plan.returned), sorted(lost.tolist())) == (2, 2, [0, 0, 0, 0, 6, 6])


def test_documents_beside_which_nothing_fits_are_filled_up_with_parts_of_the_smallest() -> None:
    lengths = np.repeat([120, 30, 13], [200, 196, 4])
    plan = aligned.plan(lengths, Layout(sequence_length=128, seed="x", tails="float"))
    cut = plan.segments[plan.segments["kind"] == CUT]
    sizes, count = np.unique(lengths[cut["document"]], return_counts=True)
    assert (plan.windows, sizes.tolist(), count.tolist()) == (199, [13, 30], [4, 195])
    assert set(cut["length"].tolist()) == {8}


@settings(max_examples=150, deadline=None)
@given(LENGTHS, TAILS, SEPARATORS, st.booleans(), st.text("ab", max_size=2))
def test_guarantees_of_aligned_packing(
    sized: tuple[int, list[int]], tails: str, separator: str, spread: bool, seed: str
) -> None:
    layout = Layout(sequence_length=sized[0], seed=seed, tails=tails, spread=spread, separator=separator)  # type: ignore[arg-type]
    keeps_its_guarantees(np.array(sized[1], np.int64), layout)


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 700), st.sampled_from(sorted(SHAPES)), TAILS, SEPARATORS, st.booleans(), st.integers(0, 99))
def test_guarantees_of_aligned_packing_in_bulk(
    length: int, shape: str, tails: str, separator: str, spread: bool, seed: int
) -> None:
    drawn = np.random.default_rng(seed)
    lengths = SHAPES[shape](drawn, length, int(drawn.integers(200, 3_000))).astype(np.int64)
    layout = Layout(sequence_length=length, seed=str(seed), tails=tails, spread=spread, separator=separator)  # type: ignore[arg-type]
    keeps_its_guarantees(lengths, layout)


def keeps_its_guarantees(lengths: I64, layout: Layout) -> None:
    length = layout.sequence_length
    try:
        plan = aligned.plan(lengths, layout)
    except CasebitsError as refused:
        # Only strict tails may be refused.
        if (refused.code, layout.tails) == ("MIX_TAILS", "strict"):
            return
        raise
    rows, tokens = plan.segments, lengths[plan.segments["document"]]
    run = rows["length"].astype(np.int64)
    # 1, 9: every window has exactly T tokens, without a gap or an overlap, and nothing is longer than a window.
    begins = rows["window"].astype(np.int64) * length + rows["position"]
    assert np.array_equal(begins, np.cumsum(run) - run)
    assert run.sum() == plan.windows * length
    assert (rows["position"] + run <= length).all()
    # 2, 3: short documents are whole, longer ones lie at multiples of T, full chunks alone.
    lost = lost_tokens(lengths, rows)
    lost[plan.returned] = 0
    assert (lost >= 0).all()
    short = tokens <= length
    assert (rows["document_start"][short] == 0).all()
    assert ((run - rows["inserted"] == tokens) | (lost[rows["document"]] > 0))[short].all()
    assert (rows["document_start"] % length == 0).all()
    assert (run[rows["kind"] == CHUNK] == length).all()
    # 4: pinned tails start their window; strict floats none, end separators insert nothing.
    assert (rows["position"][rows["kind"] == TAIL] == 0).all()
    inserted = (rows["kind"] == FLOATED_TAIL) & (layout.separator == "start")
    assert (rows["inserted"] == inserted)[rows["kind"] != CUT].all()
    assert layout.tails != "strict" or not (rows["kind"] == FLOATED_TAIL).any()
    # 5: conservation; a returned document is returned whole; at most one run a document and start.
    returned = int(lengths[plan.returned].sum())
    assert lengths.sum() + rows["inserted"].sum() == plan.windows * length + lost.sum() + returned
    assert not np.isin(plan.returned, rows["document"]).any()
    assert len(np.unique(rows[["document", "document_start"]])) == len(rows)
    assert returned < 2 * length
    # 8: the context statistic is at its bound up to cut documents, and not below a concatenation of the same documents.
    if not lost.any() and not len(plan.returned):
        control = concatenated.plan(lengths, layout).segments["length"]
        for distance in (length // 4, length // 2, 3 * length // 4):
            best = int((lengths // length).sum() * (length - distance))
            best += int(np.maximum(0, lengths % length - distance).sum())
            assert int(np.maximum(0, run - rows["inserted"] - distance).sum()) == best
            assert best >= int(np.maximum(0, control.astype(np.int64) - distance).sum())


@settings(max_examples=100, deadline=None)
@given(LENGTHS)
def test_a_concatenation_holds_every_token_in_order(sized: tuple[int, list[int]]) -> None:
    length, lengths = sized[0], np.array(sized[1], np.int64)
    plan = concatenated.plan(lengths, Layout(sequence_length=length, seed="x"))
    rows = plan.segments
    begins = rows["window"].astype(np.int64) * length + rows["position"]
    assert begins.tolist() == (np.cumsum(rows["length"], dtype=np.int64) - rows["length"]).tolist()
    assert (plan.file_tokens, plan.windows) == (lengths.sum(), max(0, int(lengths.sum()) - 1) // length)
    assert lost_tokens(lengths, rows).tolist() == [0] * len(lengths)


def test_plans_differ_by_seed_and_repeat_with_it() -> None:
    lengths = np.random.default_rng(0).integers(1, 90, 300)

    def raw(seed: str) -> bytes:
        return aligned.plan(lengths, Layout(sequence_length=32, seed=seed)).segments.tobytes()

    assert raw("a") == raw("a")
    assert raw("a") != raw("b")


def test_spread_leaves_fewer_mixed_windows_to_one_domain() -> None:
    drawn = np.random.default_rng(3)
    lengths = np.concatenate([drawn.integers(20, 200, 2_000), drawn.integers(700, 1_900, 150)])
    domain = np.concatenate([np.repeat([0, 1, 2, 3], 500), drawn.integers(0, 4, 150)])

    def domains_per_window(spread: bool) -> float:
        rows = aligned.plan(lengths, Layout(sequence_length=2_048, seed="s", spread=spread)).segments
        pairs = {(int(row["window"]), int(domain[row["document"]])) for row in rows}
        return len(pairs) / (int(rows["window"].max()) + 1)

    assert domains_per_window(True) > domains_per_window(False)


def naive_best_fit(sizes: I64, capacity: int, opened: list[int]) -> list[int]:
    """Return what is left in each window after placing one item after another, largest first."""
    left = list(opened)
    for size in sorted(sizes.tolist(), reverse=True):
        exact = [k for k, room in enumerate(left) if room == size]
        roomy = sorted((room, k) for k, room in enumerate(left) if room > size)
        if exact:
            left[exact[0]] = 0
        elif roomy:
            left[roomy[0][1]] -= size
        else:
            left.append(capacity - size)
    return sorted(left)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(1, 20), max_size=60), st.lists(st.integers(0, 20), max_size=5))
def test_grouped_best_fit_fills_windows_as_the_naive_one_does(sizes: list[int], opened: list[int]) -> None:
    array = np.array(sizes, np.int64)
    item, window, left = best_fit_decreasing(array, np.array(opened, np.int64), 20)
    room = np.array([*opened, *[20] * (len(left) - len(opened))], np.int64)
    np.subtract.at(room, window, array[item])
    assert room.tolist() == left.tolist()
    assert sorted(left.tolist()) == naive_best_fit(array, 20, opened)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 12), max_size=8), st.integers(1, 30))
def test_exact_subset_and_cheapest_cut_find_what_a_full_search_finds(sizes: list[int], gap: int) -> None:
    subsets = [list(s) for n in range(len(sizes) + 1) for s in itertools.combinations(range(len(sizes)), n)]
    sums = {sum(sizes[k] for k in subset) for subset in subsets}
    found = exact_subset(sizes, gap)
    assert (found is not None) == (gap in sums)
    assert found is None or sum(sizes[k] for k in found) == gap
    losses = [
        sum(sizes[k] for k in subset) + sizes[cut] - gap
        for subset in subsets
        for cut in set(range(len(sizes))) - set(subset)
        if sum(sizes[k] for k in subset) < gap <= sum(sizes[k] for k in subset) + sizes[cut]
    ]
    cut = cheapest_cut(sizes, gap)
    assert (cut is None) == (not losses)
    if cut is not None:
        assert sum(sizes[k] for k in cut.whole) + cut.kept == gap
        assert cut.cut not in cut.whole
        assert sizes[cut.cut] - cut.kept == min(losses)


def test_a_pool_samples_without_repeating_and_only_what_fits() -> None:
    pool = Pool(list(range(1, 201)), list(range(200)), "seed")
    places = pool.sample(100, 20)
    assert len(set(places)) == len(places)
    assert max(pool.sizes[place] for place in places) <= 100
    assert places != pool.sample(100, 20)
    assert sorted(pool.sample(5, 20)) == [0, 1, 2, 3, 4]
    pool.remove([(7, 6)])
    assert (len(pool.items), pool.total, pool.smallest) == (199, 201 * 100 - 7, 1)


@given(st.lists(st.integers(0, 1 << 20) | st.integers(0, 3)), st.sampled_from([np.int32, np.int64]))
def test_largest_first_is_a_stable_sort(sizes: list[int], dtype: type) -> None:
    want = np.argsort(-np.array(sizes, np.int64), kind="stable")
    assert largest_first(np.array(sizes, dtype)).tolist() == want.tolist()
