"""What is published of a frontier or a mix, as files by name: the one description that every destination is given.

Files of `batches` never change under their name. Those of `cover` (the card and what lies beside it) may change with
each version. `LATEST.json` names the revision that holds the batches, so it is made when that is known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from casebits_dagster.records.frontier import Latest
from casebits_dagster.records.mix_latest import MixLatest

AnyLatest: TypeAlias = Latest | MixLatest


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A file by its name in the publication; `content` is a local file, or the bytes themselves."""

    path: str
    content: Path | bytes
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Publication:
    """One version of a frontier or a mix.

    - `batches`: the immutable files, at most 12 regions each; the last batch holds the manifest and all it rests on
    - `latest(revision)`: LATEST.json for batches that lie at a revision (a Hub commit; `sha256:<manifest hash>`)
    - `cover(latest)`: the card and its like, for what that LATEST.json says
    """

    name: str
    version: int
    manifest_sha256: str
    batches: tuple[tuple[PublishedFile, ...], ...]
    latest: Callable[[str], AnyLatest]
    cover: Callable[[AnyLatest], tuple[PublishedFile, ...]]
