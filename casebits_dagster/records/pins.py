"""Pins: the TOML files under `assets/pins/` that say *what* is built. Written once, never edited.

`load_generation` resolves one generation with everything it pins, and recomputes every hash it names, so a pin that was
edited is refused before any work starts. A pins folder has `generations/`, `filters/`, `codecs/<name>/`, `mixes/`,
`sources/`.
"""

from __future__ import annotations

import os
import re
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Literal

from casebits_dagster.records.canonical import Json, canonical
from casebits_dagster.records.codec import CodecFiles
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.errors import Absent, CasebitsError, RecordError
from casebits_dagster.records.plan import PlanPin, RegionCuts, RegionSpec, Unit
from casebits_dagster.records.policy import FilterPolicy
from casebits_dagster.records.record import Name, Positive, Record, RelativePath, Revision, Sha256, Text, pin_place
from casebits_dagster.records.region import FilterPin, Pins, SplitPin
from casebits_dagster.records.vocabulary import GPT2_FILES, GPT2_SEPARATOR, gpt2_file, require_file, vocabulary_file

TOKEN_FORMATS = ("parquet_tokens", "climbmix_jsonl", "flat_u16")
# A source that is known is read at the one revision that was looked at (the Hub does not tell cases of a name apart); a
# name that is provenance only, never.
PINNED_REVISIONS = {"nvidia/nemotron-climbmix": "5eaa64b9c0c85b7f56af01d7dffdb0795816b12b"}
HISTORICAL = "small-llm-corpus-100b-v2"
_HUB_NAME = r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?"
_HUB_REPO = re.compile(rf"(?=.{{1,96}}$)(?!.*(--|\.\.|\.git$)){_HUB_NAME}/{_HUB_NAME}")


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceFile(Record):
    """A file of the source. `sha256` may be left to what the source publishes; regions of rows need `rows`."""

    path: RelativePath
    bytes: Positive
    sha256: Sha256 | None = None
    rows: Positive | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class FileTable(Record):
    """A table of the source's files beside the pins: lines `path<TAB>bytes`."""

    path: RelativePath
    sha256: Sha256


@dataclass(frozen=True, kw_only=True, slots=True)
class SourcePin(Record):
    """Where the documents come from: a `folder` (`location`, relative to the pins folder when not absolute) or a
    `dataset` of the Hub. `separator_at` belongs to `flat_u16` alone; ids are GPT-2's unless `vocabulary` names a plain
    codec that spells them."""

    repo: Text
    repo_type: Literal["folder", "dataset"]
    location: Text | None = None
    format: Literal["parquet_tokens", "parquet_text", "climbmix_jsonl", "jsonl_text", "flat_u16"]
    separator_at: Literal["start", "end"] | None = None
    vocabulary: Name | None = None
    revision: Revision
    licence_spdx: Text
    title: Text
    url: Text
    changes: Text
    files: tuple[SourceFile, ...] = ()
    file_table: FileTable | None = None

    def unit(self, path: str) -> Unit:
        """Return what a region of the file is cut in: rows where bytes cannot be entered in the middle."""
        packed = path.endswith((".gz", ".zst"))
        return "rows" if self.format in ("parquet_tokens", "parquet_text") or packed else "bytes"

    def expected_revision(self) -> str:
        """Return the revision of a folder: the first 40 hex digits of the SHA-256 over its canonical file table."""
        return sha256(canonical([file.to_dict() for file in self.files]))[:40]


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerationPin(Record):
    """Regions are spelled out (`regions`) or computed (`plan`): one of the two."""

    generation: Name
    description: Text
    filter: FilterPin
    codec: Name
    source: SourcePin
    split: SplitPin
    regions: tuple[RegionCuts, ...] = ()
    plan: PlanPin | None = None


