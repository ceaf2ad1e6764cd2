"""Advance a generation's frontier: verify admissions, write the next manifest, swap LATEST.

Crash-safe by order: manifest first (its name is the compare-and-swap), LATEST after; a manifest that LATEST does not
name yet is adopted by the next run.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from casebits_dagster.codec.bytetable import ByteTable
from casebits_dagster.codec.decode import Codec
from casebits_dagster.frontier import AdmittedRegion, extend, require_extends, require_sound
from casebits_dagster.publication.verify_region import VerifiedRegion, verify_region_files
from casebits_dagster.records.codec import CodecFiles
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.errors import Absent, CasebitsError, Conflict, Refused
from casebits_dagster.records.frontier import (
    FrontierEntry,
    Latest,
    Manifest,
    ManifestPointer,
    PlanPin,
)
from casebits_dagster.records.layout import ADMISSION, GenerationFolder, Home, region_id
from casebits_dagster.records.pins import Generation
from casebits_dagster.records.record import Record
from casebits_dagster.records.region import StoredFile
from casebits_dagster.regions.index import cached_index
from casebits_dagster.regions.read import Region
from casebits_dagster.stores.base import Store, WritableStore
from casebits_dagster.stores.local import LocalStore
from casebits_dagster.stores.regions import admitted_regions, pull_region, require_same_pins, shared_store
from casebits_dagster.stratify import split_totals

R = TypeVar("R", bound=Record)


@dataclass(frozen=True, slots=True)
class Advanced:
    """A frontier after an advance. `waiting` are admitted regions beyond the first gap; `first_missing` is the region
    the prefix waits for, None when the generation is complete; `changed` says whether a version was made, whose first
    new region is `first_new` (0 when none was)."""

    manifest: Manifest
    manifest_sha256: str
    latest: Latest
    changed: bool
    waiting: tuple[int, ...]
    first_missing: int | None
    first_new: int


def advance_frontier(generation: Generation, home: Home, *, now: datetime) -> Advanced:
    """Extend the frontier over every region admitted since, and return it. Raises Absent while region 0 is missing.

    Of several runs at once each gets one of the frontiers that they make together, none an error. Where machines share
    a store the frontier is made there, and brought home.
    """
    local = LocalStore(home.root, home.staging)
    store, changed, first_new = shared_store(home) or local, False, 0
    require_same_pins(home, generation)
    codec_files = publish_codec(generation, home, store)
    if store is not local:
        publish_codec(generation, home, local)
    while True:
        previous = _newest_manifest(home, store, generation)
        ready = admitted_regions(home, generation.name, len(generation.plan))
        extended = _extended(generation, home, previous, codec_files, set(ready))
        manifest = extended or previous
        if manifest is None:
            where = f"{generation.name}/regions/{region_id(0)}/{ADMISSION}"
            raise Absent(
                "ADMISSION_MISSING", where, "no region is admitted", remedy="materialise admission_proof first"
            )
        made = _put_manifest(home, store, extended) if extended else False
        if made:
            changed, first_new = True, previous.count if previous else 0
        # Whoever loses a race starts over from what the winner made: each turn, somebody's frontier has grown.
        if made is not None and (latest := _swap_latest(home, store, manifest, now)):
            break
    pull_frontier(home, generation.name)
    return Advanced(
        manifest=manifest,
        manifest_sha256=sha256(manifest.to_bytes()),
        latest=latest,
        changed=changed,
        waiting=tuple(k for k in ready if k > manifest.count),
        first_missing=manifest.count if manifest.count < manifest.plan.total else None,
        first_new=first_new,
    )


def admitted_prefix(generation: Generation, home: Home) -> tuple[int, int, int]:
    """Return the newest version (0 for none), the regions it lists, and those it could list: up to the first gap."""
    previous = _newest_manifest(home, shared_store(home) or LocalStore(home.root, home.staging), generation)
    listed = previous.count if previous else 0
    prefix, ready = listed, set(admitted_regions(home, generation.name, len(generation.plan)))
    while prefix in ready:
        prefix += 1
    return previous.version if previous else 0, listed, prefix


def _extended(
    generation: Generation, home: Home, previous: Manifest | None, codec: tuple[StoredFile, ...], ready: set[int]
) -> Manifest | None:
    """Return the next version over all regions admitted since the previous one, None when there is none."""
    admitted: dict[int, AdmittedRegion] = {}
    index = previous.count if previous else 0
    table = Codec.load(home.generation(generation.name).codec).table
    while index in ready:
        try:
            pull_region(home, generation.name, index)
            admitted[index] = _admitted(generation, home.generation(generation.name), index, table)
        except (CasebitsError, OSError):
            # A region that went bad holds the frontier here, and is told as soon as nothing before it is new.
            if not admitted:
                raise
            break
        index += 1
    plan = PlanPin(total=len(generation.plan), sha256=generation.plan_sha256)
    return extend(previous, admitted, generation=generation.name, plan=plan, codec=codec)


def _put_manifest(home: Home, store: WritableStore, manifest: Manifest) -> bool | None:
    """Publish a version; False when another run published the same one meanwhile, None when it published another."""
    folder = home.generation(manifest.generation)
    try:
        return store.put_new(home.name(folder.manifest(manifest.version)), manifest.to_bytes())
    except Conflict:
        return None


def publish_codec(generation: Generation, home: Home, store: WritableStore) -> tuple[StoredFile, ...]:
    """Copy the codec's files beside the regions, so that a reader needs nothing else; return them with hashes."""
    files = []
    paths = {CodecFiles.MIXTURE: generation.mixture, CodecFiles.VOCABULARY: generation.vocabulary}
    for name, path in paths.items():
        if path is None:
            continue
        content = path.read_bytes()
        store.put_new(home.name(home.generation(generation.name).codec / name), content)
        files.append(StoredFile(name=name, bytes=len(content), sha256=sha256(content)))
    return tuple(files)


