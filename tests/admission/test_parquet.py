"""Parquet files of tokens and of texts."""

from __future__ import annotations

import hashlib
import io
import itertools

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from casebits_dagster.admission import parquet
from casebits_dagster.records.errors import RecordError
from tests.admission.reading import Found, MemoryStore, covered, read
from tests.faults.world import SEPARATOR, Format, Row, range_sha256, source_rows, table_of


def written(columns: object, **options: object) -> bytes:
    sink = io.BytesIO()
    pq.write_table(columns if isinstance(columns, pa.Table) else pa.table(columns), sink, **options)
    return sink.getvalue()


def rows_of(kind: Format, content: bytes | MemoryStore, begin: int, end: int) -> list[Found]:
    return read(kind, content, begin, end, unit="rows")[0]


def found(number: int, row: Row) -> Found:
    cluster = -1 if row.cluster is None else row.cluster
    return Found(number, len(row.tokens or []), cluster, row.reason, row.problem_at, row.text)


@pytest.mark.parametrize("batch_rows", [1, 3, 256])
@pytest.mark.parametrize(("begin", "end"), [(0, 23), (5, 10), (9, 31), (95, 97)])
def test_rows_are_those_that_were_written(
    begin: int, end: int, batch_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "_BATCH_ROWS", batch_rows)
    rows = source_rows()
    store = MemoryStore(written(table_of(rows), row_group_size=10))
    read_rows, digest = read("parquet_tokens", store, begin, end, unit="rows")
    assert read_rows == [found(number, rows[number]) for number in range(begin, end)]
    assert digest == range_sha256(store.content, begin, end)
    # What is read after the footer is fetched once, and in order.
    footer = store.fetched.index(max(store.fetched, key=lambda part: part[1]))
    groups = [part for part in store.fetched[footer + 1 :] if part[1] - part[0] > 8]
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(groups))


@pytest.mark.parametrize("kind", [pa.uint16(), pa.int32(), pa.int64(), pa.uint64()])
@pytest.mark.parametrize("listed", [pa.list_, pa.large_list])
def test_any_list_of_any_integer_will_do(kind: pa.DataType, listed: object) -> None:
    ids = [[64, 65, SEPARATOR], [], [SEPARATOR], [SEPARATOR, SEPARATOR], [64, 50257]]
    columns = {"tokens": pa.array(ids, listed(kind)), "token_count": [3, 0, 1, 2, 2], "cluster_id": [1, 2, 3, 4, None]}  # type: ignore[operator]
    assert rows_of("parquet_tokens", written(columns), 0, 5) == [
        Found(0, 3, 1, text=b"ab"),
        Found(1, 0, 2),
        Found(2, 1, 3),
        Found(3, 2, 4, "inner_separator", 0),
        Found(4, 2, -1, "id_out_of_range", 1),
    ]


def test_lists_of_a_fixed_size() -> None:
    tokens = pa.array([[64, 65], None, [65, SEPARATOR]], pa.list_(pa.int32(), 2))
    columns = {"tokens": tokens, "token_count": [2, 2, 2], "cluster_id": [1, 1, 1]}
    expected = [Found(0, 2, 1, text=b"ab"), Found(1, 0, 1, "null_row"), Found(2, 2, 1, text=b"b")]
    assert rows_of("parquet_tokens", written(columns), 0, 3) == expected


def test_a_null_or_negative_id_is_out_of_range() -> None:
    columns = {"tokens": [[64, None], [64, -1]], "token_count": [2, 2], "cluster_id": [1, 1]}
    expected = [Found(number, 2, 1, "id_out_of_range", 1) for number in range(2)]
    assert rows_of("parquet_tokens", written(columns), 0, 2) == expected


def test_the_first_reason_that_applies_counts() -> None:
    ids = [None, [SEPARATOR, 50257], [SEPARATOR, 50257], [SEPARATOR, 447], [50257, 64, 50258], [64]]
    columns = {"tokens": ids, "token_count": [None, 3, 2, 2, 3, None], "cluster_id": [1] * 6}
    reasons = ["null_row", "count_mismatch", "id_out_of_range", "inner_separator", "id_out_of_range", "null_row"]
    read_rows = rows_of("parquet_tokens", written(columns), 0, 6)
    assert [row.reason for row in read_rows] == reasons
    assert [row.problem_at for row in read_rows] == [-1, 2, 1, 0, 0, -1]
    assert [row.tokens for row in read_rows] == [0, 2, 2, 2, 3, 1]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
@pytest.mark.parametrize("begin", [0, 1, 3])
def test_rows_of_text(kind: pa.DataType, begin: int) -> None:
    texts = pa.array(["caf\u00e9", None, "", "\U0001f600\n"], kind)
    expected = [
        Found(0, 0, 1, text="caf\u00e9".encode()),
        Found(1, 0, 2, "null_row"),
        Found(2, 0, -1),
        Found(3, 0, 4, text="\U0001f600\n".encode()),
    ]
    content = written({"text": texts, "cluster_id": [1, 2, None, 4]}, row_group_size=3)
    assert rows_of("parquet_text", content, begin, 4) == expected[begin:]
    alone = written({"text": texts})
    assert rows_of("parquet_text", alone, begin, 4) == [row._replace(cluster=-1) for row in expected[begin:]]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_binary()])
