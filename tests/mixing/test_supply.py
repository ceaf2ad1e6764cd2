"""Which documents a mix may take at all."""

from __future__ import annotations

import typing
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from casebits_dagster.mixing import supply as supplies
from casebits_dagster.mixing.sources import MixSource
from casebits_dagster.mixing.supply import Supply, _closable, eligible, supply
from casebits_dagster.records.errors import Refused
from casebits_dagster.records.layout import Home
from casebits_dagster.records.mix import REPORT, MixReport
from casebits_dagster.records.recipe import CaseClass, Domain, Lengths, Selection, Slice
from casebits_dagster.stratify import CASE_CLASSES
from tests.mixing import plain_selection as plain
from tests.mixing.corpus import HEX, INDEX_DTYPE

Rows = Sequence[tuple[bytes, int, int, int]]


def no_tokens(_: int) -> Any:
    raise NotImplementedError


def source(regions: Sequence[Rows], generation: str = "g", **changes: Any) -> MixSource:
    """Return a source of regions with documents (id, tokens, cluster, split); the case class is the cluster mod 5."""
    tables = []
    for number, rows in enumerate(regions):
        full = [(i, number, k, n, 4 * n, c, s, c % 5) for k, (i, n, c, s) in enumerate(rows)]
        tables.append(np.array(full, INDEX_DTYPE))
    fields: dict[str, Any] = {
        "generation": generation,
        "manifest_version": 1,
        "manifest_sha256": HEX,
        "vocabulary_sha256": HEX,
        "vocabulary_size": 200,
        "licences": (),
        "documents": sum(map(len, tables)),
        "regions": len(tables),
        "rows": tables.__getitem__,
        "region": no_tokens,
    }
    return MixSource(**(fields | changes))


def domain(**fields: Any) -> Domain:
    return replace(Domain(name="a", generation="g", share=Decimal(1)), **fields)


def taken(found: Supply) -> list[tuple[Any, ...]]:
    """Return (generation, region, index, domain, bucket) of the train rows."""
    rows = found.documents.rows(found.documents.train)
    table = found.documents.table(rows, np.zeros(len(rows)))
    return table[["generation", "region", "index", "domain", "bucket"]].tolist()  # type: ignore[no-any-return]


def ids(*numbers: int) -> list[bytes]:
    return [number.to_bytes(16, "big") for number in numbers]


def selection(*domains: Domain, edges: tuple[int, ...] = ()) -> Selection:
    return Selection(windows=1, domains=domains, lengths=Lengths(edges=edges))


def fits(lengths: list[int], window: int) -> list[int]:
    array = np.array(lengths, "<i8")
    found: list[int] = array[_closable(array, int(array.min(initial=1 << 32)), window)].tolist()
    return found


def test_documents_whose_last_window_nothing_can_close_are_left_out() -> None:
    assert fits([6, 40, 94, 95, 194, 196, 200, 299], 100) == [6, 40, 94, 194, 200]


def test_the_rule_rests_where_documents_are_long_against_a_window() -> None:
    assert fits([7, 96, 199], 100) == [7, 96, 199]
    assert fits([96, 199], 0) == [96, 199]
    assert fits([], 100) == []


def test_a_domain_is_what_meets_its_every_condition() -> None:
    a, b, c, d, e, f = ids(*range(6))
    rows = [(a, 4, 0, 0), (b, 5, 0, 0), (c, 9, 1, 0), (d, 10, 1, 0), (e, 9, 6, 1), (f, 9, 8, 0)]
    first = domain(clusters=(0, 1), min_tokens=5, max_tokens=9)
    second = domain(name="b", min_tokens=10)
    third = domain(name="c", clusters=(6, 8), case_classes=("capitalised", "mixed"))
    found = supply(selection(first, second, third, edges=(9,)), {"g": source([rows])}, np.empty(0, "V16"))
    assert taken(found) == [(0, 0, 1, 0, 0), (0, 0, 2, 0, 1), (0, 0, 3, 1, 1), (0, 0, 5, 2, 1)]
    validation = found.documents.rows(found.documents.validation)
    assert found.documents.table(validation, np.zeros(1))[["index", "domain", "bucket"]].tolist() == [(4, 2, 1)]


def test_the_names_of_case_classes_are_those_of_the_index() -> None:
    assert typing.get_args(CaseClass) == CASE_CLASSES


