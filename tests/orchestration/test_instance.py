"""The persistent instance: prepared once, kept as a person leaves it, below the home."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from casebits_dagster.orchestration.instance import open_instance, prepare_instance
from casebits_dagster.records.errors import Absent
from casebits_dagster.records.layout import Home

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"


def test_settings_are_written_once(home: Home) -> None:
    folder = prepare_instance(home)
    settings = folder / "dagster.yaml"
    assert folder == home.root / "dagster"
    assert settings.read_text() == (DEPLOY / "one-person/dagster.yaml").read_text()
    settings.write_text("telemetry: {enabled: false}\n")
    prepare_instance(home)
    assert settings.read_text() == "telemetry: {enabled: false}\n"


@pytest.mark.parametrize("kind", ["cluster", "one-server"])
def test_other_settings_are_asked_for_by_name(home: Home, kind: str) -> None:
    assert (prepare_instance(home, kind) / "dagster.yaml").read_text() == (DEPLOY / kind / "dagster.yaml").read_text()


def test_settings_that_there_are_not_leave_nothing_behind(home: Home) -> None:
    with pytest.raises(Absent) as caught:
        prepare_instance(home, "clusters")
    assert str(caught.value) == (
        "FILE_MISSING deploy/clusters/dagster.yaml: no such settings of an instance "
        "(there are: cluster, kubernetes, one-person, one-server)"
    )
    assert home.root.exists() is False


def test_runs_are_kept_in_sqlite_below_the_home(home: Home) -> None:
    with open_instance(home) as instance:
        assert instance.telemetry_enabled is False
        assert instance.nux_enabled is False
        assert instance.get_runs() == []
    assert (home.root / "dagster" / "history" / "runs.db").is_file()


@pytest.mark.parametrize("kind", ["one-person", "one-server"])
def test_the_command_prints_the_folder(home: Home, kind: str) -> None:
    command = [sys.executable, "-W", "error", "-m", "casebits_dagster.orchestration.instance", kind]
    environment = {**os.environ, "CASEBITS_HOME": str(home.root)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"{home.root}/dagster\n"
