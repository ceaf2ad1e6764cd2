"""What differs between two mixes: recipes, sources, documents, shares, windows, context. Reads reports and tables only.

Documents are the same when their ids are, which are hashes of their texts; a further copy counts as another document.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.lineage.mix_summary import percent, read_report
from casebits_dagster.records.canonical import Json
from casebits_dagster.records.mix import TABLE, MarginReport, MixReport
from casebits_dagster.records.record import Count, Name, Record, Text


@dataclass(frozen=True, kw_only=True, slots=True)
class Changed(Record):
    """A key whose values differ, as JSON text; None where one mix does not have it."""

    key: Text
    a: str | None
    b: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Documents(Record):
    """Documents of one or of both mixes, with their tokens."""

    documents: Count
    tokens: Count


@dataclass(frozen=True, kw_only=True, slots=True)
class Shares(Record):
    """A domain, a length bucket, or positions that see their own document `name` back; None: the mix has none."""

    name: Text
    a: Decimal | None
    b: Decimal | None


@dataclass(frozen=True, kw_only=True, slots=True)
class MixDiff(Record):
    """`recipe`, `sources` and `files` hold what differs; shares are listed whether they do or not."""

    a: Name
    b: Name
    recipe: tuple[Changed, ...]
    sources: tuple[Changed, ...]
    files: tuple[Changed, ...]
    only_a: Documents
    only_b: Documents
    both: Documents
    domains: tuple[Shares, ...]
    lengths: tuple[Shares, ...]
    context: tuple[Shares, ...]


def mix_diff(a: Path, b: Path) -> MixDiff:
    """Compare the mixes in two folders. Raises CasebitsError when a report cannot be read."""
    reports = read_report(a), read_report(b)
    tables = [np.load(folder / TABLE, mmap_mode="r") for folder in (a, b)]
    ids = [np.ascontiguousarray(table["id"]) for table in tables]
    common = [np.isin(one, other) for one, other in (ids, ids[::-1])]
    return MixDiff(
        a=reports[0].recipe.mix,
        b=reports[1].recipe.mix,
        recipe=_changed(*(report.recipe.to_dict() for report in reports)),
        sources=_changed(*(_sources(report) for report in reports)),
        files=_changed(*(_files(report) for report in reports)),
        only_a=_documents(tables[0], ~common[0]),
        only_b=_documents(tables[1], ~common[1]),
        both=_documents(tables[0], common[0]),
        domains=_margins(*(report.selection.domains for report in reports)),
        lengths=_margins(*(report.selection.lengths for report in reports)),
        context=_shares(*({f"{row.distance:,} tokens": row.share for row in report.context} for report in reports)),
    )


def diff_lines(found: MixDiff) -> Iterator[str]:
    """Yield the comparison as lines for people."""
    yield f"A {found.a}, B {found.b}"
    for title, changed in (("recipe", found.recipe), ("sources", found.sources), ("files", found.files)):
        yield f"  {title}: {'' if changed else 'the same'}"
        yield from (f"    {one.key}: {_or_none(one.a)} -> {_or_none(one.b)}" for one in changed)
    yield "  documents:"
    for title, part in (("in A only", found.only_a), ("in B only", found.only_b), ("in both", found.both)):
        yield f"    {title:<10}{part.documents:>14,} documents{part.tokens:>18,} tokens"
    for title, rows in (("domain", found.domains), ("length", found.lengths), ("sees its own text", found.context)):
        width = max(len(title), *(len(row.name) for row in rows)) + 2 if rows else len(title)
        yield f"  {title:<{width}}{'A':>12}{'B':>12}{'B - A':>12}"
        yield from (_share_line(row, width) for row in rows)


def _share_line(row: Shares, width: int) -> str:
    change = "-" if row.a is None or row.b is None else f"{100 * (row.b - row.a):+.2f}"
    shares = ("-" if share is None else percent(share) for share in (row.a, row.b))
    return f"  {row.name:<{width}}" + "".join(f"{cell:>12}" for cell in (*shares, change))


def _or_none(value: str | None) -> str:
    return "(none)" if value is None else value


def _changed(a: dict[str, Json], b: dict[str, Json]) -> tuple[Changed, ...]:
    first, second = dict(_leaves(a)), dict(_leaves(b))
    keys = sorted({*first, *second})
    return tuple(
        Changed(key=key, a=first.get(key), b=second.get(key)) for key in keys if first.get(key) != second.get(key)
    )


def _leaves(value: Json, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield every value that is not an object, as JSON text, under its dotted key; list items by name or number."""
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        value = {str(item.get("name", at)): item for at, item in enumerate(value) if isinstance(item, dict)}
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _leaves(item, f"{key}.{name}" if key else name)
    elif value is not None:
        yield key, json.dumps(value, ensure_ascii=False)


def _sources(report: MixReport) -> dict[str, Json]:
    return {source.generation: source.to_dict() for source in report.sources} | {"codec": report.codec}


def _files(report: MixReport) -> dict[str, Json]:
    return {"train": report.train.to_dict(), "validation": report.validation.to_dict()}


def _documents(table: NDArray[Any], inside: NDArray[np.bool_]) -> Documents:
    return Documents(documents=int(inside.sum()), tokens=int(table["tokens"][inside].sum(dtype=np.int64)))


def _margins(a: Sequence[MarginReport], b: Sequence[MarginReport]) -> tuple[Shares, ...]:
    return _shares(*({margin.name: margin.achieved_share for margin in margins} for margins in (a, b)))


def _shares(a: dict[str, Decimal], b: dict[str, Decimal]) -> tuple[Shares, ...]:
    return tuple(Shares(name=name, a=a.get(name), b=b.get(name)) for name in dict.fromkeys((*a, *b)))
