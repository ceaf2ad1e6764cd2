"""Open a mix by the rules of a frontier: its LATEST names the hash of MANIFEST.txt, and that the hash of every file.

At once: LATEST, the trust state, the manifest, the report, and that the shards of both splits are just those that the
report declares, without a gap. A file is hashed when it is first used; all of them on request.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from casebits_dagster.publication.place import Place, open_place, read_pointed
from casebits_dagster.publication.trust import Trust, keep_trust, read_trust, require_trusted
from casebits_dagster.publication.verify_region import parsed, require_file
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.errors import Absent, Refused
from casebits_dagster.records.layout import LATEST, Home
from casebits_dagster.records.mix import (
    MANIFEST,
    NEXT_NAMES,
    REPORT,
    SHARD_SUFFIXES,
    TRAIN,
    VALIDATION,
    MixReport,
    shard_name,
)
from casebits_dagster.records.mix_latest import MixLatest
from casebits_dagster.records.mix_manifest import parse_manifest
from casebits_dagster.records.region import StoredFile


@dataclass(slots=True)
class OpenedMix:
    """A mix that may be read. `file(name)` verifies a file the first time it is asked for.

    `latest` is None for a folder that was built here and not published.
    """

    place: Place
    prefix: str
    latest: MixLatest | None
    manifest_sha256: str
    files: dict[str, StoredFile]
    report: MixReport
    _verified: set[str] = field(default_factory=set)

    def file(self, name: str) -> Path:
        """Return the local path of a file of the mix, verified. Raises Absent for another name, Refused as a whole."""
        if name not in self.files:
            raise Absent("FILE_MISSING", name, f"{MANIFEST} does not list it")
        listed, where = self.files[name], f"{self.prefix}{name}"
        if name not in self._verified:
            self.place.mend(where, listed.sha256)
            require_file(self.place.bring(where, listed.bytes, listed.sha256), where, listed.bytes, listed.sha256)
            self._verified.add(name)
        return self.place.folder / where

    def verify_all(self) -> None:
        """Hash every file of the mix, and look for files that it does not list."""
        for name in self.files:
            self.file(name)
        if extra := sorted(self.place.names(self.prefix.rstrip("/")) - {*self.files, MANIFEST}):
            raise Refused("FILE_EXTRA", f"{self.prefix}{extra[0]}", f"is not in {MANIFEST}")


def open_mix(
    location: str | Path,
    name: str | None = None,
    *,
    trust: Path | None = None,
    now: datetime | None = None,
    cache: Path | None = None,
) -> OpenedMix:
    """Return the verified mix of a publication, of the folder it was built in, or `name` below a home.

    The arguments are those of `open_frontier`. Raises Refused with one code of the closed list, or MIX_MANIFEST.
    """
    place = open_place(Home(Path(location)).mix(name) if name else location, cache)
    if place.store is None and place.repository is None and not (place.folder / LATEST).exists():
        return _built(place)
    remembered = trust or place.trust
    seen, latest = read_trust(remembered), parsed(MixLatest, place.latest(), place.name(LATEST))
    place.pin(latest.manifest.revision, latest.manifest.sha256)
    require_trusted(seen, latest, now)
    place.mend(latest.manifest.path, latest.manifest.sha256)
    raw = read_pointed(place, latest.manifest)
    opened = _opened(place, latest.manifest.path.removesuffix(MANIFEST), latest, raw)
    if opened.report.recipe.mix != latest.mix:
        read = opened.report.recipe.mix
        raise Refused("GENERATION_MISMATCH", f"{opened.prefix}{REPORT}: recipe.mix", expected=latest.mix, read=read)
    keep_trust(remembered, Trust(name=latest.mix, version=latest.version, manifest_sha256=latest.manifest.sha256))
    return opened


def _built(place: Place) -> OpenedMix:
    try:
        raw = (place.folder / MANIFEST).read_bytes()
    except FileNotFoundError as error:
        raise Refused("MANIFEST_MISSING", str(place.folder / MANIFEST), "no mix is here") from error
    return _opened(place, "", None, raw)


def _opened(place: Place, prefix: str, latest: MixLatest | None, raw: bytes) -> OpenedMix:
    files = parse_manifest(raw, f"{prefix}{MANIFEST}")
    if REPORT not in files:
        raise Refused("FILE_MISSING", f"{prefix}{REPORT}", f"{MANIFEST} does not list it")
    listed = files[REPORT]
    place.mend(f"{prefix}{REPORT}", listed.sha256)
    path = place.bring(f"{prefix}{REPORT}", listed.bytes, listed.sha256)
    require_file(path, f"{prefix}{REPORT}", listed.bytes, listed.sha256)
    opened = OpenedMix(place, prefix, latest, sha256(raw), files, parsed(MixReport, path.read_bytes(), REPORT))
    _require_shards(opened)
    return opened


def _require_shards(mix: OpenedMix) -> None:
    """Check that each split has just the shards that the report declares."""
    report = mix.report
    splits = {TRAIN: report.train.shards, VALIDATION: report.validation.shards}
    streams = SHARD_SUFFIXES[report.codec]
    declared = {
        shard_name(split, shard, stream, report.codec)
        for split, shards in splits.items()
        for shard in range(shards)
        for stream in streams
    }
    if missing := sorted((declared | set(NEXT_NAMES[report.codec].values())) - set(mix.files)):
        raise Refused(
            "FILE_MISSING", f"{mix.prefix}{missing[0]}", "the report declares it, the manifest does not list it"
        )
    pattern = re.compile(rf"({TRAIN}|{VALIDATION})_\d{{6}}\.")
    if extra := sorted({name for name in mix.files if pattern.match(name)} - declared):
        raise Refused("FILE_EXTRA", f"{mix.prefix}{extra[0]}", "is no shard that the report declares")
