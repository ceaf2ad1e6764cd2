"""What an audit says: records with one canonical JSON form, so that two audits of the same bytes are the same bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from casebits_dagster.records.record import Count, Name, Positive, Record, Sha256, Text
from casebits_dagster.records.region import Attribution, Pins, SourceSlice

STATES = {
    "equal": "recomputed now: equal",
    "different": "recomputed now: NOT equal",
    "not_recomputed": "not recomputed",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence(Record):
    """One link of the chain. `sha256` is the hash that is claimed, empty when bytes were compared directly."""

    link: Text
    where: Text
    sha256: str
    state: Literal["equal", "different", "not_recomputed"]
    problem: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditedSegment(Record):
    """A run of one document in the window. The first `inserted` tokens are separators that are not of the document."""

    position: Count
    length: Positive
    kind: Text
    inserted: Count
    document: Text
    document_start: Count


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditedDocument(Record):
    """A document of the window, and the source row that it is."""

    id: Text
    generation: Name
    region: Text
    index: Count
    tokens: Positive
    text_bytes: Count
    text_sha256: Sha256
    cluster: int | None
    split: Literal["train", "validation"]
    scores: dict[str, str]
    source_position: Count


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditedRegion(Record):
    """A region with its proof: `inclusion_proof` leads from its entry in the manifest to `tree_root` (RFC 6962)."""

    generation: Name
    region: Text
    content_id: Sha256
    receipt_sha256: Sha256
    admission_sha256: Sha256
    checks_passed: Positive
    source: SourceSlice
    attribution: Attribution
    pins: Pins
    manifest_version: Positive
    manifest_sha256: Sha256
    entry: Count
    entries: Positive
    tree_root: Sha256
    inclusion_proof: tuple[Sha256, ...]
    runs: tuple[Text, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowAudit(Record):
    """Where one training window comes from. `proven` when no link is different from what it is claimed to be."""

    SCHEMA: ClassVar[str] = "casebits/window-audit/1"

    mix: Name
    strategy: Text
    window: Count
    windows: Positive
    sequence_length: Positive
    shard: Count
    first_token: Count
    mix_manifest_sha256: Sha256
    segments: tuple[AuditedSegment, ...]
    documents: tuple[AuditedDocument, ...]
    regions: tuple[AuditedRegion, ...]
    evidence: tuple[Evidence, ...]
    limits: tuple[Text, ...]
    proven: bool

    @property
    def failures(self) -> tuple[Evidence, ...]:
        return tuple(evidence for evidence in self.evidence if evidence.state == "different")
