"""Open a frontier: verify in a fixed order, refuse with one code, only then hand out tokens.

At once: LATEST, its manifest (bytes, hash), the chain down to version 1, gapless order, tree root, codec. On first use
of a region's receipt or index: its records by hash, its other files by size, and the hash of the index, which was made
when the region was verified. On first use of its documents: all its files by hash, once. Costs one hash of each file
whose bytes are used.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.codec.decode import Codec
from casebits_dagster.frontier import require_extends, require_sound
from casebits_dagster.publication.verify_region import VerifiedRegion, parsed, require_file, verify_region_files
from casebits_dagster.records.codec import CodecFiles
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.errors import Absent, Refused
from casebits_dagster.records.frontier import FrontierEntry, Latest, Manifest
from casebits_dagster.records.layout import ADMISSION, RECEIPT, GenerationFolder, Home
from casebits_dagster.records.region import Receipt
from casebits_dagster.regions.index import INDEX_DTYPE, cached_index, kept_index
from casebits_dagster.regions.read import Region
from casebits_dagster.stratify import split_totals

LATEST_LIMIT = 64 << 10


@dataclass(slots=True)
class Frontier:
    """An opened frontier. `region(i)` verifies a region the first time it is asked for."""

    folder: GenerationFolder
    latest: Latest
    manifest: Manifest
    manifest_sha256: str
    codec: Codec
    _regions: dict[int, Region] = field(default_factory=dict)

    @property
    def generation(self) -> str:
        return self.manifest.generation

    def receipt(self, index: int) -> Receipt:
        """Return the receipt of a region that is there as the manifest lists it. Raises as `region` does.

        Its receipt and admission are hashed; of the others only the sizes are looked at.
        """
        entry = self._entry(index)
        for file in entry.files:
            digest = file.sha256 if file.name in (RECEIPT, ADMISSION) else None
            require_file(self.folder.root / entry.path / file.name, f"{entry.path}/{file.name}", file.bytes, digest)
        return parsed(Receipt, (self.folder.root / entry.path / RECEIPT).read_bytes(), f"{entry.path}/{RECEIPT}")

    def rows(self, index: int) -> NDArray[np.void]:
        """Return the index rows of a region, INDEX_DTYPE: those kept since it was verified, else made of it, verified.

        Raises as `region` does.
        """
        kept = kept_index(self.folder, index, self.receipt(index))
        return cached_index(self.folder, index, self.region(index), self.codec.table) if kept is None else kept

    def region(self, index: int) -> Region:
        """Return a region of the prefix, verified. Raises Absent beyond the prefix, Refused when it does not verify."""
        entry = self._entry(index)
        if index not in self._regions:
            verified = verify_region_files(self.folder.root / entry.path, entry.path)
            _require_entry(entry, verified, self.generation)
            for listed, found in zip(entry.files, verified.files, strict=True):
                if listed != found:
                    where = f"{entry.path}/{found.name}"
                    raise Refused("FILE_HASH", where, expected=f"sha256 {listed.sha256}", read=found.sha256)
            pinned, where = verified.receipt.pins.codec, f"{entry.path}/receipt.json: pins.codec"
            for digest in (pinned.vocab_sha256, pinned.mixture_sha256):
                if digest and digest not in {file.sha256 for file in self.manifest.codec}:
                    raise Refused("VOCAB_MISMATCH", where, expected="the files of the manifest's codec", read=digest)
            self._regions[index] = Region.open(self.folder.root / entry.path)
        return self._regions[index]

    def verify_all(self, first: int = 0) -> None:
        """Verify every region of the prefix from `first` on now, and that the manifest's totals are those of all."""
        for index in range(first, self.manifest.count):
            self.region(index)
        totals = split_totals(self.index)
        if totals != self.manifest.splits:
            where = f"manifest {self.manifest.version}: splits"
            raise Refused("COUNT_MISMATCH", where, expected=totals, read=self.manifest.splits)

    @property
    def index(self) -> NDArray[np.void]:
        """Return the document index of the whole prefix, INDEX_DTYPE, in region order."""
        return np.concatenate([np.empty(0, INDEX_DTYPE), *map(self.rows, range(self.manifest.count))])

    def _entry(self, index: int) -> FrontierEntry:
        if not 0 <= index < self.manifest.count:
            where = f"{self.generation}/regions/{index:05d}"
            raise Absent("REGION_MISSING", where, f"the frontier holds regions 0 to {self.manifest.count - 1}")
        return self.manifest.regions[index]


