"""ClimbMix's lines: the strict layout, quick or slow, and what is wrong with a row."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from casebits_dagster.sources import climbmix_jsonl
from casebits_dagster.sources.climbmix_jsonl import read_rows
from tests.sources.formats import climbmix_line
from tests.sources.reading import BAD, HELLO, LEAD, SEPARATOR, Seen, read_all, spell

NUMBER = r"(0|[1-9][0-9]{0,8})"
LAYOUT = re.compile(rf'\{{"cluster_id": {NUMBER}, "tokens": \[({NUMBER}(, {NUMBER})*)?\], "token_count": {NUMBER}\}}')
GOOD = climbmix_line(5, HELLO)
MALFORMED = ("malformed_line", -1)


def reference(line: str, position: int) -> Seen:
    """Return what a line is, by the words of the format."""
    found = LAYOUT.fullmatch(line)
    if not found:
        return Seen(position, b"", problem="malformed_line", tokens=())
    tokens = [int(number) for number in (found[2] or "").split(", ") if number]
    cluster, count, own = int(found[1]), int(found[6]), len(tokens)
    stripped = tokens[:-1] if tokens[-1:] == [SEPARATOR] else tokens
    problem, at = "", -1
    if count != own:
        problem, at = "count_mismatch", own
    elif foreign := [k for k, token in enumerate(tokens) if token > SEPARATOR]:
        problem, at = "id_out_of_range", foreign[0]
    elif SEPARATOR in stripped:
        problem, at = "inner_separator", stripped.index(SEPARATOR)
    else:
        try:
            return Seen(position, spell(stripped).decode().encode(), cluster, own, tokens=tuple(stripped))
        except UnicodeDecodeError as error:
            end = error.reason == "unexpected end of data"
            problem, at = "truncated_utf8" if end else "not_utf8", error.start
    return Seen(position, b"", cluster, own, problem, at, ())


def read_lines(lines: list[bytes], **options: int) -> list[Seen]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.jsonl"
        path.write_bytes(b"".join(lines))
        return read_all(read_rows, path, **options)


def expected(lines: list[bytes]) -> list[Seen]:
    positions = np.cumsum([0, *(len(line) for line in lines)]).tolist()[:-1]
    return [
        reference(line.removesuffix(b"\n").removesuffix(b"\r").decode("latin-1"), position)
        for line, position in zip(lines, positions, strict=True)
    ]


@pytest.fixture(params=[64, 1 << 17])
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read in chunks smaller than a line, and in the usual ones."""
    monkeypatch.setattr(climbmix_jsonl, "_CHUNK", request.param)


@pytest.mark.parametrize(
    ("tokens", "problem"),
    [
        ([*HELLO, SEPARATOR, *HELLO], ("inner_separator", 3)),
        ([SEPARATOR, *HELLO], ("inner_separator", 0)),
        ([*HELLO, *LEAD], ("truncated_utf8", 12)),
        ([*HELLO, *BAD, *HELLO], ("not_utf8", 12)),
        ([50257, *HELLO], ("id_out_of_range", 0)),
        ([*HELLO, 65535], ("id_out_of_range", 3)),
        ([*HELLO, 65536], ("id_out_of_range", 3)),
        ([*HELLO, 99999], ("id_out_of_range", 3)),
        ([*HELLO, 100_000, 4], ("id_out_of_range", 3)),
        ([*HELLO, 1_000_001], ("id_out_of_range", 3)),
        ([*HELLO, 999_999_999], ("id_out_of_range", 3)),
        ([*HELLO, SEPARATOR], ("", -1)),
        ([SEPARATOR], ("", -1)),
        ([], ("", -1)),
        ([0], ("", -1)),
    ],
)
@pytest.mark.usefixtures("chunk")
def test_a_well_written_line_has_its_text_or_its_reason(tokens: list[int], problem: tuple[str, int]) -> None:
    lines = [GOOD, climbmix_line(3, tokens), GOOD]
    got = read_lines(lines)
    assert got == expected(lines)
    assert (got[1].problem, got[1].problem_at) == problem


