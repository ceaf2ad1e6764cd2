"""Lines of a byte range or of a packed file: whose they are, and what is wrong with one."""

from __future__ import annotations

import gzip
import itertools
import json
import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from casebits_dagster.admission import lines, rows
from casebits_dagster.records.errors import RecordError
from tests.admission.reading import Found, MemoryStore, climbmix_row, covered, lines_of, read
from tests.faults.world import SEPARATOR

LONGEST = 200


def line(ids: list[int], cluster: object = 3, count: object = None) -> bytes:
    return json.dumps(
        {"cluster_id": cluster, "tokens": ids, "token_count": len(ids) if count is None else count}
    ).encode()


SOUND = line([64, 65, 66])
IDS = st.lists(st.sampled_from([0, 7, 64, 447, 94, 220, 198, 9999, 10000, 50255, SEPARATOR, 50257, 99999, 123456]))
LINE = st.one_of(
    IDS.map(line),
    st.lists(st.integers(0, 50255), max_size=20).map(line),
    st.lists(st.integers(0, 999), max_size=60).map(line),
    st.builds(line, IDS, st.sampled_from([0, 20, 10**9 - 1, 10**9, -1, None]), st.sampled_from([0, 1, 5, 10**9, None])),
    st.binary(max_size=30).map(lambda raw: raw.replace(b"\n", b"")),
    # One byte of a sound line changed, added or taken out.
    st.builds(
        lambda at, byte, cut: SOUND[:at] + byte + SOUND[at + cut :],
        st.integers(0, len(SOUND)),
        st.sampled_from(
            [b"", b" ", b",", b"0", b"9", b"]", b"[", b"\r", b'"', b"-", b"+", b"\xff", b", ", b"\t", b"1e3"]
        ),
        st.integers(0, 2),
    ),
)
FILE = st.builds(
    lambda parts, last: b"".join(itertools.chain.from_iterable(parts)) + last,
    st.lists(st.tuples(LINE, st.sampled_from([b"\n", b"\n", b"\r\n", b"\r\r\n"])), max_size=12),
    st.one_of(st.just(b""), LINE),
)


@given(content=FILE, cuts=st.lists(st.integers(1, 600), max_size=4), block=st.sampled_from([1, 7, 64, 1 << 22]))
@settings(max_examples=150, deadline=None)
def test_any_ranges_of_any_file(content: bytes, cuts: list[int], block: int) -> None:
    edges = sorted({0, len(content), *(cut for cut in cuts if cut < len(content))})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "LONGEST", LONGEST)
        patch.setattr(rows, "BLOCK", block)
        patch.setattr(lines, "PARSED", block)
        for begin, end in itertools.pairwise(edges):
            store = MemoryStore(content)
            found, digest = read("climbmix_jsonl", store, begin, end)
            assert found == [climbmix_row(at, one, LONGEST) for at, one in lines_of(content, begin, end)]
            assert digest == covered(content, begin, end)
            assert all(first[1] <= second[0] for first, second in itertools.pairwise(store.fetched))


@pytest.mark.parametrize(
    "bad",
    [
        SOUND.replace(b" ", b""),
        SOUND.replace(b", 65", b",65"),
        SOUND.replace(b"[64", b"[ 64"),
        SOUND.replace(b"66]", b"66 ]"),
        SOUND.replace(b"66]", b"66, ]"),
        SOUND.replace(b"[64", b"[064"),
        SOUND.replace(b", 65", b", 00"),
        SOUND.replace(b"65", b"6.5"),
        SOUND.replace(b"65", b"-65"),
        SOUND.replace(b"65", b"1234567890"),
        SOUND.replace(b": 3", b": 03"),
        SOUND.replace(b": 3}", b": 03}"),
        SOUND.replace(b": 3}", b": +3}"),
        SOUND + b" ",
        b" " + SOUND,
        b"\xef\xbb\xbf" + SOUND,
        SOUND[:-1],
        SOUND + SOUND,
        SOUND.replace(b"[64, 65, 66]", b"[64], [66]"),
        b'{"tokens": [64], "cluster_id": 3, "token_count": 1}',
        b'{"cluster_id": null, "tokens": [64], "token_count": 1}',
        b"",
        b"\r",
        b"]",
        b"[]",
        b"null",
    ],
)
def test_a_line_spelled_otherwise_is_malformed(bad: bytes) -> None:
    found, _ = read("climbmix_jsonl", SOUND + b"\n" + bad + b"\n" + SOUND)
    sound = Found(0, 3, 3, text=b"abc")
    after = len(SOUND) + 1
    last = after + len(bad) + 1
    assert found == [sound, Found(after, 0, -1, "malformed_line"), sound._replace(position=last)]