@dataclass(frozen=True, slots=True)
class SourceVocabulary:
    """What spells the ids of a source of tokens: a vocabulary file, the separator's id, and the file's hash."""

    path: Path
    separator: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Source:
    """A pinned source with all that its pin names: its folder (when it is one), and all its files."""

    pin: SourcePin
    pins_folder: Path
    files: tuple[SourceFile, ...]

    @property
    def folder(self) -> Path:
        return (self.pins_folder / (self.pin.location or "")).absolute()

    def at(self, folder: Path, *files: SourceFile) -> Source:
        """Return the source as another folder has it: a copy, or (with `files`) another one of its form."""
        pin = replace(self.pin, repo_type="folder", location=".", files=files or self.files, file_table=None)
        return Source(pin, folder, files or self.files)

    def file(self, path: str) -> SourceFile:
        return next(file for file in self.files if file.path == path)

    def vocabulary(self) -> SourceVocabulary:
        """Return what spells the ids of the source: GPT-2's table, or the plain codec that the pin names."""
        if self.pin.vocabulary is None:
            return SourceVocabulary(gpt2_file("encoder.json"), GPT2_SEPARATOR, GPT2_FILES["encoder.json"])
        folder = self.pins_folder / "codecs" / self.pin.vocabulary
        codec = load_codec(folder)
        if codec.separator is None:
            raise RecordError("PIN_INVALID", str(folder), expected="a plain codec", read=codec.format)
        path = vocabulary_file(folder, codec.vocabulary_sha256)
        return SourceVocabulary(path, codec.separator.id, codec.vocabulary_sha256)


@dataclass(frozen=True, slots=True)
class Generation:
    """A generation with all that it pins, every hash checked.

    `missing` is what keeps it from running: a vocabulary that has to be supplied first. It can be shown and planned all
    the same; whoever asks for the vocabulary is told.
    """

    pin: GenerationPin
    policy: FilterPolicy
    pins: Pins
    codec_folder: Path
    source: Source
    plan: tuple[RegionSpec, ...]
    missing: CasebitsError | None = None

    @property
    def name(self) -> str:
        return self.pin.generation

    @property
    def plan_sha256(self) -> str:
        rows: list[Json] = [list(astuple(region)) for region in self.plan]
        return sha256(canonical(rows))

    @property
    def vocabulary(self) -> Path:
        """The vocabulary file. Raises Absent or CasebitsError (PIN_HASH) while the pinned file is not there."""
        self.require_runnable()
        return vocabulary_file(self.codec_folder, self.pins.codec.vocab_sha256)

    @property
    def mixture(self) -> Path | None:
        """The mixture file; None where the codec pins none."""
        self.require_runnable()
        return self.codec_folder / CodecFiles.MIXTURE if self.pins.codec.mixture_sha256 else None

    @property
    def policy_file(self) -> Path:
        """The pin file of the policy."""
        return self.codec_folder.parents[1] / "filters" / f"{self.policy.policy_id}.toml"

    @property
    def weights(self) -> Path | None:
        """The file of token weights that the policy pins; None where it pins none."""
        return self.policy_file.parent / self.policy.weights.path if self.policy.weights else None

    @property
    def keeps_ids(self) -> bool:
        """Whether the codec's ids are the source's own."""
        tokens = self.source.pin.format in TOKEN_FORMATS and self.pins.codec.format == "plain-1"
        return tokens and self.source.vocabulary().sha256 == self.pins.codec.vocab_sha256

    def require_runnable(self) -> None:
        """Raise what keeps the generation from running."""
        if self.missing is not None:
            raise self.missing


def default_pins_folder() -> Path:
    """Return the folder that `$CASEBITS_PINS` names, else `assets/pins` of the checkout. Raises Absent without one."""
    if named := os.environ.get("CASEBITS_PINS"):
        return Path(named).absolute()
    folder = Path(__file__).resolve().parents[2] / "assets" / "pins"
    if not folder.is_dir():
        remedy = "clone the project and install it with `pip install -e .`, or name a pins folder with --pins"
        raise Absent("PIN_MISSING", "assets/pins", "this installation has no pins", remedy=remedy)
    return folder


def generation_names(pins_folder: Path) -> list[str]:
    """Return the names of the declared generations, sorted."""
    folder = pins_folder / "generations"
    if not folder.is_dir():
        raise Absent("PIN_MISSING", str(folder), "there is no such folder of pins")
    return sorted(path.stem for path in folder.glob("*.toml"))


def load_generation(pins_folder: Path, name: str) -> Generation:
    """Return the generation, or raise Absent or RecordError naming the pin that is missing or does not fit."""
    path = pins_folder / "generations" / f"{name}.toml"
    pin = GenerationPin.from_toml(path)
    _require_equal(path, "generation", path.stem, pin.generation)
    source = load_source(pins_folder, pin.source, str(path))
    policy_path = pins_folder / "filters" / f"{pin.filter.policy_id}.toml"
    policy = FilterPolicy.from_toml(policy_path)
    _require_equal(policy_path, "policy_id", policy_path.stem, policy.policy_id)
    policy.check(str(policy_path))
    if (made := sha256(policy.to_bytes())) != pin.filter.sha256:
        remedy = "write the computed hash into a new generation; a pin that was used is never edited"
        problem = f"the policy in {policy_path} has another hash (over its canonical form)"
        raise _invalid(path, "filter.sha256", problem, expected=made, read=pin.filter.sha256, remedy=remedy)
    if policy.weights:
        require_file(policy_path.parent / policy.weights.path, policy.weights.sha256)
    codec, missing = _codec(pins_folder / "codecs" / pin.codec)
    generation = Generation(
        pin=pin,
        policy=policy,
        pins=Pins(filter=pin.filter, codec=codec.pin, split=pin.split),
        codec_folder=pins_folder / "codecs" / pin.codec,
        source=source,
        plan=_plan(pin, {file.path: file for file in source.files}, path),
        missing=missing,
    )
    _require_fitting(generation, path)
    return generation


