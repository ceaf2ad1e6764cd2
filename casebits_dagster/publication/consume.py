"""Open a frontier: verify in a fixed order, refuse with one code, only then hand out tokens.

At once: LATEST, the trust state, its manifest (bytes, hash), the chain down to version 1 or to the version that is
trusted, gapless order, tree root, codec, gates with their evidence. On first use of a region's receipt or index: its
records by hash, its other files by size, and the hash of the index, which was made when the region was verified. On
first use of its documents: all its files by hash, once. Costs one hash of each file whose bytes are used; what is not
on this machine is fetched when it is used.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.codec.decode import Codec
from casebits_dagster.codec.mixture import Mixture
from casebits_dagster.frontier import NOTHING, add_splits, require_extends, require_sound
from casebits_dagster.publication.gates import read_gates
from casebits_dagster.publication.place import Place, open_place, read_pointed
from casebits_dagster.publication.reader import Documents, Split
from casebits_dagster.publication.trust import Trust, keep_trust, read_trust, require_trusted
from casebits_dagster.publication.verify_region import VerifiedRegion, parsed, require_file, verify_region_files
from casebits_dagster.records.codec import CodecFiles
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.errors import Absent, Refused
from casebits_dagster.records.frontier import FrontierEntry, Latest, Manifest
from casebits_dagster.records.gates import Gates
from casebits_dagster.records.layout import ADMISSION, LATEST, RECEIPT, GenerationFolder, Home
from casebits_dagster.records.region import Receipt
from casebits_dagster.regions.index import cached_index, index_region, kept_index
from casebits_dagster.regions.read import Region
from casebits_dagster.stratify import split_totals


@dataclass(slots=True)
class Frontier:
    """An opened frontier. `region(i)` verifies a region the first time it is asked for.

    `gates` says what is proven of it beyond its regions; None while nobody evaluated that.
    """

    place: Place
    latest: Latest
    manifest: Manifest
    manifest_sha256: str
    codec: Codec
    gates: Gates | None
    _regions: dict[int, Region] = field(default_factory=dict)

    @property
    def folder(self) -> GenerationFolder:
        return GenerationFolder(self.place.folder)

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
            where = f"{entry.path}/{file.name}"
            if digest or self.place.store is None:
                require_file(self.place.bring(where, file.bytes, file.sha256), where, file.bytes, digest)
        return parsed(Receipt, (self.folder.root / entry.path / RECEIPT).read_bytes(), f"{entry.path}/{RECEIPT}")

    def rows(self, index: int) -> NDArray[np.void]:
        """Return the index rows of a region, INDEX_DTYPE. Raises as `region` does.

        Below a home, and in the cache of a remote place, they are kept since the region was verified. What lies in a
        folder of somebody else is not believed, and nothing is written there: they are made each time.
        """
        receipt = self.receipt(index)
        if self.place.own and (kept := kept_index(self.folder, index, receipt)) is not None:
            return kept
        region = self.region(index)
        if self.place.own:
            return cached_index(self.folder, index, region, self.codec.table)
        path = self.folder.codec / CodecFiles.MIXTURE
        mixture = Mixture.load(path, self.codec.table) if receipt.pins.codec.mixture_sha256 else None
        return index_region(region, mixture)

    def region(self, index: int) -> Region:
        """Return a region of the prefix, verified. Raises Absent beyond the prefix, Refused when it does not verify."""
        entry = self._entry(index)
        if index not in self._regions:
            self._bring(entry)
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

    def documents(self, split: Split | None = None, *, region: int | None = None) -> Documents:
        """Return the documents of the prefix, or of one region, of one split or of both: a sequence, read as needed."""
        return Documents(self, split=split, region=region)

    def verify_all(self, first: int = 0) -> None:
        """Verify every region of the prefix from `first` on now, and that the manifest's totals are those of all."""
        for index in range(first, self.manifest.count):
            self.region(index)
        totals = functools.reduce(add_splits, (split_totals(self.rows(k)) for k in range(self.manifest.count)), NOTHING)
        if totals != self.manifest.splits:
            where = f"manifest {self.manifest.version}: splits"
            raise Refused("COUNT_MISMATCH", where, expected=totals, read=self.manifest.splits)

    def _bring(self, entry: FrontierEntry) -> None:
        """Fetch what is not here of a region of a remote place, and what is here with other bytes."""
        if self.place.store is None:
            return
        for file in entry.files:
            name = f"{entry.path}/{file.name}"
            self.place.mend(name, file.sha256)
            self.place.bring(name, file.bytes, file.sha256)
        if extra := sorted(self.place.names(entry.path) - {file.name for file in entry.files}):
            raise Refused("FILE_EXTRA", f"{entry.path}/{extra[0]}", "is not in the manifest")

    def _entry(self, index: int) -> FrontierEntry:
        if not 0 <= index < self.manifest.count:
            where = f"{self.generation}/regions/{index:05d}"
            raise Absent("REGION_MISSING", where, f"the frontier holds regions 0 to {self.manifest.count - 1}")
        return self.manifest.regions[index]


