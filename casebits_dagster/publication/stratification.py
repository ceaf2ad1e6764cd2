"""The stratification report of a frontier as a file beside its manifest."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.publication.consume import Frontier, open_frontier
from casebits_dagster.publication.frontier import pull_frontier
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.layout import Home
from casebits_dagster.records.record import micro
from casebits_dagster.records.stratification import StratificationReport
from casebits_dagster.stores.local import LocalStore
from casebits_dagster.stratify import tabulate


@dataclass(frozen=True, slots=True)
class WrittenReport:
    """A report as published; `published` is False when identical bytes were there."""

    report: StratificationReport
    path: Path
    sha256: str
    published: bool


def write_stratification(generation: str, home: Home) -> WrittenReport:
    """Tabulate the newest frontier of a generation and publish the report under the frontier's version."""
    pull_frontier(home, generation)
    frontier = open_frontier(home.root, generation)
    report = tabulate(
        generation, frontier.manifest.version, frontier.manifest_sha256, frontier.index, _scores(frontier)
    )
    folder = home.generation(generation)
    path = folder.stratification(frontier.manifest.version)
    store = LocalStore(folder.root, home.staging)
    published = store.put_new(folder.name(path), report.to_bytes())
    return WrittenReport(report, path, sha256(report.to_bytes()), published)


def _scores(frontier: Frontier) -> dict[str, NDArray[np.int64]]:
    columns: dict[str, list[int]] = {}
    for number in range(frontier.manifest.count):
        for document in frontier.region(number).documents():
            for metric, text in document["scores"].items():
                columns.setdefault(metric, []).append(micro(text))
    return {metric: np.array(column, "<i8") for metric, column in columns.items()}
