"""Canonical JSON: one value, one byte string (RFC 8785 on this subset, plus one trailing LF).

UTF-8, keys `[a-z0-9_]+` sorted, no white space, no floats, integers within +-(2^53-1). `parse` refuses everything that
`canonical` would not have written, so equal meaning and equal bytes are the same thing and hashes compare meaning.
"""

from __future__ import annotations

import json
import re
from typing import NoReturn, TypeAlias

from casebits_dagster.records.errors import RecordError

Json: TypeAlias = "str | int | bool | list[Json] | dict[str, Json] | None"
_KEY = re.compile(r"[a-z0-9_]+")
LARGEST = 2**53 - 1


def canonical(value: Json) -> bytes:
    """Return the canonical bytes of `value`. Raises RecordError on floats, odd keys and integers JSON cannot carry."""
    _require(value, "value")
    return (json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n").encode()


def parse(raw: bytes, where: str) -> Json:
    """Return the value of canonical bytes.

    Raises RecordError with code JSON_INVALID, JSON_DUPLICATE_KEY or JSON_NOT_CANONICAL.
    """

    def fail(text: str) -> NoReturn:
        raise RecordError("JSON_INVALID", where, f"number {text} is not an integer")

    def unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
        found = dict(pairs)
        if len(found) != len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise RecordError("JSON_DUPLICATE_KEY", f"{where}: {twice}", "key stands twice")
        return found

    try:
        value: Json = json.loads(raw, object_pairs_hook=unique, parse_float=fail, parse_constant=fail)
    except (ValueError, RecursionError) as error:
        raise RecordError("JSON_INVALID", where, str(error)) from error
    try:
        same = canonical(value) == raw
    except RecursionError as error:
        raise RecordError("JSON_INVALID", where, "nested too deeply") from error
    except RecordError as error:
        raise RecordError("JSON_NOT_CANONICAL", where, str(error)) from error
    if not same:
        raise RecordError("JSON_NOT_CANONICAL", where, "bytes differ from the canonical form of their value")
    return value


def _require(value: object, where: str) -> None:
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, int):
        if abs(value) > LARGEST:
            raise RecordError("JSON_INVALID", where, expected="an integer within +-(2^53-1)", read=value)
    elif isinstance(value, str):
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise RecordError("JSON_INVALID", where, "text has a lone surrogate") from error
    elif isinstance(value, list):
        for number, item in enumerate(value):
            _require(item, f"{where}[{number}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str) or not _KEY.fullmatch(key):
                raise RecordError("JSON_INVALID", where, expected="keys of a-z, 0-9 and _", read=repr(key))
            _require(item, f"{where}.{key}")
    else:
        raise RecordError("JSON_INVALID", where, expected="text, integer, list or object", read=type(value).__name__)