@pytest.mark.parametrize("count", [0, 2, 4, 999_999_999])
def test_a_wrong_count_is_found(count: int) -> None:
    line = GOOD.replace(b'"token_count": 3', b'"token_count": %d' % count)
    got = read_lines([line])
    assert got == [Seen(0, b"", 5, 3, "count_mismatch", 3, ())]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"{", b""),
        (b"{", b" {"),
        (b"}", b"} "),
        (b"}", b""),
        (b"5", b""),
        (b"5", b"05"),
        (b"5", b"-5"),
        (b"5", b"+5"),
        (b"5", b"5.0"),
        (b"5", b"1000000000"),
        (b"5", b"null"),
        (b": [", b":["),
        (b": 3", b": 03"),
        (b": 3", b":3"),
        (b": 3", b": 1000000000"),
        (b'"tokens"', b'"Tokens"'),
        (b"[15496", b"[015496"),
        (b"[15496", b"[, 15496"),
        (b"[15496", b"[ 15496"),
        (b"[15496", b"[-15496"),
        (b"[15496", b"[1e3"),
        (b"[15496", b"[1000000000"),
        (b", 11,", b", 011,"),
        (b", 11,", b", 00,"),
        (b", 11,", b", ,"),
        (b", 11,", b",, 11,"),
        (b", 11,", b",11,"),
        (b", 11,", b",  11,"),
        (b", 11,", b" ,11,"),
        (b", 11,", b", 11 ,"),
        (b", 11,", b", 11;"),
        (b", 11,", b", 1\t1,"),
        (b", 11,", b", 11, [7],"),
        (b", 11,", b", \xff,"),
        (b", 11,", b", 0000000000011,"),
        (b", 995]", b", 995, ]"),
        (b", 995]", b", 995,]"),
        (b", 995]", b", 995 ]"),
        (b", 995]", b", 0995]"),
        (b", 995]", b", ]"),
        (b", 995]", b""),
        (GOOD[:-1], b""),
        (GOOD[:-1], b"{}"),
        (GOOD[:-1], b"[" * 60),
        (GOOD[:-1], GOOD[:-1] + b"\r"),
        (GOOD[:-1], GOOD[:-2]),
    ],
)
@pytest.mark.usefixtures("chunk")
def test_any_other_layout_is_malformed(old: bytes, new: bytes) -> None:
    assert old in GOOD
    # A line end of two bytes would make the case with one more carriage return well formed.
    lines = [GOOD, GOOD.replace(old, new, 1).replace(b"\r\n", b"\r\r\n"), GOOD]
    got = read_lines(lines)
    assert got == expected(lines)
    assert [(row.problem, row.problem_at) for row in got] == [("", -1), MALFORMED, ("", -1)]


_numbers = st.one_of(
    st.integers(0, 50_256), st.integers(0, 12), st.sampled_from([9, 10, 99, 100, 999, 1000, 9999, 10000])
)
_edits = st.sampled_from([b"0", b"1", b", ", b",", b" ", b"]", b"x", b"\n", b"\r", b"}", b'"', b""])


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 20), st.lists(_numbers, max_size=12)), min_size=1, max_size=20),
    st.lists(st.tuples(st.integers(0, 2_000), _edits, st.integers(0, 2)), max_size=3),
    st.integers(1, 900),
)
def test_lines_with_any_edit_are_what_the_format_says(
    rows: list[tuple[int, list[int]]], edits: list[tuple[int, bytes, int]], block: int
) -> None:
    content = b"".join(climbmix_line(*row) for row in rows)
    for at, new, size in edits:
        place = at % (len(content) + 1)
        content = content[:place] + new + content[place + size :]
    lines = content.split(b"\n")
    lines = [line + b"\n" for line in lines[:-1]] + [line for line in lines[-1:] if line]
    want = [_unstripped(row, line) for row, line in zip(expected(lines), lines, strict=True)]
    assert read_lines(lines, block=block) == want


def _unstripped(row: Seen, line: bytes) -> Seen:
    """A carriage return is a part of the line end only before a line feed."""
    return reference(line.decode("latin-1"), row.position) if line.endswith(b"\r") else row


def test_a_line_feed_may_lack_at_the_end_and_line_ends_may_have_two_bytes() -> None:
    lines = [GOOD[:-1] + b"\r\n", b"\n", b"\r\n", GOOD[:-1]]
    got = read_lines(lines)
    assert [(row.text, row.problem) for row in got] == [
        (b"Hello, world", ""),
        (b"", "malformed_line"),
        (b"", "malformed_line"),
        (b"Hello, world", ""),
    ]
    assert [row.position for row in got] == [0, len(GOOD) + 1, len(GOOD) + 2, len(GOOD) + 4]


@pytest.mark.parametrize("block", [1, 50, 1 << 20])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
def test_a_line_beyond_the_limit_is_too_long_and_one_at_the_limit_is_not(block: int, end: bytes) -> None:
    at, beyond = climbmix_line(5, [11] * 5)[:-1] + end, climbmix_line(5, [11] * 5 + [1])[:-1] + end
    limit = len(at) - len(end)
    for line, want in ((at, ("", -1)), (beyond, ("line_too_long", -1))):
        lines = [GOOD, line] if end == b"" else [GOOD, line, GOOD]
        got = read_lines(lines, block=block, limit=limit)
        assert [(row.problem, row.problem_at) for row in got[1:2]] == [want]
        assert [row.position for row in got] == np.cumsum([0, *map(len, lines[:-1])]).tolist()


@pytest.mark.parametrize("bad", [{0}, {17}, {39}, {3, 4, 30}, set(range(40))])
def test_the_lines_around_a_bad_one_are_read_as_ever(bad: set[int]) -> None:
    lines = [climbmix_line(k, HELLO * (k + 1)) for k in range(40)]
    lines = [line.replace(b", 11,", b", 011,") if k in bad else line for k, line in enumerate(lines)]
    got = read_lines(lines)
    assert got == expected(lines)
    assert {k for k, row in enumerate(got) if row.problem == "malformed_line"} == bad


def test_a_long_line_is_read_across_chunks() -> None:
    random = np.random.default_rng(3)
    tokens = random.choice([11, 995, 15496, 0, 198], 80_000).tolist()
    lines = [climbmix_line(1, tokens), GOOD, climbmix_line(2, tokens[:30_000])]
    assert read_lines(lines) == expected(lines)
