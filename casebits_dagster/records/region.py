"""The two records of a region: the producer's `Receipt` (a claim) and the verifier's `Admission` (a proof).

Both are deterministic: no time, host, run id or encoder name, so a rerun on any machine gives the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import ClassVar, Literal

from casebits_dagster.records.canonical import canonical
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.record import Count, Name, Positive, Record, RelativePath, Revision, Sha256, Text


@dataclass(frozen=True, kw_only=True, slots=True)
class RegionName(Record):
    """A region: `index` in the plan, `id` the same in five digits."""

    index: Count
    id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceSlice(Record):
    """What was read: one half-open range of one file of the pinned source.

    `file_sha256` is what the source publishes (claimed, not recomputed here); `range_sha256` is over the bytes that the
    range covers: the range itself when the unit is bytes, the Parquet row groups that hold it when the unit is rows.
    """

    repo: Text
    repo_type: Literal["folder", "dataset"]
    revision: Revision
    path: RelativePath
    file_bytes: Count
    file_sha256: Sha256
    unit: Literal["bytes", "rows"]
    begin: Count
    end: Count
    range_sha256: Sha256
    licence_spdx: Text


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage(Record):
    """A producer or verifier; `version` is raised by hand when its output changes."""

    name: Name
    version: Positive


@dataclass(frozen=True, kw_only=True, slots=True)
class FilterPin(Record):
    policy_id: Name
    sha256: Sha256


@dataclass(frozen=True, kw_only=True, slots=True)
class Separator(Record):
    """The id that parts documents, and on which side of each document it stands."""

    id: Count
    at: Literal["start", "end"]


@dataclass(frozen=True, kw_only=True, slots=True)
class CodecPin(Record):
    """The codec by hash. A plain codec has no mixture and names its separator; CaseBits ends every document in id 0."""

    LEFT_OUT: ClassVar[frozenset[str]] = frozenset({"separator"})

    vocab_sha256: Sha256
    mixture_sha256: Sha256 | None
    format: Literal["casebits-1", "plain-1"]
    separator: Separator | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitPin(Record):
    """`validation` when the first 8 bytes, big-endian, of SHA-256(salt + NUL + 16 id bytes) < floor(share * 2^64)."""

    rule: Literal["sha256-salt-id"]
    salt: Text
    share: Decimal

    @property
    def threshold(self) -> int:
        return int(self.share * 2**64)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pins(Record):
    filter: FilterPin
    codec: CodecPin
    split: SplitPin


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts(Record):
    """rows_read = documents + dropped + quarantined; documents = train + validation; tokens include one EOD each."""

    rows_read: Count
    documents: Count
    tokens: Count
    raw_bytes: Count
    train_documents: Count
    validation_documents: Count
    dropped: dict[str, Positive]
    quarantined: dict[str, Positive]


@dataclass(frozen=True, kw_only=True, slots=True)
class ArrayFile(Record):
    """A file of the region as written: `items` of `dtype`, or of lines for `jsonl`."""

    name: RelativePath
    dtype: Literal["<u2", "<u8", "jsonl"]
    items: Count
    bytes: Count
    sha256: Sha256


@dataclass(frozen=True, kw_only=True, slots=True)
class Receipt(Record):
    SCHEMA: ClassVar[str] = "casebits/receipt/1"

    generation: Name
    region: RegionName
    source: SourceSlice
    worker: Stage
    pins: Pins
    counts: Counts
    verdicts_digest: Sha256
    files: tuple[ArrayFile, ...]
    content_id: str = ""

    def expected_content_id(self) -> str:
        """Return the SHA-256 of the canonical form of everything but `content_id`."""
        written = self.to_dict()
        del written["content_id"]
        return sha256(canonical(written))

    def sealed(self) -> Receipt:
        """Return the receipt with its content id filled in."""
        return replace(self, content_id=self.expected_content_id())


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredFile(Record):
    """A file as a consumer finds it."""

    name: RelativePath
    bytes: Count
    sha256: Sha256


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceRecheck(Record):
    """The verifier's own reading of the source range; `rows_digest` is over the rows as parsed."""

    range_sha256: Sha256
    rows_digest: Sha256


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckResult(Record):
    """One check: how many there were, how many were examined, and by which seed they were drawn (sample mode)."""

    id: Text
    version: Positive
    population: Count
    examined: Count
    mode: Literal["full", "sample"]
    seed: str
    result: Literal["passed"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Digests(Record):
    """SHA-256 over what was proven: the text of all documents in order, the kept source positions ("<i8"), one split
    byte a document (0 train, 1 validation), and the 16-byte document ids."""

    text: Sha256
    selection: Sha256
    split: Sha256
    document_ids: Sha256


@dataclass(frozen=True, kw_only=True, slots=True)
class Attribution(Record):
    licence_spdx: Text
    title: Text
    url: Text
    changes: Text


@dataclass(frozen=True, kw_only=True, slots=True)
class Admission(Record):
    SCHEMA: ClassVar[str] = "casebits/admission/1"

    generation: Name
    region: RegionName
    receipt_sha256: Sha256
    content_id: Sha256
    files: tuple[StoredFile, ...]
    source_recheck: SourceRecheck
    checks: tuple[CheckResult, ...]
    digests: Digests
    attribution: Attribution
    verifier: Stage
    verdict: Literal["admitted"] = field(default="admitted")


@dataclass(frozen=True, kw_only=True, slots=True)
class Rejection(Record):
    """Why a region was not admitted: the check, and where it failed. Document and position are null when the fault is
    of a whole file. `receipt_sha256` is of the receipt as it was found, empty where there was none."""

    SCHEMA: ClassVar[str] = "casebits/rejection/2"

    generation: Name
    region: RegionName
    receipt_sha256: str
    check: Text
    where: Text
    problem: str
    document: int | None
    position: int | None