def _require_fitting(generation: Generation, path: Path) -> None:
    """Refuse pins that exclude each other: what spells the source's ids, what weighs them, what encodes the text."""
    gpt2, source = GPT2_FILES["encoder.json"], generation.source
    if source.pin.vocabulary:
        try:
            spelled = source.vocabulary().sha256
        except CasebitsError as error:
            raise _invalid(path, "source.vocabulary", str(error)) from error
        if generation.policy.weights and spelled != gpt2:
            problem = f"the token weights of {generation.policy.policy_id} are for GPT-2's ids"
            raise _invalid(path, "source.vocabulary", problem, read=source.pin.vocabulary)
    if generation.pins.codec.vocab_sha256 == gpt2 and not generation.keeps_ids:
        problem = f"{generation.pin.codec} spells ids and cannot encode text: the source must have its ids"
        raise _invalid(path, "codec", problem)


def load_codec(folder: Path) -> CodecFiles:
    """Return a codec pin after hashing its files. Raises Absent or CasebitsError while a pinned file is not there."""
    codec, missing = _codec(folder)
    if missing is not None:
        raise missing
    return codec


def _codec(folder: Path) -> tuple[CodecFiles, CasebitsError | None]:
    """Return a codec pin, and what is missing of its files."""
    path = folder / "codec.toml"
    codec = CodecFiles.from_toml(path)
    _require_equal(path, "codec", folder.name, codec.codec)
    plain = codec.format == "plain-1"
    if plain != (codec.separator is not None) or (plain and codec.mixture_sha256):
        raise _invalid(path, "format", "plain-1 names a separator and no mixture, casebits-1 no separator")
    try:
        require_file(vocabulary_file(folder, codec.vocabulary_sha256), codec.vocabulary_sha256)
        if codec.mixture_sha256:
            require_file(folder / codec.MIXTURE, codec.mixture_sha256)
    except CasebitsError as error:
        return codec, error
    return codec, None


def load_source(pins_folder: Path, source: SourcePin, where: str) -> Source:
    """Return a source with its files, after checking what a source may be; `where` is the path of its pin."""
    path = Path(where)
    _require_known(source, path)
    _require_source(source, path)
    files = _listed(pins_folder, source.file_table) if source.file_table else source.files
    for number, file in enumerate(files):
        if file.path in (earlier.path for earlier in files[:number]):
            field = "file_table" if source.file_table else f"files[{number}].path"
            raise _invalid(path, f"source.{field}", f"{file.path} stands twice")
    return Source(source, pins_folder, files)


def _listed(pins_folder: Path, table: FileTable) -> tuple[SourceFile, ...]:
    path = pins_folder / table.path
    require_file(path, table.sha256)
    files = []
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="backslashreplace").splitlines(), 1):
        name, _, size = line.partition("\t")
        if not re.fullmatch("[0-9]{1,15}", size):
            expected = "a path, a tab and a number of bytes"
            raise RecordError("PIN_INVALID", f"{path}: line {number}", expected=expected, read=repr(line))
        files.append(SourceFile.from_dict({"path": name, "bytes": int(size)}, f"{path}: line {number}: file"))
    return tuple(files)


def _require_known(source: SourcePin, path: Path) -> None:
    read = f"{source.repo}@{source.revision}"
    if HISTORICAL in f"{source.repo} {source.location}".lower():
        problem = f"{HISTORICAL} is provenance only: it is never read"
        raise RecordError(
            "REVISION_NOT_PINNED", pin_place(path, "source.repo"), problem, remedy="name the source itself"
        )
    pinned = PINNED_REVISIONS.get(source.repo.lower(), source.revision)
    if pinned != source.revision:
        remedy = "a source that is known is read at its one pinned revision"
        place = pin_place(path, "source.revision")
        raise RecordError("REVISION_NOT_PINNED", place, expected=f"{source.repo}@{pinned}", read=read, remedy=remedy)


