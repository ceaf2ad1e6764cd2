"""Publishers are killed at every request to the Hub, and at system calls of a folder; others publish at once.

What LATEST.json names is whole after every one of them, and the next run completes what was cut off.
"""

from __future__ import annotations

import collections
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest

from casebits_dagster.records.frontier import Latest, Manifest
from casebits_dagster.records.layout import LATEST, Home
from tests.crashes.publisher import Publisher, publisher
from tests.publication.chain import cover, require_consumable
from tests.stores.hub_server import Fault, HubServer, hub_server

pytestmark = pytest.mark.slow
REPO = "nobody/made"
URL = f"hf://datasets/{REPO}"


@pytest.fixture(scope="module")
def server() -> Iterator[HubServer]:
    with hub_server() as serving:
        yield serving


@pytest.fixture(scope="module")
def worker(server: HubServer) -> Iterator[Publisher]:
    with publisher(server.endpoint) as process:
        yield process


def read(server: HubServer, path: str, revision: str = "") -> bytes | None:
    repo = server.hub.repos.get(REPO)
    commit = repo.at(revision or "main") if repo else None
    return commit.tree[path].content if commit and path in commit.tree else None


def run(server: HubServer, worker: Publisher, task: dict[str, Any], at: int = 0, closed: Any = "") -> int:
    """Do a task, killing its process at a request, and return its status."""
    begun, process = threading.Event(), list[int]()

    def kill() -> None:
        begun.wait()
        os.kill(process[0], signal.SIGKILL)

    server.asked.clear()
    server.at = {at: Fault(closed=closed, then=kill)} if at else {}
    process.append(worker.begin(**task))
    begun.set()
    return worker.end()


def require_complete(server: HubServer, version: int) -> None:
    assert require_consumable(lambda path, revision: read(server, path, revision)) == version
    latest = Latest.parse(read(server, LATEST) or b"", LATEST)
    assert [read(server, file.path) for file in cover(latest)] == [file.content for file in cover(latest)]


@pytest.mark.parametrize("closed", ["before", "after"])
@pytest.mark.parametrize("what", ["generation", "increment"])
def test_killed_at_every_request(
    what: str, closed: Literal["before", "after"], server: HubServer, worker: Publisher, request: pytest.FixtureRequest
) -> None:
    """Before the server acts on it, and after it has acted."""
    first: dict[str, Any] | None = None
    if what == "generation":
        home: Home = request.getfixturevalue("sample_home")
        task: dict[str, Any] = {"task": "generation", "home": str(home.root), "name": "sample", "destination": URL}
        wanted = 1
    else:
        first = {"task": "chain", "versions": 1, "destination": URL}
        task, wanted = first | {"versions": 2}, 2

    def begin() -> None:
        server.clear()
        if first:
            assert run(server, worker, first) == 0

    begin()
    assert run(server, worker, task) == 0
    total, found = len(server.asked), collections.Counter[int]()
    for number in range(1, total + 1):
        begin()
        assert run(server, worker, task, number, closed) == -signal.SIGKILL
        found[require_consumable(lambda path, revision: read(server, path, revision))] += 1
        assert run(server, worker, task) == 0
        require_complete(server, wanted)
    versions = ", ".join(f"version {version or 'none'} {count} times" for version, count in sorted(found.items()))
    print(f"killed {closed} each of {total} requests of publishing: {what}: {versions} stood, whole; all completed")
    assert found.keys() <= {wanted - 1, wanted}


def test_increments_of_publishers_at_once_all_land(server: HubServer) -> None:
    server.clear()
    publishers, each = 3, 10
    with ExitStack() as stack:
        workers = [stack.enter_context(publisher(server.endpoint)) for _ in range(publishers)]
        server.hub.create(b'{"organization": "nobody", "name": "made"}')
        for number, process in enumerate(workers):
            process.begin(task="increments", publisher=number, number=each, repo=REPO)
        assert [process.end() for process in workers] == [0] * publishers
    require_complete(server, publishers * each)
    latest = Latest.parse(read(server, LATEST) or b"", LATEST)
    manifest = Manifest.parse(read(server, latest.manifest.path) or b"", "manifest")
    texts = [(read(server, f"{entry.path}/receipt.json") or b"").decode() for entry in manifest.regions]
    landed = [re.sub(r"^\d+ (.*) receipt.json$", r"\1", text) for text in texts]
    expected = [f"increment {n} of publisher {p}" for p in range(publishers) for n in range(each)]
    assert sorted(landed) == sorted(expected)
    repo = server.hub.repos[REPO]

    def at(head: str, path: str, revision: str) -> bytes | None:
        return read(server, path, revision or head)

    stood = [require_consumable(partial(at, commit)) for commit in repo.commits]
    assert (stood, set(stood)) == (sorted(stood), set(range(publishers * each + 1)))
    lost = sum(asked.stage == "commit" for asked in server.asked) - len(repo.commits) + 1
    print(
        f"{publishers} publishers x {each} increments: {len(landed)} of {len(expected)} landed in {len(repo.commits)} "
        f"commits; {lost} commits lost a race; LATEST.json named a whole version after each commit"
    )


KILLED = {"fsync": 12, "link": 12, "rename": 6, "write": 10, "unlinkat": 6, "mkdir": 6}


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize("call", KILLED)
def test_a_folder_killed_at_a_system_call(call: str, tmp_path: Path, worker: Publisher) -> None:
    """Of the sixth version of a chain, of which the first is there."""

    def task(folder: Path, versions: int) -> dict[str, Any]:
        return {"task": "chain", "versions": versions, "destination": str(folder)}

    def traced(folder: Path, *options: str) -> int:
        command = ["strace", "-f", "-qq", *options, sys.executable, "-m", "tests.crashes.publisher"]
        quiet = subprocess.DEVNULL
        command.append(json.dumps(task(folder, 6)))
        return subprocess.run(command, stdout=quiet, stderr=quiet, check=False, timeout=120).returncode

    def begin(name: str) -> Path:
        folder = tmp_path / name
        worker.begin(**task(folder, 1))
        assert worker.end() == 0
        return folder

    def consumable(folder: Path) -> int:
        return require_consumable(lambda path, _: (folder / path).read_bytes() if (folder / path).is_file() else None)

    trace = tmp_path / "trace"
    assert traced(begin("whole"), "-o", str(trace), "-e", f"trace={call}") == 0
    calls = re.findall(rf"^(\d+) +{call}\(", trace.read_text(errors="replace"), re.MULTILINE)
    # Calls are counted thread by thread, and the one that is first to come to this number is killed with all others.
    most, found = max(collections.Counter(calls).values()), collections.Counter[int]()
    for number in range(1, most + 1, max(1, most // KILLED[call])):
        folder = begin(str(number))
        if traced(folder, "-o", os.devnull, "-e", f"inject={call}:signal=SIGKILL:when={number}"):
            found[consumable(folder)] += 1
        worker.begin(**task(folder, 6))
        assert (worker.end(), consumable(folder)) == (0, 6)
        latest = Latest.parse((folder / LATEST).read_bytes(), LATEST)
        assert [(folder / file.path).read_bytes() for file in cover(latest)] == [file.content for file in cover(latest)]
    print(
        f"killed {sum(found.values())} times at one of {len(calls)} calls of {call}: version {dict(found)} stood, whole"
    )
    assert (found.keys() <= {1, 6}, sum(found.values()) > 0) == (True, True)
