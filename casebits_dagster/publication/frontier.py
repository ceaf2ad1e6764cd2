"""Advance a generation's frontier: verify admissions, write the next manifest, swap LATEST.

Crash-safe by order: manifest first (its name is the compare-and-swap), LATEST after; a manifest that LATEST does not
name yet is adopted by the next run.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from casebits_dagster.codec.bytetable import ByteTable
from casebits_dagster.codec.decode import Codec
from casebits_dagster.frontier import AdmittedRegion, extend, require_extends, require_sound
from casebits_dagster.publication.verify_region import VerifiedRegion, verify_region_files
from casebits_dagster.records.codec import CodecFiles
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.errors import Absent, CasebitsError, Refused
from casebits_dagster.records.frontier import (
    FrontierEntry,
    Latest,
    Manifest,
    ManifestPointer,
    PlanPin,
)
from casebits_dagster.records.layout import ADMISSION, GenerationFolder, Home, region_id
from casebits_dagster.records.pins import Generation
from casebits_dagster.records.region import StoredFile
from casebits_dagster.regions.index import cached_index
from casebits_dagster.regions.read import Region
from casebits_dagster.stores.local import LocalStore
from casebits_dagster.stratify import split_totals


@dataclass(frozen=True, slots=True)
class Advanced:
    """A frontier after an advance. `waiting` are admitted regions beyond the first gap; `first_missing` is the region
    the prefix waits for, None when the generation is complete; `changed` says whether a version was made."""

    manifest: Manifest
    manifest_sha256: str
    latest: Latest
    changed: bool
    waiting: tuple[int, ...]
    first_missing: int | None


def advance_frontier(generation: Generation, home: Home, *, now: datetime) -> Advanced:
    """Extend the frontier over every region admitted since, and return it. Raises Absent while region 0 is missing.

    Of several runs at once each gets one of the frontiers that they make together, none an error.
    """
    folder = home.generation(generation.name)
    store = LocalStore(folder.root, home.staging)
    codec_files = publish_codec(generation, folder, store)
    changed = False
    while True:
        previous = _newest_manifest(folder, generation)
        extended = _extended(generation, folder, previous, codec_files)
        manifest = extended or previous
        if manifest is None:
            where = f"{generation.name}/regions/{region_id(0)}/{ADMISSION}"
            raise Absent(
                "ADMISSION_MISSING", where, "no region is admitted", remedy="materialise admission_proof first"
            )
        made = _put_manifest(store, folder, extended) if extended else False
        changed = changed or bool(made)
        # Whoever loses a race starts over from what the winner made: each turn, somebody's frontier has grown.
        if made is not None and (latest := _swap_latest(folder, store, manifest, now)):
            break
    beyond = range(manifest.count + 1, len(generation.plan))
    return Advanced(
        manifest=manifest,
        manifest_sha256=sha256(manifest.to_bytes()),
        latest=latest,
        changed=changed,
        waiting=tuple(k for k in beyond if (folder.region(k) / ADMISSION).exists()),
        first_missing=manifest.count if manifest.count < manifest.plan.total else None,
    )


def _extended(
    generation: Generation, folder: GenerationFolder, previous: Manifest | None, codec: tuple[StoredFile, ...]
) -> Manifest | None:
    """Return the next version over all regions admitted since the previous one, None when there is none."""
    admitted: dict[int, AdmittedRegion] = {}
    index, table = previous.count if previous else 0, Codec.load(folder.codec).table
    while index < len(generation.plan) and (folder.region(index) / ADMISSION).exists():
        admitted[index] = _admitted(generation, folder, index, table)
        index += 1
    plan = PlanPin(total=len(generation.plan), sha256=generation.plan_sha256)
    return extend(previous, admitted, generation=generation.name, plan=plan, codec=codec)


def _put_manifest(store: LocalStore, folder: GenerationFolder, manifest: Manifest) -> bool | None:
    """Publish a version; False when another run published the same one meanwhile, None when it published another."""
    try:
        return store.put_new(_relative(folder, folder.manifest(manifest.version)), manifest.to_bytes())
    except CasebitsError as error:
        if error.code != "STORE_CONFLICT":
            raise
        return None


def publish_codec(generation: Generation, folder: GenerationFolder, store: LocalStore) -> tuple[StoredFile, ...]:
    """Copy the codec's files beside the regions, so that a reader needs nothing else; return them with hashes."""
    files = []
    paths = {CodecFiles.MIXTURE: generation.mixture, CodecFiles.VOCABULARY: generation.vocabulary}
    for name, path in paths.items():
        if path is None:
            continue
        content = path.read_bytes()
        store.put_new(_relative(folder, folder.codec / name), content)
        files.append(StoredFile(name=name, bytes=len(content), sha256=sha256(content)))
    return tuple(files)