def _require_source(source: SourcePin, path: Path) -> None:
    folder, flat = source.repo_type == "folder", source.format == "flat_u16"
    if folder != (source.location is not None):
        raise _invalid(path, "source.location", "a folder, and no other source, names it")
    if not folder and not _HUB_REPO.fullmatch(source.repo):
        raise _invalid(path, "source.repo", expected="owner/name of a dataset", read=source.repo)
    if bool(source.files) == (source.file_table is not None):
        raise _invalid(path, "source.files", "name the files here or in a file_table: one of the two")
    if flat != (source.separator_at is not None):
        raise _invalid(path, "source.separator_at", "flat_u16, and no other format, names it")
    if source.vocabulary and source.format not in TOKEN_FORMATS:
        raise _invalid(path, "source.vocabulary", f"{source.format} has text, no ids")
    if folder:
        _require_equal(path, "source.revision", source.expected_revision(), source.revision)
        for number, file in enumerate(source.files):
            if file.sha256 is None:
                raise _invalid(path, f"source.files[{number}]", "a file of a folder is pinned by its sha256")


def _plan(pin: GenerationPin, files: dict[str, SourceFile], path: Path) -> tuple[RegionSpec, ...]:
    if not 0 <= pin.split.share < 1:
        raise _invalid(path, "split.share", expected="0 or more, below 1", read=pin.split.share)
    if (pin.plan is None) == (not pin.regions):
        raise _invalid(path, "plan", "regions are spelled out or computed: one of the two")
    return _computed(pin, pin.plan, files, path) if pin.plan else _spelled_out(pin, files, path)


def _computed(pin: GenerationPin, plan: PlanPin, files: dict[str, SourceFile], path: Path) -> tuple[RegionSpec, ...]:
    if rows := [name for name in files if pin.source.unit(name) == "rows"]:
        raise _invalid(path, "plan", expected="files that are cut in bytes", read=rows[0])
    if pin.source.format == "flat_u16" and plan.region_bytes % 2:
        raise _invalid(path, "plan.region_bytes", expected="even bytes", read=plan.region_bytes)
    ranges = plan.ranges(pin.source.revision, {name: file.bytes for name, file in files.items()})
    selected = tuple(ranges[: plan.selected])
    _require_equal(path, "plan.regions", len(ranges), plan.regions)
    _require_equal(path, "plan.selected", len(selected), plan.selected)
    size = sum(region.end - region.begin for region in selected)
    _require_equal(path, "plan.selected_bytes", size, plan.selected_bytes)
    return selected


def _spelled_out(pin: GenerationPin, files: dict[str, SourceFile], path: Path) -> tuple[RegionSpec, ...]:
    plan: list[RegionSpec] = []
    for number, part in enumerate(pin.regions):
        field = f"regions[{number}]"
        if part.path in (earlier.path for earlier in pin.regions[:number]):
            raise _invalid(path, f"{field}.path", f"{part.path} stands twice: its regions could overlap")
        if part.path not in files:
            raise _invalid(path, f"{field}.path", expected=sorted(files), read=part.path)
        file, unit = files[part.path], pin.source.unit(part.path)
        size = file.bytes if unit == "bytes" else file.rows
        if size is None:
            raise _invalid(path, f"{field}.path", f"{part.path} is cut in rows: state its rows in source.files")
        pairs = list(zip(part.cuts, part.cuts[1:], strict=False))
        if not pairs or any(begin >= end for begin, end in pairs) or part.cuts[-1] > size:
            raise _invalid(path, f"{field}.cuts", expected=f"rising cuts up to {size} {unit}", read=list(part.cuts))
        if pin.source.format == "flat_u16" and any(cut % 2 for cut in part.cuts):
            raise _invalid(path, f"{field}.cuts", expected="even bytes", read=list(part.cuts))
        plan += [RegionSpec(len(plan) + k, part.path, unit, *pair) for k, pair in enumerate(pairs)]
    return tuple(plan)


def _invalid(
    path: Path, field: str, problem: str = "", *, expected: object = None, read: object = None, remedy: str = ""
) -> RecordError:
    """Return the error of a pin file, with the line of the field."""
    place = pin_place(path, field)
    return RecordError("PIN_INVALID", place, problem, expected=expected, read=read, remedy=remedy)


def _require_equal(path: Path, field: str, expected: object, read: object) -> None:
    if expected != read:
        remedy = "pins are written once: declare a change as a new file"
        raise _invalid(path, field, expected=expected, read=read, remedy=remedy)
