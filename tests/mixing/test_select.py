from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from casebits_dagster.mixing.select import hash_order, select, select_validation
from casebits_dagster.mixing.supply import DOCUMENT_DTYPE, Table
from casebits_dagster.mixing.targets import Targets
from casebits_dagster.records.errors import CasebitsError


def table(cells: Sequence[Sequence[Sequence[int]]]) -> Table:
    """Return documents of the given lengths by domain and bucket, with random ids."""
    rows = [(i, j, n) for i, row in enumerate(cells) for j, cell in enumerate(row) for n in cell]
    found = np.zeros(len(rows), DOCUMENT_DTYPE)
    found["id"] = np.frombuffer(np.random.default_rng(5).bytes(16 * len(rows)), "V16")
    found["index"] = np.arange(len(rows))
    for number, (i, j, n) in enumerate(rows):
        found["domain"][number], found["bucket"][number], found["tokens"][number] = i, j, n
    return found


def targets(cells: list[list[int]]) -> Targets:
    return Targets([sum(row) for row in cells], [sum(c) for c in zip(*cells, strict=True)], cells, True, "as asked", 1)


def random_table(documents: int) -> Table:
    drawn = np.random.default_rng(2)
    return table(
        [[drawn.integers(2, 60, documents).tolist(), drawn.integers(60, 400, documents).tolist()] for _ in range(3)]
    )


def test_the_residue_is_settled_by_the_document_that_fits_it() -> None:
    documents = table([[[3, 5, 6, 7], [100, 100]]])
    chosen = select(documents, targets([[0, 103]]), "s")
    assert sorted(chosen.documents["tokens"].tolist()) == [3, 100]
    assert chosen.cells == [[3, 100]]


def test_carry_goes_from_the_longest_bucket_to_the_shortest() -> None:
    documents = table([[[1] * 50, [40] * 5, [100] * 3]])
    # 140 -> one of 100 (40 short), 40 + 40 -> two of 40, 5 -> five of 1.
    assert select(documents, targets([[5, 40, 140]]), "s").cells == [[5, 80, 100]]
    # 160 -> two of 100 (40 too many), 80 - 40 -> one of 40.
    assert select(documents, targets([[5, 80, 160]]), "s").cells == [[5, 40, 200]]


def test_a_bucket_with_target_zero_stays_empty() -> None:
    documents = table([[[1] * 50, [40] * 5, [100] * 3]])
    assert select(documents, targets([[45, 0, 140]]), "s").cells == [[85 - 35, 0, 100]]


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 9), st.text("abc", max_size=3))
def test_totals_are_exact_and_cells_within_a_document(tenths: int, seed: str) -> None:
    documents = random_table(80)
    supply = [
        [int(documents["tokens"][(documents["domain"] == i) & (documents["bucket"] == j)].sum()) for j in (0, 1)]
        for i in range(3)
    ]
    wanted = targets([[cell * tenths // 10 for cell in row] for row in supply])
    got = select(documents, wanted, seed)
    assert int(got.documents["tokens"].sum()) == wanted.total
    for want, have in zip(wanted.cells, got.cells, strict=True):
        assert all(abs(w - h) <= 400 for w, h in zip(want, have, strict=True))


def test_half_the_budget_is_nested_in_the_whole_up_to_rounding_documents() -> None:
    documents = random_table(300)

    def ids(part: int) -> set[bytes]:
        cells = [[part * 500, part * 4_000] for _ in range(3)]
        return set(map(bytes, select(documents, targets(cells), "seed").documents["id"]))

    half, whole = ids(3), ids(6)
    assert len(half) > 100
    assert len(half - whole) <= 2 * 6


def test_the_choice_does_not_depend_on_the_order_of_documents() -> None:
    documents = random_table(100)
    other = documents[np.random.default_rng(1).permutation(len(documents))]
    wanted = targets([[500, 4_000]] * 3)
    first, second = (set(map(bytes, select(rows, wanted, "s").documents["id"])) for rows in (documents, other))
    assert first == second


def test_copies_come_after_every_first_copy_and_in_an_order_of_their_own() -> None:
    documents = np.repeat(random_table(20), 2)
    documents["copy"] = np.arange(len(documents)) % 2
    order = documents[hash_order(documents, "s")]
    assert order["copy"].tolist() == [0] * 120 + [1] * 120
    assert order["index"][:120].tolist() != order["index"][120:].tolist()


def test_validation_takes_just_enough_documents_and_refuses_too_few() -> None:
    documents = table([[[10] * 8]])
    assert len(select_validation(documents, 31, "s")) == 4
    assert len(select_validation(documents, 0, "s")) == 0
    with pytest.raises(CasebitsError) as caught:
        select_validation(documents, 81, "s")
    assert str(caught.value) == (
        "MIX_VALIDATION validation_windows: too few validation tokens, expected 81, read 80 "
        "(ask for fewer validation windows)"
    )
    with pytest.raises(CasebitsError, match="expected 1, read 0"):
        select_validation(documents[:0], 1, "s")
