"""The records of a frontier: the manifest of one version, and `LATEST.json`, which points at it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from casebits_dagster.records.record import Count, Name, Positive, Record, RelativePath, Sha256, Text
from casebits_dagster.records.region import StoredFile


@dataclass(frozen=True, kw_only=True, slots=True)
class PreviousManifest(Record):
    version: Positive
    sha256: Sha256
    bytes: Positive


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanPin(Record):
    """`sha256` is over the canonical form of the ordered list of all regions, fixed when the generation starts."""

    total: Positive
    sha256: Sha256


@dataclass(frozen=True, kw_only=True, slots=True)
class FrontierEntry(Record):
    """One admitted region; `files` are all seven."""

    index: Count
    path: RelativePath
    content_id: Sha256
    documents: Count
    tokens: Count
    files: tuple[StoredFile, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitTotal(Record):
    documents: Count
    tokens: Count
    raw_bytes: Count


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitTotals(Record):
    train: SplitTotal
    validation: SplitTotal


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest(Record):
    """One version of a frontier: the gapless prefix of admitted regions, index == position."""

    SCHEMA: ClassVar[str] = "casebits/frontier/1"

    generation: Name
    version: Positive
    previous: PreviousManifest | None
    plan: PlanPin
    count: Count
    regions: tuple[FrontierEntry, ...]
    codec: tuple[StoredFile, ...]
    splits: SplitTotals
    tree_root: Sha256


@dataclass(frozen=True, kw_only=True, slots=True)
class ManifestPointer(Record):
    """`revision` is a Hub commit, or `sha256:<manifest hash>` elsewhere."""

    path: RelativePath
    revision: Text
    sha256: Sha256
    bytes: Positive


@dataclass(frozen=True, kw_only=True, slots=True)
class GatesPointer(Record):
    path: RelativePath
    sha256: Sha256


@dataclass(frozen=True, kw_only=True, slots=True)
class Latest(Record):
    """The one mutable file. Times are RFC 3339 in UTC; the only times in the whole layout."""

    SCHEMA: ClassVar[str] = "casebits/latest/1"

    generation: Name
    version: Positive
    count: Count
    manifest: ManifestPointer
    gates: GatesPointer | None
    tree_root: Sha256
    status: Literal["building", "complete"]
    published_at: Text
    expires_at: str | None
