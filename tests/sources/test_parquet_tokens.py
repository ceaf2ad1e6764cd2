"""Rows of a Parquet source: exact text, or a reason and a place."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from casebits_dagster.records.errors import RecordError
from casebits_dagster.records.plan import RegionSpec
from casebits_dagster.sources.columns import PROBLEMS, SourceRows
from casebits_dagster.sources.detokenise import gpt2_table
from casebits_dagster.sources.parquet_tokens import count_rows, range_digest, read_rows

HELLO = [15496, 11, 995]  # "Hello, world"
EURO = [26391]  # the three bytes of U+20AC
LEAD = [158]  # byte 0xE2, which begins a character
BAD = [222]  # a lone continuation byte


def write(
    path: Path, rows: Sequence[list[int] | None], counts: list[int | None] | None = None, **options: object
) -> int:
    counts = [None if row is None else len(row) for row in rows] if counts is None else counts
    integers = options.pop("integers", pa.int64())
    table = pa.table(
        {
            "tokens": pa.array(rows, pa.list_(integers)),
            "token_count": pa.array(counts, pa.int64()),
            "cluster_id": pa.array([None if k % 3 == 2 else k for k in range(len(rows))], pa.int32()),
        }
    )
    pq.write_table(table, path, **options)
    return len(rows)


def read(path: Path, begin: int, end: int) -> SourceRows:
    blocks = list(read_rows(path.parent, RegionSpec(0, path.name, "rows", begin, end)))
    assert len(blocks) == 1
    return blocks[0]


def texts(rows: SourceRows) -> list[bytes]:
    return [rows.text[begin:end].tobytes() for begin, end in zip(rows.cuts[:-1], rows.cuts[1:], strict=True)]


def test_the_tokens_used_here_are_what_they_say() -> None:
    table = gpt2_table()
    assert b"".join(table.token_bytes(token) for token in HELLO) == b"Hello, world"
    assert table.token_bytes(EURO[0]) == "€".encode()
    assert table.token_bytes(LEAD[0]) == b"\xe2"
    assert 0x80 <= table.token_bytes(BAD[0])[0] < 0xC0


def test_each_kind_of_row_has_its_text_or_its_reason(tmp_path: Path) -> None:
    rows = [
        HELLO,
        [*HELLO, 50256],
        [*HELLO, 50256, *HELLO],
        [*HELLO, *LEAD],
        [*HELLO, *BAD, *HELLO],
        [70000, *HELLO],
        [*HELLO, -1],
        None,
        HELLO,
        [],
        EURO,
        HELLO,
        HELLO,
    ]
    counts = [3, 4, 7, 4, 7, 4, 4, 0, 5, 0, 1, None, -1]
    write(tmp_path / "a.parquet", rows, counts)
    found = read(tmp_path / "a.parquet", 0, len(rows))
    assert [(PROBLEMS[kind], int(at)) for kind, at in zip(found.problems, found.problem_at, strict=True)] == [
        ("", -1),
        ("", -1),
        ("inner_separator", 3),
        ("truncated_utf8", 12),
        ("not_utf8", 12),
        ("id_out_of_range", 0),
        ("id_out_of_range", 3),
        ("null_row", -1),
        ("count_mismatch", 3),
        ("", -1),
        ("", -1),
        ("null_row", -1),
        ("count_mismatch", 3),
    ]
    hello = b"Hello, world"
    assert texts(found) == [hello, hello, b"", b"", b"", b"", b"", b"", b"", b"", "€".encode(), b"", b""]
    assert found.source_tokens.tolist() == [3, 4, 7, 4, 7, 4, 4, 0, 3, 0, 1, 3, 3]
    assert found.clusters.tolist() == [0, 1, -1, 3, 4, -1, 6, 7, -1, 9, 10, -1, 12]


@pytest.mark.parametrize("integers", [pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()], ids=str)
def test_any_integer_type_reads_the_same(tmp_path: Path, integers: pa.DataType) -> None:
    write(tmp_path / "a.parquet", [HELLO, EURO], integers=integers)
    assert texts(read(tmp_path / "a.parquet", 0, 2)) == [b"Hello, world", "€".encode()]


def test_a_problem_row_takes_no_text_from_its_neighbours(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", [EURO, [*HELLO, *LEAD], EURO, [*BAD], HELLO])
    found = read(tmp_path / "a.parquet", 0, 5)
    assert texts(found) == ["€".encode(), b"", "€".encode(), b"", b"Hello, world"]


def test_a_character_split_between_two_rows_is_in_neither(tmp_path: Path) -> None:
    # Together the rows would be valid UTF-8; each alone is not.
    euro = "€".encode()
    table = gpt2_table()
    tokens = [next(t for t in range(256) if table.token_bytes(t) == euro[k : k + 1]) for k in range(3)]
    write(tmp_path / "a.parquet", [tokens[:1], tokens[1:]])
    found = read(tmp_path / "a.parquet", 0, 2)
    assert [PROBLEMS[kind] for kind in found.problems] == ["truncated_utf8", "not_utf8"]


def test_any_row_ranges_yield_every_row_once(tmp_path: Path) -> None:
    rows = [HELLO * (k + 1) for k in range(23)]
    write(tmp_path / "a.parquet", rows, row_group_size=5)
    cuts = [0, 1, 4, 5, 6, 15, 22, 23]
    found: list[bytes] = []
    positions: list[int] = []
    for begin, end in itertools.pairwise(cuts):
        for block in read_rows(tmp_path, RegionSpec(0, "a.parquet", "rows", begin, end)):
            found += texts(block)
            positions += block.positions.tolist()
    assert found == [b"Hello, world" * (k + 1) for k in range(23)]
    assert positions == list(range(23))


def test_the_range_digest_is_of_the_row_groups_that_hold_the_range(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write(path, [HELLO * (k + 1) for k in range(20)], row_group_size=5)
    raw = path.read_bytes()
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    begin = column.dictionary_page_offset or column.data_page_offset
    last = pq.ParquetFile(path).metadata.row_group(1).column(2)
    end = (last.dictionary_page_offset or last.data_page_offset) + last.total_compressed_size
    digest = range_digest(tmp_path, RegionSpec(0, "a.parquet", "rows", 3, 7))
    assert digest == hashlib.sha256(raw[begin:end]).hexdigest()
    assert digest == range_digest(tmp_path, RegionSpec(0, "a.parquet", "rows", 0, 10))
    assert digest != range_digest(tmp_path, RegionSpec(0, "a.parquet", "rows", 3, 11))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"tokens": pa.array([[1]]), "token_count": pa.array([1])},
            "cluster_id: expected integers, read no such column",
        ),
        (
            {"tokens": pa.array(["x"]), "token_count": pa.array([1]), "cluster_id": pa.array([1])},
            "tokens: expected a list of integers, read string",
        ),
        (
            {"tokens": pa.array([[1]]), "token_count": pa.array([1.0]), "cluster_id": pa.array([1])},
            "token_count: expected integers, read double",
        ),
    ],
)
def test_other_columns_are_refused(tmp_path: Path, columns: dict[str, pa.Array], message: str) -> None:
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    with pytest.raises(RecordError, match="SOURCE_FORMAT") as caught:
        read(tmp_path / "a.parquet", 0, 1)
    assert message in str(caught.value)


def test_a_cluster_beyond_32_bits_is_refused_not_wrapped(tmp_path: Path) -> None:
    columns = {"tokens": pa.array([[1]]), "token_count": pa.array([1]), "cluster_id": pa.array([2**31])}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    with pytest.raises(RecordError, match="cluster_id: expected 32-bit integers, read 2147483648"):
        read(tmp_path / "a.parquet", 0, 1)


def test_a_file_that_is_not_parquet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1 not quite")
    with pytest.raises(RecordError, match=r"SOURCE_FORMAT .*not a Parquet file"):
        read(tmp_path / "a.parquet", 0, 1)


def test_rows_are_counted_by_the_footer(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", [HELLO] * 7, row_group_size=3)
    assert count_rows(tmp_path, "a.parquet") == 7


def test_the_sample_is_the_text_that_its_notices_name(pins: Path) -> None:
    folder = pins / "sample"
    named = [json.loads(line)["sha256"] for line in (folder / "documents.jsonl").read_text().splitlines()]
    blocks = list(read_rows(folder, RegionSpec(0, "pd_mix.parquet", "rows", 0, 1358)))
    assert [hashlib.sha256(text).hexdigest() for block in blocks for text in texts(block)] == named
    assert sum(int(np.count_nonzero(block.problems)) for block in blocks) == 0
