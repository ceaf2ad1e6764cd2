from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from casebits_dagster.records.canonical import canonical
from casebits_dagster.records.errors import Absent, RecordError
from casebits_dagster.records.record import (
    AtLeast,
    Name,
    Record,
    RelativePath,
    Revision,
    Sha256,
    micro,
    micro_text,
    pin_place,
)
from tests.records.strategies import all_records, records


@dataclass(frozen=True, kw_only=True, slots=True)
class Inner(Record):
    count: Annotated[int, AtLeast(2)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Example(Record):
    SCHEMA: ClassVar[str] = "casebits/example/1"

    name: Name
    kind: Literal["one", "two"]
    flag: bool
    share: Decimal
    inner: Inner
    many: tuple[Inner, ...]
    by_name: dict[str, int]
    either: int | str
    perhaps: int | None = None


GOOD: dict[str, Any] = {
    "schema": "casebits/example/1",
    "name": "a-1",
    "kind": "one",
    "flag": True,
    "share": "0.050000",
    "inner": {"count": 2},
    "many": [{"count": 3}],
    "by_name": {"x": 1},
    "either": "x",
    "perhaps": None,
}


def test_round_trip() -> None:
    read = Example.from_dict(GOOD, "e.json")
    assert read == Example(
        name="a-1",
        kind="one",
        flag=True,
        share=Decimal("0.05"),
        inner=Inner(count=2),
        many=(Inner(count=3),),
        by_name={"x": 1},
        either="x",
    )
    assert read.to_dict() == GOOD
    assert Example.parse(read.to_bytes(), "e.json") == read


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"schema": "casebits/example/2"},
            "SCHEMA_UNKNOWN e.json: schema: expected casebits/example/1, read casebits/example/2",
        ),
        ({"schema": None}, "SCHEMA_UNKNOWN e.json: schema: expected casebits/example/1, read None"),
        ({"name": 1}, "JSON_INVALID e.json: name: expected text, read int 1"),
        ({"name": "A"}, "JSON_INVALID e.json: name: expected a name of a-z, 0-9, _, . and -, read str 'A'"),
        ({"kind": "three"}, "JSON_INVALID e.json: kind: expected 'one' or 'two', read str 'three'"),
        ({"flag": 1}, "JSON_INVALID e.json: flag: expected true or false, read int 1"),
        ({"share": True}, "JSON_INVALID e.json: share: expected a decimal number, read bool True"),
        *(
            (
                {"share": text},
                "JSON_INVALID e.json: share: expected a decimal number as text with 6 digits after the point, "
                f"read str '{text}'",
            )
            for text in ("x", "0.05", "+.050000", "5e-2", "00.050000", "0.0500000", "-0.000000", "inf", "0.050000 ")
        ),
        *(
            (
                {"share": number},
                "JSON_INVALID e.json: share: expected a decimal number of at most 6 digits after the point, "
                f"read Decimal {number!r}",
            )
            for number in (Decimal("0.0000001"), Decimal("Infinity"))
        ),
        (
            {"share": Decimal("1e40")},
            "JSON_INVALID e.json: share: expected a decimal number, read Decimal Decimal('1E+40')",
        ),
        ({"inner": []}, "JSON_INVALID e.json: inner: expected an object, read list"),
        ({"inner": {}}, "JSON_INVALID e.json: inner.count: field is missing"),
        ({"inner": {"count": 1}}, "JSON_INVALID e.json: inner.count: expected at least 2, read int 1"),
        ({"inner": {"count": True}}, "JSON_INVALID e.json: inner.count: expected an integer, read bool True"),
        (
            {"inner": {"count": 2, "x": 1}},
            "JSON_INVALID e.json: inner.x: unknown field (known here: count)",
        ),
        ({"many": {}}, "JSON_INVALID e.json: many: expected a list, read dict {}"),
        ({"many": [{"count": 2}, {}]}, "JSON_INVALID e.json: many[1].count: field is missing"),
        ({"by_name": []}, "JSON_INVALID e.json: by_name: expected an object, read list []"),
        ({"by_name": {"x": "1"}}, "JSON_INVALID e.json: by_name.x: expected an integer, read str '1'"),
        ({"either": None}, "JSON_INVALID e.json: either: expected an integer, read NoneType None"),
        ({"perhaps": "1"}, "JSON_INVALID e.json: perhaps: expected an integer, read str '1'"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_its_path(change: dict[str, Any], message: str) -> None:
    with pytest.raises(RecordError) as caught:
        Example.from_dict(GOOD | change, "e.json")
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("hint", "good", "bad"),
    [
        (Sha256, "0" * 64, ["0" * 63, "0" * 65, "A" * 64, "0" * 64 + "\n"]),
        (Revision, "f" * 40, ["main", "f" * 39, "f" * 40 + "\n"]),
        (Name, "a.b-c_1", ["", "-a", ".a", "A", "a b", "a\n", "é"]),
        (
            RelativePath,
            "a/b..c/.d.e",
            [
                "",
                "/a",
                "a/",
                "a//b",
                "..",
                "../a",
                "a/..",
                "a/../b",
                ".",
                "./a",
                "a/./b",
                "a\\b",
                "a\0",
                "a\n/../b",
                "a\x7f",
            ],
        ),
    ],
)
def test_text_fields_match_as_a_whole(hint: Any, good: str, bad: list[str]) -> None:
    one: Any = dataclass(frozen=True, kw_only=True, slots=True)(
        type("One", (Record,), {"__annotations__": {"text": hint}, "__module__": __name__})
    )
    assert one.from_dict({"text": good}, "x").text == good
    for text in bad:
        with pytest.raises(RecordError, match=r"^JSON_INVALID x: text: expected "):
            one.from_dict({"text": text}, "x")


