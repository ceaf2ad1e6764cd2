"""A real process is killed, or refused, at system calls all along publishing; what it leaves is read and completed."""

from __future__ import annotations

import collections
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from casebits_dagster.publication.consume import open_frontier
from casebits_dagster.records.errors import CasebitsError
from tests.crashes.work import golden_pins, publish

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed"),
]
# How many places of each call are tried, spread evenly over all of them.
KILLED = {"fsync": 26, "rename": 12, "link": 8, "mkdir": 10, "write": 16, "openat": 16, "close": 8, "unlinkat": 6}
REFUSED = {
    "fsync": ("EIO", 8),
    "write": ("ENOSPC", 8),
    "rename": ("EIO", 4),
    "link": ("ENOSPC", 4),
    "mkdir": ("ENOSPC", 4),
    "openat": ("EMFILE", 8),
}


@pytest.fixture(scope="module")
def pins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return golden_pins(tmp_path_factory.mktemp("pins"))


@pytest.fixture(scope="module")
def calls(pins: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """How often the worker makes each system call when nothing disturbs it."""
    folder = tmp_path_factory.mktemp("calls")
    trace = folder / "trace"
    assert run(pins, folder / "home", "-o", str(trace), "-e", f"trace={','.join(KILLED)}") == 0
    made = collections.Counter[tuple[str, str]]()
    for line in trace.read_text(errors="replace").splitlines():
        if call := re.match(r"^(\d+) +(\w+)\(", line):
            made[call[1], call[2]] += 1
    # The fork that works is the process that publishes: the one with most fsyncs.
    worker = max((process for process, _ in made), key=lambda process: made[process, "fsync"])
    return {name: made[worker, name] for name in KILLED}


@pytest.fixture(scope="module")
def whole(pins: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    home = tmp_path_factory.mktemp("whole") / "home"
    publish(pins, home)
    return published(home)


def run(pins: Path, home: Path, *options: str) -> int:
    command = ["strace", "-f", "-qq", *options, sys.executable, "-m", "tests.crashes.work", str(pins), str(home)]
    quiet = subprocess.DEVNULL
    environment = os.environ | {"RAYON_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, stdout=quiet, stderr=quiet, env=environment, check=False, timeout=120).returncode


def published(home: Path) -> dict[str, bytes]:
    """Return everything that identity covers: all but working files and what lies in staging."""
    files = {path.relative_to(home).as_posix(): path for path in home.rglob("*") if path.is_file()}
    left_out = (".staging", "generations/golden/verdicts/", "generations/golden/index/")
    return {name: path.read_bytes() for name, path in files.items() if not name.startswith(left_out)}


def places(total: int, wanted: int) -> list[int]:
    step = max(1, total // wanted)
    return list(range(1, total + 1, step))


def require_consumable(home: Path) -> str:
    """Read what is there as a consumer would; return "consumable" or the code of the refusal."""
    try:
        open_frontier(home, "golden").verify_all()
    except CasebitsError as error:
        return error.code
    return "consumable"


def require_completed(pins: Path, home: Path, whole: dict[str, bytes]) -> None:
    publish(pins, home)
    made = published(home)
    assert sorted(made) == sorted(whole)
    assert [name for name in whole if made[name] != whole[name]] == []
    assert require_consumable(home) == "consumable"
    left = [path.name for path in (home / ".staging").iterdir() if path.name != "lock"]
    assert left == [], "a rerun sweeps what a dead process left in staging"


@pytest.mark.parametrize("call", KILLED)
def test_killed_at_a_system_call(
    call: str, pins: Path, calls: dict[str, int], whole: dict[str, bytes], tmp_path: Path
) -> None:
    found = collections.Counter[str]()
    for number in places(calls[call], KILLED[call]):
        home = tmp_path / str(number)
        assert run(pins, home, "-o", os.devnull, "-e", f"inject={call}:signal=SIGKILL:when={number}") != 0
        found[require_consumable(home)] += 1
        require_completed(pins, home, whole)
        shutil.rmtree(home)
    print(f"killed at {sum(found.values())} of {calls[call]} calls of {call}: {dict(found)}")
    assert found.keys() <= {"consumable", "LATEST_MISSING"}


@pytest.mark.parametrize("call", REFUSED)
def test_a_system_call_that_fails(
    call: str, pins: Path, calls: dict[str, int], whole: dict[str, bytes], tmp_path: Path
) -> None:
    error, wanted = REFUSED[call]
    found = collections.Counter[str]()
    for number in places(calls[call], wanted):
        home = tmp_path / str(number)
        run(pins, home, "-o", os.devnull, "-e", f"inject={call}:error={error}:when={number}")
        found[require_consumable(home)] += 1
        require_completed(pins, home, whole)
        shutil.rmtree(home)
    print(f"{error} at {sum(found.values())} of {calls[call]} calls of {call}: {dict(found)}")
    assert found.keys() <= {"consumable", "LATEST_MISSING"}