def _admitted(generation: Generation, folder: GenerationFolder, index: int, table: ByteTable) -> AdmittedRegion:
    path = folder.region(index)
    verified = verify_region_files(path, _relative(folder, path))
    _require_pins(generation, index, verified, _relative(folder, path))
    rows = cached_index(folder, index, Region.open(path), table)
    entry = FrontierEntry(
        index=index,
        path=_relative(folder, path),
        content_id=verified.receipt.content_id,
        documents=verified.receipt.counts.documents,
        tokens=verified.receipt.counts.tokens,
        files=verified.files,
    )
    return AdmittedRegion(entry, split_totals(rows))


def _require_pins(generation: Generation, index: int, verified: VerifiedRegion, where: str) -> None:
    """Refuse a region of another generation, place in the plan, or pins than this generation's."""
    receipt = verified.receipt
    if receipt.generation != generation.name:
        raise Refused("GENERATION_MISMATCH", where, expected=generation.name, read=receipt.generation)
    if receipt.region.index != index:
        raise Refused("PLAN_MISMATCH", where, expected=f"region {index}", read=receipt.region.index)
    spec, source = generation.plan[index], receipt.source
    if (source.path, source.unit, source.begin, source.end) != (spec.path, spec.unit, spec.begin, spec.end):
        raise Refused("PLAN_MISMATCH", f"{where}: source", expected=spec, read=source)
    if source.revision != generation.source.pin.revision:
        raise Refused("SOURCE_PIN", f"{where}: source.revision", expected=generation.source.pin.revision, read=source)
    if receipt.pins != generation.pins:
        raise Refused("CODEC_PIN", f"{where}: pins", expected=generation.pins, read=receipt.pins)


def _newest_manifest(folder: GenerationFolder, generation: Generation) -> Manifest | None:
    """Return the last manifest of the chain, whether or not LATEST names it yet; None for a new generation."""
    manifest: Manifest | None = None
    version = 1
    if folder.latest.exists():
        latest = Latest.parse(folder.latest.read_bytes(), "LATEST.json")
        manifest = _read_manifest(folder, latest.version)
        if sha256(manifest.to_bytes()) != latest.manifest.sha256:
            where, read = f"LATEST.json: manifest {latest.version}", sha256(manifest.to_bytes())
            raise Refused("MANIFEST_HASH", where, expected=latest.manifest.sha256, read=read)
        version = latest.version + 1
    while folder.manifest(version).exists():
        following = _read_manifest(folder, version)
        if manifest:
            require_extends(following, manifest, f"manifest {version}")
        manifest, version = following, version + 1
    if manifest and manifest.plan.sha256 != generation.plan_sha256:
        where = f"{generation.name}: plan"
        raise Refused("PLAN_MISMATCH", where, expected=manifest.plan.sha256, read=generation.plan_sha256)
    return manifest


def _read_manifest(folder: GenerationFolder, version: int) -> Manifest:
    path = folder.manifest(version)
    manifest = Manifest.parse(path.read_bytes(), _relative(folder, path))
    require_sound(manifest, _relative(folder, path))
    return manifest


def _swap_latest(folder: GenerationFolder, store: LocalStore, manifest: Manifest, now: datetime) -> Latest | None:
    """Return LATEST, naming the manifest. None when another run moved it meanwhile."""
    raw, path = manifest.to_bytes(), folder.manifest(manifest.version)
    before = folder.latest.read_bytes() if folder.latest.exists() else None
    old = Latest.parse(before, "LATEST.json") if before else None
    if old and old.manifest.sha256 == sha256(raw):
        return old
    latest = Latest(
        generation=manifest.generation,
        version=manifest.version,
        count=manifest.count,
        manifest=ManifestPointer(
            path=_relative(folder, path), revision=f"sha256:{sha256(raw)}", sha256=sha256(raw), bytes=len(raw)
        ),
        gates=None,
        tree_root=manifest.tree_root,
        status="complete" if manifest.count == manifest.plan.total else "building",
        published_at=now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        expires_at=None,
    )
    return latest if store.replace("LATEST.json", before, latest.to_bytes()) else None


def _relative(folder: GenerationFolder, path: Path) -> str:
    return path.relative_to(folder.root).as_posix()
