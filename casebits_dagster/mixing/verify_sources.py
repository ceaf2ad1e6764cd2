"""The verifier's own reading of a mix: pinned manifests, regions that match their hashes, and what a split names."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.records.canonical import parse
from casebits_dagster.records.digests import sha256, sha256_file
from casebits_dagster.records.errors import Refused
from casebits_dagster.records.frontier import Manifest
from casebits_dagster.records.layout import ADMISSION, CASES, DOCUMENTS, IDS, OFFSETS, RECEIPT, Home
from casebits_dagster.records.mix import TRAIN, SourceUsed, SplitFiles, val_name
from casebits_dagster.records.region import Receipt, SplitPin

Table = NDArray[Any]


@dataclass(frozen=True, slots=True)
class AdmittedRegion:
    """One region as its manifest entry has it: token streams by name, cuts, and its documents' ids and clusters (-1:
    none)."""

    streams: dict[str, NDArray[np.uint16]]
    offsets: NDArray[np.int64]
    document_ids: NDArray[np.void]
    clusters: NDArray[np.int64]
    split: SplitPin

    def validation(self, documents: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of these documents the split puts on the validation side."""
        salt, threshold = self.split.salt.encode() + b"\0", self.split.threshold
        digests = [hashlib.sha256(salt + bytes(name)).digest()[:8] for name in self.document_ids[documents]]
        return np.array([int.from_bytes(digest, "big") < threshold for digest in digests], bool)


class PinnedFrontier:
    """One source of a mix. A region is verified when it is first used."""

    def __init__(self, source: SourceUsed, home: Home) -> None:
        self.name, self.folder = source.generation, home.generation(source.generation)
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

    def region(self, index: int) -> AdmittedRegion:
        if index not in self._regions:
            self._regions[index] = self._open(index)
        return self._regions[index]

    def _open(self, index: int) -> AdmittedRegion:
        if index >= len(self.manifest.regions):
            count = len(self.manifest.regions)
            where = f"{self.name}: region {index:05d}"
            raise Refused("REGION_MISSING", where, expected=f"one of {count} admitted regions", read=index)
        entry = self.manifest.regions[index]
        folder = self.folder.root / entry.path
        hashes = {file.name: (file.bytes, file.sha256) for file in entry.files}
        # All of them, the admission too: what is not admitted does not exist for a mix.
        for name in sorted({*hashes, IDS, CASES, OFFSETS, DOCUMENTS, RECEIPT, ADMISSION}):
            if name not in hashes:
                raise Refused("FILE_MISSING", f"{entry.path}/{name}", "is not in the manifest")
            require_file(folder / name, *hashes[name])
        where = f"{self.name} {index:05d}/{DOCUMENTS}"
        lines: list[Any] = [parse(line, where) for line in (folder / DOCUMENTS).read_bytes().splitlines(keepends=True)]
        return AdmittedRegion(
            streams={"ids": read_array(folder / IDS, "<u2"), "cases": read_array(folder / CASES, "<u2")},
            offsets=read_array(folder / OFFSETS, "<u8").astype(np.int64),
            document_ids=np.frombuffer(bytes.fromhex("".join(line["id"] for line in lines)), "V16"),
            clusters=np.array([-1 if line["cluster"] is None else line["cluster"] for line in lines], np.int64),
            split=Receipt.parse((folder / RECEIPT).read_bytes(), f"{self.name} {index:05d}/{RECEIPT}").pins.split,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """One split of a mix: what the report says of its files, its two tables, and the frontiers that these name."""

    name: str
    files: SplitFiles
    length: int
    per_shard: int
    separator: int
    rows: Table
    documents: Table
    frontiers: list[PinnedFrontier]

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
        """Return by stream what must stand at [low, high) of the split's file, where `low` is a window's begin."""
        here = slice(*np.searchsorted(self.begins, [low, high]))
        rows, places = self.rows[here], self.begins[here] + self.rows["inserted"][here] - low
        lengths = np.minimum(rows["length"] - rows["inserted"], high - low - places)
        return self.tokens(high - low, rows["document"], rows["document_start"], places, lengths)

    def tokens(self, count: int, documents: Table, starts: Table, places: Table, lengths: Table) -> dict[str, Table]:
        """Return by stream `count` separators, but from each of `places` on a slice of a document as admitted."""
        found = {"ids": np.full(count, self.separator, "<u2"), "cases": np.zeros(count, "<u2")}
        slices = zip(self.documents[documents], starts.tolist(), places.tolist(), lengths.tolist(), strict=True)
        for document, start, place, length in slices:
            region = self.frontiers[int(document["generation"])].region(int(document["region"]))
            begin = int(region.offsets[document["index"]]) + start
            for stream, content in region.streams.items():
                found[stream][place : place + length] = content[begin : begin + length]
        return found


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
