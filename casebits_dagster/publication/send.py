"""What is published of a generation's frontier, or of a mix, out of a home: the files, and what is said of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from casebits_dagster.mixing.seeds import shuffled
from casebits_dagster.publication.card import frontier_cover, mix_cover, require_clearance
from casebits_dagster.publication.consume import Frontier, open_frontier
from casebits_dagster.publication.frontier import pull_frontier
from casebits_dagster.publication.open_mix import open_mix
from casebits_dagster.publication.place import open_place
from casebits_dagster.publication.publication import AnyLatest, Publication, PublishedFile
from casebits_dagster.publication.publish import Published, publish
from casebits_dagster.publication.verify_region import parsed
from casebits_dagster.records.digests import sha256, sha256_file
from casebits_dagster.records.errors import Absent, Refused
from casebits_dagster.records.frontier import Latest, ManifestPointer
from casebits_dagster.records.layout import LATEST, Home
from casebits_dagster.records.mix import MANIFEST
from casebits_dagster.records.mix_latest import MixLatest
from casebits_dagster.records.pins import Generation
from casebits_dagster.records.signed import clearances

REGIONS_A_BATCH = 12


@dataclass(frozen=True, slots=True)
class Sent:
    """What stands at a destination after a publication. `files` and `size_bytes` are all of it but card and LATEST."""

    destination: str
    name: str
    version: int
    manifest_sha256: str
    files: int
    size_bytes: int
    published: Published


def publish_frontier(
    generation: Generation,
    home: Home,
    destination: str,
    *,
    now: datetime,
    valid: timedelta | None = None,
    say: Callable[[str], object] = print,
) -> Sent:
    """Publish the newest frontier of a generation to a folder, `s3://bucket/prefix` or `hf://datasets/OWNER/NAME`.

    Raises Refused: CLEARANCE_MISSING, LICENCE_MISSING, whatever does not verify, or what stands there and may not be
    moved on from. A publication that was cut off is completed by the same call.
    """
    publication = frontier_publication(generation, home, now=now, valid=valid)
    return _sent(publication, destination, publish(publication, destination, say=say))


def publish_mix(
    mix: str,
    generations: Sequence[Generation],
    home: Home,
    destination: str,
    *,
    now: datetime,
    valid: timedelta | None = None,
    say: Callable[[str], object] = print,
) -> Sent:
    """Publish a mix of this home, as `publish_frontier` does. A mix that was built anew is the next version."""
    if not (path := home.mix(mix) / MANIFEST).is_file():
        raise Absent("MANIFEST_MISSING", str(path), "no such mix is here", remedy="materialise it first")
    version = _next_version(mix, sha256_file(path), destination)
    publication = mix_publication(mix, generations, home, version=version, now=now, valid=valid)
    return _sent(publication, destination, publish(publication, destination, say=say))


def sampled(frontier: Frontier, seed: str, count: int = 3) -> list[int]:
    """Return some regions of a frontier, chosen by a seed, in order."""
    return sorted(shuffled(frontier.manifest.count, seed)[:count].tolist())


def _sent(publication: Publication, destination: str, published: Published) -> Sent:
    files = [file for batch in publication.batches for file in batch]
    size = sum(file.bytes for file in files)
    name, version, digest = publication.name, publication.version, publication.manifest_sha256
    return Sent(destination, name, version, digest, len(files), size, published)


def _next_version(mix: str, manifest_sha256: str, destination: str) -> int:
    place = open_place(destination)
    try:
        latest = parsed(MixLatest, place.latest(), place.name(LATEST))
    except Refused as error:
        if error.code == "LATEST_MISSING":
            return 1
        raise
    if latest.mix != mix:
        raise Refused("GENERATION_MISMATCH", f"{place.name(LATEST)}: mix", expected=mix, read=latest.mix)
    return latest.version if latest.manifest.sha256 == manifest_sha256 else latest.version + 1


def frontier_publication(
    generation: Generation, home: Home, *, now: datetime, valid: timedelta | None = None
) -> Publication:
    """Return the newest frontier of a generation as it is published at a moment, to be believed for `valid` from then.

    Records and sizes of every region are verified here; of its files those that are sent are hashed as they leave, and
    those that lie at the destination are not read again. Raises CLEARANCE_MISSING or LICENCE_MISSING, or as
    `open_frontier`.
    """
    clearance = require_clearance(generation, clearances(generation.source.pins_folder))
    pull_frontier(home, generation.name)
    frontier = open_frontier(home.root, generation.name)
    for index in range(frontier.manifest.count):
        frontier.receipt(index)
    regions = [_region(frontier, index) for index in range(frontier.manifest.count)]
    batches = [_joined(regions[first : first + REGIONS_A_BATCH]) for first in range(0, len(regions), REGIONS_A_BATCH)]
    manifest, pointer = frontier.manifest, frontier.latest.manifest

    def latest(revision: str) -> Latest:
        return replace(
            frontier.latest,
            manifest=replace(pointer, revision=revision),
            published_at=_moment(now),
            expires_at=_moment(now + valid) if valid else None,
        )

    def cover(published: AnyLatest) -> tuple[PublishedFile, ...]:
        if not isinstance(published, Latest):
            raise TypeError("a frontier is published with the LATEST of one")
        return _covered(frontier_cover(generation, manifest, frontier.gates, published, clearance))

    return Publication(
        name=generation.name,
        version=manifest.version,
        manifest_sha256=frontier.manifest_sha256,
        batches=(*batches, tuple(_beside(frontier))),
        latest=latest,
        cover=cover,
    )


def mix_publication(
    mix: str,
    generations: Sequence[Generation],
    home: Home,
    *,
    version: int,
    now: datetime,
    valid: timedelta | None = None,
) -> Publication:
    """Return a mix of this home as version `version` of its publication; `generations` are those it draws on."""
    opened = open_mix(home.root, mix)
    pins = {generation.name: generation for generation in generations}
    used = [pins[source.generation] for source in opened.report.sources]
    cleared = [require_clearance(generation, clearances(generation.source.pins_folder)) for generation in used]
    folder, root = f"{mix}/{opened.manifest_sha256[:16]}", opened.place.folder
    files = [
        PublishedFile(f"{folder}/{file.name}", root / file.name, file.bytes, file.sha256)
        for file in opened.files.values()
    ]
    raw = (root / MANIFEST).read_bytes()
    files.append(PublishedFile(f"{folder}/{MANIFEST}", raw, len(raw), opened.manifest_sha256))

    def latest(revision: str) -> MixLatest:
        path, digest = f"{folder}/{MANIFEST}", opened.manifest_sha256
        return MixLatest(
            mix=mix,
            version=version,
            manifest=ManifestPointer(path=path, revision=revision, sha256=digest, bytes=len(raw)),
            published_at=_moment(now),
            expires_at=_moment(now + valid) if valid else None,
        )

    def cover(published: AnyLatest) -> tuple[PublishedFile, ...]:
        if not isinstance(published, MixLatest):
            raise TypeError("a mix is published with the LATEST of one")
        return _covered(mix_cover(opened.report, used, published, cleared))

    return Publication(
        name=mix,
        version=version,
        manifest_sha256=opened.manifest_sha256,
        batches=(tuple(files),),
        latest=latest,
        cover=cover,
    )


def _region(frontier: Frontier, index: int) -> list[PublishedFile]:
    entry = frontier.manifest.regions[index]
    return [
        PublishedFile(
            f"{entry.path}/{file.name}", frontier.folder.root / entry.path / file.name, file.bytes, file.sha256
        )
        for file in entry.files
    ]


def _beside(frontier: Frontier) -> Iterable[PublishedFile]:
    """Yield what the regions are named and read by: the codec, the chain of manifests, gates and their evidence."""
    root = frontier.folder.root
    for file in frontier.manifest.codec:
        yield PublishedFile(f"codec/{file.name}", root / "codec" / file.name, file.bytes, file.sha256)
    for version in range(1, frontier.manifest.version + 1):
        yield _small(root, frontier.folder.manifest(version))
    if frontier.latest.gates and frontier.gates:
        yield _small(root, root / frontier.latest.gates.path)
        evidence = {file.path for gate in frontier.gates.named.values() for file in gate.evidence}
        for path in sorted(evidence - {frontier.latest.manifest.path}):
            yield _small(root, root / path)


def _small(root: Path, path: Path) -> PublishedFile:
    return PublishedFile(path.relative_to(root).as_posix(), path, path.stat().st_size, sha256_file(path))


def _covered(files: dict[str, bytes]) -> tuple[PublishedFile, ...]:
    return tuple(PublishedFile(name, raw, len(raw), sha256(raw)) for name, raw in sorted(files.items()))


def _joined(regions: Sequence[list[PublishedFile]]) -> tuple[PublishedFile, ...]:
    return tuple(file for region in regions for file in region)


def _moment(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
