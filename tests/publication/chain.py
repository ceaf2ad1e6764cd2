"""Publications to send: those of a real generation, and versions of a small made-up one that grows region by region."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from casebits_dagster.frontier import NOTHING, AdmittedRegion, extend
from casebits_dagster.publication.publication import AnyLatest, Publication, PublishedFile
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.frontier import FrontierEntry, Latest, Manifest, ManifestPointer, PlanPin
from casebits_dagster.records.layout import ADMISSION, CASES, DOCUMENTS, IDS, LATEST, OFFSETS, RAW_BYTES, RECEIPT, Home
from casebits_dagster.records.mix_latest import MixLatest
from casebits_dagster.records.region import StoredFile

NAMES = (IDS, CASES, OFFSETS, RAW_BYTES, DOCUMENTS, RECEIPT, ADMISSION)
CARD = "---\nlanguage: en\n---\n# {name}\nVersion {version}, status {status}, at {revision}.\n"


def kept(path: str, content: bytes) -> PublishedFile:
    return PublishedFile(path, content, len(content), sha256(content))


def cover(latest: AnyLatest) -> tuple[PublishedFile, ...]:
    name, status = (latest.generation, latest.status) if isinstance(latest, Latest) else (latest.mix, "built")
    card = CARD.format(name=name, version=latest.version, status=status, revision=latest.manifest.revision)
    return kept("README.md", card.encode()), kept("ATTRIBUTION.md", b"From a source.\n")


def frontier_publication(
    batches: list[tuple[PublishedFile, ...]], manifest: Manifest, published_at: str = "2026-01-02T03:04:05Z"
) -> Publication:
    """Return the publication of a manifest, which is the last file of the last batch."""
    raw, path = manifest.to_bytes(), f"frontier/manifests/{manifest.version:08d}.json"

    def latest(revision: str) -> Latest:
        return Latest(
            generation=manifest.generation,
            version=manifest.version,
            count=manifest.count,
            manifest=ManifestPointer(path=path, revision=revision, sha256=sha256(raw), bytes=len(raw)),
            gates=None,
            tree_root=manifest.tree_root,
            status="building" if manifest.count < manifest.plan.total else "complete",
            published_at=published_at,
            expires_at=None,
        )

    return Publication(manifest.generation, manifest.version, sha256(raw), tuple(batches), latest, cover)


def generation_publication(home: Home, name: str, regions_a_batch: int = 3) -> Publication:
    """Return the newest frontier of a generation of this home."""
    folder = home.generation(name)
    latest = Latest.parse(folder.latest.read_bytes(), LATEST)
    manifest = Manifest.parse(folder.manifest(latest.version).read_bytes(), "manifest")

    def file(path: str, listed: StoredFile) -> PublishedFile:
        return PublishedFile(path, folder.root / path, listed.bytes, listed.sha256)

    regions = [[file(f"{entry.path}/{listed.name}", listed) for listed in entry.files] for entry in manifest.regions]
    batches = [
        tuple(file for region in regions[first : first + regions_a_batch] for file in region)
        for first in range(0, len(regions), regions_a_batch)
    ]
    codec = [file(f"codec/{listed.name}", listed) for listed in manifest.codec]
    chain = [
        kept(folder.name(folder.manifest(version)), folder.manifest(version).read_bytes())
        for version in range(1, manifest.version + 1)
    ]
    return frontier_publication([*batches, (*codec, *chain)], manifest)


@dataclass
class Chain:
    """A generation `made` of tiny regions. `grow` adds a region and returns the publication of the next version."""

    total: int = 40
    manifest: Manifest | None = None
    files: tuple[PublishedFile, ...] = ()
    manifests: tuple[PublishedFile, ...] = ()

    def grow(self, text: str = "", folder: Path | None = None) -> Publication:
        """Add one region of this text; the large ones of its files lie in a folder, when there is one."""
        index = self.manifest.count if self.manifest else 0
        path = f"regions/{index:05d}"
        files = [_file(f"{path}/{name}", f"{index} {text} {name}".encode(), folder) for name in NAMES]
        listed = tuple(
            StoredFile(name=name, bytes=f.bytes, sha256=f.sha256) for name, f in zip(NAMES, files, strict=True)
        )
        entry = FrontierEntry(
            index=index, path=path, content_id=sha256(text.encode()), documents=1, tokens=1, files=listed
        )
        codec = kept("codec/vocabulary.json", b"{}")
        made = extend(
            self.manifest,
            {index: AdmittedRegion(entry, NOTHING)},
            generation="made",
            plan=PlanPin(total=self.total, sha256=64 * "0"),
            codec=(StoredFile(name="vocabulary.json", bytes=codec.bytes, sha256=codec.sha256),),
        )
        if made is None:
            raise ValueError("no version was made")
        self.manifest, self.files = made, (*self.files, *files)
        self.manifests = (*self.manifests, kept(f"frontier/manifests/{made.version:08d}.json", made.to_bytes()))
        return frontier_publication([self.files, (codec, *self.manifests)], made)


def _file(path: str, content: bytes, folder: Path | None) -> PublishedFile:
    if folder is None:
        return kept(path, content)
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_bytes(content)
    return PublishedFile(path, folder / path, len(content), sha256(content))


def mix_publication(version: int, text: str) -> Publication:
    """Return a mix `blend`, whose folder is named by its manifest."""
    shard = kept("", text.encode())
    raw = f"{shard.sha256}  shard\n".encode()
    folder, digest = f"blend/{sha256(raw)[:16]}", sha256(raw)

    def latest(revision: str) -> MixLatest:
        pointer = ManifestPointer(path=f"{folder}/MANIFEST.txt", revision=revision, sha256=digest, bytes=len(raw))
        moment = "2026-01-02T03:04:05Z"
        return MixLatest(mix="blend", version=version, manifest=pointer, published_at=moment, expires_at=None)

    files = (kept(f"{folder}/shard", text.encode()), kept(f"{folder}/MANIFEST.txt", raw))
    return Publication("blend", version, digest, (files,), latest, cover)


def require_consumable(read: Callable[[str, str], bytes | None]) -> int:
    """Follow LATEST.json as a reader does, hash every byte it leads to, and return its version, 0 when there is none.

    `read(path, revision)` returns a file; the revision is "" for what stands there now.
    """
    raw = read(LATEST, "")
    if raw is None:
        return 0
    latest = Latest.parse(raw, LATEST)
    revision = latest.manifest.revision
    found = _found(read, latest.manifest.path, revision)
    manifest = Manifest.parse(found, "manifest")
    listed = {f"{entry.path}/{file.name}": file.sha256 for entry in manifest.regions for file in entry.files}
    listed |= {f"codec/{file.name}": file.sha256 for file in manifest.codec}
    listed[latest.manifest.path] = latest.manifest.sha256
    while manifest.previous:
        path = f"frontier/manifests/{manifest.previous.version:08d}.json"
        listed[path] = manifest.previous.sha256
        manifest = Manifest.parse(_found(read, path, revision), path)
    wrong = [path for path, digest in listed.items() if sha256(_found(read, path, revision)) != digest]
    assert wrong == [], f"version {latest.version} is not whole"
    return latest.version


def _found(read: Callable[[str, str], bytes | None], path: str, revision: str) -> bytes:
    found = read(path, revision)
    assert found is not None, f"{path} is not there"
    return found
