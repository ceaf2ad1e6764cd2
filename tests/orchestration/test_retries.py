"""Retries that the daemon has missed, on an instance that retries: the daemon is told to look again, once."""

from __future__ import annotations

import json
from collections.abc import Iterator

import dagster as dg
import pytest
from dagster._core.test_utils import create_run_for_test

from casebits_dagster.orchestration.instance import prepare_instance
from casebits_dagster.orchestration.retries import launch_missed_retries
from casebits_dagster.records.layout import Home

CURSOR = "EVENT_LOG_CONSUMER_CURSOR-RUN_FAILURE"


@pytest.fixture
def instance(home: Home) -> Iterator[dg.DagsterInstance]:
    folder = prepare_instance(home)
    with (folder / "dagster.yaml").open("a") as settings:
        settings.write(json.dumps({"run_retries": {"enabled": True, "max_retries": 1}})[1:-1] + "\n")
    with dg.DagsterInstance.from_config(str(folder)) as opened:
        yield opened


def _failed(instance: dg.DagsterInstance) -> str:
    run = create_run_for_test(instance, job_name="regions", status=dg.DagsterRunStatus.STARTED)
    instance.report_run_failed(run)
    return str(run.run_id)


def _cursor(instance: dg.DagsterInstance) -> str | None:
    return instance.daemon_cursor_storage.get_cursor_values({CURSOR}).get(CURSOR)


def test_the_daemon_is_set_back_to_the_first_failure_it_missed(instance: dg.DagsterInstance) -> None:
    runs = [_failed(instance), _failed(instance)]
    instance.daemon_cursor_storage.set_cursor_values({CURSOR: "1000"})
    assert sorted(launch_missed_retries(instance, patience=0)) == sorted(runs)
    events = [instance.get_records_for_run(run, of_type=dg.DagsterEventType.RUN_FAILURE).records for run in runs]
    assert _cursor(instance) == str(events[0][0].storage_id - 1)


def test_a_failure_of_this_minute_is_left_to_the_daemon(instance: dg.DagsterInstance) -> None:
    _failed(instance)
    assert launch_missed_retries(instance) == []
    assert _cursor(instance) is None


def test_a_run_that_was_retried_was_not_missed(instance: dg.DagsterInstance) -> None:
    run = _failed(instance)
    instance.add_run_tags(run, {"dagster/auto_retry_run_id": "another"})
    assert launch_missed_retries(instance, patience=0) == []
