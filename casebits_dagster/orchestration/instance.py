"""Dagster's own instance, below the home: SQLite for one person, no telemetry, nothing that covers the first page.

`python -m casebits_dagster.orchestration.instance` prepares it and prints its folder, for `DAGSTER_HOME`.
"""

from __future__ import annotations

from pathlib import Path

import dagster as dg

from casebits_dagster.records.layout import Home, home_from_environment

SETTINGS = """\
# Written once, when there was none: change it freely, it is never rewritten.
# No storage is named, so runs, events and schedules are SQLite files beside this one.
telemetry: {enabled: false}
nux: {enabled: false}
concurrency: {runs: {max_concurrent_runs: 2}}
"""


def prepare_instance(home: Home) -> Path:
    """Return the instance's folder, with its `dagster.yaml`; one that is there stays as it is."""
    settings = home.dagster / "dagster.yaml"
    if not settings.exists():
        home.dagster.mkdir(parents=True, exist_ok=True)
        settings.write_text(SETTINGS, encoding="utf-8")
    return home.dagster


def open_instance(home: Home) -> dg.DagsterInstance:
    """Return the persistent instance of this home, to be closed by `with`: the one that `make ui` shows."""
    return dg.DagsterInstance.from_config(str(prepare_instance(home)))


if __name__ == "__main__":
    print(prepare_instance(Home(home_from_environment())))
