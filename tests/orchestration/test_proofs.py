"""What is published, proven again by the jobs: random regions, and a window of a mix back to its source."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from casebits_dagster.definitions import build
from casebits_dagster.orchestration.checks import LAYERS
from casebits_dagster.records.layout import IDS, Home
from tests.orchestration.conftest import Graph

AGAIN = "sample_prove_again"


@pytest.fixture
def graph(sample_pins: Path, sample_home: Home, home: Home) -> Iterator[Graph]:
    shutil.copytree(sample_home.root, home.root)
    with dg.instance_for_test() as instance:
        yield Graph(build(sample_pins, home), instance, home)


def run(graph: Graph, job: str, op: str, **config: Any) -> dg.ExecuteInProcessResult:
    loggers = {"console": {"config": {"log_level": "CRITICAL"}}}
    wanted: Any = {"ops": {op: {"config": config}}, "loggers": loggers}
    definition = graph.definitions.resolve_job_def(job)
    return definition.execute_in_process(instance=graph.instance, run_config=wanted, raise_on_error=False)


def observations(graph: Graph, result: dg.ExecuteInProcessResult) -> list[dg.AssetObservation]:
    found = [event for event in graph.events(result) if event.event_type_value == "ASSET_OBSERVATION"]
    return [event.asset_observation_data.asset_observation for event in found]


def break_ids(graph: Graph, region: int) -> None:
    path = graph.home.generation("sample").region(region) / IDS
    broken = bytearray(path.read_bytes())
    broken[40] ^= 1
    path.write_bytes(broken)


def test_regions_picked_at_random_are_proven_again(graph: Graph) -> None:
    result = run(graph, AGAIN, "sample_prove_regions_again", regions=2, seed="a")
    assert result.success is True
    told = observations(graph, result)
    assert {(one.partition, one.description) for one in told} == {
        (one.partition, "proven again, in full: its admission stands") for one in told
    }
    assert len({one.partition for one in told}) == 2
    assert sorted((check.partition, check.check_name, check.passed) for check in graph.checks(result)) == sorted(
        (one.partition, layer, True) for one in told for layer in LAYERS
    )


def test_the_seed_decides_which(graph: Graph) -> None:
    picked = [
        tuple(
            one.partition
            for one in observations(graph, run(graph, AGAIN, "sample_prove_regions_again", regions=2, seed=seed))
        )
        for seed in ("a", "a", "b")
    ]
    assert picked[0] == picked[1] != picked[2]


def test_a_region_that_does_not_prove_any_more_fails_the_run_and_no_other(graph: Graph) -> None:
    break_ids(graph, 13)
    result = run(graph, AGAIN, "sample_prove_regions_again", regions=14, seed="a")
    assert result.success is False
    (failed,) = (event.step_failure_data for event in result.all_events if event.is_step_failure)
    assert failed.user_failure_data is not None
    assert failed.user_failure_data.description == "1 of 14 regions do not prove any more: 00013"
    refused = {(check.partition, check.check_name) for check in graph.checks(result) if not check.passed}
    assert {partition for partition, _ in refused} == {"00013"}
    assert ("00013", "L1_shape") in refused
    (told,) = (one for one in observations(graph, result) if one.partition == "00013")
    assert told.metadata["check"].value == "L1_HASH"


def test_a_window_is_followed_to_its_source(graph: Graph) -> None:
    result = run(graph, "audit", "follow_window", mix="sample_aligned", window=3)
    assert result.success is True
    (told,) = observations(graph, result)
    assert told.asset_key.to_user_string() == "mixes/sample_aligned"
    assert told.metadata["proven"].value is True
    assert (told.description or "").endswith(" links, all hold")


def test_a_link_that_does_not_hold_fails_the_audit(graph: Graph) -> None:
    for region in range(14):
        if region != 8:
            break_ids(graph, region)
    result = run(graph, "audit", "follow_window", mix="sample_aligned", window=3)
    assert result.success is False
    (told,) = observations(graph, result)
    assert told.metadata["proven"].value is False


def test_a_mix_that_is_not_there_is_named(graph: Graph) -> None:
    result = run(graph, "audit", "follow_window", mix="nothing", window=3)
    (failed,) = (event.step_failure_data for event in result.all_events if event.is_step_failure)
    assert failed.user_failure_data is not None
    assert (failed.user_failure_data.description or "").startswith("FILE_MISSING ")


def test_each_week_has_a_choice_of_its_own(graph: Graph) -> None:
    repository = graph.definitions.get_repository_def()
    schedule = repository.get_schedule_def(f"{AGAIN}_weekly")
    seeds = []
    for day in (4, 11):
        tick = datetime(2026, 1, day, 3, 0, tzinfo=UTC)
        with dg.build_schedule_context(graph.instance, tick, repository_def=repository) as context:
            (request,) = schedule.evaluate_tick(context).run_requests or []
            seeds.append(request.run_config["ops"]["sample_prove_regions_again"]["config"]["seed"])
    assert (schedule.cron_schedule, seeds) == ("0 3 * * 0", ["2026-W01", "2026-W02"])
