from __future__ import annotations

import json
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from casebits_dagster.records.canonical import Json, canonical, parse
from casebits_dagster.records.errors import RecordError

KEYS = st.from_regex(r"[a-z0-9_]{1,12}", fullmatch=True)
INTEGERS = st.integers(-(2**53) + 1, 2**53 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | INTEGERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_equals_rfc_8785_plus_a_line_feed(value: Json) -> None:
    assert canonical(value) == rfc8785.dumps(value) + b"\n"


@given(VALUES)
def test_parse_is_the_inverse(value: Json) -> None:
    assert parse(canonical(value), "value") == value


@given(VALUES, st.data())
def test_every_other_spelling_is_refused(value: Json, data: st.DataObject) -> None:
    """One byte changed, added or removed: either refused, or the canonical bytes of another value."""
    raw = canonical(value)
    at = data.draw(st.integers(0, len(raw) - 1))
    byte = data.draw(st.binary(max_size=2))
    other = raw[:at] + byte + raw[at + 1 :]
    if other != raw:
        try:
            read = parse(other, "value")
        except RecordError:
            return
        assert (read != value or _types(read) != _types(value), canonical(read)) == (True, other)


def _types(value: Json) -> str:
    return json.dumps(value)


@pytest.mark.parametrize(
    ("raw", "code", "message"),
    [
        (b"", "JSON_INVALID", "JSON_INVALID r.json: Expecting value: line 1 column 1 (char 0)"),
        (b"{\n", "JSON_INVALID", None),
        (b'{"a":1}\nx', "JSON_INVALID", None),
        (b"\xff\n", "JSON_INVALID", None),
        (b"[" * 100_000, "JSON_INVALID", None),
        (b"1.0\n", "JSON_INVALID", "JSON_INVALID r.json: number 1.0 is not an integer"),
        (b"1e3\n", "JSON_INVALID", "JSON_INVALID r.json: number 1e3 is not an integer"),
        (b"NaN\n", "JSON_INVALID", "JSON_INVALID r.json: number NaN is not an integer"),
        (b"-Infinity\n", "JSON_INVALID", "JSON_INVALID r.json: number -Infinity is not an integer"),
        (b'{"a":1,"b":2,"a":3}\n', "JSON_DUPLICATE_KEY", "JSON_DUPLICATE_KEY r.json: a: key stands twice"),
        (b'{"a":[{"b":1,"b":1}]}\n', "JSON_DUPLICATE_KEY", "JSON_DUPLICATE_KEY r.json: b: key stands twice"),
        (
            b'{"a":1}',
            "JSON_NOT_CANONICAL",
            "JSON_NOT_CANONICAL r.json: bytes differ from the canonical form of their value",
        ),
        (b'{"a": 1}\n', "JSON_NOT_CANONICAL", None),
        (b'{"b":1,"a":1}\n', "JSON_NOT_CANONICAL", None),
        (b'{"a":-0}\n', "JSON_NOT_CANONICAL", None),
        (b'"\\u0041"\n', "JSON_NOT_CANONICAL", None),
        (b'\xef\xbb\xbf{"a":1}\n', "JSON_NOT_CANONICAL", None),
        (b'"a\\/b"\n', "JSON_NOT_CANONICAL", None),
        (b'{"a":1}\r\n', "JSON_NOT_CANONICAL", None),
        (b'{"A":1}\n', "JSON_NOT_CANONICAL", None),
        (b"9007199254740992\n", "JSON_NOT_CANONICAL", None),
        (b'"\\ud800"\n', "JSON_NOT_CANONICAL", None),
        ('{"a":1}\n'.encode("utf-16"), "JSON_NOT_CANONICAL", None),
    ],
)
def test_parse_refuses(raw: bytes, code: str, message: str | None) -> None:
    with pytest.raises(RecordError) as caught:
        parse(raw, "r.json")
    assert (caught.value.code, caught.value.where.split(":")[0]) == (code, "r.json")
    if message is not None:
        assert str(caught.value) == message


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (1.5, "JSON_INVALID value: expected text, integer, list or object, read float"),
        ({"a": [0, 2**53]}, "JSON_INVALID value.a[1]: expected an integer within +-(2^53-1), read 9007199254740992"),
        ({"Key": 1}, "JSON_INVALID value: expected keys of a-z, 0-9 and _, read 'Key'"),
        ({1: 1}, "JSON_INVALID value: expected keys of a-z, 0-9 and _, read 1"),
        ({"": 1}, "JSON_INVALID value: expected keys of a-z, 0-9 and _, read ''"),
        ({"a": "\ud800"}, "JSON_INVALID value.a: text has a lone surrogate"),
        (b"x", "JSON_INVALID value: expected text, integer, list or object, read bytes"),
    ],
)
def test_canonical_refuses(value: Any, message: str) -> None:
    with pytest.raises(RecordError) as caught:
        canonical(value)
    assert str(caught.value) == message


def test_nesting_that_is_too_deep_is_refused_at_every_depth() -> None:
    """A little less than the reader's limit is still beyond the writer's."""
    said = set()
    for depth in range(900, 1_100):
        raw = b"[" * depth + b"]" * depth + b"\n"
        try:
            parse(raw, "r.json")
        except RecordError as error:
            said.add(str(error))
    assert "JSON_INVALID r.json: nested too deeply" in said
