"""Where a publication lies: a folder, an object store, or a dataset of the Hub. All of them are read as a local folder.

Of a remote place, a file is fetched into this machine's cache when it is first needed, and hashed on the way in; what
does not hash as its manifest says is not kept. Costs: one request a file that is not in the cache yet.
"""

from __future__ import annotations

import os
import re
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from casebits_dagster.records.digests import sha256, sha256_file
from casebits_dagster.records.errors import Absent, RecordError, Refused
from casebits_dagster.records.frontier import ManifestPointer
from casebits_dagster.records.layout import LATEST
from casebits_dagster.stores.base import Store, safe_path
from casebits_dagster.stores.local import LocalStore, make_folder

if TYPE_CHECKING:
    from casebits_dagster.stores.hub_repository import HubRepository

_HUB = re.compile(r"hf://datasets/([^/]+/[^/]+)")
LATEST_LIMIT = 64 << 10


class RemoteStore(Store, Protocol):
    """What is fetched from."""

    def list(self, prefix: str) -> list[str]: ...
    def fetch(self, path: str, target: Path) -> str: ...


@dataclass(slots=True)
class Place:
    """A publication's root: `folder` is read, `store` (None: the folder is all there is) is what it is filled from.

    `url` is what people call it, `trust` where its trust state is kept when nobody says otherwise (None: nowhere), and
    `own` says that nobody else writes into `folder`: what is derived may be kept there, and believed.
    """

    url: str
    folder: Path
    store: RemoteStore | None = None
    trust: Path | None = None
    repository: HubRepository | None = None
    own: bool = False

    def latest(self) -> bytes:
        """Return LATEST.json as it is now. Of the Hub: at the commit that is its head, which is looked up once.

        Raises LATEST_MISSING, LATEST_TOO_LARGE, or that the place cannot be reached.
        """
        store: Store = self.store or LocalStore(self.folder)
        try:
            if self.repository:
                store = self.store = self.repository.at(self.repository.head())
            size = store.size(LATEST)
            if size > LATEST_LIMIT:
                raise Refused("LATEST_TOO_LARGE", f"{self.url}/{LATEST}", expected=f"at most {LATEST_LIMIT}", read=size)
            return store.get(LATEST)
        except Absent as error:
            raise Refused("LATEST_MISSING", f"{self.url}/{LATEST}", "nothing is published here") from error

    def pin(self, revision: str, manifest_sha256: str) -> None:
        """Read all else at the revision that LATEST names. Raises REVISION_NOT_PINNED when that is none of the place.

        A commit of the Hub, of 40 hex digits; elsewhere files never change under their name, and the revision is the
        hash of the manifest.
        """
        if self.repository:
            if not re.fullmatch("[0-9a-f]{40}", revision):
                expected = "a commit of 40 hex digits"
                raise Refused("REVISION_NOT_PINNED", f"{LATEST}: manifest.revision", expected=expected, read=revision)
            self.store = self.repository.at(revision)
        elif revision != f"sha256:{manifest_sha256}":
            expected = f"sha256:{manifest_sha256}"
            raise Refused("REVISION_NOT_PINNED", f"{LATEST}: manifest.revision", expected=expected, read=revision)

    def bring(self, name: str, size: int | None = None, digest: str | None = None) -> Path:
        """Return the local path of a file, fetched when it is not in the cache. It may still be missing.

        A cached file of another size, or whose hash is known to be another one, is fetched again; what comes with
        another hash is refused (FILE_HASH), and not kept.
        """
        path = self.folder / safe_path(name)
        if self.store is None or (path.is_file() and size in (None, path.stat().st_size)):
            return path
        part = self.folder / ".parts" / uuid.uuid4().hex
        make_folder(part.parent)
        make_folder(path.parent)
        try:
            found = self.store.fetch(name, part)
            if digest and found != digest:
                problem = "the bytes that came are not those that are listed"
                raise Refused("FILE_HASH", self.name(name), problem, expected=f"sha256 {digest}", read=found)
            part.replace(path)
        except Absent:
            path.unlink(missing_ok=True)
        finally:
            part.unlink(missing_ok=True)
        return path

    def mend(self, name: str, digest: str) -> None:
        """Drop a cached file that has another hash, so that it is fetched anew. A folder of its own is left alone."""
        path = self.folder / name
        if self.store is not None and path.is_file() and sha256_file(path) != digest:
            path.unlink()

    def names(self, prefix: str) -> set[str]:
        """Return the names of the files in a folder of the place."""
        if self.store is not None:
            return {path.removeprefix(f"{prefix}/") for path in self.store.list(prefix)}
        folder = self.folder / prefix
        return {path.name for path in folder.iterdir()} if folder.is_dir() else set()

    def name(self, path: str) -> str:
        """Return how messages name a file: short for a folder, with its place for what is remote."""
        return path if self.store is None and self.repository is None else f"{self.url}/{path}"


def read_pointed(place: Place, pointer: ManifestPointer) -> bytes:
    """Return the manifest that LATEST points at. Raises MANIFEST_MISSING, MANIFEST_SIZE or MANIFEST_HASH."""
    path = place.bring(pointer.path)
    if not path.is_file():
        raise Refused("MANIFEST_MISSING", pointer.path, "LATEST names a manifest that is not there")
    raw = path.read_bytes()
    if len(raw) != pointer.bytes:
        raise Refused("MANIFEST_SIZE", pointer.path, expected=f"{pointer.bytes} bytes", read=len(raw))
    if sha256(raw) != pointer.sha256:
        raise Refused("MANIFEST_HASH", pointer.path, expected=pointer.sha256, read=sha256(raw))
    return raw


def open_place(location: str | Path, cache: Path | None = None) -> Place:
    """Return the place of a location: a folder, `s3://bucket/prefix` or `hf://datasets/OWNER/NAME`.

    `cache` is where remote places keep what they fetched: `$CASEBITS_CACHE`, else `~/.cache/casebits`.
    """
    url = str(location)
    if "://" not in url:
        return Place(url, Path(location).absolute())
    found = _HUB.fullmatch(url)
    if not found and not url.startswith("s3://"):
        expected = "a folder, s3://bucket/prefix or hf://datasets/OWNER/NAME"
        raise RecordError("PATH_UNSAFE", "location", expected=expected, read=url)
    kept = cache or Path(os.environ.get("CASEBITS_CACHE") or Path.home() / ".cache" / "casebits")
    folder = kept.absolute() / f"{re.sub('[^A-Za-z0-9.-]+', '-', url)}.{sha256(url.encode())[:16]}"
    trust = folder.with_name(f"{folder.name}.trust.json")
    # Each client takes a while to import, and a folder needs neither.
    if found:
        from casebits_dagster.stores.hub_repository import HubRepository

        return Place(url, folder, trust=trust, repository=HubRepository(found[1]), own=True)
    from casebits_dagster.stores.object import object_store

    return Place(url, folder, object_store(url), trust, own=True)
