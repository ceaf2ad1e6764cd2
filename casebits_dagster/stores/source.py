"""The store that a pinned source is read from."""

from __future__ import annotations

from casebits_dagster.records.errors import CasebitsError
from casebits_dagster.records.pins import Source
from casebits_dagster.stores.base import Store
from casebits_dagster.stores.local import LocalStore


def source_store(source: Source) -> Store:
    """Return the store: the pinned folder."""
    return LocalStore(source.folder)


def published_sha256(source: Source, path: str) -> str:
    """Return the hash of a source file as its source publishes it: the pinned one, or the one the Hub names."""
    pinned = source.file(path).sha256
    if pinned is None:
        raise CasebitsError("SOURCE_PIN", path, "no hash is pinned or published")
    return pinned
