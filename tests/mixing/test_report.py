"""Numbers of the report, by hand."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from casebits_dagster.lineage.mix_summary import mix_lines
from casebits_dagster.mixing.build import build_mix
from casebits_dagster.mixing.packing.concatenated import in_order
from casebits_dagster.mixing.packing.layout import tokens_of_sources
from casebits_dagster.mixing.report import context_table, order_report, window_domains
from casebits_dagster.mixing.verify import verify_mix
from casebits_dagster.records.layout import Home
from casebits_dagster.records.mix import DomainsInWindows, OrderReport, WindowDomains
from casebits_dagster.records.recipe import Recipe
from tests.mixing.corpus import control, corpus, recipe
from tests.mixing.plain_corpus import plain_corpus


def test_a_step_and_a_prefix_deviate_from_the_shares_of_the_mix() -> None:
    # Four windows of 4 tokens, two domains with a half each; steps of two windows: [8, 0], then [0, 8].
    sorted_by_domain = np.array([[4, 0], [4, 0], [0, 4], [0, 4]])
    alternating = sorted_by_domain[[0, 2, 1, 3]]
    assert order_report("shuffled", sorted_by_domain, 2) == OrderReport(
        order="shuffled", step_tokens=4, prefix_tokens=4
    )
    # After one window, domain 0 has 4 tokens where its share is 2.
    assert order_report("stratified", alternating, 2) == OrderReport(order="stratified", step_tokens=0, prefix_tokens=2)
    # The last window is no step; of the first three, domain 0 has 8 of 12 tokens where its share is 6.
    assert order_report("shuffled", sorted_by_domain, 3) == OrderReport(
        order="shuffled", step_tokens=2, prefix_tokens=4
    )


def test_domains_in_windows() -> None:
    plan = in_order(np.array([4, 3, 1, 1]), np.arange(4), 4)
    tokens = tokens_of_sources(plan, np.array([0, 0, 1, 1]))
    assert tokens.tolist() == [[4, 0], [3, 1]]
    assert window_domains(plan, tokens) == WindowDomains(
        domains=(DomainsInWindows(domains=1, windows=1), DomainsInWindows(domains=2, windows=1)),
        mixed_windows=1,
        one_sided_windows=0,
    )


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.integers(4, 12))
def test_the_context_of_a_concatenation_is_the_mean_over_where_it_begins_to_cut(
    lengths: list[int], length: int
) -> None:
    sizes = np.array([*lengths, length, 1])
    rows = context_table(sizes, in_order(sizes, np.arange(len(sizes)), length), 0, beside=True)
    for row in rows:
        seen = sum(
            place >= row.distance and (phase + place) % length >= row.distance
            for size in sizes.tolist()
            for phase in range(length)
            for place in range(size)
        )
        assert row.concatenated_tokens == seen // length


@pytest.mark.parametrize("per_step", [1, 3, 16, 1_000])
def test_the_order_of_a_mix_is_verified(home: Home, per_step: int) -> None:
    built = build_mix(recipe(windows_per_step=per_step), {"tiny": corpus(home)}, home)
    orders = verify_mix(built.folder, home).report.orders or ()
    assert [order.order for order in orders] == ["shuffled", "stratified"]
    assert (orders[0].step_tokens > 0) == (per_step < 80)


def test_a_mix_in_lines(home: Home) -> None:
    source = {"tiny": plain_corpus(home)}

    def last_lines(made: Recipe) -> list[str]:
        return mix_lines(build_mix(made, source, home).report)[-8:]

    aligned, plain = last_lines(recipe(windows_per_step=8)), last_lines(control(recipe()))
    assert aligned[-1].startswith("  loss       nats a token: 10.82 knowing nothing (50,257 ids), ")
    assert [line.split(": a step of 8 windows")[0] for line in aligned if "order" in line] == [
        "  order      shuffled",
        "  order      stratified",
    ]
    assert [line.count("concatenated") for line in (*aligned, *plain) if "context" in line] == [1, 1, 1, 0, 0, 0]


def test_the_concatenation_beside_a_mix_is_near_its_control(home: Home) -> None:
    source = {"tiny": corpus(home, documents=2_000)}
    mix = build_mix(recipe(windows=600), source, home).report
    other = build_mix(control(recipe()), source, home).report
    for aligned, plain in zip(mix.context, other.context, strict=True):
        assert aligned.concatenated_share is not None
        assert abs(aligned.concatenated_share - plain.share) < Decimal("0.03")