def test_toml_numbers_are_exact_decimals(tmp_path: Path) -> None:
    path = tmp_path / "e.toml"
    path.write_text(
        'schema = "casebits/example/1"\nname = "a"\nkind = "two"\nflag = false\nshare = 0.1\n'
        "many = []\neither = 1\n[inner]\ncount = 2\n[by_name]\n"
    )
    assert Example.from_toml(path).share == Decimal("0.1")


def test_a_toml_file_that_is_absent_or_wrong_is_named(tmp_path: Path) -> None:
    path = tmp_path / "e.toml"
    with pytest.raises(Absent) as absent:
        Example.from_toml(path)
    assert str(absent.value) == f"PIN_MISSING {path}: there is no such pin file"
    for raw in (b"x", b"\xff"):
        path.write_bytes(raw)
        with pytest.raises(RecordError) as wrong:
            Example.from_toml(path)
        assert (wrong.value.code, wrong.value.where) == ("PIN_INVALID", str(path))


PIN = """\
schema = "casebits/example/1"
name = "a"  # not a key: name = "b"
kind = "two"
story = '''
kind = "three"
[inner]
'''

[inner]
count = 2

[[many]]
count = 3
list = [
  "x",
  "y",
]

# [[many]]
[[many]]
"quoted" . deep.count = 4
row = {count = 5}
"""


@pytest.mark.parametrize(
    ("field", "line"),
    [
        ("name", 2),
        ("kind", 3),
        ("story", 4),
        ("inner", 9),
        ("inner.count", 10),
        ("inner.other", 9),
        ("many", 12),
        ("many[0].count", 13),
        ("many[0].list[1]", 14),
        ("many[0].list[9]", 14),
        ("many[0].other.deeper", 12),
        ("many[1]", 20),
        ("many[1].quoted.deep.count", 21),
        ("many[1].row.count", 22),
        ("many[1].count", 20),
        ("many[2].count", 12),
        ("name.inner", 2),
    ],
)
def test_a_field_of_a_pin_is_found_by_its_line(tmp_path: Path, field: str, line: int) -> None:
    path = tmp_path / "e.toml"
    path.write_text(PIN)
    assert pin_place(path, field) == f"{path}: line {line}: {field}"


