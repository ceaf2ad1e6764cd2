"""Publish a version of a frontier or a mix: to a dataset of the Hub, an object store or a folder, by one scheme.

What never changes goes first, in batches, and is not sent where it lies already; then LATEST.json is moved, if nobody
moved it meanwhile. So LATEST.json names nothing that is not there whole, whenever a run is cut off, and the next run
completes what that one began. On the Hub a batch is one commit onto the head, and LATEST.json names the commit that
holds them all; elsewhere files are created once, LATEST.json is compared and swapped, and the card comes after it.

Costs: one listing of what is there, and one hash of each local file that is sent. What an object store holds is read
again only when neither its LATEST.json vouches for it nor this run has sent it.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from casebits_dagster.publication.publication import AnyLatest, Publication, PublishedFile
from casebits_dagster.records.digests import sha256, sha256_file
from casebits_dagster.records.errors import Absent, Conflict, RecordError, Refused
from casebits_dagster.records.frontier import Latest, Manifest
from casebits_dagster.records.layout import LATEST
from casebits_dagster.stores.base import WritableStore, conflict
from casebits_dagster.stores.local import LocalStore
from casebits_dagster.stores.object import object_store

if TYPE_CHECKING:
    from casebits_dagster.stores.hub import Patience
    from casebits_dagster.stores.hub_repository import HubRepository

FILES_A_BATCH = 84
_LOST_RACES = 1000
_HUB = re.compile(r"hf://datasets/([^/@]+/[^/@]+)")


@dataclass(frozen=True, slots=True)
class Published:
    """What stands at the destination: this version, or a later one that contains it. `changed` says whether that is
    this run's doing; `sent_*` count what it sent of the batches, or compared with what was there."""

    latest: AnyLatest
    changed: bool
    sent_files: int
    sent_bytes: int

    @property
    def revision(self) -> str:
        """Where everything lies that LATEST.json names."""
        return self.latest.manifest.revision


class Shelf(Protocol):
    """A destination as it was at the last `look`."""

    def look(self, publication: Publication) -> None: ...

    def get(self, path: str) -> bytes | None: ...

    def has(self, file: PublishedFile) -> bool:
        """Return whether just these bytes are there; False where nobody can tell without reading them."""

    def add(self, files: Sequence[PublishedFile], message: str) -> bool:
        """Add files that are not there. False when another publisher came first; raises Conflict for other bytes."""

    def revision(self, publication: Publication) -> str: ...

    def announce(self, before: bytes | None, latest: bytes, cover: Iterable[PublishedFile], message: str) -> bool:
        """Move LATEST.json on from `before`, and write the cover. False when another publisher came first."""


def publish(
    publication: Publication,
    destination: str,
    *,
    say: Callable[[str], object] = print,
    private: bool = True,
    patience: Patience | None = None,
) -> Published:
    """Publish to a folder, `s3://bucket/prefix` or `hf://datasets/OWNER/NAME` (made when it is not there, private or
    not), and say how far it is.

    Raises Refused ROLLBACK, EQUIVOCATION, HISTORY_REWRITTEN or GENERATION_MISMATCH when what stands there is no earlier
    state of this publication, FILE_HASH when a local file changed, Conflict when other bytes stand under a name.
    """
    return publish_to(open_shelf(destination, private=private, patience=patience), publication, destination, say)


def publish_to(shelf: Shelf, publication: Publication, where: str, say: Callable[[str], object]) -> Published:
    """Publish to an open destination; `where` names it in errors."""
    name, sent = f"{publication.name} version {publication.version}", _Sent(publication, say)
    for _ in range(_LOST_RACES):
        shelf.look(publication)
        before = shelf.get(LATEST)
        standing = _standing(publication, shelf, before, where)
        if standing and standing.version > publication.version:
            say(f"{where} has version {standing.version}, which contains this one")
            return Published(standing, False, sent.files, sent.bytes)
        missing = [[file for file in batch if not shelf.has(file)] for batch in publication.batches]
        if any(missing):
            sent.begin(missing)
            for files in _batches(missing):
                if not sent.add(shelf, files, f"{name}: {len(files)} files"):
                    break
            # What is there by now is looked at once more, as a whole, before it is announced.
            continue
        latest = _unchanged(publication, standing) or publication.latest(shelf.revision(publication))
        cover, raw = publication.cover(latest), latest.to_bytes()
        if raw == before and all(shelf.has(file) for file in cover):
            return Published(latest, False, sent.files, sent.bytes)
        if shelf.announce(before, raw, cover, name):
            say(f"{LATEST} at {where} names version {publication.version}")
            return Published(latest, True, sent.files, sent.bytes)
    raise Conflict("STORE_CONFLICT", where, f"others published first, {_LOST_RACES} times in a row", remedy="try again")


