from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from casebits_dagster.mixing.packing import PLANNERS, aligned, interleaved
from casebits_dagster.mixing.packing.layout import Layout, lost_tokens, reordered, tokens_of_sources
from casebits_dagster.mixing.packing.order import Deviation, deviation, stratified
from casebits_dagster.mixing.seeds import counter_keys, seeded_order, seeded_values, shuffled

SOURCES = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 30)), max_size=60)


def test_the_interleaved_example_of_the_docstring_window_by_window() -> None:
    lengths, sources = np.array([3, 3, 2, 5, 1]), np.array([0, 0, 0, 1, 1])
    plan = interleaved.plan(lengths, Layout(sequence_length=4, seed="", sources=sources, chunk_tokens=4))
    runs = [row.tolist() for row in plan.segments[["window", "document", "document_start", "length"]]]
    assert runs == [
        (0, 0, 0, 3),
        (0, 1, 0, 1),
        (1, 1, 1, 2),
        (1, 3, 0, 2),
        (2, 3, 2, 3),
        (2, 2, 0, 1),
        (3, 2, 1, 1),
        (3, 4, 0, 1),
    ]
    assert (plan.windows, plan.rest_tokens, plan.file_tokens) == (3, 2, 14)


def test_when_a_source_ends_the_others_go_on() -> None:
    sources = np.array([1, 0, 1, 1, 0, 1, 1])
    assert interleaved.turns(np.full(7, 2), sources, 2).tolist() == [1, 0, 4, 2, 3, 5, 6]
    assert interleaved.turns(np.full(7, 2), sources, 100).tolist() == [1, 4, 0, 2, 3, 5, 6]


@settings(max_examples=100, deadline=None)
@given(SOURCES, st.integers(1, 40))
def test_interleaving_loses_nothing_and_reorders_no_source(documents: list[tuple[int, int]], chunk: int) -> None:
    sources, lengths = np.array(documents, np.int64).reshape(-1, 2).T
    order = interleaved.turns(lengths, sources, chunk)
    assert sorted(order.tolist()) == list(range(len(documents)))
    for source in range(4):
        assert order[sources[order] == source].tolist() == np.flatnonzero(sources == source).tolist()
    plan = interleaved.plan(lengths, Layout(sequence_length=8, seed="", sources=sources, chunk_tokens=chunk))
    assert plan.file_tokens == lengths.sum()
    assert lost_tokens(lengths, plan.segments).tolist() == [0] * len(lengths)


@settings(max_examples=100, deadline=None)
@given(SOURCES, st.integers(1, 40))
def test_a_turn_is_a_chunk_but_for_a_document(documents: list[tuple[int, int]], chunk: int) -> None:
    """Until a source ends, each has had as many turns as the others, and each turn about `chunk` tokens."""
    sources, lengths = np.array(documents, np.int64).reshape(-1, 2).T
    order = interleaved.turns(lengths, sources, chunk)
    turns = np.split(order, np.flatnonzero(np.diff(sources[order])) + 1) if len(order) else []
    last = [max((k for k, turn in enumerate(turns) if sources[turn[0]] == source), default=-1) for source in range(4)]
    together = min((k for k in last if k >= 0), default=0)
    for turn in turns[:together]:
        if len(set(sources.tolist())) > 1:
            assert -30 < lengths[turn].sum() - chunk < 30 or len(turn) == 1


def test_windows_that_take_turns_in_the_stratified_order() -> None:
    tokens = np.array([[8, 0]] * 6 + [[0, 8]] * 2)
    order = stratified(tokens, "seed")
    assert tokens[order].argmax(axis=1).tolist() == [0, 0, 1, 0, 0, 0, 1, 0]
    assert deviation(tokens[order], 4) == Deviation(prefix=4, step=0)
    assert deviation(tokens, 4) == Deviation(prefix=12, step=8)


