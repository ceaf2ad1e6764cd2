"""What an audit says: records with one canonical JSON form, so that two audits of the same bytes are the same bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from casebits_dagster.records.frontier import FrontierEntry
from casebits_dagster.records.policy import FilterPolicy
from casebits_dagster.records.record import Count, Name, Positive, Record, RelativePath, Sha256, Text
from casebits_dagster.records.region import Attribution, Pins, SourceSlice

STATES = {
    "equal": "recomputed now: equal",
    "different": "recomputed now: NOT equal",
    "not_recomputed": "not recomputed",
}
Recompute: TypeAlias = Literal["slices", "all", "none"]
SplitName: TypeAlias = Literal["train", "validation"]


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
    """A document, and the source row that it is. `text_sha256` is None when the text was not decoded."""

    id: Text
    generation: Name
    region: Text
    index: Count
    tokens: Positive
    text_bytes: Count
    text_sha256: Sha256 | None
    cluster: int | None
    split: SplitName
    scores: dict[str, str]
    source_position: Count


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditedRun(Record):
    """A run that made a region, as its run record says: `stages` are texts such as `admission_proof 3: done`."""

    run_id: Text
    job: Text
    package: Text
    package_version: Text
    finished_at: Text
    stages: tuple[Text, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditedRegion(Record):
    """A region with its proof: `inclusion_proof` leads from its entry in the manifest to `tree_root` (RFC 6962).

    Audits of before `manifest_entry` (the leaf of that proof), `policy` and `run_records` were told go without them.
    """

    LEFT_OUT: ClassVar[frozenset[str]] = frozenset({"manifest_entry", "policy", "run_records"})

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
    manifest_entry: FrontierEntry | None = None
    policy: FilterPolicy | None = None
    run_records: tuple[AuditedRun, ...] | None = None


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
    def question(self) -> str:
        return f"window {self.window} of mix {self.mix}"

    @property
    def failures(self) -> tuple[Evidence, ...]:
        return failures(self.evidence)


@dataclass(frozen=True, kw_only=True, slots=True)
class FollowedWindow(Record):
    """A training window of a mix, with its segments; shard and token as of `WindowAudit`."""

    mix: Name
    window: Count
    shard: Count
    first_token: Count
    segments: tuple[AuditedSegment, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditedRow(Record):
    """A source row: `verdict` is `keep`, `dropped:<reason>` or `quarantined:<problem>`. `index` is that of its document
    in the region, None when it has none; `document` the id of its text, empty when it cannot be read."""

    generation: Name
    path: RelativePath
    position: Count
    region: Text
    verdict: Text
    document: str
    index: int | None
    cluster: int | None
    scores: dict[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Holding(Record):
    """A frontier that holds a document (or, with `index` None, a region) in its versions `first` to `newest`; both are
    0 when no version holds the region yet."""

    document: str
    generation: Name
    region: Text
    index: int | None
    first: Count
    newest: Count


@dataclass(frozen=True, kw_only=True, slots=True)
class Use(Record):
    """Where one split of a mix holds what was asked for: `first_windows` are the first of `windows` window numbers."""

    mix: Name
    mix_manifest_sha256: Sha256
    split: SplitName
    documents: Positive
    tokens: Count
    windows: Count
    first_windows: tuple[Count, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Share(Record):
    """What of the windows asked for comes from one source, licence, domain, cluster or region."""

    by: Literal["source", "licence", "domain", "cluster", "region"]
    name: Text
    documents: Positive
    tokens: Positive


@dataclass(frozen=True, kw_only=True, slots=True)
class Searched(Record):
    """What a search looked through: `indexed` regions by their index, the others by their documents.jsonl."""

    generation: Name
    regions: Count
    indexed: Count
    documents: Count


@dataclass(frozen=True, kw_only=True, slots=True)
class Audit(Record):
    """The answer to any other question. `windows` are those that were followed to their rows, of `windows_asked`."""

    SCHEMA: ClassVar[str] = "casebits/audit/1"

    question: Text
    recompute: Recompute
    windows_asked: Count
    tokens_asked: Count
    rows: tuple[AuditedRow, ...]
    held: tuple[Holding, ...]
    uses: tuple[Use, ...]
    searched: tuple[Searched, ...]
    shares: tuple[Share, ...]
    windows: tuple[FollowedWindow, ...]
    documents: tuple[AuditedDocument, ...]
    regions: tuple[AuditedRegion, ...]
    evidence: tuple[Evidence, ...]
    limits: tuple[Text, ...]
    proven: bool

    @property
    def failures(self) -> tuple[Evidence, ...]:
        return failures(self.evidence)


def failures(evidence: tuple[Evidence, ...]) -> tuple[Evidence, ...]:
    """Return the links that do not hold."""
    return tuple(one for one in evidence if one.state == "different")
