"""The records and file names of a mix: what its folder holds and what `mix_report.json` says.

Tables are numpy structured arrays in `.npy`; their fields are spelled here, without numpy, for writer and verifier.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar, Literal, TypeAlias

from casebits_dagster.records.recipe import Recipe
from casebits_dagster.records.record import Count, Name, Positive, Record, Sha256, Text
from casebits_dagster.records.withdrawal import LeftOut

SEGMENTS = "segments.npy"
TABLE = "documents.npy"
REPORT = "mix_report.json"
SELECTED = "selected.npz"
RECIPE = "recipe.json"
README = "README.md"
MANIFEST = "MANIFEST.txt"
MANIFEST_HEAD = "# casebits-mix-manifest/1"
TRAIN, VALIDATION = "train", "val"
Order: TypeAlias = Literal["shuffled", "stratified"]
CodecFormat: TypeAlias = Literal["casebits-1", "plain-1"]
STREAMS = {"ids": "ids.u16le", "cases": "case.u16le"}
NEXT = {stream: f"next.{suffix}" for stream, suffix in STREAMS.items()}
SHARD_SUFFIXES = {"casebits-1": STREAMS, "plain-1": {"ids": "bin"}}
NEXT_NAMES = {"casebits-1": NEXT, "plain-1": {"ids": "next.u16le"}}
"""What a mix of a codec writes, by stream: a plain codec has ids alone."""

KINDS = ("whole", "chunk", "tail", "floated_tail", "cut")
SEGMENT_FIELDS = [
    ("window", "<u4"),
    ("position", "<u4"),
    ("document", "<u4"),
    ("document_start", "<u4"),
    ("length", "<u4"),
    ("kind", "<u2"),
    ("inserted", "<u2"),
]
"""One run of one document inside one window; `document` is a row of `documents.npy`. The first `inserted` (0 or 1)
tokens of the run are inserted separators, the others are document tokens from `document_start` on. Rows of the window
number W describe what a concatenated file holds after its last full window."""

DOCUMENT_FIELDS = [
    ("id", "V16"),
    ("region", "<u4"),
    ("index", "<u4"),
    ("tokens", "<u4"),
    ("generation", "<u2"),
    ("domain", "<u2"),
    ("bucket", "<u2"),
    ("copy", "<u2"),
]
"""One used document (or one epoch's copy of it), in order of generation, region, index, copy; `tokens` with its one
separator; `generation` counts the report's sources, `domain` and `bucket` its margins."""


def shard_name(split: str, shard: int, stream: str, codec: CodecFormat = "casebits-1") -> str:
    """Return the name of one stream of a shard: `train_000000.ids.u16le`, or `train_000000.bin` of a plain codec."""
    return f"{split}_{shard:06d}.{SHARD_SUFFIXES[codec][stream]}"


def val_name(name: str) -> str:
    """Return the validation split's name of a table."""
    return f"{VALIDATION}_{name}"


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceUsed(Record):
    """The frontier a mix was made from, as pinned by its manifest."""

    generation: Name
    manifest_version: Positive
    manifest_sha256: Sha256
    vocabulary_sha256: Sha256
    licences: tuple[Text, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class MixUsed(Record):
    """An earlier mix that this one depends on, by the hash of its MANIFEST.txt."""

    mix: Name
    role: Literal["documents_of", "exclude", "from_mix"]
    manifest_sha256: Sha256


@dataclass(frozen=True, kw_only=True, slots=True)
class Separator(Record):
    id: Count
    position: Literal["end", "start"]


@dataclass(frozen=True, kw_only=True, slots=True)
class CellReport(Record):
    """Supply counts every epoch; `selected` is before packing, `achieved` what the mix holds, in whole documents."""

    domain: Name
    lengths: Text
    supply_documents: Count
    supply_tokens: Count
    target_tokens: Count
    selected_tokens: Count
    achieved_tokens: Count
    achieved_documents: Count
    error_tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class MarginReport(Record):
    """A domain or a length bucket: sums of its cells."""

    name: Text
    asked_share: Decimal
    supply_tokens: Count
    target_tokens: Count
    achieved_tokens: Count
    achieved_share: Decimal
    error_tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SelectionReport(Record):
    """`outcome` says in words and numbers whether supply met the targets, and what the recipe's policy did if not.

    Left out of the supply: documents of excluded mixes, texts that stand elsewhere, and documents that leave less room
    at the end of their last window than the shortest document needs (`unfit`).
    """

    asked_tokens: Positive
    target_tokens: Positive
    feasible: bool
    outcome: Text
    sweeps: Count
    excluded_documents: Count
    duplicate_documents: Count
    unfit_documents: Count
    cells: tuple[CellReport, ...]
    domains: tuple[MarginReport, ...]
    lengths: tuple[MarginReport, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Conservation(Record):
    """selected + inserted = window + cut + returned + rest, in tokens."""

    selected_tokens: Count
    inserted_separators: Count
    window_tokens: Count
    cut_tokens: Count
    returned_tokens: Count
    rest_tokens: Count

    @property
    def holds(self) -> bool:
        used = self.window_tokens + self.cut_tokens + self.returned_tokens + self.rest_tokens
        return self.selected_tokens + self.inserted_separators == used


@dataclass(frozen=True, kw_only=True, slots=True)
class Tails(Record):
    """Tails of documents longer than a window: at the start of theirs, or placed like short ones (aligned only)."""

    total: Count
    at_start: Count
    floated: Count


@dataclass(frozen=True, kw_only=True, slots=True)
class CutDocument(Record):
    """A document (row of `documents.npy`) whose last `lost_tokens` are in no window."""

    document: Count
    lost_tokens: Positive


@dataclass(frozen=True, kw_only=True, slots=True)
class ReturnedDocument(Record):
    """A document that was selected and is not in the mix, whole, because it did not fill a window."""

    id: Text
    generation: Name
    region: Count
    index: Count
    tokens: Positive


@dataclass(frozen=True, kw_only=True, slots=True)
class ContextRow(Record):
    """How many positions see a token of their own document `distance` back: the count, its share of all window tokens,
    and the most that any layout of the same documents into windows could reach.

    Of aligned mixes also what a concatenation of the same documents has on average over where it begins to cut, as a
    share of their tokens."""

    LEFT_OUT: ClassVar[frozenset[str]] = frozenset({"concatenated_tokens", "concatenated_share"})

    distance: Count
    tokens: Count
    share: Decimal
    bound_tokens: Count
    bound_share: Decimal
    concatenated_tokens: Count | None = None
    concatenated_share: Decimal | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class DomainsInWindows(Record):
    """Windows that hold tokens of exactly `domains` domains."""

    domains: Positive
    windows: Positive


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowDomains(Record):
    """Domains per window; `mixed` windows hold more than one document, `one_sided` of them > 95 % of one domain."""

    domains: tuple[DomainsInWindows, ...]
    mixed_windows: Count
    one_sided_windows: Count


@dataclass(frozen=True, kw_only=True, slots=True)
class BigramReference(Record):
    """The entropy of a token given the one before it, estimated from `runs` sampled runs of `run_tokens` neighbours
    inside windows: `low_nats` is too low, as most pairs are seen once, `high_nats` corrects that too far."""

    runs: Positive
    run_tokens: Positive
    low_nats: Decimal
    high_nats: Decimal


@dataclass(frozen=True, kw_only=True, slots=True)
class LossReference(Record):
    """Nats a token. A run that settles near `unigram_nats` has learned token frequencies only; one that knows what one
    token tells of the next lies between the ends of `bigram` (absent in older reports)."""

    LEFT_OUT: ClassVar[frozenset[str]] = frozenset({"bigram"})

    vocabulary_size: Positive
    uniform_nats: Decimal
    unigram_nats: Decimal
    bigram: BigramReference | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitFiles(Record):
    """The shards of one split: `file_tokens` counts the extra token after the last window (and the rest), once."""

    windows: Count
    shards: Count
    documents: Count
    segments: Count
    file_tokens: Count


@dataclass(frozen=True, kw_only=True, slots=True)
class OrderReport(Record):
    """How far a step of `windows_per_step` windows, or all windows up to any one, may be from the mix's share of a
    domain: the largest difference in tokens, over all domains; a last step that is not full is left out."""

    order: Order
    step_tokens: Count
    prefix_tokens: Count


@dataclass(frozen=True, kw_only=True, slots=True)
class MixReport(Record):
    """`format` is written for a plain codec alone; `orders` when the recipe has steps: that of the mix, and then
    that of the same windows in the other order; `withdrawn` when a document was left out for that."""

    SCHEMA: ClassVar[str] = "casebits/mix/1"
    LEFT_OUT: ClassVar[frozenset[str]] = frozenset({"format", "orders", "withdrawn"})

    recipe: Recipe
    recipe_sha256: Sha256
    sources: tuple[SourceUsed, ...]
    mixes: tuple[MixUsed, ...]
    licences: tuple[Text, ...]
    separator: Separator
    selection: SelectionReport
    train: SplitFiles
    validation: SplitFiles
    conservation: Conservation
    tails: Tails | None
    cut: tuple[CutDocument, ...]
    returned: tuple[ReturnedDocument, ...]
    context: tuple[ContextRow, ...]
    window_domains: WindowDomains
    loss_reference: LossReference
    format: Literal["plain-1"] | None = None
    orders: tuple[OrderReport, ...] | None = None
    withdrawn: LeftOut | None = None

    @property
    def codec(self) -> CodecFormat:
        return self.format or "casebits-1"
