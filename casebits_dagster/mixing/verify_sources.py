"""The verifier's own reading of what a mix was made from: pinned manifests, and regions that match their hashes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.records.canonical import parse
from casebits_dagster.records.digests import sha256, sha256_file
from casebits_dagster.records.errors import Refused
from casebits_dagster.records.frontier import Manifest
from casebits_dagster.records.layout import ARRAY_DTYPES, CASES, DOCUMENTS, IDS, OFFSETS, RECEIPT, Home
from casebits_dagster.records.mix import SourceUsed
from casebits_dagster.records.region import Receipt, SplitPin


@dataclass(frozen=True, slots=True)
class AdmittedRegion:
    """One region as its manifest entry has it: token streams, cuts, and its documents' ids and clusters (-1: none)."""

    ids: NDArray[np.uint16]
    cases: NDArray[np.uint16]
    offsets: NDArray[np.int64]
    document_ids: list[bytes]
    clusters: list[int]
    split: SplitPin

    def is_validation(self, document: int) -> bool:
        salted = self.split.salt.encode() + b"\0" + self.document_ids[document]
        return int.from_bytes(hashlib.sha256(salted).digest()[:8], "big") < self.split.threshold


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
        for name in (IDS, CASES, OFFSETS, DOCUMENTS, RECEIPT):
            if name not in hashes:
                raise Refused("FILE_MISSING", f"{entry.path}/{name}", "is not in the manifest")
            require_file(folder / name, *hashes[name])
        where = f"{self.name} {index:05d}/{DOCUMENTS}"
        lines: list[Any] = [parse(line, where) for line in (folder / DOCUMENTS).read_bytes().splitlines(keepends=True)]
        return AdmittedRegion(
            ids=read_array(folder / IDS, ARRAY_DTYPES[IDS]),
            cases=read_array(folder / CASES, ARRAY_DTYPES[CASES]),
            offsets=read_array(folder / OFFSETS, ARRAY_DTYPES[OFFSETS]).astype(np.int64),
            document_ids=[bytes.fromhex(line["id"]) for line in lines],
            clusters=[-1 if line["cluster"] is None else line["cluster"] for line in lines],
            split=Receipt.parse((folder / RECEIPT).read_bytes(), f"{self.name} {index:05d}/{RECEIPT}").pins.split,
        )


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