def test_a_field_that_is_nowhere_has_no_line(tmp_path: Path) -> None:
    path = tmp_path / "e.toml"
    path.write_text(PIN)
    assert pin_place(path, "none.at[3].all") == f"{path}: none.at[3].all"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("count = 3", "cuont = 3", "line 10: many[0].cuont: unknown field (known here: count)"),
        ("count = 3", "count = 1", "line 10: many[0].count: expected at least 2, read int 1"),
        ("count = 3", "count = 3.5", "line 10: many[0].count: expected an integer, read Decimal Decimal('3.5')"),
        ("count = 3", "", "line 9: many[0].count: field is missing"),
        ("count = 2", "", "line 7: inner.count: field is missing"),
        ('kind = "two"\n', "", "kind: field is missing"),
        ('kind = "two"', 'kind = "ten"', "line 3: kind: expected 'one' or 'two', read str 'ten'"),
        ('name = "a"', 'name = """\nA"""', "line 2: name: expected a name of a-z, 0-9, _, . and -, read str 'A'"),
    ],
)
def test_a_pin_that_does_not_fit_is_refused_with_its_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "e.toml"
    text = (
        'schema = "casebits/example/1"\nname = "a"\nkind = "two"\nflag = false\nshare = 0.1\neither = 1\n'
        "[inner]\ncount = 2\n[[many]]\ncount = 3\n[by_name]\n"
    )
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(RecordError) as caught:
        Example.from_toml(path)
    assert str(caught.value) == f"JSON_INVALID {path}: {message}"


@pytest.mark.parametrize("cls", all_records(), ids=lambda cls: cls.__name__)
@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(data=st.data())
def test_every_record_round_trips_and_one_byte_breaks_it(cls: type[Record], data: st.DataObject) -> None:
    record = data.draw(records(cls))
    raw = record.to_bytes()
    assert cls.parse(raw, "record") == record
    at = data.draw(st.integers(0, len(raw) - 1))
    broken = raw[:at] + bytes([raw[at] ^ data.draw(st.integers(1, 255))]) + raw[at + 1 :]
    try:
        read = cls.parse(broken, "record")
    except RecordError:
        return
    assert (read == record, read.to_bytes()) == (False, broken)


@pytest.mark.parametrize("change", [{"share": 0}, {"perhaps": ...}])
def test_one_record_has_one_spelling(change: dict[str, Any]) -> None:
    """A decimal as an integer, and an option left out, mean the same record and are refused as its bytes."""
    written = {key: value for key, value in (GOOD | change).items() if value is not ...}
    with pytest.raises(RecordError) as caught:
        Example.parse(canonical(written), "e.json")
    assert str(caught.value) == "JSON_NOT_CANONICAL e.json: a field is left out or written in another way"


@pytest.mark.parametrize("cls", all_records(), ids=lambda cls: cls.__name__)
@settings(max_examples=3, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(data=st.data())
def test_every_record_refuses_another_field(cls: type[Record], data: st.DataObject) -> None:
    written = data.draw(records(cls)).to_dict()
    with pytest.raises(RecordError, match=r"^JSON_INVALID record: zz: unknown field"):
        cls.from_dict(written | {"zz": 1}, "record")


@pytest.mark.parametrize(
    ("value", "millionths", "text"),
    [
        ("0", 0, "0.000000"),
        ("0.05", 50_000, "0.050000"),
        ("-1.5", -1_500_000, "-1.500000"),
        ("-0.000001", -1, "-0.000001"),
        ("1234.567891", 1_234_567_891, "1234.567891"),
    ],
)
def test_micro(value: str, millionths: int, text: str) -> None:
    assert (micro(Decimal(value)), micro_text(millionths)) == (millionths, text)
