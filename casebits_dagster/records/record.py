"""`Record`: a frozen dataclass whose field types are its parser.

One mechanism reads canonical JSON records and TOML pins alike: `from_dict` refuses a missing field, an unknown field
and a value of another type, and names the path of the field (`receipt.json: counts.tokens`). Supported field types:
str, int, bool, Decimal (6 digits), `X | None`, Literal, Record, tuple[X, ...], dict[str, X], and
Annotated[X, Pattern(...)] / Annotated[int, AtLeast(...)].
"""

from __future__ import annotations

import dataclasses
import functools
import re
import tomllib
import types
import typing
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from casebits_dagster.records.canonical import LARGEST, Json, canonical, parse
from casebits_dagster.records.errors import Absent, RecordError


@dataclasses.dataclass(frozen=True, slots=True)
class Pattern:
    """A text field must match `expression` as a whole; `meaning` is what the error says was expected."""

    expression: str
    meaning: str


@dataclasses.dataclass(frozen=True, slots=True)
class AtLeast:
    """An integer field must be `least` or more."""

    least: int


Sha256 = Annotated[str, Pattern(r"[0-9a-f]{64}", "64 lower-case hex digits")]
Revision = Annotated[str, Pattern(r"[0-9a-f]{40}", "a full revision of 40 lower-case hex digits, not a branch or tag")]
Name = Annotated[str, Pattern(r"[a-z0-9][a-z0-9_.-]*", "a name of a-z, 0-9, _, . and -")]
Text = Annotated[str, Pattern(r"(?s).*\S.*", "text that is not empty")]
_RELATIVE = r"(?!/)(?!.*(^|/)\.\.?(/|$))(?!.*//)[^\\\x00-\x1f\x7f]+(?<!/)"
RelativePath = Annotated[str, Pattern(_RELATIVE, "a relative path without . or .. parts or control characters")]
Count = Annotated[int, AtLeast(0)]
Positive = Annotated[int, AtLeast(1)]


# As text a number is written in one way only; TOML numbers come as int or Decimal.
_DECIMAL_TEXT = re.compile(r"(?!-0\.0{6})-?(0|[1-9][0-9]*)\.[0-9]{6}")


class Record:
    """Base of every record. Subclasses are `@dataclass(frozen=True, kw_only=True, slots=True)`.

    `SCHEMA`, when set, is written as the field `schema` and must be read back equal. A field named in `LEFT_OUT` is
    not written while it is None, so a record can gain a field without moving a byte of those that do without it.
    """

    __slots__ = ()
    SCHEMA: ClassVar[str] = ""
    LEFT_OUT: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def from_dict(cls, value: object, where: str) -> Self:
        """Return the record, or raise RecordError naming the field that does not fit."""
        if not isinstance(value, dict):
            raise RecordError("JSON_INVALID", where, expected="an object", read=type(value).__name__)
        found = dict(value)
        if cls.SCHEMA and found.pop("schema", None) != cls.SCHEMA:
            raise RecordError("SCHEMA_UNKNOWN", f"{where}: schema", expected=cls.SCHEMA, read=value.get("schema"))
        within = f"{where}." if ": " in where else f"{where}: "
        hints, names = _fields(cls)  # type: ignore[arg-type]  # a class is hashable
        for key in found:
            if key not in hints:
                near = ", ".join(sorted(hints))
                raise RecordError("JSON_INVALID", f"{within}{key}", "unknown field", remedy=f"known here: {near}")
        for name, required in names.items():
            if required and name not in found:
                raise RecordError("JSON_INVALID", f"{within}{name}", "field is missing")
        return cls(**{key: _read(hints[key], item, f"{within}{key}") for key, item in found.items()})

    @classmethod
    def parse(cls, raw: bytes, where: str) -> Self:
        """Return the record of canonical JSON bytes: exactly those that `to_bytes` writes."""
        record = cls.from_dict(parse(raw, where), where)
        if record.to_bytes() != raw:
            raise RecordError("JSON_NOT_CANONICAL", where, "a field is left out or written in another way")
        return record

    @classmethod
    def from_toml(cls, path: Path) -> Self:
        """Return the record of a pin file. TOML numbers with a point are read as exact decimals, never as floats."""
        try:
            found = tomllib.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
        except FileNotFoundError as error:
            raise Absent("PIN_MISSING", str(path), "there is no such pin file") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise RecordError("PIN_INVALID", str(path), str(error)) from error
        try:
            return cls.from_dict(found, str(path))
        except RecordError as error:
            place = pin_place(path, error.where.removeprefix(f"{path}: "))
            raise RecordError(
                error.code, place, error.problem, expected=error.expected, read=error.read, remedy=error.remedy
            ) from error

    def to_dict(self) -> dict[str, Json]:
        """Return the JSON value: decimals as text of 6 digits, tuples as lists, absent options as null."""
        written: dict[str, Json] = {"schema": self.SCHEMA} if self.SCHEMA else {}
        for name in _fields(type(self))[1]:  # type: ignore[arg-type]
            if getattr(self, name) is not None or name not in self.LEFT_OUT:
                written[name] = _write(getattr(self, name))
        return written

    def to_bytes(self) -> bytes:
        """Return the canonical bytes: what is stored and hashed."""
        return canonical(self.to_dict())


