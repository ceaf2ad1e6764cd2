"""The verifier's own reading of a mix: pinned manifests, regions that match their hashes, and what a split names."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.mixing.verify_classes import CLASSES, case_classes
from casebits_dagster.records.canonical import parse
from casebits_dagster.records.digests import sha256, sha256_file
from casebits_dagster.records.errors import RecordError, Refused
from casebits_dagster.records.frontier import Manifest
from casebits_dagster.records.layout import ADMISSION, ARRAY_NAMES, DOCUMENTS, EOD_ID, RECEIPT, Home
from casebits_dagster.records.mix import SHARD_SUFFIXES, TRAIN, CodecFormat, MixReport, SourceUsed, SplitFiles, val_name
from casebits_dagster.records.recipe import Slice
from casebits_dagster.records.record import micro
from casebits_dagster.records.region import Pins, Receipt, Separator, SplitPin

Table = NDArray[Any]
INDEXED = 1 << 18


@dataclass(frozen=True, slots=True)
class AdmittedRegion:
    """One region as its manifest entry has it: token streams by name (none where only its documents were asked for),
    cuts, and its documents' ids, clusters (-1: none), scores in millionths by metric, and case classes.

    Scores and classes are those that the recipe asks for."""

    generation: str
    streams: dict[str, NDArray[np.uint16]]
    offsets: NDArray[np.int64]
    document_ids: NDArray[np.void]
    clusters: NDArray[np.int64]
    scores: dict[str, NDArray[np.int64]]
    classes: NDArray[np.int64] | None
    split: SplitPin

    def inside(self, part: Slice) -> NDArray[np.bool_]:
        """Return which documents meet every condition of a slice."""
        tokens, found = np.diff(self.offsets), np.full(len(self.document_ids), part.generation == self.generation)
        if part.generation != self.generation:
            return found
        ranges = [(tokens, part.token_range), *((self.scores[name], held) for name, held in part.score_ranges.items())]
        for values, held in ranges:
            found &= (values >= held.start) & (values < held.stop)
        if part.clusters:
            found &= np.isin(self.clusters, part.clusters)
        if part.case_classes is not None and self.classes is not None:
            found &= np.isin(self.classes, [CLASSES.index(name) for name in part.case_classes])
        return found

    def validation(self, documents: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of these documents the split puts on the validation side."""
        salt, threshold = self.split.salt.encode() + b"\0", self.split.threshold
        digests = [hashlib.sha256(salt + bytes(name)).digest()[:8] for name in self.document_ids[documents]]
        return np.array([int.from_bytes(digest, "big") < threshold for digest in digests], bool)


