"""Flat arrays of ids: documents between separators, at either end, and what the edges of a file are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from casebits_dagster.records.errors import RecordError
from casebits_dagster.sources.columns import Reading
from casebits_dagster.sources.flat_u16 import read_rows
from tests.sources.reading import BAD, GPT2, HELLO, LEAD, SEPARATOR, Seen, read, spell

START, END = Reading(GPT2, "start"), Reading(GPT2, "end")


def read_ids(folder: Path, ids: list[int], reading: Reading) -> list[Seen]:
    path = folder / "a.bin"
    path.write_bytes(np.array(ids, "<u2").tobytes())
    return read(read_rows, path, 0, path.stat().st_size, reading=reading)[0]


def seen(position: int, stored: int, tokens: list[int]) -> Seen:
    return Seen(position, spell(tokens), source_tokens=stored, tokens=tuple(tokens))


@pytest.mark.parametrize(
    ("ids", "reading", "want"),
    [
        ([*HELLO, SEPARATOR, *HELLO, SEPARATOR], END, [seen(0, 4, HELLO), seen(8, 4, HELLO)]),
        ([*HELLO, SEPARATOR, *HELLO], END, [seen(0, 4, HELLO), seen(8, 3, HELLO)]),
        ([SEPARATOR, *HELLO], END, [seen(0, 1, []), seen(2, 3, HELLO)]),
        ([SEPARATOR, *HELLO, SEPARATOR, *HELLO], START, [seen(0, 4, HELLO), seen(8, 4, HELLO)]),
        ([*HELLO, SEPARATOR, *HELLO], START, [seen(0, 3, HELLO), seen(6, 4, HELLO)]),
        ([*HELLO, SEPARATOR], START, [seen(0, 3, HELLO), seen(6, 1, [])]),
        ([SEPARATOR, SEPARATOR], START, [seen(0, 1, []), seen(2, 1, [])]),
        ([SEPARATOR, SEPARATOR], END, [seen(0, 1, []), seen(2, 1, [])]),
    ],
)
def test_a_document_has_its_separator_at_its_own_end(
    tmp_path: Path, ids: list[int], reading: Reading, want: list[Seen]
) -> None:
    assert read_ids(tmp_path, ids, reading) == want


def test_a_problem_is_placed_in_the_stored_document(tmp_path: Path) -> None:
    ids = [SEPARATOR, *HELLO, 50257, SEPARATOR, *HELLO, *LEAD, SEPARATOR, *BAD, SEPARATOR, *HELLO]
    assert read_ids(tmp_path, ids, START) == [
        Seen(0, b"", source_tokens=5, problem="id_out_of_range", problem_at=4, tokens=()),
        Seen(10, b"", source_tokens=5, problem="truncated_utf8", problem_at=12, tokens=()),
        Seen(20, b"", source_tokens=2, problem="not_utf8", problem_at=0, tokens=()),
        seen(24, 4, HELLO),
    ]


@pytest.mark.parametrize("reading", [START, END])
def test_ranges_may_begin_inside_an_id(tmp_path: Path, reading: Reading) -> None:
    whole = read_ids(tmp_path, [*HELLO, SEPARATOR, *HELLO, SEPARATOR, *HELLO], reading)
    parts = [read(read_rows, tmp_path / "a.bin", begin, begin + 1, reading=reading)[0] for begin in range(22)]
    assert [row for part in parts for row in part] == whole


def test_a_file_that_ends_inside_an_id_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"\1\2\3")
    with pytest.raises(RecordError) as caught:
        read(read_rows, tmp_path / "a.bin", 0, 3, reading=END)
    assert str(caught.value) == "SOURCE_FORMAT a.bin: expected an even number of bytes, read 3"