def pin_place(path: Path, field: str) -> str:
    """Return where a field such as `rules[2].metric` stands in a pin file: `<path>: line 14: rules[2].metric`.

    The line is the first one of the statement that sets it or, where nothing does, of the nearest table around it;
    without a line when not even that is there. Only an error asks, so the cost (a parse a line) does not matter.
    """
    keys = re.findall(r"[^.\[\]]+", field)
    lines, line, deepest, begin = path.read_text(encoding="utf-8").split("\n"), 0, 0, 1
    for number in range(1, len(lines) + 1):
        try:
            depth = _depth(tomllib.loads("\n".join(lines[:number])), keys)
        except tomllib.TOMLDecodeError:
            continue  # in the middle of a statement
        if depth > deepest:
            line, deepest = begin, depth
        begin = number + 1
    return f"{path}: line {line}: {field}" if line else f"{path}: {field}"


def _depth(value: Any, keys: list[str]) -> int:
    """Return how many of the keys (numbers in a list) lead somewhere."""
    for depth, key in enumerate(keys):
        try:
            value = value[int(key) if isinstance(value, list) else key]
        except (LookupError, TypeError):
            return depth
    return len(keys)


@functools.cache
def _fields(cls: type) -> tuple[dict[str, Any], dict[str, bool]]:
    hints = typing.get_type_hints(cls, include_extras=True)
    missing = dataclasses.MISSING
    names = {f.name: f.default is missing and f.default_factory is missing for f in dataclasses.fields(cls)}
    return {name: hints[name] for name in names}, names


def _wrong(where: str, expected: object, value: object) -> RecordError:
    return RecordError("JSON_INVALID", where, expected=expected, read=f"{type(value).__name__} {value!r}"[:200])


def _read(hint: Any, value: object, where: str) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        read = _read(args[0], value, where)
        for rule in args[1:]:
            if isinstance(rule, Pattern) and not re.fullmatch(rule.expression, read):
                raise _wrong(where, rule.meaning, value)
            if isinstance(rule, AtLeast) and read < rule.least:
                raise _wrong(where, f"at least {rule.least}", value)
        return read
    if origin in (types.UnionType, typing.Union):
        return None if value is None and type(None) in args else _read_option(args, value, where)
    if origin is typing.Literal:
        if value not in args:
            raise _wrong(where, " or ".join(map(repr, args)), value)
        return value
    if origin is tuple:
        if not isinstance(value, list):
            raise _wrong(where, "a list", value)
        return tuple(_read(args[0], item, f"{where}[{number}]") for number, item in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            raise _wrong(where, "an object", value)
        return {key: _read(args[1], item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(hint, type) and issubclass(hint, Record):
        return hint.from_dict(value, where)
    if hint is Decimal:
        return _decimal(value, where)
    if type(value) is int and abs(value) > LARGEST:
        raise _wrong(where, "an integer within +-(2^53-1)", value)
    if type(value) is not hint:
        raise _wrong(where, {"str": "text", "int": "an integer", "bool": "true or false"}[hint.__name__], value)
    return value


def _read_option(options: tuple[Any, ...], value: object, where: str) -> Any:
    """Read a value of `X | None` as X, and of `int | str` as whichever it is."""
    plain = [option for option in options if option is not type(None)]
    return _read(type(value) if type(value) in plain else plain[0], value, where)


def _decimal(value: object, where: str) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
        raise _wrong(where, "a decimal number", value)
    if isinstance(value, str) and not _DECIMAL_TEXT.fullmatch(value):
        raise _wrong(where, "a decimal number as text with 6 digits after the point", value)
    try:
        number = Decimal(value)
        if not number.is_finite() or number != number.quantize(Decimal("0.000001")):
            raise _wrong(where, "a decimal number of at most 6 digits after the point", value)
    except InvalidOperation as error:
        raise _wrong(where, "a decimal number", value) from error
    return number


def _write(value: object) -> Json:
    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, tuple):
        return [_write(item) for item in value]
    if isinstance(value, dict):
        return {key: _write(item) for key, item in value.items()}
    if isinstance(value, Decimal):
        return f"{value:.6f}"
    return typing.cast("Json", value)


def micro(value: Decimal | str) -> int:
    """Return a decimal, or its text, in millionths: the fixed-point form that every comparison uses."""
    return int(Decimal(value).scaleb(6).to_integral_exact())


def micro_text(value: int) -> str:
    """Return a count of millionths as the decimal text of 6 digits that JSON carries."""
    sign = "-" if value < 0 else ""
    return f"{sign}{abs(value) // 1_000_000}.{abs(value) % 1_000_000:06d}"
