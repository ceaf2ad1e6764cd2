"""What several processes do at once in the concurrency tests: make a region, publish a frontier, read both."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from pathlib import Path

from casebits_dagster.admission import admit_region
from casebits_dagster.filters.region import filter_region
from casebits_dagster.publication.consume import open_frontier
from casebits_dagster.publication.frontier import advance_frontier, pull_frontier
from casebits_dagster.publication.verify_region import verify_region_files
from casebits_dagster.records.errors import Absent, CasebitsError
from casebits_dagster.records.layout import ADMISSION, Home
from casebits_dagster.records.pins import load_generation
from casebits_dagster.regions.encode import encode_region
from casebits_dagster.stores.local import LocalStore
from tests.crashes.work import NOW


def ready(root: Path, name: str, workers: int) -> None:
    """Wait until all workers of a round are here."""
    (root / name).touch()
    while len(list(root.iterdir())) < workers:
        time.sleep(0.0005)


def make_all(pins: Path, root: Path, meeting: Path, run: int, workers: int) -> list[tuple[bool, bool]]:
    """Take every golden region through its stages; return for each whether this run published region and admission."""
    generation, home = load_generation(pins, "golden"), Home(root)
    ready(meeting, str(run), workers)
    made = []
    for region in generation.plan:
        filter_region(generation, region.index, home)
        encoded = encode_region(generation, region.index, home)
        admitted = admit_region(generation, region.index, home, run_id=f"run-{run}")
        made.append((encoded.published, admitted.published))
    advance_frontier(generation, home, now=NOW)
    return made


def publish_slowly(pins: Path, root: Path, regions: Path, run: int) -> int:
    """Bring in finished regions in order, each by rename and link, a frontier after each; return how many it made."""
    generation, home = load_generation(pins, "sample"), Home(root)
    folder, store, changed = home.generation("sample"), LocalStore(root), 0
    for region in generation.plan:
        source, target = regions / folder.region(region.index).name, folder.region(region.index)
        with store.staged(f"copy.{run}") as staging:
            staged = staging / "region"
            staged.mkdir()
            for path in source.iterdir():
                if path.name != ADMISSION:
                    (staged / path.name).write_bytes(path.read_bytes())
            store.publish_folder(staged, target.relative_to(root).as_posix(), added_later=(ADMISSION,))
        store.put_new((target / ADMISSION).relative_to(root).as_posix(), (source / ADMISSION).read_bytes())
        changed += advance_frontier(generation, home, now=NOW).changed
    return changed


def read_frontiers(root: Path, done: Path) -> tuple[list[int], Counter[str]]:
    """Open and verify the frontier until the writers are done; return the versions seen, and refusals by code."""
    seen, refused = [], Counter[str]()
    while not done.exists():
        try:
            frontier = open_frontier(root, "sample")
            frontier.verify_all()
            seen.append(frontier.manifest.count)
        except CasebitsError as error:
            refused[error.code] += 1
    return seen, refused


def read_regions(root: Path, regions: int, done: Path) -> Counter[str]:
    """Verify each region's files until the writers are done; return how often each answer came."""
    folder, answers = Home(root).generation("sample"), Counter[str]()
    while not done.exists():
        for index in range(regions):
            try:
                verify_region_files(folder.region(index), "region")
                answers["admitted"] += 1
            except CasebitsError as error:
                answers[error.code] += 1
    return answers


def work_shared(pins: Path, root: Path, url: str, run: int) -> int:
    """Take every region of the sample through its stages on one of several machines; return how many it admitted."""
    generation, home = load_generation(pins, "sample"), Home(root, url)
    admitted = 0
    for region in generation.plan[4 * run :] + generation.plan[: 4 * run]:
        filter_region(generation, region.index, home)
        encode_region(generation, region.index, home)
        admitted += admit_region(generation, region.index, home, run_id=f"run-{run}").published
        with contextlib.suppress(Absent):
            advance_frontier(generation, home, now=NOW)
    return admitted


def read_shared(root: Path, url: str, done: Path) -> tuple[list[int], Counter[str]]:
    """Bring the frontier of a shared store home and verify it, again and again; return as `read_frontiers`."""
    seen, refused = [], Counter[str]()
    while not done.exists():
        try:
            pull_frontier(Home(root, url), "sample")
            frontier = open_frontier(root, "sample")
            frontier.verify_all()
            seen.append(frontier.manifest.count)
        except CasebitsError as error:
            refused[f"{error.code} {error.where}"] += 1
    return seen, refused
