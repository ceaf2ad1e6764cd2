"""The gates of a frontier version: what may be said of it beyond "these regions are proven", each with its evidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from casebits_dagster.records.record import Count, Name, Positive, Record, RelativePath, Sha256, Text

State: TypeAlias = Literal["open", "closed", "not_enough_data"]
GATES = ("coverage", "stratification", "packing", "production")


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence(Record):
    """A file below the root of the generation on which a gate rests."""

    path: RelativePath
    sha256: Sha256


@dataclass(frozen=True, kw_only=True, slots=True)
class Gate(Record):
    """One gate. `why` says in a sentence what its state rests on; `numbers` are what was measured, and its limits."""

    state: State
    why: Text
    evidence: tuple[Evidence, ...]
    numbers: dict[str, int | str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Gates(Record):
    """The four gates of the manifest with this hash: coverage (how much of the plan), stratification (a fair picture of
    the plan), packing (mixes that were built on it, verified), production (signed off by a person, never by a run)."""

    SCHEMA: ClassVar[str] = "casebits/gates/1"

    generation: Name
    version: Positive
    manifest_sha256: Sha256
    coverage: Gate
    stratification: Gate
    packing: Gate
    production: Gate

    @property
    def named(self) -> dict[str, Gate]:
        return {name: getattr(self, name) for name in GATES}

    @property
    def lines(self) -> list[str]:
        """Return a line a gate, for people: name, state and why."""
        return [f"{name:<14} {gate.state.replace('_', ' '):<15} {gate.why}" for name, gate in self.named.items()]


@dataclass(frozen=True, kw_only=True, slots=True)
class MixCheck(Record):
    """A rule that held, by the code it would have refused with, and how many things it examined."""

    id: Text
    examined: Count


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedMix(Record):
    """What the verifier proved of a mix, by the hash of its MANIFEST.txt: what it examined, check by check."""

    SCHEMA: ClassVar[str] = "casebits/checked-mix/1"

    mix: Name
    manifest_sha256: Sha256
    report_sha256: Sha256
    checks: tuple[MixCheck, ...]
