"""Flat files of ids: whose a document is, with its separator on either side."""

from __future__ import annotations

import itertools
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from casebits_dagster.admission import flat, rows
from casebits_dagster.records.errors import RecordError
from tests.admission.reading import Found, MemoryStore, covered, flat_rows, ids_bytes, read
from tests.faults.world import SEPARATOR

AT = st.sampled_from(["start", "end"])
IDS = st.lists(st.sampled_from([64, 65, 447, 94, 50257, 65535, SEPARATOR, SEPARATOR]), max_size=40)


@given(ids=IDS, cuts=st.lists(st.integers(1, 40), max_size=4), block=st.sampled_from([2, 6, 1 << 22]), at=AT)
@settings(max_examples=150, deadline=None)
def test_any_ranges_of_any_file(ids: list[int], cuts: list[int], block: int, at: Literal["start", "end"]) -> None:
    content = ids_bytes(ids)
    edges = sorted({0, len(content), *(2 * cut for cut in cuts if cut < len(ids))})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "BLOCK", block)
        patch.setattr(flat, "PARSED", block)
        for begin, end in itertools.pairwise(edges):
            store = MemoryStore(content)
            found, digest = read("flat_u16", store, begin, end, separator_at=at)
            assert found == flat_rows(ids, begin, end, at)
            assert digest == covered(content, begin, end)
            assert all(first[1] <= second[0] for first, second in itertools.pairwise(store.fetched))


@pytest.mark.parametrize(
    ("at", "ids", "expected"),
    [
        ("end", [], []),
        ("start", [], []),
        ("end", [64, SEPARATOR, 65], [Found(0, 2, -1, text=b"a"), Found(4, 1, -1, text=b"b")]),
        ("end", [64, SEPARATOR], [Found(0, 2, -1, text=b"a")]),
        ("end", [SEPARATOR, SEPARATOR], [Found(0, 1, -1), Found(2, 1, -1)]),
        ("start", [64, SEPARATOR, 65], [Found(0, 1, -1, text=b"a"), Found(2, 2, -1, text=b"b")]),
        ("start", [SEPARATOR, 64, SEPARATOR], [Found(0, 2, -1, text=b"a"), Found(4, 1, -1)]),
        ("start", [SEPARATOR, 64, 50257], [Found(0, 3, -1, "id_out_of_range", 2)]),
        ("end", [64, 447, SEPARATOR], [Found(0, 3, -1, "truncated_utf8", 1)]),
    ],
)
def test_what_a_document_is(at: Literal["start", "end"], ids: list[int], expected: list[Found]) -> None:
    assert read("flat_u16", ids_bytes(ids), separator_at=at)[0] == expected


def test_an_odd_number_of_bytes_is_refused() -> None:
    with pytest.raises(RecordError, match=r"^SOURCE_INVALID file: expected uint16, read an odd number of bytes$"):
        read("flat_u16", b"abc", separator_at="end")