def test_rows_of_text_from_the_middle(kind: pa.DataType) -> None:
    content = written({"text": pa.array(["a", "bc", "def"], kind)})
    assert rows_of("parquet_text", content, 1, 3) == [Found(1, 0, -1, text=b"bc"), Found(2, 0, -1, text=b"def")]


def test_integers_beyond_63_bits() -> None:
    columns = {
        "tokens": pa.array([[2**64 - 1, None], [2**63]], pa.list_(pa.uint64())),
        "token_count": pa.array([2, 2**64 - 1], pa.uint64()),
        "cluster_id": [1, 1],
    }
    expected = [Found(0, 2, 1, "id_out_of_range", 0), Found(1, 1, 1, "count_mismatch", 1)]
    assert rows_of("parquet_tokens", written(columns), 0, 2) == expected
    columns["cluster_id"] = pa.array([1, 2**64 - 1], pa.uint64())
    with pytest.raises(pa.ArrowInvalid, match="18446744073709551615 not in range"):
        rows_of("parquet_tokens", written(columns), 0, 2)


def test_bytes_that_are_no_text() -> None:
    content = written({"text": [b"ok", b"a\xe4\xb8", b"\xffb", b"\x80"]})
    assert [(row.reason, row.problem_at) for row in rows_of("parquet_text", content, 0, 4)] == [
        ("", -1),
        ("truncated_utf8", 1),
        ("not_utf8", 0),
        ("not_utf8", 0),
    ]


@pytest.mark.parametrize(
    ("kind", "columns", "message"),
    [
        ("parquet_tokens", {"tokens": [[1]], "token_count": [1]}, "cluster_id: expected integers, read no such column"),
        ("parquet_tokens", {"tokens": [1], "token_count": [1], "cluster_id": [1]}, "tokens: .*, read int64"),
        ("parquet_tokens", {"tokens": [[0.5]], "token_count": [1], "cluster_id": [1]}, "tokens: .*, read list"),
        ("parquet_tokens", {"tokens": [[1]], "token_count": ["1"], "cluster_id": [1]}, "token_count: .* read string"),
        ("parquet_tokens", {"token_count": [1], "cluster_id": [1]}, "tokens: expected a list of integers, read no"),
        ("parquet_text", {"text": [1]}, "text: expected text, read int64"),
        ("parquet_text", {"cluster_id": [1]}, "text: expected text, read no such column"),
        ("parquet_text", {"text": ["a"], "cluster_id": ["1"]}, "cluster_id: expected integers, read string"),
    ],
)
def test_other_columns_are_refused(kind: Format, columns: dict[str, list[object]], message: str) -> None:
    with pytest.raises(RecordError, match=f"^SOURCE_INVALID file: {message}"):
        rows_of(kind, written(columns), 0, 1)


def test_a_column_that_is_there_twice_is_refused() -> None:
    twice = pa.Table.from_arrays([pa.array(["x"]), pa.array(["y"])], names=["text", "text"])
    content = io.BytesIO()
    pq.write_table(twice, content)
    with pytest.raises(RecordError, match=r"^SOURCE_INVALID .*: text: the file has this column twice"):
        rows_of("parquet_text", content.getvalue(), 0, 1)


def test_a_cluster_beyond_32_bits_is_refused() -> None:
    with pytest.raises(pa.ArrowInvalid, match="2147483648 not in range"):
        rows_of("parquet_text", written({"text": ["a"], "cluster_id": [2**31]}), 0, 1)


def test_a_file_of_fewer_rows_is_refused() -> None:
    with pytest.raises(RecordError, match=r"^SOURCE_INVALID file: expected 2 rows, read 1$"):
        rows_of("parquet_text", written({"text": ["a"]}), 0, 2)


def test_the_hash_is_of_all_columns() -> None:
    content = written({"text": ["a", "b"], "more": [1, 2]}, row_group_size=1)
    group = pq.ParquetFile(io.BytesIO(content)).metadata.row_group(0)
    begin, last = group.column(0).dictionary_page_offset, group.column(1)
    end = last.dictionary_page_offset + last.total_compressed_size
    assert read("parquet_text", content, 0, 1, unit="rows")[1] == covered(content, begin, end)


def test_a_window_is_read_from_memory() -> None:
    # pyarrow reads in threads of its own, where this is not seen.
    store, digest = MemoryStore(b"0123456789"), hashlib.sha256()
    window = parquet._Window(store, "file")
    window.hold(2, 6, digest)
    parts = []
    for place, size in ((2, 2), (4, 2), (4, 3), (1, 2), (8, -1)):
        window.seek(place)
        parts.append((window.read(size), window.tell()))
    assert parts == [(b"23", 4), (b"45", 6), (b"456", 7), (b"12", 3), (b"89", 10)]
    assert store.fetched == [(2, 6), (4, 7), (1, 3), (8, 10)]
    assert digest.hexdigest() == covered(store.content, 2, 6)