def open_frontier(location: Path, generation: str | None = None) -> Frontier:
    """Return the verified frontier of a generation's folder, or of `generation` below a root.

    Raises Refused with one code of the closed list, naming file, expected and read.
    """
    folder = Home(location).generation(generation) if generation else GenerationFolder(location)
    latest = _read_latest(folder, generation)
    pointer = latest.manifest
    path = folder.root / pointer.path
    if not path.is_file():
        raise Refused("MANIFEST_MISSING", pointer.path, "LATEST names a manifest that is not there")
    raw = path.read_bytes()
    if len(raw) != pointer.bytes:
        raise Refused("MANIFEST_SIZE", pointer.path, expected=f"{pointer.bytes} bytes", read=len(raw))
    if sha256(raw) != pointer.sha256:
        raise Refused("MANIFEST_HASH", pointer.path, expected=pointer.sha256, read=sha256(raw))
    manifest = parsed(Manifest, raw, pointer.path)
    require_sound(manifest, pointer.path)
    _require_latest_agrees(latest, manifest)
    _require_chain(folder, manifest)
    read = [file.name for file in manifest.codec]
    if read not in ([CodecFiles.MIXTURE, CodecFiles.VOCABULARY], [CodecFiles.VOCABULARY]):
        expected = f"{CodecFiles.VOCABULARY}, and {CodecFiles.MIXTURE} where there is one"
        raise Refused("CODEC_PIN", f"{pointer.path}: codec", expected=expected, read=read)
    for file in manifest.codec:
        require_file(folder.codec / file.name, f"codec/{file.name}", file.bytes, file.sha256)
    return Frontier(folder, latest, manifest, pointer.sha256, Codec.load(folder.codec))


def _read_latest(folder: GenerationFolder, generation: str | None) -> Latest:
    path = folder.latest
    if not path.is_file():
        raise Refused("LATEST_MISSING", str(path), "no frontier is published here")
    if path.stat().st_size > LATEST_LIMIT:
        raise Refused("LATEST_TOO_LARGE", str(path), expected=f"at most {LATEST_LIMIT}", read=path.stat().st_size)
    latest = parsed(Latest, path.read_bytes(), "LATEST.json")
    if generation and latest.generation != generation:
        raise Refused("GENERATION_MISMATCH", "LATEST.json: generation", expected=generation, read=latest.generation)
    if latest.manifest.revision != f"sha256:{latest.manifest.sha256}":
        expected, read = f"sha256:{latest.manifest.sha256}", latest.manifest.revision
        raise Refused("REVISION_NOT_PINNED", "LATEST.json: manifest.revision", expected=expected, read=read)
    return latest


def _require_latest_agrees(latest: Latest, manifest: Manifest) -> None:
    if latest.generation != manifest.generation:
        where = "LATEST.json: generation"
        raise Refused("GENERATION_MISMATCH", where, expected=manifest.generation, read=latest.generation)
    for name, code in (("version", "LATEST_BEHIND"), ("count", "COUNT_MISMATCH"), ("tree_root", "TREE_ROOT")):
        expected, read = getattr(manifest, name), getattr(latest, name)
        if expected != read:
            raise Refused(code, f"LATEST.json: {name}", expected=expected, read=read)
    status = "complete" if manifest.count == manifest.plan.total else "building"
    if latest.status != status:
        raise Refused("COUNT_MISMATCH", "LATEST.json: status", expected=status, read=latest.status)


def _require_entry(entry: FrontierEntry, verified: VerifiedRegion, generation: str) -> None:
    """Check that a manifest entry says of a region what its own receipt says."""
    receipt = verified.receipt
    for code, name, expected, read in (
        ("CONTENT_ID", "content_id", entry.content_id, receipt.content_id),
        ("GENERATION_MISMATCH", "generation", generation, receipt.generation),
        ("PLAN_MISMATCH", "region.index", entry.index, receipt.region.index),
        ("COUNT_MISMATCH", "counts.documents", entry.documents, receipt.counts.documents),
        ("COUNT_MISMATCH", "counts.tokens", entry.tokens, receipt.counts.tokens),
    ):
        if expected != read:
            raise Refused(code, f"{entry.path}/{RECEIPT}: {name}", expected=expected, read=read)


def _require_chain(folder: GenerationFolder, manifest: Manifest) -> None:
    """Walk the versions down to 1: each is there, has the bytes that its follower names, and is its prefix."""
    current = manifest
    while current.previous:
        path = folder.manifest(current.previous.version)
        where = folder.name(path)
        if not path.is_file():
            raise Refused("CHAIN_BROKEN", where, "an earlier version of the manifest is missing")
        earlier = parsed(Manifest, path.read_bytes(), where)
        require_sound(earlier, where)
        require_extends(current, earlier, f"manifest {current.version}")
        current = earlier
    if current.version != 1:
        raise Refused("CHAIN_BROKEN", f"manifest {current.version}: previous", expected="a version before", read=None)
