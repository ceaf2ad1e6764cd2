"""Backfills through the real daemon, and what goes wrong in them: nothing lost, nothing twice, the page says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from casebits_dagster.lineage.tree import snapshot
from casebits_dagster.records.layout import ADMISSION, RECEIPT, Home
from casebits_dagster.records.region import Receipt
from tests.slow.graphql import wait_for
from tests.slow.server import Server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
STAGES = [f"sample/{stage}" for stage in ("filtered_documents", "encoded_arrays", "admission_proof")]
ALL = [f"{index:05d}" for index in range(14)]
ENDED = {"SUCCESS", "FAILURE", "CANCELED"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    home = Home(tmp_path / "home")
    started = Server(home)
    started.start_web()
    started.start_daemon()
    yield started
    # Nothing that a run started may be left when its server has ended.
    assert started.stop(60) == []


def admitted(server: Server) -> list[Path]:
    return sorted(Home(server.home).generation("sample").root.glob(f"regions/*/{ADMISSION}"))


def files(home: Home) -> dict[str, Any]:
    """Return the files that count of a home's regions."""
    return {name: found for name, found in snapshot(home).items() if "/regions/" in f"/{name}" or "/verdicts/" in name}


def test_two_backfills_over_one_range_though_the_daemon_dies_and_the_code_is_reloaded(
    server: Server, sample_home: Home
) -> None:
    first = server.dagster.backfill(STAGES, ALL)
    second = server.dagster.backfill(STAGES, ALL)
    wait_for("a first admission", lambda: admitted(server), 240)
    server.dagster.reload()
    server.kill_daemon()
    server.start_daemon()
    for backfill in (first, second):
        assert server.dagster.end_of_backfill(backfill, 400) == "COMPLETED_SUCCESS"
    assert files(Home(server.home)) == files(sample_home)
    for stage in STAGES:
        assert server.dagster.partitions(stage) == {"numMaterialized": 14, "numFailed": 0, "numMaterializing": 0}


def test_a_cancelled_run_frees_its_slot_and_leaves_what_it_did(server: Server, sample_home: Home) -> None:
    with dg.DagsterInstance.from_config(str(Home(server.home).dagster)) as instance:
        instance.event_log_storage.set_concurrency_slots("sample", 1)
    backfill = server.dagster.backfill(STAGES, ALL)
    wait_for("a first admission", lambda: admitted(server), 240)
    (run,) = server.dagster.runs()
    server.dagster.terminate(run["runId"])
    wait_for("the cancelled run", lambda: server.dagster.runs()[0]["status"] == "CANCELED", 120)
    kept = [path.parent.name for path in admitted(server)]
    assert server.dagster.end_of_backfill(backfill, 120) == "COMPLETED_FAILED"
    again = server.dagster.backfill(STAGES, ALL)
    assert server.dagster.end_of_backfill(again, 300) == "COMPLETED_SUCCESS"
    assert files(Home(server.home)) == files(sample_home)
    said = server.dagster.lines(server.dagster.runs()[0]["runId"])
    hashed = {
        line.split()[1].rstrip(":") for line in said if line.endswith("every byte is as admitted, nothing to make")
    }
    # What was admitted before the end, and told of, is not made again; of at most two it was not told any more.
    assert hashed <= set(kept)
    assert len(hashed) >= len(kept) - 2


def test_a_region_that_always_fails_is_quarantined_and_the_rest_goes_on(server: Server, sample_home: Home) -> None:
    # A claim made of other verdicts is in the way of region 5, which nothing may replace.
    source = sample_home.generation("sample").region(5)
    folder = Home(server.home).generation("sample").region(5)
    folder.mkdir(parents=True)
    receipt = Receipt.parse((source / RECEIPT).read_bytes(), RECEIPT)
    text = receipt.to_bytes().replace(receipt.verdicts_digest.encode(), b"0" * 64)
    (folder / RECEIPT).write_bytes(text)
    server.dagster.start_schedule("sample_next_regions")
    server.dagster.start_sensor("sample_frontier_follows")
    wait_for("the quarantine", lambda: "quarantined" in server.dagster.skipped("sample_next_regions"), 600)
    assert [path.parent.name for path in admitted(server)] == [key for key in ALL if key != "00005"]
    assert server.dagster.partitions("sample/admission_proof") == {
        "numMaterialized": 13,
        "numFailed": 1,
        "numMaterializing": 0,
    }
    said = server.dagster.skipped("sample_next_regions")
    assert said.startswith("13 of 14 admitted, 0 in work; quarantined: 00005 (NONDETERMINISTIC_REGION ")
    runs = [run for run in server.dagster.runs() if run["jobName"] == "sample_regions"]
    covered = [(run["tags"]["dagster/asset_partition_range_start"], run["status"]) for run in runs]
    assert covered[:2] == [("00005", "FAILURE"), ("00005", "FAILURE")]
    said = "the frontier has 5 of 14 regions and waits for 00005"
    wait_for(said, lambda: server.dagster.skipped_sensor("sample_frontier_follows") == said, 120)
