from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from casebits_dagster.mixing import select as selection
from casebits_dagster.mixing import supply as supplies
from casebits_dagster.mixing.select import cell_counts, cell_totals, select, select_validation
from casebits_dagster.mixing.supply import Documents, Stock, stock
from casebits_dagster.mixing.targets import Targets
from casebits_dagster.records.errors import CasebitsError
from tests.mixing import plain_selection as plain

Cells = Sequence[Sequence[Sequence[int]]]
LENGTHS = st.lists(st.lists(st.lists(st.integers(1, 30), max_size=12), min_size=2, max_size=2), min_size=1, max_size=3)


def documents(cells: Cells, ids: Sequence[bytes] = ()) -> Documents:
    """Return train documents of the given lengths by domain and bucket, with random ids unless some are given."""
    rows = [(i, j, n) for i, row in enumerate(cells) for j, cell in enumerate(row) for n in cell]
    raw = b"".join(ids) if ids else np.random.default_rng(5).bytes(16 * len(rows))
    halves, buckets = np.frombuffer(raw, ">u8").reshape(-1, 2).astype("<u8"), len(cells[0])
    return Documents(
        high=halves[:, 0],
        low=halves[:, 1],
        tokens=np.array([n for _, _, n in rows], "<u4"),
        index=np.arange(len(rows), dtype="<u4"),
        cell=np.array([i * buckets + j for i, j, _ in rows], "<u2"),
        begins=np.zeros(1, np.int64),
        regions=np.zeros((1, 2), np.int64),
        cells=len(cells) * buckets,
        buckets=buckets,
    )