def open_shelf(destination: str, *, private: bool = True, patience: Patience | None = None) -> Shelf:
    """Open what a person names as a destination."""
    if destination.startswith("hf://buckets/"):
        problem = "a bucket has neither versions nor conditions, so two publishers would undo each other"
        raise Refused("STORE_NO_CAS", destination, problem, remedy="publish to hf://datasets/OWNER/NAME")
    if found := _HUB.fullmatch(destination):
        # The client takes 0.4 s to import, and the other destinations need none of it.
        from casebits_dagster.stores.hub_repository import HubRepository

        return _HubShelf(HubRepository(found[1], patience=patience), private)
    if destination.startswith("s3://"):
        return _FileShelf(object_store(destination))
    if "://" in destination:
        expected = "a folder, s3://bucket/prefix or hf://datasets/OWNER/NAME"
        raise RecordError("PATH_UNSAFE", "destination", expected=expected, read=destination)
    return _FileShelf(LocalStore(Path(destination).absolute()))


class _HubShelf:
    """The newest commit of a dataset; all that is added is a commit onto it, or lost the race."""

    def __init__(self, repository: HubRepository, private: bool) -> None:
        self._repository, self._private, self._head = repository, private, ""

    def look(self, publication: Publication) -> None:
        try:
            self._head = self._repository.head()
        except Absent:
            self._repository.create(private=self._private)
            self._head = self._repository.head()
        self._files = self._repository.tree(self._head)

    def get(self, path: str) -> bytes | None:
        return self._repository.at(self._head).get(path) if path in self._files else None

    def has(self, file: PublishedFile) -> bool:
        return file.path in self._files and self._files[file.path].holds(file.content, file.sha256)

    def add(self, files: Sequence[PublishedFile], message: str) -> bool:
        if taken := [file.path for file in files if file.path in self._files]:
            raise conflict(taken[0])
        return self._commit({file.path: file.content for file in files}, message)

    def revision(self, publication: Publication) -> str:
        return self._head

    def announce(self, before: bytes | None, latest: bytes, cover: Iterable[PublishedFile], message: str) -> bool:
        return self._commit({LATEST: latest, **{file.path: file.content for file in cover}}, message)

    def _commit(self, files: dict[str, Path | bytes], message: str) -> bool:
        with contextlib.suppress(Conflict):
            self._head = self._repository.commit(self._head, files, message)
            return True
        return False


class _FileShelf:
    """A folder or an object store, where each file is created by itself."""

    def __init__(self, store: WritableStore) -> None:
        self._store, self._known = store, dict[str, str]()

    def look(self, publication: Publication) -> None:
        """Learn the hashes of what lies there: what this run has put, and what the LATEST.json there vouches for."""
        if self._known or (raw := self.get(LATEST)) is None:
            return
        vouched = dict[str, str]()
        with contextlib.suppress(RecordError):
            latest = type(publication.latest(self.revision(publication))).parse(raw, LATEST)
            if latest.manifest.sha256 == publication.manifest_sha256:
                vouched = {file.path: file.sha256 for batch in publication.batches for file in batch}
            elif isinstance(latest, Latest):
                path = latest.manifest.path
                entries = Manifest.parse(self.get(path) or b"", path).regions
                vouched = {f"{entry.path}/{file.name}": file.sha256 for entry in entries for file in entry.files}
        folders = {path.partition("/")[0] for path in vouched if "/" in path}
        listed = {path for folder in folders for path in self._store.list(folder)}
        self._known = {path: digest for path, digest in vouched.items() if path in listed}

    def get(self, path: str) -> bytes | None:
        try:
            return self._store.get(path)
        except Absent:
            return None

    def has(self, file: PublishedFile) -> bool:
        if isinstance(file.content, bytes) and file.path not in self._known:
            return self.get(file.path) == file.content
        return self._known.get(file.path) == file.sha256

    def add(self, files: Sequence[PublishedFile], message: str) -> bool:
        with ThreadPoolExecutor(4) as pool:
            for _ in pool.map(self._put, files):
                pass
        self._known |= {file.path: file.sha256 for file in files}
        return True

    def revision(self, publication: Publication) -> str:
        return f"sha256:{publication.manifest_sha256}"

    def announce(self, before: bytes | None, latest: bytes, cover: Iterable[PublishedFile], message: str) -> bool:
        if before != latest and not self._store.replace(LATEST, before, latest):
            return False
        return all(self._write_cover(file, latest) for file in cover)

    def _put(self, file: PublishedFile) -> None:
        if isinstance(file.content, Path):
            self._store.put_file(file.path, file.content)
        else:
            self._store.put_new(file.path, file.content)

    def _write_cover(self, file: PublishedFile, latest: bytes) -> bool:
        content = _raw(file)
        while (found := self.get(file.path)) != content:
            # Whoever has moved LATEST.json on since writes a cover of its own, which this one must not replace.
            if self.get(LATEST) != latest:
                return False
            if self._store.replace(file.path, found, content):
                break
        return True


