"""A run keeps its connections to PostgreSQL from event to event, and loses nothing when the server drops them."""

# No `from __future__ import annotations` here: Dagster reads the annotations of the step itself.

import os
import subprocess
from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest

from casebits_dagster.orchestration.instance import open_instance, prepare_instance
from casebits_dagster.records.layout import Home
from tests.cluster.servers import postgres

pytestmark = pytest.mark.slow
EVENTS = 40
OTHERS = "datname = 'dagster' and pid <> pg_backend_pid()"


@pytest.fixture
def instance(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    """An instance with the settings of a server, over a PostgreSQL of its own."""
    pytest.importorskip("dagster_postgres", reason="pip install -r requirements-cluster.lock")
    with postgres() as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        prepare_instance(home, "one-server")
        with open_instance(home) as opened:
            yield opened


def ask(statement: str) -> str:
    """Return what psql answers, over a connection of its own."""
    command = ["psql", "--no-psqlrc", "--tuples-only", "--no-align", "--command", statement]
    return subprocess.run(command, env=os.environ, capture_output=True, text=True, check=True).stdout.strip()


def sessions() -> int:
    """Return how many connections there have been to the database, this one included."""
    return int(ask("select pg_stat_clear_snapshot(), sessions from pg_stat_database where datname = 'dagster'")[1:])


def told(instance: dg.DagsterInstance, drop_every: int) -> list[int]:
    """Run an asset that tells of itself, while every so many events all connections are ended; return what was told."""

    @dg.asset
    def talker(context: dg.AssetExecutionContext) -> None:
        for number in range(EVENTS):
            context.log_event(dg.AssetObservation("talker", metadata={"number": number}))
            if drop_every and number % drop_every == 0:
                ask(f"select pg_terminate_backend(pid) from pg_stat_activity where {OTHERS}")

    quiet: Any = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    assert dg.materialize([talker], instance=instance, run_config=quiet).success is True
    found = instance.fetch_observations(dg.AssetKey("talker"), limit=1000).records
    numbers = [record.asset_observation.metadata["number"].value for record in found if record.asset_observation]
    return sorted(int(str(number)) for number in numbers)


def test_events_share_connections(instance: dg.DagsterInstance) -> None:
    before = sessions()
    assert told(instance, 0) == list(range(EVENTS))
    # Dagster's own storage opens several for each event.
    assert sessions() - before < EVENTS / 2


def test_connections_that_were_dropped_are_made_anew(instance: dg.DagsterInstance) -> None:
    assert told(instance, 5) == list(range(EVENTS))
