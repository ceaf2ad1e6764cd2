"""Dagster's own instance, below the home: which of the settings in `deploy/` it has, is chosen when it is made.

`python -m casebits_dagster.orchestration.instance [KIND]` prepares it and prints its folder, for `DAGSTER_HOME`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import dagster as dg

from casebits_dagster.records.errors import Absent
from casebits_dagster.records.layout import Home, home_from_environment

ONE_PERSON = "one-person"


def prepare_instance(home: Home, kind: str = ONE_PERSON) -> Path:
    """Return the instance's folder, with its `dagster.yaml`; one that is there stays as it is.

    `kind` is a folder of `deploy/`. Raises Absent for any other, and when only the wheel is installed.
    """
    settings = home.dagster / "dagster.yaml"
    if not settings.exists():
        text = _settings(kind)
        home.dagster.mkdir(parents=True, exist_ok=True)
        settings.write_text(text, encoding="utf-8")
    return home.dagster


def _settings(kind: str) -> str:
    deploy = Path(__file__).resolve().parents[2] / "deploy"
    kinds = sorted(path.parent.name for path in deploy.glob("*/dagster.yaml"))
    if kind not in kinds:
        remedy = f"there are: {', '.join(kinds)}" if kinds else "run from a checkout: clone the project"
        raise Absent("FILE_MISSING", f"deploy/{kind}/dagster.yaml", "no such settings of an instance", remedy=remedy)
    return (deploy / kind / "dagster.yaml").read_text(encoding="utf-8")


def open_instance(home: Home) -> dg.DagsterInstance:
    """Return the persistent instance of this home, to be closed by `with`: the one that `make ui` shows."""
    return dg.DagsterInstance.from_config(str(prepare_instance(home)))


if __name__ == "__main__":
    print(prepare_instance(Home(home_from_environment()), *sys.argv[1:2]))