def test_a_plain_source_has_no_case_classes() -> None:
    plainly = source([[(ids(1)[0], 3, 0, 0)]], format="plain-1")
    assert len(eligible([Slice(name="a", generation="g")], (), {"g": plainly}).cell) == 1
    with pytest.raises(Refused) as caught:
        eligible([Slice(name="a", generation="g", case_classes=("lower",))], (), {"g": plainly})
    expected = "CODEC_PIN a: case_classes: expected a generation with case masks, read plain-1"
    assert str(caught.value) == expected


def test_epochs_are_capped_by_cell() -> None:
    rows = [(name, n, 0, 0) for name, n in zip(ids(1, 2, 3), (3, 4, 9), strict=True)]
    for changes, tokens, counts in (
        ({"epochs": 2}, [14, 18], [4, 2]),
        ({"epochs_by_length": (1, 5)}, [7, 45], [2, 5]),
    ):
        found = supply(selection(domain(**changes), edges=(9,)), {"g": source([rows])}, np.empty(0, "V16"))
        assert (found.train.tokens, found.train.documents) == ([tokens], [counts])


NAMES = st.tuples(st.sampled_from([0, 1, 2**63, 2**64 - 1]), st.integers(0, 3)).map(
    lambda halves: halves[0].to_bytes(8, "big") + halves[1].to_bytes(8, "big")
)
REGIONS = st.lists(st.lists(st.tuples(NAMES, st.integers(1, 60)), max_size=12), min_size=1, max_size=4)


@settings(max_examples=80, deadline=None)
@given(REGIONS, REGIONS, st.sets(NAMES, max_size=3), st.sampled_from([0, 16, 40]), st.sampled_from([1, 5, 1 << 20]))
def test_the_supply_is_what_lists_and_whole_sorts_give(
    one: list[list[tuple[bytes, int]]], two: list[list[tuple[bytes, int]]], banned: set[bytes], window: int, block: int
) -> None:
    sources, docs = {}, []
    for number, (name, regions) in enumerate((("g", one), ("h", two))):
        # Cluster and split follow from the id, as they do where equal texts have one split.
        rows = [[(i, n, i[15] % 2, i[15] == 3) for i, n in region] for region in regions]
        sources[name] = source(rows, name)
        docs += [
            plain.Doc(i, number * 100 + region, k, n, (2 * number + c, int(n >= 20)), s)
            for region, listed in enumerate(rows)
            for k, (i, n, c, s) in enumerate(listed)
        ]
    domains = [domain(name=f"{g}{c}", generation=g, clusters=(c,)) for g in "gh" for c in (0, 1)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(supplies, "BLOCK", block)
        excluded = np.frombuffer(b"".join(sorted(banned)), "V16")
        found = supply(selection(*domains, edges=(20,)), sources, excluded, window)
        kept, *counts = plain.supply(docs, banned, window)
        assert [found.excluded, found.duplicates, found.unfit] == counts
        train = [doc for doc in kept if not doc.validation]
        assert taken(found) == [(*divmod(doc.region, 100), doc.index, *doc.cell) for doc in train]
        tokens = [[sum(doc.tokens for doc in train if doc.cell == (i, j)) for j in (0, 1)] for i in range(4)]
        assert found.train.tokens == tokens
        validation = found.documents.rows(found.documents.validation)
        table = found.documents.table(validation, np.zeros(len(validation)))
        assert [bytes(name) for name in table["id"]] == [doc.id for doc in kept if doc.validation]


def test_index_rows_are_asked_for_a_region_at_a_time() -> None:
    asked: list[int] = []
    plainly = source([[(ids(number)[0], 3, 0, 0)] for number in range(5)])

    def rows(region: int) -> Any:
        asked.append(region)
        return plainly.rows(region)

    reader: Callable[[int], Any] = rows
    eligible([Slice(name="a", generation="g")], (), {"g": source([[]] * 5, documents=5, rows=reader)})
    assert asked == [0, 1, 2, 3, 4]


def test_the_shipped_mix_loses_nothing(sample_home: Home) -> None:
    path = sample_home.mix("sample_aligned") / REPORT
    report = MixReport.parse(path.read_bytes(), REPORT)
    assert (report.train.windows, report.cut, report.returned) == (400, (), ())
    assert report.selection.unfit_documents > 0
    assert report.conservation.selected_tokens == report.conservation.window_tokens == 400 * 2_048
