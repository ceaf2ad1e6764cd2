"""Every command of the operator's guide, run as it stands: on a cluster, and on a machine that stands alone."""

from __future__ import annotations

import contextlib
import json
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.scheduler.instigation import InstigatorStatus

from casebits_dagster.records.layout import ADMISSION, Home
from tests.cluster.conftest import GENERATION, URL, Cluster
from tests.cluster.guide import blocks
from tests.cluster.machines import CHECKOUT, Machine
from tests.cluster.servers import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
ON_THE_CLUSTER = {
    *("reach", "cluster", "workers", "drain", "backfill", "alive", "backfills", "unfinished", "slots", "failed", "why"),
    *("missed", "terminate", "upgrade", "web", "head", "worker", "automation"),
}
ALONE = {"one-person": "one-region", "one-server": "one-server"}


def test_every_command_of_the_guide_is_run_here() -> None:
    assert set(blocks()) == ON_THE_CLUSTER | set(ALONE.values())


def test_the_commands_on_a_cluster(cluster: Cluster) -> None:
    """The last test of the cluster: it drains the workers, and is left with a run that nobody takes."""
    commands, head = blocks(), cluster.head
    running, port = cluster.start(), free_port()
    head.start(["bash", "-c", f"PORT={port}; {commands['web']}"])

    assert head.run(commands["reach"]).split()[-2:] == ["PONG", URL]
    assert "CeleryRunLauncher" in head.run(commands["cluster"])
    cluster.wait("every worker", lambda: head.run(commands["workers"]).count("pong") == len(running), 60, interval=2)
    cluster.wait("the web server", lambda: _served(port), 60)
    assert head.run(commands["alive"]) == "Daemon live\n"

    for worker in running:
        worker.environment["WORKER"] = worker.name
        worker.run(commands["drain"])
    cluster.wait("the end of the drained", lambda: [one for one in running if one.processes()] == [], 60)
    backfill = _data(head.run(commands["backfill"]))["launchPartitionBackfill"]["backfillId"]
    waiting = dg.RunsFilter(tags={"dagster/backfill": backfill}, statuses=[dg.DagsterRunStatus.STARTING])
    cluster.wait("runs that no worker takes", lambda: len(cluster.instance.get_runs(waiting)) == 2, 120)

    found = _data(head.run(commands["backfills"]))["partitionBackfillsOrError"]["results"]
    assert (found[0]["id"], found[0]["status"], found[0]["error"]) == (backfill, "REQUESTED", None)
    runs = _data(head.run(commands["unfinished"]))["runsOrError"]["results"]
    states = Counter(run["status"] for run in runs)
    assert (states["STARTING"], set(states)) == (2, {"STARTING", "QUEUED"})
    assert head.run(commands["slots"]).split()[-1] == "2"
    (run, *_) = (run["runId"] for run in runs if run["status"] == "STARTING")
    head.environment["RUN"] = run
    assert _data(head.run(commands["terminate"])) == {"terminateRun": {"__typename": "TerminateRunSuccess"}}
    assert cluster.instance.get_run_by_id(run).status == dg.DagsterRunStatus.CANCELED  # type: ignore[union-attr]

    failed = _data(head.run(commands["failed"]))["runsOrError"]["results"]
    head.environment["RUN"] = failed[0]["runId"] if failed else run
    assert set(_data(head.run(commands["why"]))["logsForRun"]) == {"events"}
    assert head.run(commands["missed"]) == "no retry was missed\n"
    assert "Validation successful" in head.run(commands["upgrade"] + " 2>&1")
    head.run(commands["automation"])
    switched_on = cluster.instance.all_instigator_state(instigator_statuses={InstigatorStatus.RUNNING})
    assert {state.instigator_name for state in switched_on} == {
        "default_automation_condition_sensor",
        "missed_retries",
        f"{GENERATION}_frontier_follows",
        f"{GENERATION}_next_regions",
    }


@pytest.mark.parametrize("kind", sorted(ALONE))
def test_the_commands_on_a_machine_that_stands_alone(kind: str, cluster: Cluster, tmp_path: Path) -> None:
    """The settings of one person and of one server, with one region made in each."""
    shared = ("CASEBITS_STORE", "AWS_ENDPOINT_URL", "CASEBITS_BROKER", "DAGSTER_HOME")
    environment = {name: value for name, value in cluster.head.environment.items() if name not in shared}
    machine = Machine("alone", tmp_path / "alone", environment | {"PGDATABASE": kind})
    if kind == "one-server":
        machine.run("createdb one-server")
        assert f"$DAGSTER_HOME: {machine.home}/dagster\n" in machine.run(blocks()["one-server"])
    machine.run(blocks()["one-region"])
    settings = machine.home / "dagster" / "dagster.yaml"
    assert settings.read_text() == (CHECKOUT / "deploy" / kind / "dagster.yaml").read_text()
    region = Home(machine.home).generation(GENERATION).region(0)
    assert (region / ADMISSION).is_file() is True
    count = "psql --no-psqlrc --tuples-only --command 'select count(*) from runs'"
    assert kind == "one-person" or machine.run(count).split() == ["1"]
    assert (settings.parent / "history" / "runs.db").exists() is (kind == "one-person")
    assert machine.stop(10) == []


def _data(said: str) -> dict[str, Any]:
    """Return what a GraphQL query answered, among what else the command line says."""
    answer, _ = json.JSONDecoder().raw_decode(said[said.index('{"data"') :])
    data: dict[str, Any] = answer["data"]
    return data


def _served(port: int) -> bool:
    with (
        contextlib.suppress(OSError),
        urllib.request.urlopen(f"http://127.0.0.1:{port}/server_info", timeout=5) as page,
    ):
        return "dagster_webserver_version" in json.load(page)
    return False
