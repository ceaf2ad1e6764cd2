"""The stratification report of a frontier as a file beside its manifest, and the gate that judges it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.publication.consume import Frontier, open_frontier
from casebits_dagster.publication.frontier import pull_frontier
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.frontier import Manifest
from casebits_dagster.records.gates import Evidence, Gate
from casebits_dagster.records.layout import Home
from casebits_dagster.records.pins import default_pins_folder
from casebits_dagster.records.stratification import Earlier, StratificationReport
from casebits_dagster.records.tolerances import Tolerances, pinned_tolerances
from casebits_dagster.regions.index import cached_scores, recorded_metrics
from casebits_dagster.regions.read import Region
from casebits_dagster.stores.local import LocalStore
from casebits_dagster.stratify import Prefix, stratification_gate, tabulate


@dataclass(frozen=True, slots=True)
class WrittenReport:
    """A report and what the pinned tolerances say of it; `published` is False when identical bytes were there."""

    report: StratificationReport
    path: Path
    sha256: str
    published: bool
    tolerances: Tolerances | None
    gate: Gate


def write_stratification(generation: str, home: Home, pins_folder: Path | None = None) -> WrittenReport:
    """Tabulate the newest frontier of a generation, publish the report under the frontier's version, and judge it.

    One region's rows are in memory at a time, and 28 bytes a document in staging.
    """
    tolerances = pinned_tolerances(pins_folder or default_pins_folder(), generation)
    pull_frontier(home, generation)
    frontier, folder = open_frontier(home.root, generation), home.generation(generation)
    store = LocalStore(folder.root, home.staging)
    with store.staged("stratification") as scratch:
        report = tabulate(_prefix(frontier, tolerances), scratch)
    path, content = folder.stratification(report.version), report.to_bytes()
    # What a gate rests on is kept by its content; here lies the newest one alone, which other pins may have changed.
    before = store.get(folder.name(path)) if path.exists() else None
    published = before != content and store.replace(folder.name(path), before, content)
    evidence = Evidence(path=folder.name(path), sha256=sha256(content))
    gate = stratification_gate(report, tolerances, [evidence])
    return WrittenReport(report, path, evidence.sha256, published, tolerances, gate)


def _prefix(frontier: Frontier, tolerances: Tolerances | None) -> Prefix:
    manifest = frontier.manifest
    filled = next((entry.index for entry in manifest.regions if entry.documents), None)
    metrics = () if filled is None else recorded_metrics(frontier.region(filled))
    return Prefix(
        generation=manifest.generation,
        version=manifest.version,
        manifest_sha256=frontier.manifest_sha256,
        regions=manifest.count,
        splits=(manifest.splits.train.documents, manifest.splits.validation.documents),
        metrics=metrics,
        rows=frontier.rows,
        scores=partial(_scores, frontier, metrics),
        earlier=_earlier(frontier),
        expected=tolerances.expected if tolerances else {},
    )


def _earlier(frontier: Frontier) -> Earlier | None:
    if (previous := frontier.manifest.previous) is None:
        return None
    path = frontier.folder.manifest(previous.version)
    regions = Manifest.parse(path.read_bytes(), frontier.folder.name(path)).regions
    return Earlier(
        version=previous.version,
        regions=len(regions),
        documents=sum(entry.documents for entry in regions),
        tokens=sum(entry.tokens for entry in regions),
    )


@dataclass(frozen=True, slots=True)
class _Recorded(Region):
    """A region whose kept score columns are read as they are: it is verified only where they must be made again."""

    verified: Callable[[], Region]

    def documents(self) -> list[dict[str, object]]:
        return self.verified().documents()


def _scores(frontier: Frontier, metrics: tuple[str, ...], index: int) -> NDArray[np.int64]:
    seen = Region.open(frontier.folder.region(index))
    arrays = seen.ids, seen.cases, seen.offsets, seen.raw_bytes
    region = _Recorded(seen.folder, frontier.receipt(index), *arrays, partial(frontier.region, index))
    return cached_scores(region, metrics)