@pytest.mark.parametrize("foreign", [50257, 59999, 60000, 65535, 65536, 75536, 99999, 123456, 10**8 + 64])
def test_a_number_that_is_no_id_is_never_read_as_one(foreign: int) -> None:
    expected = Found(0, 3, 3, "id_out_of_range", 1)
    assert read("climbmix_jsonl", line([64, foreign, 66]))[0] == [expected]


def test_a_line_is_too_long_by_one_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LONGEST", len(SOUND))
    found, _ = read("climbmix_jsonl", SOUND + b"\r\n" + SOUND + b" \n" + SOUND)
    assert [(row.reason, row.tokens, row.cluster) for row in found] == [
        ("", 3, 3),
        ("line_too_long", 0, -1),
        ("", 3, 3),
    ]


def test_a_line_without_end_is_not_kept_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "BLOCK", 100)
    monkeypatch.setattr(lines, "LONGEST", 250)
    content = SOUND + b"\n" + b"x" * 5000 + b"\n" + SOUND + b"\n"
    blocks = list(lines.whole_lines(iter(content[at : at + 100] for at in range(0, len(content), 100)), 0, None))
    assert max(end - begin for _, _, begin, end in blocks) <= 350
    assert [row.reason for row in read("climbmix_jsonl", content)[0]] == ["", "line_too_long", ""]
    # The range ends inside the line: what is behind it is fetched only until the line is known to be too long.
    store = MemoryStore(content)
    assert [row.reason for row in read("climbmix_jsonl", store, 10, 300)[0]] == ["line_too_long"]


def test_a_range_beyond_the_file_is_refused() -> None:
    with pytest.raises(RecordError, match=rf"^SOURCE_INVALID file: expected 99 bytes, read {len(SOUND)}$"):
        read("climbmix_jsonl", SOUND, 0, 99)


# --- JSON objects with a text -------------------------------------------------------------------------------------

OBJECTS: list[tuple[bytes, Found]] = [
    (b'{"text": "Hello"}', Found(0, 0, -1, text=b"Hello")),
    (
        b'{ "x": [1, {"text": 2}], "cluster_id": 7, "text": "\\u00e9\\ud83d\\ude00" }',
        Found(0, 0, 7, text="\u00e9\U0001f600".encode()),
    ),
    (b'{"text": "a", "cluster_id": null}', Found(0, 0, -1, text=b"a")),
    (b'{"text": "a", "cluster_id": -2147483648}', Found(0, 0, -(2**31), text=b"a")),
    (b'{"text": ""}', Found(0, 0, -1)),
    (b'{"text": null, "cluster_id": 5}', Found(0, 0, 5, "null_row")),
    (b"{}", Found(0, 0, -1, "null_row")),
    ('{"text": "\u00e9a\\ud800b", "cluster_id": 5}'.encode(), Found(0, 0, 5, "not_utf8", 3)),
    *(
        (bad, Found(0, 0, -1, "malformed_line"))
        for bad in (
            b"",
            b"nothing",
            b'"text"',
            b'["text"]',
            b'{"text": 1}',
            b'{"text": ["a"]}',
            b'{"text": "a", "cluster_id": true}',
            b'{"text": "a", "cluster_id": 1.0}',
            b'{"text": "a", "cluster_id": "1"}',
            b'{"text": "a", "cluster_id": 2147483648}',
            b'{"text": "a", "cluster_id": -2147483649}',
            b'{"text": "a", "text": "b"}',
            b'{"text": "a", "x": {"y": 1, "y": 2}}',
            b'{"text": "a", "x": NaN}',
            b'{"text": "a", "x": -Infinity}',
            b'{"text": "a\xff"}',
            b'{"text": "a\x01"}',
            b'\xef\xbb\xbf{"text": "a"}',
            b'{"text": "a"} {}',
            b'{"text": "a", "x": ' + b"1" * 5000 + b"}",
            b'{"text": "a", "x": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
        )
    ),
]