class PinnedFrontier:
    """One source of a mix. A region is verified when it is first used, and must have the mix's codec and separator."""

    def __init__(self, report: MixReport, source: SourceUsed, home: Home) -> None:
        self.name, self.folder = source.generation, home.generation(source.generation)
        self.codec, self.vocabulary_sha256 = report.codec, source.vocabulary_sha256
        self.separator = Separator(id=report.separator.id, at=report.separator.position)
        path = self.folder.manifest(source.manifest_version)
        if not path.exists():
            raise Refused("MANIFEST_MISSING", str(path), "the mix pins a frontier that is not here")
        raw = path.read_bytes()
        if sha256(raw) != source.manifest_sha256:
            raise Refused("MANIFEST_HASH", str(path), expected=source.manifest_sha256, read=sha256(raw))
        self.manifest = Manifest.parse(raw, str(path))
        if self.manifest.generation != source.generation:
            raise Refused("GENERATION_MISMATCH", str(path), expected=source.generation, read=self.manifest.generation)
        self._regions: dict[int, AdmittedRegion] = {}
        asked = [part for part in report.recipe.slices if part.generation == self.name]
        self._metrics = sorted({metric for part in asked for metric in part.scores or ()})
        self._classed = any(part.case_classes is not None for part in asked)

    def region(self, index: int) -> AdmittedRegion:
        if index not in self._regions:
            self._regions[index] = self._open(index)
        return self._regions[index]

    def documents_of(self, index: int) -> AdmittedRegion:
        """Return a region for what it says of its documents: without its streams, unless it was opened for them."""
        return self._regions.get(index) or self._open(index, streams=self._classed)

    def _open(self, index: int, *, streams: bool = True) -> AdmittedRegion:
        if index >= len(self.manifest.regions):
            count = len(self.manifest.regions)
            where = f"{self.name}: region {index:05d}"
            raise Refused("REGION_MISSING", where, expected=f"one of {count} admitted regions", read=index)
        entry = self.manifest.regions[index]
        folder = self.folder.root / entry.path
        hashes = {file.name: (file.bytes, file.sha256) for file in entry.files}
        names = ARRAY_NAMES[self.codec]
        arrays = {"ids": names.ids} | ({"cases": names.cases} if names.cases else {}) if streams else {}
        # All of them, the admission too: what is not admitted does not exist for a mix.
        listed = {*arrays.values(), names.offsets, DOCUMENTS, RECEIPT, ADMISSION}
        for name in sorted(listed | ({*hashes} if streams else set())):
            if name not in hashes:
                raise Refused("FILE_MISSING", f"{entry.path}/{name}", "is not in the manifest")
            require_file(folder / name, *hashes[name])
        where = f"{self.name} {index:05d}/{DOCUMENTS}"
        lines: list[Any] = [parse(line, where) for line in (folder / DOCUMENTS).read_bytes().splitlines(keepends=True)]
        pins = self._pins(folder / RECEIPT, f"{self.name} {index:05d}/{RECEIPT}")
        held = {stream: read_array(folder / name, "<u2") for stream, name in arrays.items()}
        offsets = read_array(folder / names.offsets, "<u8").astype(np.int64)
        return AdmittedRegion(
            generation=self.name,
            streams=held,
            offsets=offsets,
            document_ids=np.frombuffer(bytes.fromhex("".join(line["id"] for line in lines)), "V16"),
            clusters=np.array([-1 if line["cluster"] is None else line["cluster"] for line in lines], np.int64),
            scores={name: _scores(lines, name, where) for name in self._metrics},
            classes=case_classes(pins.codec, self.folder.codec, held, offsets) if self._classed else None,
            split=pins.split,
        )

    def _pins(self, path: Path, where: str) -> Pins:
        """Return the pins of a region whose codec is that of the mix."""
        pins = Receipt.parse(path.read_bytes(), where).pins
        codec = pins.codec
        read = codec.format, codec.separator or Separator(id=EOD_ID, at="end"), codec.vocab_sha256
        expected = self.codec, self.separator, self.vocabulary_sha256
        if read != expected:
            raise Refused("CODEC_PIN", f"{where}: pins.codec", expected=expected, read=read)
        return pins


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """One split of a mix: what the report says of its files, its two tables, and the frontiers that these name."""

    name: str
    files: SplitFiles
    length: int
    per_shard: int
    separator: int
    codec: CodecFormat
    rows: Table
    documents: Table
    frontiers: list[PinnedFrontier]

    @property
    def streams(self) -> Iterable[str]:
        return SHARD_SUFFIXES[self.codec]

    @property
    def shards(self) -> int:
        return -(-self.files.windows // self.per_shard)

    def file(self, table: str) -> str:
        """Return the file name of a table of this split."""
        return table if self.name == TRAIN else val_name(table)

    def by_region(self, documents: Table) -> Iterator[tuple[AdmittedRegion, NDArray[np.int64]]]:
        """Yield each region that these documents name, and where in `documents` those that lie in it stand."""
        keys = documents["generation"].astype(np.int64) << 32 | documents["region"]
        regions, group = np.unique(keys, return_inverse=True)
        members = np.split(np.argsort(group, kind="stable"), np.cumsum(np.bincount(group))[:-1])
        for key, places in zip(regions.tolist(), members, strict=False):
            yield self.frontiers[key >> 32].region(key & 0xFFFFFFFF), places

    @property
    def begins(self) -> Table:
        """Return where each run begins in the split's file."""
        return np.asarray(self.rows["window"].astype(np.int64) * self.length + self.rows["position"])

    def at(self, low: int, high: int) -> dict[str, Table]:
        """Return by stream what must stand at [low, high) of the split's file."""
        # The rows of a window stand together; the "window" after the last holds what follows the windows.
        first, last = np.searchsorted(self.rows["window"], [low // self.length, -(-high // self.length)])
        rows = self.rows[first:last]
        begins = rows["window"].astype(np.int64) * self.length + rows["position"] + rows["inserted"]
        ends = begins - rows["inserted"] + rows["length"]
        places = np.maximum(begins, low)
        lengths = np.maximum(np.minimum(ends, high) - places, 0)
        return self.tokens(
            high - low, rows["document"], rows["document_start"] + places - begins, places - low, lengths
        )

    def tokens(self, count: int, documents: Table, starts: Table, places: Table, lengths: Table) -> dict[str, Table]:
        """Return by stream `count` separators, but from each of `places` on a slice of a document as admitted."""
        found = {stream: np.zeros(count, "<u2") for stream in self.streams}
        found["ids"].fill(self.separator)
        for region, members in self.by_region(self.documents[documents]):
            begins = region.offsets[self.documents["index"][documents[members]]] + starts[members]
            # Blocks of runs bound what the indexes take: 16 bytes a token.
            steps = np.cumsum(lengths[members]) // INDEXED
            for block in np.split(np.arange(len(members)), np.flatnonzero(np.diff(steps)) + 1):
                size = lengths[members[block]]
                inside = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
                there = np.repeat(places[members[block]], size) + inside
                here = np.repeat(begins[block], size) + inside
                for stream, content in region.streams.items():
                    found[stream][there] = np.take(content, here)
        return found


def _scores(lines: list[Any], metric: str, where: str) -> NDArray[np.int64]:
    """Return what the lines record of a metric, in millionths."""
    for number, line in enumerate(lines):
        if metric not in line.get("scores", {}):
            raise RecordError("JSON_INVALID", f"{where}: line {number}: scores.{metric}", "field is missing")
    return np.array([micro(line["scores"][metric]) for line in lines], np.int64)


def require_file(path: Path, size: int, digest: str) -> None:
    """Refuse a file that is missing, of another size, or of another hash."""
    if not path.is_file() or path.is_symlink():
        raise Refused("FILE_MISSING", str(path), expected="a file", read="none")
    if path.stat().st_size != size:
        raise Refused("FILE_SIZE", str(path), expected=size, read=path.stat().st_size)
    read = sha256_file(path)
    if read != digest:
        raise Refused("FILE_HASH", str(path), expected=digest, read=read)


def read_array(path: Path, dtype: str) -> NDArray[Any]:
    """Return the file as a memory map, or an empty array when it is empty (an empty file cannot be mapped)."""
    return np.memmap(path, dtype, mode="r") if path.stat().st_size else np.empty(0, dtype)
