"""`LATEST.json` of a published mix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from casebits_dagster.records.frontier import ManifestPointer
from casebits_dagster.records.record import Name, Positive, Record, Text


@dataclass(frozen=True, kw_only=True, slots=True)
class MixLatest(Record):
    """Names the MANIFEST.txt of the newest version of a mix, by its hash; a mix that is built anew is a new version."""

    SCHEMA: ClassVar[str] = "casebits/mix-latest/1"

    mix: Name
    version: Positive
    manifest: ManifestPointer
    published_at: Text
    expires_at: str | None
