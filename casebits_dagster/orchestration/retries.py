"""Retries that Dagster's daemon has missed: the run is marked as one that will be retried, and nobody does it.

The daemon looks once at each run that failed, and may look between the event of the failure and the run's new status:
then it passes over it for good, and a backfill waits for the retry for ever (Dagster 1.13.27; issue 33741 of the
dagster-io/dagster repository is alike). It may look twice: it retries once.

`python -m casebits_dagster.orchestration.retries` mends the instance of `DAGSTER_HOME`, and prints the runs.
"""

from __future__ import annotations

import time

import dagster as dg

_CURSOR = "EVENT_LOG_CONSUMER_CURSOR-RUN_FAILURE"
PATIENCE = 60.0
"""Seconds in which the daemon is expected to look at a run that failed; it does every five."""


def launch_missed_retries(instance: dg.DagsterInstance, patience: float = PATIENCE) -> list[str]:
    """Make the daemon look again at runs whose retry it has missed, and return their ids.

    The daemon may just be writing down how far it has looked: what is missed still is found by the next call.
    """
    failed = dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE], tags={"dagster/will_retry": "true"})
    missed = [
        record.dagster_run.run_id
        for record in instance.get_run_records(failed)
        if record.dagster_run.is_complete_and_waiting_to_retry and time.time() - (record.end_time or 0) > patience
    ]
    events = [
        event.storage_id
        for run in missed
        for event in instance.get_records_for_run(run, of_type=dg.DagsterEventType.RUN_FAILURE).records
    ]
    if events:
        instance.daemon_cursor_storage.set_cursor_values({_CURSOR: str(min(events) - 1)})
    return missed


if __name__ == "__main__":
    with dg.DagsterInstance.get() as found:
        print("\n".join(launch_missed_retries(found)) or "no retry was missed")
