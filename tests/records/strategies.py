"""A hypothesis strategy for any record, read from its field types, as the parser reads them."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import sys
import types
import typing
from decimal import Decimal
from typing import Annotated, Any

from hypothesis import strategies as st

import casebits_dagster.records
from casebits_dagster.records.record import AtLeast, Pattern, Record
from casebits_dagster.records.stratification import Table

# RelativePath is spelled with look-aheads, which a generator of matching text cannot follow.
_PATHS = st.from_regex(r"[a-z0-9_.-]{0,3}[a-z]{1,6}(/[a-z]{1,6})?", fullmatch=True)
_KEYS = st.from_regex(r"[a-z0-9_]{1,8}", fullmatch=True)


def all_records() -> list[type[Record]]:
    """Return every record class of the package, sorted by name."""
    for module in pkgutil.iter_modules(casebits_dagster.records.__path__):
        importlib.import_module(f"casebits_dagster.records.{module.name}")
    found = {cls for cls in Record.__subclasses__() if getattr(sys.modules[cls.__module__], cls.__name__) is cls}
    return sorted(found, key=lambda cls: cls.__name__)


def records(cls: type[Record]) -> st.SearchStrategy[Any]:
    if cls is Table:
        return st.integers(0, 2).flatmap(_tables)
    hints = typing.get_type_hints(cls, include_extras=True)
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    return st.builds(cls, **{name: _values(hints[name]) for name in names})


def _tables(width: int) -> st.SearchStrategy[Table]:
    """Tables, whose rows have a cell a column."""
    columns, rows = (st.tuples(*[_values(hint)] * width) for hint in (str, int | str))
    return st.builds(Table, columns=columns, rows=st.lists(rows, max_size=2).map(tuple))


def _values(hint: Any) -> st.SearchStrategy[Any]:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _ruled(args[0], args[1])
    if origin in (types.UnionType, typing.Union):
        return st.one_of(*(st.none() if option is type(None) else _values(option) for option in args))
    if origin is typing.Literal:
        return st.sampled_from(args)
    if origin is tuple:
        return st.lists(_values(args[0]), max_size=2).map(tuple)
    if origin is dict:
        return st.dictionaries(_KEYS, _values(args[1]), max_size=2)
    if isinstance(hint, type) and issubclass(hint, Record):
        return records(hint)
    plain: dict[Any, st.SearchStrategy[Any]] = {
        str: st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
        int: st.integers(-(2**53) + 1, 2**53 - 1),
        bool: st.booleans(),
        Decimal: st.decimals(-1000, 1000, places=6),
    }
    return plain[hint]


def _ruled(hint: Any, rule: Pattern | AtLeast) -> st.SearchStrategy[Any]:
    if isinstance(rule, AtLeast):
        return st.integers(rule.least, 2**53 - 1)
    return _PATHS if rule.expression.startswith("(?!") else st.from_regex(rule.expression, fullmatch=True)
