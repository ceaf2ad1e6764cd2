"""Sixty regions on two workers that share PostgreSQL, Redis and an S3 server: one worker dies, and the server once."""

from __future__ import annotations

import re
import signal
import time
from collections import Counter
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.execution.backfill import BulkActionStatus

from casebits_dagster.lineage.tree import snapshot, tree_digest
from casebits_dagster.orchestration.retries import launch_missed_retries
from casebits_dagster.publication.consume import open_frontier
from casebits_dagster.publication.frontier import advance_frontier
from casebits_dagster.records.layout import ADMISSION, Home
from casebits_dagster.records.pins import load_generation
from tests.cluster.conftest import GENERATION, REGIONS, URL, Cluster
from tests.cluster.guide import blocks
from tests.cluster.machines import Machine
from tests.crashes.work import NOW

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
STAGES = ("filtered_documents", "encoded_arrays", "admission_proof")


def test_sixty_regions_though_a_worker_and_the_store_die(cluster: Cluster, alone: Home, tmp_path: Path) -> None:
    cluster.begun = time.monotonic()
    cluster.start()
    said = cluster.head.run(blocks()["backfill"])
    found_id = re.search(r"\"backfillId\":\s*\"([^\"]+)\"", said)
    assert found_id is not None, said
    backfill = found_id[1]
    cluster.log(f"backfill {backfill} of {REGIONS} regions asked for")
    cluster.wait("a first admission", lambda: len(cluster.admitted()) > 0, 120)
    cluster.log("first region admitted")

    cluster.wait("10 admissions", lambda: len(cluster.admitted()) >= 10, 120)
    cluster.s3.kill()
    cluster.log("S3 server killed (-9)")
    time.sleep(2)
    cluster.s3.start()
    cluster.log("S3 server started again")

    cluster.wait("20 admissions", lambda: len(cluster.admitted()) >= 20, 120)
    victim, region = kill_in_the_middle(cluster)
    (survivor,) = (worker for worker in cluster.workers if worker is not victim)
    before = cluster.admitted()
    cluster.log(f"{victim.name} killed (-9) in the middle of region {region}; {len(before)} admitted")

    def ended() -> bool:
        found = cluster.instance.get_backfill(backfill)
        return found is not None and found.status not in (BulkActionStatus.REQUESTED, BulkActionStatus.FAILING)

    def all_admitted() -> bool:
        for run in launch_missed_retries(cluster.instance):
            cluster.log(f"Dagster's daemon had missed the retry of run {run[:8]}: told to look again")
        return len(cluster.admitted()) == REGIONS

    cluster.wait("all admissions", all_admitted, 400, interval=10)
    cluster.log(f"all {REGIONS} admitted")
    cluster.wait("the end of the backfill", ended, 300)
    found = cluster.instance.get_backfill(backfill)
    assert found is not None
    cluster.log(f"backfill ended: {found.status.value}")
    runs = cluster.instance.get_runs(dg.RunsFilter(tags={"dagster/backfill": backfill}))
    statuses = Counter(run.status.value for run in runs)
    retried = [run for run in runs if run.parent_run_id]
    for run in retried:
        (begun, failed), (again, _) = times(cluster, run.parent_run_id), times(cluster, run.run_id)
        cluster.log(
            f"a run was failed {failed - begun:.0f} s after its start, and begun again {again - failed:.0f} s later"
        )
    cluster.log(f"{len(runs)} runs: {dict(statuses)}; {len(retried)} of them a second try")

    assert found.status == BulkActionStatus.COMPLETED_SUCCESS
    assert statuses["FAILURE"] == len(retried) >= 1
    keys = {f"{index:05d}" for index in range(REGIONS)}
    for stage in STAGES:
        key = dg.AssetKey([GENERATION, stage])
        assert cluster.instance.get_materialized_partitions(key) == keys
    names = [Path(name) for name in cluster.store.list(f"generations/{GENERATION}/regions")]
    assert Counter(name.parent.name for name in names if name.name == ADMISSION) == dict.fromkeys(keys, 1)
    claims = Counter(name.parents[1].name for name in names if name.name == "receipt.json")
    assert claims == dict.fromkeys(keys, 1)
    assert [name.name for name in survivor_runs(survivor, region)] != []

    last, generation = Home(tmp_path / "last", URL), load_generation(cluster.pins, GENERATION)
    advance_frontier(generation, last, now=NOW)
    advance_frontier(generation, alone, now=NOW)
    frontier = open_frontier(last.root, GENERATION)
    frontier.verify_all()
    assert (frontier.manifest.count, frontier.latest.status) == (REGIONS, "complete")
    digests = [tree_digest(snapshot(home)) for home in (last, alone)]
    assert digests[0] == digests[1]
    cluster.log(f"tree digest of the cluster and of one machine: {digests[0][:16]}")


def kill_in_the_middle(cluster: Cluster) -> tuple[Machine, str]:
    """Kill a worker while it works on a region: its verdicts are at home, and no admission is anywhere."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        for victim in cluster.workers:
            if not (begun := under_way(victim)):
                continue
            victim.signal(signal.SIGSTOP)
            # It may have ended between the look and the signal; frozen, it cannot.
            if middle := sorted(begun & under_way(victim) - cluster.admitted()):
                victim.kill()
                return victim, middle[0]
            victim.signal(signal.SIGCONT)
        time.sleep(0.02)
    raise AssertionError("no worker was ever seen in the middle of a region")


def times(cluster: Cluster, run: str | None) -> tuple[float, float]:
    found = cluster.instance.get_run_record_by_id(run or "")
    assert found is not None
    return found.start_time or 0.0, found.end_time or 0.0


def under_way(machine: Machine) -> set[str]:
    folder = Home(machine.home).generation(GENERATION)
    begun = {path.name.split(".")[0] for path in (folder.root / "verdicts").glob("*.parquet")}
    return begun - {path.parent.name for path in (folder.root / "regions").glob(f"*/{ADMISSION}")}


def survivor_runs(machine: Machine, region: str) -> list[Path]:
    return sorted((Home(machine.home).generation(GENERATION).root / "runs" / region).glob("*.json"))