@pytest.mark.parametrize(("raw", "expected"), OBJECTS, ids=lambda value: str(value)[:40])
def test_what_a_line_of_text_says(raw: bytes, expected: Found) -> None:
    assert read("jsonl_text", raw + b"\r\n" + raw + b"\n")[0] == [expected, expected._replace(position=len(raw) + 2)]


def test_a_long_line_of_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LONGEST", 13)
    reasons = [row.reason for row in read("jsonl_text", b'{"text": "a"}\n{"text": "ab"}\n')[0]]
    assert reasons == ["", "line_too_long"]


TEXTS = b"".join(b'{"text": "%d"}\n' % number for number in range(50))


def packed(kind: str, content: bytes) -> bytes:
    if kind == "gz":
        return gzip.compress(content[:300]) + gzip.compress(content[300:])
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return bytes(sink.getvalue())


@pytest.mark.parametrize("kind", ["gz", "zst"])
@pytest.mark.parametrize(("begin", "end"), [(0, 50), (0, 1), (7, 31), (49, 50)])
@pytest.mark.parametrize("block", [37, 1 << 22])
def test_rows_of_a_packed_file(kind: str, begin: int, end: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "PARSED", 100)
    monkeypatch.setattr(rows, "BLOCK", block)
    store = MemoryStore(packed(kind, TEXTS))
    found, digest = read("jsonl_text", store, begin, end, path=f"file.{kind}", unit="rows")
    assert found == [Found(number, 0, -1, text=b"%d" % number) for number in range(begin, end)]
    assert digest == covered(store.content, 0, len(store.content))
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(store.fetched))


@pytest.mark.parametrize("block", [1000, 1 << 22])
def test_the_hash_of_a_packed_file_is_of_all_of_it(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "BLOCK", block)
    monkeypatch.setattr(lines, "BLOCK", 1000)
    noise = b"".join(b'{"text": "%s"}\n' % random.Random(seed).randbytes(500).hex().encode() for seed in range(800))
    content = packed("zst", TEXTS + noise)
    found, digest = read("jsonl_text", content, 0, 2, path="file.zst", unit="rows")
    assert ([row.text for row in found], digest) == ([b"0", b"1"], covered(content, 0, len(content)))


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_a_packed_file_of_fewer_rows_is_refused(kind: str) -> None:
    with pytest.raises(RecordError, match=rf"^SOURCE_INVALID file.{kind}: expected 51 rows, read 50$"):
        read("jsonl_text", packed(kind, TEXTS), 0, 51, path=f"file.{kind}", unit="rows")


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_a_packed_file_that_is_cut_or_rotten_is_refused(kind: str) -> None:
    whole = packed(kind, TEXTS)
    for content in (whole[:-12], b"nothing of the kind", whole[:20] + bytes(20) + whole[40:]):
        with pytest.raises(OSError, match=r"(?i)inflate|zlib|zstd|truncated|gzip"):
            read("jsonl_text", content, 0, 50, path=f"file.{kind}", unit="rows")
