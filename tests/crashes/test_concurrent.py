"""Several processes at once: on one partition, on one frontier, and readers beside writers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from casebits_dagster.lineage.tree import snapshot
from casebits_dagster.processes import process_pool
from casebits_dagster.records.layout import Home
from casebits_dagster.records.pins import load_generation
from tests.crashes.concurrent import make_all, publish_slowly, read_frontiers, read_regions
from tests.crashes.work import golden_pins, publish

ROUNDS, WORKERS = 4, 3


def test_runs_of_the_same_partitions_at_once_make_them_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pins = golden_pins(tmp_path)
    publish(pins, tmp_path / "alone")
    expected = snapshot(Home(tmp_path / "alone"))
    with process_pool(WORKERS) as pool:
        for number in range(ROUNDS):
            root, meeting = tmp_path / f"home-{number}", tmp_path / f"meeting-{number}"
            meeting.mkdir()
            runs = [pool.submit(make_all, pins, root, meeting, run, WORKERS) for run in range(WORKERS)]
            made = [run.result() for run in runs]
            for region in range(2):
                assert [sum(run[region][step] for run in made) for step in (0, 1)] == [1, 1]
            found = snapshot(Home(root))
            frontiers = {path for path in expected | found if "/frontier/" in path}
            # How many versions the runs made together is chance, what they hold is not.
            assert {k: v for k, v in found.items() if k not in frontiers} == {
                k: v for k, v in expected.items() if k not in frontiers
            }
            assert list((root / ".staging").iterdir()) == [root / ".staging" / "lock"]


def test_what_is_read_while_it_is_published_is_old_or_new(pins: Path, sample_home: Home, tmp_path: Path) -> None:
    root, done = tmp_path / "home", tmp_path / "done"
    regions = len(load_generation(pins, "sample").plan)
    shutil.copytree(sample_home.generation("sample").root / "regions", tmp_path / "regions")
    with process_pool(4) as pool:
        frontiers, parts = pool.submit(read_frontiers, root, done), pool.submit(read_regions, root, regions, done)
        writers = [pool.submit(publish_slowly, pins, root, tmp_path / "regions", run) for run in range(2)]
        changed = [writer.result() for writer in writers]
        done.touch()
        (seen, refused), answers = frontiers.result(), parts.result()
    assert seen == sorted(seen)
    assert set(refused) <= {"LATEST_MISSING"}
    assert set(answers) <= {"REGION_MISSING", "ADMISSION_MISSING", "admitted"}
    assert min(len(set(seen)), answers["admitted"], sum(changed)) >= 1
    manifests = sorted(path.name for path in Home(root).generation("sample").manifests.iterdir())
    assert sum(changed) <= len(manifests) <= regions