def test_order_inside_a_source_is_the_seeded_one() -> None:
    tokens = np.array([[8, 0]] * 50 + [[0, 8]] * 50)
    order, other = stratified(tokens, "a"), stratified(tokens, "b")
    drawn = shuffled(100, "a/stratified")
    assert order[order < 50].tolist() == drawn[drawn < 50].tolist()
    assert order.tolist() != other.tolist()


@pytest.mark.parametrize("domains", [2, 3, 5, 20])
def test_every_prefix_has_the_shares_of_the_mix_though_windows_hold_several_domains(domains: int) -> None:
    drawn = np.random.default_rng(domains)
    tokens = drawn.multinomial(64, drawn.dirichlet(np.full(domains, 0.5), 4_000).mean(axis=0), 4_000)
    tokens[:3_000] = 64 * np.eye(domains, dtype=np.int64)[drawn.integers(0, domains, 3_000)]
    order = stratified(tokens, "s")
    assert sorted(order.tolist()) == list(range(4_000))
    found, random = deviation(tokens[order], 32), deviation(tokens[shuffled(4_000, "s")], 32)
    assert max(found.prefix, found.step) < 4 * 64
    assert random.prefix > 3 * found.prefix


def test_an_order_sorted_by_domain_is_evened_out() -> None:
    """As a linear-congruential walk over sorted windows is not: it takes long runs of one domain."""
    tokens = 8 * np.eye(4, dtype=np.int64)[np.repeat([0, 1, 2, 3], 250)]
    walk = np.arange(1_000) * 7 % 1_000
    assert deviation(tokens[walk], 20) == Deviation(prefix=224, step=120)
    assert deviation(tokens[stratified(tokens, "s")], 20) == Deviation(prefix=6, step=0)


def test_aligned_windows_in_the_stratified_order_are_the_same_windows() -> None:
    drawn = np.random.default_rng(1)
    lengths, sources = drawn.integers(1, 150, 2_000), np.repeat([0, 1, 2], [1_200, 700, 100])
    random = aligned.plan(lengths, Layout(sequence_length=64, seed="s"))
    plan = aligned.plan(lengths, Layout(sequence_length=64, seed="s", order="stratified", sources=sources))
    order = stratified(tokens_of_sources(random, sources), "s")
    assert plan.segments.tobytes() == reordered(random, order).segments.tobytes()
    before, after = windows_of(random.segments), windows_of(plan.segments)
    assert after == [before[window] for window in order]
    evened, wandering = (deviation(tokens_of_sources(made, sources), 16) for made in (plan, random))
    assert evened.prefix < 2 * 64 < wandering.prefix


def windows_of(segments: NDArray[Any]) -> list[bytes]:
    bounds = np.flatnonzero(np.diff(segments["window"].astype(np.int64))) + 1
    names = [name for name in segments.dtype.names or () if name != "window"]
    return [part[names].copy().tobytes() for part in np.split(segments, bounds)]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 1_000)), max_size=200), st.text("ab", max_size=2))
def test_a_seeded_order_sorts_by_group_and_key(rows: list[tuple[int, int]], text: str) -> None:
    group, values = np.array(rows, np.int64).reshape(-1, 2).T
    order, found = seeded_values(group.astype(np.uint8), values.astype(np.int32), text)
    assert found.tolist() == values[order].tolist()
    by_key = np.lexsort((counter_keys(len(rows), text), group))
    assert seeded_order(group, text).tolist() == order.tolist() == by_key.tolist()


def test_every_strategy_repeats_with_its_seed() -> None:
    drawn = np.random.default_rng(0)
    lengths, sources = drawn.integers(1, 900, 3_000), drawn.integers(0, 3, 3_000)
    for name, plan in PLANNERS.items():
        plans = [plan(lengths, Layout(sequence_length=256, seed=seed, sources=sources)) for seed in "aab"]
        once, again, other = (made.segments.tobytes() for made in plans)
        assert (once == again, once == other) == (True, name == "interleaved"), name