def open_frontier(
    location: str | Path,
    generation: str | None = None,
    *,
    trust: Path | None = None,
    now: datetime | None = None,
    cache: Path | None = None,
) -> Frontier:
    """Return the verified frontier of a publication, or of `generation` below one's own home.

    `location` is a folder, `s3://bucket/prefix` or `hf://datasets/OWNER/NAME`. `trust` is the file that remembers what
    was seen (of remote places one beside their `cache`, when it is None), `now` the clock that an expiry is compared
    with. Raises Refused with one code of the closed list, naming file, expected and read.
    """
    place = open_place(Home(Path(location)).generation(generation).root if generation else location, cache)
    place.own = place.own or generation is not None
    remembered = trust or place.trust
    seen, latest = read_trust(remembered), parsed(Latest, place.latest(), place.name(LATEST))
    if generation and latest.generation != generation:
        raise Refused("GENERATION_MISMATCH", "LATEST.json: generation", expected=generation, read=latest.generation)
    place.pin(latest.manifest.revision, latest.manifest.sha256)
    require_trusted(seen, latest, now)
    manifest = _read_manifest(place, latest)
    _require_latest_agrees(latest, manifest)
    _require_chain(place, manifest, seen)
    codec = _read_codec(place, manifest)
    gates = read_gates(place, latest, manifest)
    keep_trust(
        remembered,
        Trust(name=latest.generation, version=latest.version, manifest_sha256=latest.manifest.sha256),
    )
    return Frontier(place, latest, manifest, latest.manifest.sha256, codec, gates)


def _read_manifest(place: Place, latest: Latest) -> Manifest:
    pointer = latest.manifest
    place.mend(pointer.path, pointer.sha256)
    raw = read_pointed(place, pointer)
    manifest = parsed(Manifest, raw, pointer.path)
    require_sound(manifest, pointer.path)
    return manifest


def _read_codec(place: Place, manifest: Manifest) -> Codec:
    read = [file.name for file in manifest.codec]
    if read not in ([CodecFiles.MIXTURE, CodecFiles.VOCABULARY], [CodecFiles.VOCABULARY]):
        expected = f"{CodecFiles.VOCABULARY}, and {CodecFiles.MIXTURE} where there is one"
        raise Refused("CODEC_PIN", f"manifest {manifest.version}: codec", expected=expected, read=read)
    folder = GenerationFolder(place.folder).codec
    for file in manifest.codec:
        name = f"codec/{file.name}"
        place.mend(name, file.sha256)
        require_file(place.bring(name, file.bytes, file.sha256), name, file.bytes, file.sha256)
    return Codec.load(folder)


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


def _require_chain(place: Place, manifest: Manifest, seen: Trust | None) -> None:
    """Walk the versions down to 1, or to the one that was seen before: each is there, has the bytes that its follower
    names, and is its prefix."""
    current, digest, folder = manifest, sha256(manifest.to_bytes()), GenerationFolder(place.folder)
    while current.previous and not (seen and current.version <= seen.version):
        where = folder.name(folder.manifest(current.previous.version))
        place.mend(where, current.previous.sha256)
        path = place.bring(where)
        if not path.is_file():
            raise Refused("CHAIN_BROKEN", where, "an earlier version of the manifest is missing")
        raw = path.read_bytes()
        earlier, digest = parsed(Manifest, raw, where), sha256(raw)
        require_sound(earlier, where)
        require_extends(current, earlier, f"manifest {current.version}")
        current = earlier
    if seen and current.version == seen.version and digest != seen.manifest_sha256:
        where, problem = f"manifest {current.version}", "another manifest was seen under this version"
        raise Refused("HISTORY_REWRITTEN", where, problem, expected=seen.manifest_sha256, read=digest)
    if current.version != 1 and not (seen and current.version <= seen.version):
        raise Refused("CHAIN_BROKEN", f"manifest {current.version}: previous", expected="a version before", read=None)
