"""Find documents: in regions by the document index, in frontiers by their manifests, in mixes by their tables.

Costs: one read and one hash of each index file (42 bytes a document), one comparison a document, and of a mix its
tables. A region without an index is searched by its documents.jsonl.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.lineage.audited_mix import AuditedMix
from casebits_dagster.lineage.chain import Chain, Pinned
from casebits_dagster.lineage.records import Searched, SplitName, Use
from casebits_dagster.mixing.sources import Withdrawn
from casebits_dagster.publication.frontier import pull_frontier
from casebits_dagster.records.errors import Absent, CasebitsError
from casebits_dagster.records.frontier import Latest, Manifest
from casebits_dagster.records.layout import DOCUMENTS, RECEIPT, GenerationFolder, Home, region_id
from casebits_dagster.records.mix import MANIFEST
from casebits_dagster.records.pins import Generation
from casebits_dagster.records.region import Receipt
from casebits_dagster.records.withdrawal import SourceRow, Withdrawal, load_withdrawals, used
from casebits_dagster.regions.index import kept_index

FIRST = 100
Ids = NDArray[np.void]


class Place(NamedTuple):
    """A document of a region, by its index there."""

    generation: str
    region: int
    number: int
    id: str


@dataclass(frozen=True, slots=True)
class Found:
    """Where texts lie, what was searched for them, and which regions could not be, and why."""

    places: tuple[Place, ...]
    searched: tuple[Searched, ...]
    unread: tuple[tuple[str, str], ...]


def as_ids(texts: Iterator[str] | tuple[str, ...] | list[str] | set[str]) -> Ids:
    """Return document ids in hex as an array, "V16", sorted, each once."""
    return np.frombuffer(b"".join(bytes.fromhex(text) for text in sorted(set(texts))), "V16")


def rows_with(ids: Ids, wanted: Ids) -> NDArray[np.int64]:
    """Return the places in `ids` of any that is `wanted`."""
    if not len(wanted) or not len(ids):
        return np.empty(0, np.int64)
    halves = np.ascontiguousarray(ids).view("<u8").reshape(-1, 2)
    near = np.flatnonzero(np.isin(halves[:, 0], wanted.view("<u8").reshape(-1, 2)[:, 0]))
    known = set(wanted.tolist())
    return np.array([row for row in near.tolist() if ids[row].tobytes() in known], np.int64)


def generation_folders(home: Home) -> dict[str, GenerationFolder]:
    """Return the generations that have something below the home, by name."""
    names = sorted(path.name for path in (home.root / "generations").glob("*") if path.is_dir())
    return {name: home.generation(name) for name in names}


def find_documents(home: Home, wanted: Ids) -> Found:
    """Return every document below the home, in any published region, whose id is wanted."""
    places, searched, unread = list[Place](), list[Searched](), list[tuple[str, str]]()
    # Reading and hashing leave the interpreter to others.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, folder in generation_folders(home).items():
            found = list(pool.map(partial(_search, folder, wanted), _receipts(folder)))
            unread += [(f"{name}/{region_id(one.region)}", one.problem) for one in found if one.problem]
            places += [Place(name, region.region, at, text) for region in found for at, text in region.hits]
            indexed, documents = sum(region.indexed for region in found), sum(region.documents for region in found)
            searched.append(Searched(generation=name, regions=len(found), indexed=indexed, documents=documents))
    return Found(tuple(places), tuple(searched), tuple(unread))


class _Region(NamedTuple):
    """A region that was searched: the places and ids of what is wanted, and what kept it from being searched."""

    region: int
    hits: list[tuple[int, str]]
    indexed: bool
    documents: int
    problem: str = ""


def _search(folder: GenerationFolder, wanted: Ids, path: Path) -> _Region:
    region = int(path.parent.name)
    try:
        rows = kept_index(folder, region, _receipt(path))
        ids = rows["id"] if rows is not None else _listed_ids(path.with_name(DOCUMENTS))
    except (CasebitsError, OSError, ValueError, LookupError, TypeError) as error:
        return _Region(region, [], False, 0, str(error) or type(error).__name__)
    hits = [(at, ids[at].tobytes().hex()) for at in rows_with(ids, wanted).tolist()]
    return _Region(region, hits, rows is not None, len(ids))


def _receipts(folder: GenerationFolder) -> list[Path]:
    return sorted((folder.root / "regions").glob(f"*/{RECEIPT}"))


def _receipt(path: Path) -> Receipt:
    return Receipt.parse(path.read_bytes(), str(path))


def _listed_ids(path: Path) -> Ids:
    return np.frombuffer(
        b"".join(bytes.fromhex(json.loads(line)["id"]) for line in path.read_bytes().splitlines()), "V16"
    )


def region_of_row(row: SourceRow, home: Home, generations: Mapping[str, Generation]) -> int:
    """Return the region whose range holds a source row: by the plan where it is pinned, else by the receipts.

    Raises Absent when there is none.
    """
    if row.generation in generations:
        plan = generations[row.generation].plan
        ranges = [(spec.index, spec.path, spec.begin, spec.end) for spec in plan]
    else:
        found = map(_receipt, _receipts(home.generation(row.generation)))
        ranges = [(one.region.index, one.source.path, one.source.begin, one.source.end) for one in found]
    for index, path, begin, end in ranges:
        if path == row.path and begin <= row.position < end:
            return index
    where = f"{row.generation}: {row.path} at {row.position}"
    raise Absent("NO_SUCH_ROW", where, f"no region of {row.generation} covers it")


def line_of_row(lines: list[bytes], position: int) -> int | None:
    """Return the index of the document that is a source row, by the lines of documents.jsonl; None when none is."""
    # The lines are canonical JSON, so a number is written in one way, and "split" follows it.
    mark = f'"source_position":{position},'.encode()
    return next((index for index, line in enumerate(lines) if mark in line), None)


def withdrawn_ids(withdrawals: Mapping[str, Withdrawal], home: Home, generations: Mapping[str, Generation]) -> Ids:
    """Return the ids of all withdrawn documents, sorted; rows that are no document have none."""
    texts = {text for pin in withdrawals.values() for text in pin.documents}
    for row in (row for pin in withdrawals.values() for row in pin.rows):
        folder = home.generation(row.generation).region(region_of_row(row, home, generations))
        if (folder / DOCUMENTS).is_file():
            lines = (folder / DOCUMENTS).read_bytes().splitlines()
            index = line_of_row(lines, row.position)
            texts |= set() if index is None else {json.loads(lines[index])["id"]}
    return as_ids(texts)


def in_force(pins_folder: Path, home: Home, generations: Mapping[str, Generation]) -> Withdrawn:
    """Return what is withdrawn now, as a mix is told of it when it is built.

    Where machines share a store, the frontiers whose rows are withdrawn are brought home first: a row that nobody finds
    here would be left out of nothing.
    """
    withdrawals = load_withdrawals(pins_folder)
    for name in {row.generation for pin in withdrawals.values() for row in pin.rows}:
        with contextlib.suppress(Absent):  # nothing of it is published yet
            pull_frontier(home, name)
    return Withdrawn(withdrawn_ids(withdrawals, home, generations), used(withdrawals))


def newest(home: Home, generation: str) -> Pinned:
    """Return the newest frontier version by LATEST.json. Raises Absent when there is none."""
    path = home.generation(generation).latest
    if not path.exists():
        raise Absent("LATEST_MISSING", str(path), "the generation has no frontier", remedy="see `casebits status`")
    latest = Latest.parse(path.read_bytes(), str(path))
    return Pinned(generation, latest.version, latest.manifest.sha256)


def first_version(chain: Chain, pinned: Pinned, region: int) -> int:
    """Return the first version of a frontier that holds a region, 0 when not even the newest does.

    Versions only grow, so a few of their manifests are read; they are hashed along the chain to the newest when a
    frontier is opened, not here.
    """
    if region >= chain.manifest(pinned).count:
        return 0
    folder, low, high = chain.home.generation(pinned.generation), 1, pinned.version
    while low < high:
        middle = (low + high) // 2
        path = folder.manifest(middle)
        holds = Manifest.parse(path.read_bytes(), str(path)).count > region
        low, high = (low, middle) if holds else (middle + 1, high)
    return low


def mix_folders(home: Home) -> list[Path]:
    """Return the folders of all published mixes, by name."""
    return sorted(path.parent for path in (home.root / "mixes").glob(f"*/{MANIFEST}"))


def uses(mix: AuditedMix, inside: Callable[[AuditedMix, NDArray[Any]], NDArray[np.int64]]) -> Iterator[Use]:
    """Yield, for each split that holds any, the use of those documents of a mix whose rows `inside` returns."""
    splits: tuple[SplitName, ...] = get_args(SplitName)
    for split in splits:
        segments, documents, windows = mix.tables(split)
        rows = inside(mix, documents)
        if not len(rows):
            continue
        asked = np.zeros(len(documents), bool)
        asked[rows] = True
        runs = segments[asked[segments["document"]] & (segments["window"] < windows)]
        numbers = np.unique(runs["window"])
        yield Use(
            mix=mix.name,
            mix_manifest_sha256=mix.files.manifest_sha256,
            split=split,
            documents=len(rows),
            tokens=int(runs["length"].sum(dtype=np.int64) - runs["inserted"].sum(dtype=np.int64)),
            windows=len(numbers),
            first_windows=tuple(numbers[:FIRST].tolist()),
        )