def once(found: Documents) -> Stock:
    return stock(found, [[1] * found.buckets for _ in range(found.cells // found.buckets)])


def targets(cells: list[list[int]]) -> Targets:
    return Targets([sum(row) for row in cells], [sum(c) for c in zip(*cells, strict=True)], cells, True, "as asked", 1)


def chosen(found: Documents, cells: list[list[int]], seed: str = "s") -> selection.Selected:
    return select(found, once(found), targets(cells), seed)


def random_documents(count: int) -> Documents:
    drawn = np.random.default_rng(2)
    return documents(
        [[drawn.integers(2, 60, count).tolist(), drawn.integers(60, 400, count).tolist()] for _ in range(3)]
    )


def test_the_residue_is_settled_by_the_document_that_fits_it() -> None:
    got = chosen(documents([[[3, 5, 6, 7], [100, 100]]]), [[1, 102]])
    assert sorted(got.documents["tokens"].tolist()) == [3, 100]
    assert got.cells == [[3, 100]]


def test_carry_goes_from_the_longest_bucket_to_the_shortest() -> None:
    found = documents([[[1] * 50, [40] * 5, [100] * 3]])
    # 140 -> one of 100 (40 short), 40 + 40 -> two of 40, 5 -> five of 1.
    assert chosen(found, [[5, 40, 140]]).cells == [[5, 80, 100]]
    # 160 -> two of 100 (40 too many), 80 - 40 -> one of 40.
    assert chosen(found, [[5, 80, 160]]).cells == [[5, 40, 200]]


def test_a_cell_without_a_target_stays_empty_even_where_its_document_would_close_the_residue() -> None:
    assert chosen(documents([[[1] * 50, [40] * 5, [100] * 3]]), [[45, 0, 140]]).cells == [[50, 0, 100]]
    assert chosen(documents([[[7], [100, 100]]]), [[0, 107]]).cells == [[0, 100]]


@settings(max_examples=150, deadline=None)
@given(LENGTHS, st.data())
def test_the_columns_choose_what_lists_and_whole_sorts_choose(
    cells: list[list[list[int]]], data: st.DataObject
) -> None:
    count = sum(len(cell) for row in cells for cell in row)
    # Few first halves, so that keys collide and the second half of the id decides.
    halves = st.tuples(st.integers(0, 3), st.integers(0, 50))
    pairs = data.draw(st.lists(halves, min_size=count, max_size=count, unique=True))
    ids = [first.to_bytes(8, "big") + second.to_bytes(8, "big") for first, second in pairs]
    found = documents(cells, ids) if count else documents(cells)
    epochs = [[data.draw(st.integers(1, 3)) for _ in row] for row in cells]
    held = stock(found, epochs)
    wanted = [[data.draw(st.integers(0, have)) for have in row] for row in held.tokens]
    got = select(found, held, targets(wanted), "seed")
    places = [(i, j, n) for i, row in enumerate(cells) for j, cell in enumerate(row) for n in cell]
    docs = [plain.Doc(ids[k], 0, k, n, (i, j)) for k, (i, j, n) in enumerate(places)]
    expected = plain.select(docs, wanted, epochs, "seed")
    rows = [tuple(row) for row in got.documents[["index", "copy", "tokens", "domain", "bucket"]].tolist()]
    assert rows == sorted((use.doc.index, use.copy, use.doc.tokens, *use.doc.cell) for use in expected)
    assert [bytes(name) for name in got.documents["id"]] == [ids[row[0]] for row in rows]
    assert got.cells == cell_totals(got.documents, len(cells), 2)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 9), st.text("abc", max_size=3))
def test_totals_are_exact_and_cells_within_a_document(tenths: int, seed: str) -> None:
    found = random_documents(80)
    wanted = [[cell * tenths // 10 for cell in row] for row in once(found).tokens]
    got = chosen(found, wanted, seed)
    assert int(got.documents["tokens"].sum()) == sum(map(sum, wanted))
    for want, have in zip(wanted, got.cells, strict=True):
        assert sum(have) == sum(want)
        assert max(abs(w - h) for w, h in zip(want, have, strict=True)) <= 400


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.text("abc", max_size=3))
def test_a_smaller_budget_is_nested_in_a_larger_one_up_to_rounding_documents(less: int, more: int, seed: str) -> None:
    found = random_documents(300)
    small, large = (
        set(chosen(found, [[part * 500, part * 4_000]] * 3, seed).documents["index"].tolist())
        for part in sorted((less, more))
    )
    # A cell: the document that rounds it; a domain: the one or two that close its residue, on either side.
    assert len(small - large) <= 2 * 6


def test_the_choice_does_not_depend_on_the_order_of_documents() -> None:
    found = random_documents(100)
    order = np.random.default_rng(1).permutation(len(found.cell))
    names = ("high", "low", "tokens", "index", "cell")
    other = replace(found, **{name: getattr(found, name)[order] for name in names})
    first, second = (set(map(bytes, chosen(one, [[500, 4_000]] * 3).documents["id"])) for one in (found, other))
    assert first == second


@pytest.mark.parametrize(("block", "margin"), [(7, 0), (64, 1), (1 << 20, 10**9)])
def test_neither_blocks_nor_the_preselection_decide(block: int, margin: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = random_documents(200)
    wanted = [[2_000, 9_000], [100, 0], [3_000, 30_000]]
    expected = chosen(found, wanted).documents.tobytes()
    monkeypatch.setattr(supplies, "BLOCK", block)
    monkeypatch.setattr(selection, "MARGIN", margin)
    assert chosen(found, wanted).documents.tobytes() == expected


def test_few_documents_are_sorted_where_few_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    found, looked_at = random_documents(20_000), []

    class Watched(Documents):
        def order(self, rows: Any, copies: Any, seed: str) -> Any:
            looked_at.append(len(rows))
            return Documents.order(self, rows, copies, seed)

    names = Documents.__slots__
    chosen(Watched(**{name: getattr(found, name) for name in names}), [[5_000, 40_000]] * 3)
    # 45,000 of 5.2 million tokens a domain: some 2 % of a cell's documents and the margin, not 20,000.
    assert max(looked_at) < 1_500


def test_copies_come_after_every_first_copy_and_in_an_order_of_their_own() -> None:
    found = random_documents(20)
    rows, copies = np.repeat(np.arange(120), 2), np.tile([0, 1], 120)
    order = found.order(rows, copies, "s")
    assert copies[order].tolist() == [0] * 120 + [1] * 120
    assert rows[order][:120].tolist() != rows[order][120:].tolist()


def test_validation_takes_just_enough_documents_and_refuses_too_few() -> None:
    found = documents([[[10] * 8]])
    found.cell[:] = 1
    assert once(found).tokens == [[0]]
    assert len(select_validation(found, 31, "s")) == 4
    assert len(select_validation(found, 0, "s")) == 0
    with pytest.raises(CasebitsError) as caught:
        select_validation(found, 81, "s")
    assert str(caught.value) == (
        "MIX_VALIDATION validation_windows: too few validation tokens, expected 81, read 80 "
        "(ask for fewer validation windows)"
    )
    found.cell[:] = 0
    with pytest.raises(CasebitsError, match="expected 1, read 0"):
        select_validation(found, 1, "s")


def test_sums_by_cell() -> None:
    found = documents([[[1, 2], [3]], [[], [4, 5]]])
    table = found.table(np.arange(5), np.zeros(5))
    for one in (table, once(found)):
        assert (cell_totals(one, 2, 2), cell_counts(one, 2, 2)) == ([[3, 3], [0, 9]], [[2, 1], [0, 2]])
