"""The persistent instance: prepared once, kept as a person leaves it, below the home."""

from __future__ import annotations

import os
import subprocess
import sys

from casebits_dagster.orchestration.instance import SETTINGS, open_instance, prepare_instance
from casebits_dagster.records.layout import Home


def test_settings_are_written_once(home: Home) -> None:
    folder = prepare_instance(home)
    settings = folder / "dagster.yaml"
    assert folder == home.root / "dagster"
    assert settings.read_text() == SETTINGS
    settings.write_text("telemetry: {enabled: false}\n")
    prepare_instance(home)
    assert settings.read_text() == "telemetry: {enabled: false}\n"


def test_runs_are_kept_in_sqlite_below_the_home(home: Home) -> None:
    with open_instance(home) as instance:
        assert instance.telemetry_enabled is False
        assert instance.nux_enabled is False
        assert instance.get_runs() == []
    assert (home.root / "dagster" / "history" / "runs.db").is_file()


def test_the_command_prints_the_folder(home: Home) -> None:
    command = [sys.executable, "-W", "error", "-m", "casebits_dagster.orchestration.instance"]
    environment = {**os.environ, "CASEBITS_HOME": str(home.root)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"{home.root}/dagster\n"
