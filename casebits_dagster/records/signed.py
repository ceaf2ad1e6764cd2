"""Pins that a person signs: a clearance to publish what came from a source, and a sign-off for production."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeAlias

from casebits_dagster.records.record import Name, Pattern, Positive, Record, Revision, Sha256, Text

Day: TypeAlias = Annotated[str, Pattern(r"\d{4}-\d\d-\d\d", "a day as YYYY-MM-DD")]


@dataclass(frozen=True, kw_only=True, slots=True)
class Clearance(Record):
    """`clearances/*.toml`: who allowed, on what ground, that text of a source at one revision is given to others."""

    generation: Name
    repo: Text
    revision: Revision
    licence_spdx: Text
    cleared_by: Text
    cleared_on: Day
    ground: Text


@dataclass(frozen=True, kw_only=True, slots=True)
class SignedMix(Record):
    """A mix by the hash of its MANIFEST.txt."""

    mix: Name
    manifest_sha256: Sha256


@dataclass(frozen=True, kw_only=True, slots=True)
class SignOff(Record):
    """`production/*.toml`: a person's word that one frontier version, and the mixes by hash, may be trained on."""

    generation: Name
    version: Positive
    manifest_sha256: Sha256
    mixes: tuple[SignedMix, ...]
    signed_by: Text
    signed_on: Day
    statement: Text


def clearances(pins_folder: Path) -> list[Clearance]:
    """Return every clearance pin, by file name."""
    return [Clearance.from_toml(path) for path in sorted((pins_folder / "clearances").glob("*.toml"))]


def sign_offs(pins_folder: Path) -> list[SignOff]:
    """Return every production pin, by file name."""
    return [SignOff.from_toml(path) for path in sorted((pins_folder / "production").glob("*.toml"))]
