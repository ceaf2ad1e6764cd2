"""Parquet with tokens or with text: types, nulls, and what the file's bytes are read for."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from casebits_dagster.records.errors import RecordError
from casebits_dagster.records.plan import RegionSpec
from casebits_dagster.sources import parquet_text, parquet_tokens
from casebits_dagster.sources.columns import RowReader
from casebits_dagster.stores.local import LocalStore
from tests.sources.reading import BAD, EURO, HELLO, LEAD, READING, SEPARATOR, SPELLED, Seen, read, rows_of, spell


def read_table(reader: RowReader, folder: Path, columns: dict[str, pa.Array]) -> list[Seen]:
    table = pa.table(columns)
    pq.write_table(table, folder / "a.parquet")
    return read(reader, folder / "a.parquet", 0, len(table), "rows")[0]


def test_each_kind_of_row_has_its_text_or_its_reason(tmp_path: Path) -> None:
    rows: list[tuple[list[int | None] | None, int | None, str, int]] = [
        ([*HELLO], 3, "", -1),
        ([*HELLO, SEPARATOR], 4, "", -1),
        ([*HELLO, SEPARATOR, *HELLO], 7, "inner_separator", 3),
        ([*HELLO, SEPARATOR, SEPARATOR], 5, "inner_separator", 3),
        ([*HELLO, *LEAD], 4, "truncated_utf8", 12),
        ([*HELLO, *BAD, *HELLO], 7, "not_utf8", 12),
        ([70000, *HELLO], 4, "id_out_of_range", 0),
        ([*HELLO, -1], 4, "id_out_of_range", 3),
        ([*HELLO, None], 4, "id_out_of_range", 3),
        (None, 0, "null_row", -1),
        ([*HELLO], 5, "count_mismatch", 3),
        ([], 0, "", -1),
        ([*EURO], 1, "", -1),
        ([*LEAD], 1, "truncated_utf8", 0),
        ([*HELLO], None, "null_row", -1),
        ([*HELLO], -1, "count_mismatch", 3),
    ]
    columns = {
        "tokens": pa.array([row[0] for row in rows], pa.list_(pa.int64())),
        "token_count": pa.array([row[1] for row in rows], pa.int64()),
        "cluster_id": pa.array([None if k % 3 == 2 else k for k in range(len(rows))], pa.int32()),
    }
    want = []
    for position, (tokens, _, problem, at) in enumerate(rows):
        kept = tuple(token for token in tokens or [] if token is not None and token != SEPARATOR and not problem)
        cluster = -1 if position % 3 == 2 else position
        want.append(Seen(position, spell(kept), cluster, len(tokens or []), problem, at, kept))
    assert read_table(parquet_tokens.read_rows, tmp_path, columns) == want


def test_a_character_split_between_two_rows_is_in_neither(tmp_path: Path) -> None:
    # Together the rows would be valid UTF-8; each alone is not.
    tokens = [SPELLED.index(bytes([byte])) for byte in "€".encode()]
    columns = {"tokens": pa.array([tokens[:1], tokens[1:]]), "token_count": pa.array([1, 2])}
    got = read_table(parquet_tokens.read_rows, tmp_path, {**columns, "cluster_id": pa.array([1, 1])})
    assert [row.problem for row in got] == ["truncated_utf8", "not_utf8"]


INTEGERS = (pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64())


@pytest.mark.parametrize("integers", INTEGERS, ids=str)
@pytest.mark.parametrize(
    "kind", [pa.list_, pa.large_list, lambda item: pa.list_(item, 2)], ids=["list", "large", "fixed"]
)
def test_lists_of_any_kind_and_integer_type_read_the_same(tmp_path: Path, integers: pa.DataType, kind: object) -> None:
    columns = {
        "tokens": pa.array([[995, 11], [995, SEPARATOR]], kind(integers)),  # type: ignore[operator]
        "token_count": pa.array([2, 2], integers),
        "cluster_id": pa.array([1, None], integers),
    }
    assert read_table(parquet_tokens.read_rows, tmp_path, columns) == [
        Seen(0, b" world,", 1, 2, tokens=(995, 11)),
        Seen(1, b" world", -1, 2, tokens=(995,)),
    ]


def test_an_integer_beyond_63_bits_is_out_of_range_and_not_wrapped(tmp_path: Path) -> None:
    columns = {
        "tokens": pa.array([[11, 2**64 - 1], [2**63 + 11]], pa.list_(pa.uint64())),
        "token_count": pa.array([2, 2**64 - 1], pa.uint64()),
        "cluster_id": pa.array([1, 1]),
    }
    got = read_table(parquet_tokens.read_rows, tmp_path, columns)
    assert [(row.problem, row.problem_at) for row in got] == [("id_out_of_range", 1), ("count_mismatch", 1)]


def test_text_is_a_string_or_binary_that_is_utf8(tmp_path: Path) -> None:
    texts = ["€".encode(), None, b"", b"ab\xe2\x82", b"a\xffb", b"end"]
    want = [
        Seen(0, "€".encode(), 3),
        Seen(1, b"", 3, problem="null_row"),
        Seen(2, b"", 3),
        Seen(3, b"", 3, problem="truncated_utf8", problem_at=2),
        Seen(4, b"", 3, problem="not_utf8", problem_at=1),
        Seen(5, b"end", 3),
    ]
    for kind in (pa.binary(), pa.large_binary()):
        columns = {"text": pa.array(texts, kind), "cluster_id": pa.array([3] * 6, pa.uint8())}
        assert read_table(parquet_text.read_rows, tmp_path, columns) == want


def test_text_needs_no_clusters(tmp_path: Path) -> None:
    assert read_table(parquet_text.read_rows, tmp_path, {"text": pa.array(["a"])}) == [Seen(0, b"a")]


TOKENS = {"tokens": pa.array([[1]]), "token_count": pa.array([1]), "cluster_id": pa.array([1])}
NO_INTEGERS = "expected integers, read"


@pytest.mark.parametrize(
    ("reader", "columns", "message"),
    [
        (parquet_tokens, {"cluster_id": None}, f"cluster_id: {NO_INTEGERS} no such column"),
        (parquet_tokens, {"tokens": pa.array(["x"])}, "tokens: expected a list of integers, read string"),
        (
            parquet_tokens,
            {"tokens": pa.array([["x"]])},
            "tokens: expected a list of integers, read list<element: string>",
        ),
        (parquet_tokens, {"token_count": pa.array([1.0])}, f"token_count: {NO_INTEGERS} double"),
        (parquet_tokens, {"cluster_id": pa.array([2**31])}, "cluster_id: expected 32-bit integers, read 2147483648"),
        (
            parquet_tokens,
            {"cluster_id": pa.array([2**64 - 1], pa.uint64())},
            "cluster_id: expected 32-bit integers, read 18446744073709551615",
        ),
        (parquet_text, {}, "text: expected strings, read no such column"),
        (parquet_text, {"text": pa.array([1])}, "text: expected strings, read int64"),
        (parquet_text, {"text": pa.array(["a"]), "cluster_id": pa.array([1.0])}, f"cluster_id: {NO_INTEGERS} double"),
    ],
)
def test_other_columns_are_refused(
    tmp_path: Path, reader: object, columns: dict[str, pa.Array | None], message: str
) -> None:
    kept = {name: column for name, column in {**TOKENS, **columns}.items() if column is not None}
    with pytest.raises(RecordError) as caught:
        read_table(reader.read_rows, tmp_path, kept)  # type: ignore[attr-defined]
    assert str(caught.value) == f"SOURCE_FORMAT a.parquet: {message}"


def test_a_file_with_fewer_rows_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table(TOKENS), tmp_path / "a.parquet")
    with pytest.raises(RecordError) as caught:
        read(parquet_tokens.read_rows, tmp_path / "a.parquet", 0, 2, "rows")
    assert str(caught.value) == "SOURCE_FORMAT a.parquet: expected 2 rows or more, read 1"


def test_a_file_that_is_not_parquet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1 not quite")
    with pytest.raises(RecordError, match=r"SOURCE_FORMAT a.parquet: not a Parquet file"):
        read(parquet_tokens.read_rows, tmp_path / "a.parquet", 0, 1, "rows")


def test_the_bytes_of_a_row_group_are_fetched_once(tmp_path: Path) -> None:
    table = pa.table({"text": pa.array([f"row {k}" * 50 for k in range(40)])})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=10, compression="none", use_dictionary=False)
    fetched = []

    class Counted(LocalStore):
        def read_range(self, path: str, begin: int, end: int) -> bytes:
            fetched.append((begin, end))
            return super().read_range(path, begin, end)

    spec = RegionSpec(0, "a.parquet", "rows", 12, 28)
    blocks = list(parquet_text.read_rows(Counted(tmp_path), spec, READING, hashlib.sha256()))
    assert [row.position for block in blocks for row in rows_of(block)] == list(range(12, 28))
    metadata = pq.read_metadata(tmp_path / "a.parquet")
    chunks = [metadata.row_group(k).column(0) for k in (1, 2)]
    spans = [(chunk.data_page_offset, chunk.data_page_offset + chunk.total_compressed_size) for chunk in chunks]
    footer = chunks[-1].data_page_offset + 2 * chunks[-1].total_compressed_size
    # A small file's end, which is read for its footer, may hold all of it; what comes after the footer is each group.
    assert fetched[-2:] == spans
    assert footer < (tmp_path / "a.parquet").stat().st_size


def test_the_sample_is_the_text_that_its_notices_name(pins: Path) -> None:
    folder = pins / "sample"
    named = [json.loads(line)["sha256"] for line in (folder / "documents.jsonl").read_text().splitlines()]
    rows, _ = read(parquet_tokens.read_rows, folder / "pd_mix.parquet", 0, 1358, "rows")
    assert [hashlib.sha256(row.text).hexdigest() for row in rows] == named
    assert {row.problem for row in rows} == {""}
