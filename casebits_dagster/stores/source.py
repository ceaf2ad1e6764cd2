"""The store that a pinned source is read from: a folder, or a dataset of the Hub at its pinned revision."""

from __future__ import annotations

from typing import TYPE_CHECKING

from casebits_dagster.records.errors import CasebitsError, Refused
from casebits_dagster.records.pins import Source
from casebits_dagster.stores.base import Store
from casebits_dagster.stores.local import LocalStore

if TYPE_CHECKING:
    from casebits_dagster.stores.hub import HubStore


def source_store(source: Source) -> Store:
    """Return the store; that of a dataset is one a process, which asks for what it knows of a file once."""
    return _hub_store(source) if source.pin.repo_type == "dataset" else LocalStore(source.folder)


def published_sha256(source: Source, path: str) -> str:
    """Return the hash of a source file as its source publishes it: the pinned one, or the one the Hub names."""
    pinned = source.file(path).sha256
    published = _hub_store(source).sha256(path) if source.pin.repo_type == "dataset" else pinned
    if pinned and published and pinned != published:
        raise Refused("SOURCE_PIN", f"{source.pin.repo}/{path}", expected=f"sha256 {pinned}", read=published)
    if not (found := pinned or published):
        raise CasebitsError("SOURCE_PIN", path, "no hash is pinned or published")
    return found


def _hub_store(source: Source) -> HubStore:
    # The client takes 0.4 s to import, and a folder needs none of it.
    from casebits_dagster.stores.hub import hub_endpoint, hub_store

    return hub_store(source.pin.repo, source.pin.revision, hub_endpoint())
