"""What the schedule and the sensor ask for, on a real instance, from what is published and what was tried."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.test_utils import create_run_for_test

from casebits_dagster.definitions import build
from casebits_dagster.orchestration.attempts import Tried, next_ranges, pause
from casebits_dagster.orchestration.partitions import range_tags
from casebits_dagster.orchestration.resources import Corpus
from casebits_dagster.records.layout import Home
from tests.orchestration.conftest import Graph

TICK = datetime(2026, 1, 4, 3, 0, tzinfo=UTC)
SCHEDULE, SENSOR = "sample_next_regions", "sample_frontier_follows"
FAILED, SUCCEEDED, STARTED = dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.STARTED


@pytest.fixture
def graph(sample_pins: Path, home: Home) -> Iterator[Graph]:
    # A schedule opens the instance again, which one in memory cannot be.
    with dg.instance_for_test() as instance:
        yield Graph(build(sample_pins, home), instance, home)


@pytest.fixture
def complete(graph: Graph, sample_home: Home) -> Graph:
    shutil.copytree(sample_home.root, graph.home.root)
    return graph


def asked(graph: Graph, name: str) -> tuple[list[Any], str | None]:
    """Return what a tick asks for, as (first, last) of each run or its run key, and why it asks for nothing."""
    repository, corpus = graph.definitions.get_repository_def(), {"corpus": Corpus(root=str(graph.home.root))}
    if name == SENSOR:
        with dg.build_sensor_context(instance=graph.instance, repository_def=repository, resources=corpus) as context:
            told = repository.get_sensor_def(name).evaluate_tick(context)
            return [request.run_key for request in told.run_requests or []], told.skip_message
    with dg.build_schedule_context(graph.instance, TICK, repository_def=repository, resources=corpus) as context:
        ticked = repository.get_schedule_def(name).evaluate_tick(context)
        ranges = [
            (request.tags["dagster/asset_partition_range_start"], request.tags["dagster/asset_partition_range_end"])
            for request in ticked.run_requests or []
        ]
        return ranges, ticked.skip_message


def run_of(graph: Graph, first: int, last: int, status: dg.DagsterRunStatus, **tags: str) -> str:
    tags = {**range_tags(first, last), **tags}
    return str(create_run_for_test(graph.instance, job_name="sample_regions", status=status, tags=tags).run_id)


def break_source(graph: Graph, region: int, times: int) -> None:
    """Let the encoding of a region fail so many times, for want of its filter stage."""
    for _ in range(times):
        graph.region(f"{region:05d}", "encoded_arrays")


def test_all_regions_of_an_empty_home_are_asked_for_at_once(graph: Graph) -> None:
    assert asked(graph, SCHEDULE) == ([("00000", "00013")], None)


def test_what_is_admitted_or_in_work_is_not_asked_for(graph: Graph) -> None:
    graph.region("00008")
    run_of(graph, 3, 4, STARTED)
    assert asked(graph, SCHEDULE) == ([("00000", "00002")], None)


def test_no_more_than_two_runs_are_in_flight(graph: Graph) -> None:
    run_of(graph, 3, 4, STARTED)
    run_of(graph, 5, 5, dg.DagsterRunStatus.STARTING)
    assert asked(graph, SCHEDULE) == ([], "0 of 14 admitted, 3 in work")


def test_a_failed_region_is_tried_alone_and_then_no_more(graph: Graph) -> None:
    break_source(graph, 8, 2)
    assert asked(graph, SCHEDULE) == ([("00000", "00007"), ("00008", "00008")], None)
    break_source(graph, 8, 1)
    assert asked(graph, SCHEDULE) == ([("00000", "00007"), ("00009", "00013")], None)
    wanted = dg.AssetKey(["sample", "admission_proof"])
    (told,) = graph.instance.fetch_observations(wanted, limit=9).records
    assert told.asset_observation is not None
    assert told.asset_observation.partition == "00008"
    assert (told.asset_observation.description or "").startswith("quarantined after 3 failures: FILE_MISSING ")
    # It is told once.
    asked(graph, SCHEDULE)
    assert len(graph.instance.fetch_observations(wanted, limit=9).records) == 1


def test_a_quarantined_region_is_named_when_nothing_is_left(graph: Graph) -> None:
    break_source(graph, 8, 3)
    run_of(graph, 0, 7, STARTED)
    run_of(graph, 9, 13, STARTED)
    ranges, why = asked(graph, SCHEDULE)
    assert ranges == []
    assert (why or "").startswith("0 of 14 admitted, 13 in work; quarantined: 00008 (FILE_MISSING ")


def test_a_quarantined_region_that_is_made_by_hand_is_forgotten(graph: Graph) -> None:
    break_source(graph, 8, 3)
    graph.region("00008")
    assert asked(graph, SCHEDULE) == ([("00000", "00007"), ("00009", "00013")], None)


def test_nothing_is_asked_for_when_all_is_admitted(complete: Graph) -> None:
    assert asked(complete, SCHEDULE) == ([], "14 of 14 admitted, 0 in work")
    assert asked(complete, SENSOR) == ([], "the frontier has 14 of 14 regions and is complete")


def test_runs_that_make_nothing_are_asked_for_less_and_less_often(graph: Graph) -> None:
    for _ in range(2):
        run_of(graph, 0, 13, FAILED, **{"casebits/requested": SCHEDULE})
    ended = max(record.end_time or 0.0 for record in graph.instance.get_run_records())
    tags = {"casebits/requested": SCHEDULE}
    assert pause(graph.instance, tags, [], ended) == (
        "the last 2 runs made nothing: see why; the next is in 4 min, or start one by hand"
    )
    assert pause(graph.instance, tags, [], ended + 241) == ""
    ids = frozenset(record.dagster_run.run_id for record in graph.instance.get_run_records())
    assert pause(graph.instance, tags, [Tried(ids, "why", False)], ended) == ""
    run_of(graph, 0, 13, SUCCEEDED, **tags)
    assert pause(graph.instance, tags, [], ended) == ""


@pytest.mark.parametrize(
    ("missing", "failed", "ranges"),
    [
        ([], [], []),
        ([0, 1, 2, 3], [], [(0, 2), (3, 3)]),
        ([0, 2, 3], [], [(0, 0), (2, 3)]),
        ([0, 1, 2], [1], [(0, 0), (1, 1), (2, 2)]),
    ],
)
def test_ranges(missing: Sequence[int], failed: Sequence[int], ranges: list[tuple[int, int]]) -> None:
    assert next_ranges(missing, failed, 3) == ranges


def test_the_frontier_is_asked_for_behind_new_regions_alone(graph: Graph) -> None:
    assert asked(graph, SENSOR) == ([], "the frontier has 0 of 14 regions and waits for 00000")
    graph.region("00008")
    assert asked(graph, SENSOR) == ([], "the frontier has 0 of 14 regions and waits for 00000")
    graph.region("00000")
    assert asked(graph, SENSOR) == (["0+1#1"], None)
    run = create_run_for_test(
        graph.instance,
        job_name="sample_corpus",
        status=STARTED,
        tags={"casebits/requested": SENSOR, "casebits/admitted_prefix": "0+1"},
    )
    assert asked(graph, SENSOR) == (
        [],
        "a run is at work on the frontier; 1 regions are admitted without a gap",
    )
    graph.instance.report_run_failed(run)
    assert asked(graph, SENSOR) == (["0+1#2"], None)
    for _ in range(2):
        create_run_for_test(graph.instance, job_name="sample_corpus", status=FAILED, tags=run.tags)
    assert asked(graph, SENSOR) == (
        [],
        "3 runs over the same 1 regions failed: see why, and start one by hand",
    )


def test_everything_is_off_until_it_is_switched_on(graph: Graph) -> None:
    repository = graph.definitions.get_repository_def()
    assert {one.default_status for one in repository.schedule_defs} == {dg.DefaultScheduleStatus.STOPPED}
    assert {one.default_status for one in repository.sensor_defs} == {dg.DefaultSensorStatus.STOPPED}
    assert [one.name for one in repository.sensor_defs] == [
        "default_automation_condition_sensor",
        "missed_retries",
        SENSOR,
    ]
    assert sorted(one.name for one in repository.schedule_defs if one.name.startswith("sample")) == [
        "sample_next_regions",
        "sample_prove_again_weekly",
    ]
