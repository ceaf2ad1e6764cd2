"""Any splitting of a file into byte ranges yields every record exactly once, whatever the block size."""

from __future__ import annotations

import hashlib
import itertools
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from casebits_dagster.records.plan import RegionSpec
from casebits_dagster.sources.ranges import LINE_FEED, Delimiter, line_ends, owned_records
from casebits_dagster.stores.local import LocalStore

ENDS, LEADS = Delimiter("<u2", 7), Delimiter("<u2", 7, leads=True)


def records(content: bytes, delimiter: Delimiter, begin: int, end: int, block: int, limit: int = 0) -> list[bytes]:
    """Return the records of a range, each at its position; the hash must be that of the range."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "file").write_bytes(content)
        digest, spec = hashlib.sha256(), RegionSpec(0, "file", "bytes", begin, end)
        found = []
        for part in owned_records(LocalStore(Path(folder)), spec, delimiter, digest, block, limit):
            for first, last, at in zip(part.cuts[:-1], part.cuts[1:], part.positions, strict=True):
                record = part.items[first:last].tobytes()
                assert content[at : at + len(record)] == record
                assert begin <= at < end
                found.append(record)
        assert digest.digest() == hashlib.sha256(content[begin:end]).digest()
        return found


def parted(content: bytes, delimiter: Delimiter, cuts: Sequence[int], block: int) -> list[bytes]:
    edges = itertools.pairwise(sorted({0, len(content), *(cut for cut in cuts if cut < len(content))}))
    return [record for begin, end in edges for record in records(content, delimiter, begin, end, block)]


@settings(deadline=None)
@given(st.text("ab\r\n", min_size=1, max_size=60), st.lists(st.integers(0, 60)), st.integers(1, 70))
def test_lines(text: str, cuts: list[int], block: int) -> None:
    content = text.encode()
    assert parted(content, LINE_FEED, cuts, block) == [line.encode() for line in _split(text)]


def _split(text: str) -> list[str]:
    lines = [line + "\n" for line in text.split("\n")]
    return [*lines[:-1], *([lines[-1][:-1]] if lines[-1] != "\n" else [])]


@settings(deadline=None)
@given(
    st.lists(st.sampled_from([1, 7, 0x0700, 0x0707]), min_size=1, max_size=40),
    st.lists(st.integers(0, 80)),
    st.integers(1, 90),
    st.booleans(),
)
def test_documents_between_separators_of_two_bytes(items: list[int], cuts: list[int], block: int, leads: bool) -> None:
    # 0x0700 and 0x0707 hold the separator's bytes, at other places.
    want: list[list[int]] = [[]]
    for item in items:
        if leads and item == 7 and want[-1]:
            want.append([])
        want[-1].append(item)
        if not leads and item == 7:
            want.append([])
    stored = [np.array(document, "<u2").tobytes() for document in want if document]
    content = np.array(items, "<u2").tobytes()
    assert parted(content, LEADS if leads else ENDS, cuts, block) == stored


def test_a_line_that_crosses_the_end_is_read_past_it_and_a_range_inside_one_line_has_none() -> None:
    content = b"first\nsecond line\nthird"
    assert records(content, LINE_FEED, 0, 8, 3) == [b"first\n", b"second line\n"]
    assert records(content, LINE_FEED, 8, 12, 3) == []
    assert records(content, LINE_FEED, 8, 18, 3) == []
    assert records(content, LINE_FEED, 8, 19, 3) == [b"third"]


def test_a_range_end_inside_a_line_end_parts_nothing() -> None:
    content = b"one\r\ntwo\r\n"
    for cut in range(1, 10):
        assert parted(content, LINE_FEED, [cut], 1 << 20) == [b"one\r\n", b"two\r\n"]


@pytest.mark.parametrize("block", [1, 4, 1000])
def test_a_record_of_many_blocks_is_whole_or_with_a_limit_cut_to_two_more(block: int) -> None:
    content = b"ab\n" + b"x" * 99 + b"\ncd\n"
    assert records(content, LINE_FEED, 0, len(content), block) == [b"ab\n", b"x" * 99 + b"\n", b"cd\n"]
    limited = records(content, LINE_FEED, 0, len(content), block, limit=10)
    assert [len(record) > 10 for record in limited] == [False, True, False]
    # Cut, it is known to be too long even if what follows were its two bytes of a line end.
    assert block == 1000 or limited[1] == b"x" * 12


def test_a_range_in_a_file_without_line_ends_reads_little_beyond_itself(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * (1 << 20))
    asked = []

    class Counted(LocalStore):
        def read_range(self, path: str, begin: int, end: int) -> bytes:
            asked.append((begin, end))
            return super().read_range(path, begin, end)

    spec = RegionSpec(0, "file", "bytes", 100, 200)
    assert list(owned_records(Counted(tmp_path), spec, LINE_FEED, hashlib.sha256(), block=64)) == []
    assert asked == [(99, 163), (163, 227)]


@pytest.mark.parametrize(
    ("content", "want"),
    [(b"ab\n", b"ab"), (b"ab\r\n", b"ab"), (b"ab\r\r\n", b"ab\r"), (b"ab\r", b"ab\r"), (b"\r\n", b""), (b"\n", b"")],
)
def test_a_line_ends_before_its_line_feed_and_one_carriage_return(tmp_path: Path, content: bytes, want: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    spec = RegionSpec(0, "file", "bytes", 0, len(content))
    (lines,) = owned_records(LocalStore(tmp_path), spec, LINE_FEED, hashlib.sha256())
    assert lines.items[: line_ends(lines)[0]].tobytes() == want