def _raw(file: PublishedFile) -> bytes:
    return file.content if isinstance(file.content, bytes) else file.content.read_bytes()


def _standing(publication: Publication, shelf: Shelf, raw: bytes | None, where: str) -> AnyLatest | None:
    """Return the LATEST.json that stands there, None when there is none.

    Refuses to move on from one that is no earlier state of this publication, nor a later one that contains it.
    """
    if raw is None:
        return None
    ours, place = publication.latest(shelf.revision(publication)), f"{where}/{LATEST}"
    theirs = type(ours).parse(raw, place)
    name = theirs.generation if isinstance(theirs, Latest) else theirs.mix
    if name != publication.name:
        raise Refused("GENERATION_MISMATCH", place, expected=publication.name, read=name)
    mine, code, remedy = publication.manifest_sha256, "EQUIVOCATION", "find out who published what, and from where"
    problem = f"it names another version {theirs.version} than this one"
    found: str | None = theirs.manifest.sha256
    if theirs.version > publication.version:
        there = shelf.get(ours.manifest.path)
        found = sha256(there) if there is not None else None
        problem = f"its version {theirs.version} does not contain this version {publication.version}"
        code = "ROLLBACK" if found is None else code
    elif theirs.version < publication.version:
        hashes = {file.path: file.sha256 for batch in publication.batches for file in batch}
        # A mix that was built anew has nothing of the one before it.
        mine = hashes.get(theirs.manifest.path, "no such version" if isinstance(theirs, Latest) else str(found))
        code, problem = "HISTORY_REWRITTEN", f"its version {theirs.version} is not an earlier one of this"
    if mine != found:
        raise Refused(code, place, problem, expected=mine, read=found or "no such version", remedy=remedy)
    return theirs


def _unchanged(publication: Publication, standing: AnyLatest | None) -> AnyLatest | None:
    """Return the LATEST.json that stands there when this publication would change nothing but its date."""
    if standing is None:
        return None
    made = publication.latest(standing.manifest.revision)
    return standing if replace(made, published_at=standing.published_at) == standing else None


def _batches(missing: Sequence[Sequence[PublishedFile]]) -> Iterator[Sequence[PublishedFile]]:
    for batch in missing:
        for first in range(0, len(batch), FILES_A_BATCH):
            yield batch[first : first + FILES_A_BATCH]


class _Sent:
    """What this run has sent, and how it says so."""

    def __init__(self, publication: Publication, say: Callable[[str], object]) -> None:
        self.files = self.bytes = 0
        self._say, self._left = say, dict[str, int]()
        self._all = [file for batch in publication.batches for file in batch]

    def begin(self, missing: Sequence[Sequence[PublishedFile]]) -> None:
        self._left = {file.path: file.bytes for batch in missing for file in batch}

    def add(self, shelf: Shelf, files: Sequence[PublishedFile], message: str) -> bool:
        """Hash a batch, send it, and say how far that brings the publication. False when another came first."""
        for file in files:
            _require_content(file)
        began, size = time.monotonic(), sum(file.bytes for file in files)
        if not shelf.add(files, message):
            return False
        seconds = max(time.monotonic() - began, 1e-6)
        self.files, self.bytes = self.files + len(files), self.bytes + size
        for file in files:
            del self._left[file.path]
        regions, waiting = _regions(file.path for file in self._all), _regions(self._left)
        whole, left = sum(file.bytes for file in self._all), sum(self._left.values())
        self._say(
            f"{len(regions) - len(waiting)} of {len(regions)} regions, {len(self._all) - len(self._left)} of "
            f"{len(self._all)} files, {(whole - left) / 1e6:.1f} of {whole / 1e6:.1f} MB are there "
            f"({size / 1e6:.1f} MB at {size / 1e6 / seconds:.1f} MB/s)"
        )
        return True


def _regions(paths: Iterable[str]) -> set[str]:
    return {path.rpartition("/")[0] for path in paths if path.startswith("regions/")}


def _require_content(file: PublishedFile) -> None:
    """Refuse a local file that is not what the publication says of it: it changed since."""
    if isinstance(file.content, Path) and not file.content.is_file():
        raise Refused("FILE_MISSING", file.path, f"{file.content} is gone")
    found = sha256(file.content) if isinstance(file.content, bytes) else sha256_file(file.content)
    if found != file.sha256:
        remedy = "what is published is what was verified: verify it again"
        raise Refused("FILE_HASH", file.path, expected=f"sha256 {file.sha256}", read=found, remedy=remedy)
