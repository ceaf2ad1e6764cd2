"""`withdrawals/*.toml`: documents that must not be used any more. Whoever withdraws one, signs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from casebits_dagster.records.digests import sha256
from casebits_dagster.records.errors import RecordError
from casebits_dagster.records.record import Count, Name, Pattern, Positive, Record, RelativePath, Sha256, Text
from casebits_dagster.records.signed import Day

DocumentId = Annotated[str, Pattern(r"[0-9a-f]{32}", "a document id of 32 lower-case hex digits")]


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceRow(Record):
    """A row of a generation's source: `position` is its number, or its first byte where files are cut in bytes."""

    generation: Name
    path: RelativePath
    position: Count


@dataclass(frozen=True, kw_only=True, slots=True)
class Withdrawal(Record):
    """Who withdrew which documents, when and why. A source row stands for its text: what has the same text goes too."""

    withdrawn_by: Text
    withdrawn_on: Day
    reason: Text
    documents: tuple[DocumentId, ...] = ()
    rows: tuple[SourceRow, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class WithdrawalUsed(Record):
    """A withdrawal by the hash of its canonical form."""

    name: Name
    sha256: Sha256


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftOut(Record):
    """What a mix left out because it was withdrawn when it was built: `documents` of its sources (a text may lie in
    several regions), with the texts `ids`, sorted, and the pins that were in force."""

    withdrawals: tuple[WithdrawalUsed, ...]
    documents: Positive
    ids: tuple[DocumentId, ...]


def load_withdrawals(pins_folder: Path) -> dict[str, Withdrawal]:
    """Return every withdrawal pin by its name, sorted. Raises RecordError on one that withdraws nothing."""
    found = {}
    for path in sorted((pins_folder / "withdrawals").glob("*.toml")):
        found[path.stem] = pin = Withdrawal.from_toml(path)
        if not pin.documents and not pin.rows:
            raise RecordError("PIN_INVALID", str(path), "names no document and no source row")
    return found


def used(withdrawals: dict[str, Withdrawal]) -> tuple[WithdrawalUsed, ...]:
    """Return withdrawals by hash."""
    return tuple(WithdrawalUsed(name=name, sha256=sha256(pin.to_bytes())) for name, pin in withdrawals.items())