def _admitted(generation: Generation, folder: GenerationFolder, index: int, table: ByteTable) -> AdmittedRegion:
    path = folder.region(index)
    verified = verify_region_files(path, folder.name(path))
    _require_pins(generation, index, verified, folder.name(path))
    rows = cached_index(folder, index, Region.open(path), table)
    entry = FrontierEntry(
        index=index,
        path=folder.name(path),
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


def _newest_manifest(home: Home, store: WritableStore, generation: Generation) -> Manifest | None:
    """Return the last manifest of the chain, whether or not LATEST names it yet; None for a new generation."""
    folder, version = home.generation(generation.name), 1
    manifest: Manifest | None = None
    if latest := _read(Latest, store, home.name(folder.latest)):
        manifest = _read(Manifest, store, home.name(folder.manifest(latest.version)))
        read = sha256(manifest.to_bytes()) if manifest else "nothing"
        if read != latest.manifest.sha256:
            where = f"LATEST.json: manifest {latest.version}"
            raise Refused("MANIFEST_HASH", where, expected=latest.manifest.sha256, read=read)
        version = latest.version + 1
    while following := _read(Manifest, store, home.name(folder.manifest(version))):
        require_sound(following, f"manifest {version}")
        if manifest:
            require_extends(following, manifest, f"manifest {version}")
        manifest, version = following, version + 1
    if manifest and manifest.plan.sha256 != generation.plan_sha256:
        where = f"{generation.name}: plan"
        raise Refused("PLAN_MISMATCH", where, expected=manifest.plan.sha256, read=generation.plan_sha256)
    return manifest


def _read(kind: type[R], store: Store, name: str) -> R | None:
    try:
        return kind.parse(store.get(name), name)
    except Absent:
        return None


def _swap_latest(home: Home, store: WritableStore, manifest: Manifest, now: datetime) -> Latest | None:
    """Return LATEST, naming the manifest. None when another run moved it meanwhile."""
    folder, raw = home.generation(manifest.generation), manifest.to_bytes()
    name = home.name(folder.latest)
    before = store.get(name) if store.exists(name) else None
    old = Latest.parse(before, "LATEST.json") if before else None
    if old and old.version >= manifest.version:
        return old if old.manifest.sha256 == sha256(raw) else None
    latest = Latest(
        generation=manifest.generation,
        version=manifest.version,
        count=manifest.count,
        manifest=ManifestPointer(
            path=folder.name(folder.manifest(manifest.version)),
            revision=f"sha256:{sha256(raw)}",
            sha256=sha256(raw),
            bytes=len(raw),
        ),
        gates=None,
        tree_root=manifest.tree_root,
        status="complete" if manifest.count == manifest.plan.total else "building",
        published_at=now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        expires_at=None,
    )
    return latest if store.replace(name, before, latest.to_bytes()) else None


def pull_frontier(home: Home, generation: str) -> None:
    """Bring the newest frontier of the shared store home, with its regions; nothing when the home stands alone.

    Raises ROLLBACK when the home has seen a newer one. What came home is verified when it is opened.
    """
    if (store := shared_store(home)) is None:
        return
    folder, local = home.generation(generation), LocalStore(home.root, home.staging)
    name, root = home.name(folder.latest), home.name(folder.root)
    before, raw = local.get(name) if local.exists(name) else None, store.get(name)
    latest = Latest.parse(raw, name)
    if before and (seen := Latest.parse(before, name).version) > latest.version:
        raise Refused("ROLLBACK", f"{store.url}/{name}", expected=f"version {seen} or later", read=latest.version)
    manifests = store.list(f"{root}/frontier/manifests")
    newest = max((path for path in manifests if local.exists(path)), default="")
    for path in (*store.list(f"{root}/codec"), *store.list(f"{root}/gates"), *manifests):
        # Each manifest names the one before: when the newest that is here is theirs, all are.
        if path == newest or not local.exists(path):
            local.put_new(path, store.get(path))
    manifest = Manifest.parse(local.get(home.name(folder.manifest(latest.version))), name)
    for entry in manifest.regions:
        if not (folder.region(entry.index) / ADMISSION).exists():
            pull_region(home, generation, entry.index)
    local.replace(name, before, raw)
