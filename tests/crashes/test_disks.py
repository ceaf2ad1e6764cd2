"""A full disk and a read-only one, for real: small file systems in memory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from casebits_dagster.lineage.tree import snapshot
from casebits_dagster.publication.consume import open_frontier
from casebits_dagster.records.layout import Home
from tests.crashes.work import golden_pins, publish


def mount(*arguments: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", *arguments], check=True, capture_output=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """An empty file system of 16 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system")
    mount("-o", "size=16m", "tmpfs", str(folder))
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def run(pins: Path, root: Path) -> tuple[int, str]:
    command = [sys.executable, "-m", "tests.crashes.work", str(pins), str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr.strip().splitlines()[-1] if done.stderr else ""


@pytest.fixture
def expected(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> dict[str, str]:
    publish(golden_pins(tmp_path), tmp_path / "alone")
    return snapshot(Home(tmp_path / "alone"))


@pytest.mark.slow
def test_a_full_disk_says_so_and_a_rerun_with_room_completes(
    disk: Path, expected: dict[str, str], tmp_path: Path
) -> None:
    told = set()
    for kib in range(16, 800, 56):
        mount("-o", f"remount,size={kib}k", str(disk))
        status, said = run(tmp_path / "pins", disk / "home")
        told.add((status, "No space left on device" in said))
        found = snapshot(Home(disk / "home"))
        assert {path: expected[path] for path in found if path in expected} == found
    assert (1, True) in told
    mount("-o", "remount,size=16m", str(disk))
    assert run(tmp_path / "pins", disk / "home") == (0, "")
    assert snapshot(Home(disk / "home")) == expected


def test_a_read_only_home_is_read_and_refuses_work(disk: Path, expected: dict[str, str], tmp_path: Path) -> None:
    home = Home(disk / "home")
    assert run(tmp_path / "pins", home.root) == (0, "")
    mount("-o", "remount,ro", str(disk))
    status, said = run(tmp_path / "pins", home.root)
    assert (status, said.startswith("OSError: [Errno 30] Read-only file system: ")) == (1, True)
    open_frontier(home.root, "golden").verify_all()
    assert snapshot(home) == expected
