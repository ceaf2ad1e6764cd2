"""JSON lines with text: what is a row, what is none, and files that are compressed."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pytest

from casebits_dagster.records.errors import RecordError
from casebits_dagster.sources.jsonl_text import read_rows
from tests.sources.reading import Seen, read, read_all

GOOD = b'{"text": "good"}'
DEEP = b'{"text": "good", "x": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"


@pytest.mark.parametrize(
    ("line", "want"),
    [
        (b'{"text": ""}', (b"", -1, "", -1)),
        (
            b'{"cluster_id": -2147483648, "text": "a\\u20ac\\ud83d\\ude00\\u0000"}',
            ("a€😀\0".encode(), -(2**31), "", -1),
        ),
        (b' {"text": "caf\xc3\xa9", "cluster_id": null, "meta": {"n": [1.5, true]}}\r', ("café".encode(), -1, "", -1)),
        (b'{"text": null, "cluster_id": 4}', (b"", 4, "null_row", -1)),
        (b'{"cluster_id": 4}', (b"", 4, "null_row", -1)),
        (b"{}", (b"", -1, "null_row", -1)),
        (b'{"text": "\\u20ac\\ud83d!", "cluster_id": 4}', (b"", 4, "not_utf8", 3)),
        (b'{"text": "\\ude00", "cluster_id": 4}', (b"", 4, "not_utf8", 0)),
        (b'{"text": "a", "cluster_id": 2147483648}', (b"", -1, "malformed_line", -1)),
        (b'{"text": "a", "cluster_id": 1.0}', (b"", -1, "malformed_line", -1)),
        (b'{"text": "a", "cluster_id": true}', (b"", -1, "malformed_line", -1)),
        (b'{"text": "a", "cluster_id": "1"}', (b"", -1, "malformed_line", -1)),
        (b'{"text": null, "cluster_id": "1"}', (b"", -1, "malformed_line", -1)),
        (b'{"text": ["a"]}', (b"", -1, "malformed_line", -1)),
        (b'{"text": 1}', (b"", -1, "malformed_line", -1)),
        (b'{"text": "a", "text": "a"}', (b"", -1, "malformed_line", -1)),
        (b'{"text": "a", "x": {"y": 1, "y": 2}}', (b"", -1, "malformed_line", -1)),
        (b'{"text": "a", "x": NaN}', (b"", -1, "malformed_line", -1)),
        (b'{"text": "a", "x": -Infinity}', (b"", -1, "malformed_line", -1)),
        (b'{"text": "\xff"}', (b"", -1, "malformed_line", -1)),
        (b'{"text": "\xed\xa0\x80"}', (b"", -1, "malformed_line", -1)),
        (b'\xef\xbb\xbf{"text": "a"}', (b"", -1, "malformed_line", -1)),
        (b'{"text": "a\tb"}', (b"", -1, "malformed_line", -1)),
        (b'{"text": "a"} {}', (b"", -1, "malformed_line", -1)),
        (b'["text", "a"]', (b"", -1, "malformed_line", -1)),
        (b'"text"', (b"", -1, "malformed_line", -1)),
        (b"", (b"", -1, "malformed_line", -1)),
        (DEEP, (b"", -1, "malformed_line", -1)),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_a_line_is_a_row_or_has_its_reason(tmp_path: Path, line: bytes, want: tuple[bytes, int, str, int]) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"\n".join([GOOD, line, GOOD]))
    first, got, last = read_all(read_rows, tmp_path / "a.jsonl")
    assert got == Seen(len(GOOD) + 1, want[0], want[1], problem=want[2], problem_at=want[3])
    assert (first.text, last.text) == (b"good", b"good")


def test_a_line_beyond_the_limit_is_too_long(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(GOOD + b"\r\n" + GOOD + b" \n" + GOOD)
    got = read_all(read_rows, tmp_path / "a.jsonl", limit=len(GOOD), block=5)
    assert [(row.text, row.problem) for row in got] == [(b"good", ""), (b"", "line_too_long"), (b"good", "")]


def _compress(path: Path, content: bytes) -> None:
    zstd = path.suffix == ".zst"
    path.write_bytes(pa.compress(content, codec="zstd", asbytes=True) if zstd else gzip.compress(content))


@pytest.fixture(params=["a.jsonl.gz", "a.jsonl.zst"])
def compressed(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A compressed file of three rows."""
    path: Path = tmp_path / request.param
    _compress(path, b"\n".join([GOOD] * 3))
    return path


def test_a_compressed_file_with_fewer_rows_is_refused(compressed: Path) -> None:
    with pytest.raises(RecordError) as caught:
        read(read_rows, compressed, 1, 4, "rows")
    assert str(caught.value) == f"SOURCE_FORMAT {compressed.name}: expected 4 rows or more, read 3"


def test_a_file_that_is_not_compressed_as_its_name_says_is_refused(compressed: Path) -> None:
    compressed.write_bytes(GOOD * 3)
    codec = {".gz": "gzip", ".zst": "zstd"}[compressed.suffix]
    with pytest.raises(RecordError, match=rf"SOURCE_FORMAT {compressed.name}: not {codec}: "):
        read(read_rows, compressed, 0, 3, "rows")


def test_a_compressed_file_that_is_cut_is_refused(compressed: Path) -> None:
    compressed.write_bytes(compressed.read_bytes()[:-9])
    with pytest.raises(RecordError, match=rf"SOURCE_FORMAT {compressed.name}: "):
        read(read_rows, compressed, 0, 3, "rows")
