"""Where everything lies under one root (`$CASEBITS_HOME`, default `.casebits/`): the only place that spells paths."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

EOD_ID = 0
IDS = "casebits_mixture.ids.u16le"
CASES = "casebits_mixture.case.u16le"
OFFSETS = "casebits_mixture.offsets.u64le"
RAW_BYTES = "raw_bytes.u64le"
DOCUMENTS = "documents.jsonl"
RECEIPT = "receipt.json"
ADMISSION = "admission.json"
LATEST = "LATEST.json"


@dataclass(frozen=True, slots=True)
class ArrayNames:
    """The array files of a region, by what is in them. A plain codec has no case masks."""

    ids: str
    cases: str | None
    offsets: str
    raw_bytes: str = RAW_BYTES

    @property
    def dtypes(self) -> dict[str, Literal["<u2", "<u8"]]:
        """The files' names with their dtypes, in the order ids, masks, offsets, text sizes."""
        masks: dict[str, Literal["<u2", "<u8"]] = {self.cases: "<u2"} if self.cases else {}
        return {self.ids: "<u2", **masks, self.offsets: "<u8", self.raw_bytes: "<u8"}


ARRAY_NAMES = {
    "casebits-1": ArrayNames(IDS, CASES, OFFSETS),
    "plain-1": ArrayNames("plain.ids.u16le", None, "plain.offsets.u64le"),
}


def region_id(index: int) -> str:
    """Return the id of a region: its index in the plan, five digits; also its partition key."""
    return f"{index:05d}"


def home_from_environment() -> Path:
    """Return the root that `$CASEBITS_HOME` names, default `.casebits` in the current folder."""
    return Path(os.environ.get("CASEBITS_HOME") or ".casebits").absolute()


def shared_from_environment() -> str:
    """Return the URL of the shared store that `$CASEBITS_STORE` names; empty when there is none."""
    return os.environ.get("CASEBITS_STORE", "")


@dataclass(frozen=True, slots=True)
class GenerationFolder:
    """The folders of one generation. Nothing here touches the disk."""

    root: Path

    def name(self, path: Path) -> str:
        """Return a path below this root as a store names it."""
        return path.relative_to(self.root).as_posix()

    @property
    def codec(self) -> Path:
        return self.root / "codec"

    def verdicts(self, index: int) -> Path:
        return self.root / "verdicts" / f"{region_id(index)}.parquet"

    def kept_text(self, index: int) -> Path:
        return self.root / "verdicts" / f"{region_id(index)}.kept.arrow"

    def region(self, index: int) -> Path:
        return self.root / "regions" / region_id(index)

    def index(self, index: int) -> Path:
        return self.root / "index" / f"{region_id(index)}.npy"

    def runs(self, index: int) -> Path:
        return self.root / "runs" / region_id(index)

    def rejections(self, index: int) -> Path:
        return self.root / "rejections" / region_id(index)

    def set_aside(self, index: int) -> Path:
        return self.rejections(index) / "files"

    @property
    def manifests(self) -> Path:
        return self.root / "frontier" / "manifests"

    def manifest(self, version: int) -> Path:
        return self.manifests / f"{version:08d}.json"

    def gates(self, version: int, digest: str) -> Path:
        """Gates open and close while a version stands, so their file is named by what is in it, too."""
        return self.root / "gates" / f"{version:08d}.{digest[:16]}.json"

    def evidence(self, name: str, digest: str) -> Path:
        return self.root / "gates" / "evidence" / f"{name}.{digest[:16]}.json"

    def stratification(self, version: int) -> Path:
        return self.root / "stratification" / f"{version:08d}.json"

    @property
    def latest(self) -> Path:
        return self.root / LATEST


@dataclass(frozen=True, slots=True)
class Home:
    """One root with generations, mixes, staging and (below `dagster/`) the orchestrator's own instance.

    `shared` is the URL of the object store that several machines publish to (`$CASEBITS_STORE`); the root is then this
    machine's cache of it. Empty: the root is all there is.
    """

    root: Path
    shared: str = ""

    def name(self, path: Path) -> str:
        """Return a path below this root as a store names it."""
        return path.relative_to(self.root).as_posix()

    def generation(self, name: str) -> GenerationFolder:
        return GenerationFolder(self.root / "generations" / name)

    def mix(self, name: str) -> Path:
        return self.root / "mixes" / name

    def checked(self, mix: str) -> Path:
        """What the verifier proved of the mix as it was when it looked last."""
        return self.root / "checked" / f"{mix}.json"

    def unfinished(self, mix: str) -> Path:
        """What a build that did not end leaves to the next one of the same plan."""
        return self.root / ".unfinished" / mix

    @property
    def staging(self) -> Path:
        return self.root / ".staging"

    @property
    def dagster(self) -> Path:
        return self.root / "dagster"
