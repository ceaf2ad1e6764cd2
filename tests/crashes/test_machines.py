"""Three machines on a real S3 server that is killed in the middle of their work, as one of the machines is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from casebits_dagster.lineage.tree import snapshot
from casebits_dagster.processes import process_pool
from casebits_dagster.publication.consume import open_frontier
from casebits_dagster.publication.frontier import pull_frontier
from casebits_dagster.records.errors import CasebitsError
from casebits_dagster.records.layout import Home
from casebits_dagster.records.pins import load_generation
from casebits_dagster.stores import regions as stored_regions
from tests.crashes.concurrent import read_shared, work_shared
from tests.stores.conftest import set_environment
from tests.stores.s3_server import BUCKET, Server, seaweed

pytestmark = pytest.mark.slow
URL = f"s3://{BUCKET}/corpora"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server of this test alone, which no store of another test is opened on."""
    folder = tmp_path / "server"
    folder.mkdir()
    with seaweed(folder) as running:
        set_environment(monkeypatch, running.port)
        stored_regions._opened.cache_clear()
        yield running
        stored_regions._opened.cache_clear()


def regions_of(home: Home) -> dict[str, str]:
    return {path: digest for path, digest in snapshot(home).items() if "/regions/" in path}


def test_a_server_killed_again_and_again_loses_nothing(
    pins: Path, sample_home: Home, tmp_path: Path, server: Server
) -> None:
    kills = 0
    with process_pool(4) as pool:
        reader = pool.submit(read_shared, tmp_path / "reader", URL, tmp_path / "done")
        runs = [pool.submit(work_shared, pins, tmp_path / f"home-{run}", URL, run) for run in range(3)]
        while not all(run.done() for run in runs):
            time.sleep(5)
            server.kill()
            kills += 1
            time.sleep(0.5)
            server.start()
        admitted = sum(run.result() for run in runs)
        (tmp_path / "done").touch()
        seen, refused = reader.result()
    last = Home(tmp_path / "last", URL)
    pull_frontier(last, "sample")
    frontier = open_frontier(last.root, "sample")
    frontier.verify_all()
    regions = len(load_generation(pins, "sample").plan)
    # Not how many were acknowledged: two machines send the same bytes, and both may have lost the answer to theirs.
    assert (frontier.manifest.count, frontier.latest.status) == (regions, "complete")
    assert (seen, set(refused)) == (sorted(seen), {"FILE_MISSING generations/sample/LATEST.json"})
    assert kills >= 2
    assert regions_of(last) == regions_of(sample_home)
    print(f"{kills} kills of the server; {admitted} of {regions} admissions acknowledged; read: {sorted(set(seen))}")


@pytest.mark.usefixtures("server")
def test_a_killed_machine_is_finished_by_the_next(pins: Path, sample_home: Home, tmp_path: Path) -> None:
    for number in range(3):
        with process_pool(1) as pool:
            died = pool.submit(work_shared, pins, tmp_path / f"home-{number}", URL, 0)
            time.sleep(2 + number)
            pool.shutdown(wait=False, kill_workers=True)  # type: ignore[call-arg]
            with pytest.raises((CasebitsError, RuntimeError)):
                died.result()
    work_shared(pins, tmp_path / "last", URL, 0)
    frontier = open_frontier(tmp_path / "last", "sample")
    frontier.verify_all()
    assert frontier.latest.status == "complete"
    assert regions_of(Home(tmp_path / "last")) == regions_of(sample_home)
