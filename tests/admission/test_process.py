"""The verifier as a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from casebits_dagster.admission import admit_apart, admit_region
from casebits_dagster.admission.process import admit_packed, verifier
from casebits_dagster.processes import process_pool
from casebits_dagster.records.errors import CasebitsError, Rejected
from casebits_dagster.records.layout import ADMISSION, Home
from casebits_dagster.records.pins import Generation
from tests.faults.build import encode, make_region
from tests.faults.world import Row, make_world

World = tuple[Generation, Home, list[Row]]
PRODUCER = ("codec", "filters", "regions", "sources")


@pytest.fixture
def world(tmp_path: Path, pins: Path) -> World:
    return make_world(tmp_path, pins)


def rooms_imported() -> list[str]:
    """Return the rooms of the project that a process has loaded; picklable by reference, as `eval` is."""
    code = "sorted({name.split('.')[1] for name in __import__('sys').modules if name.startswith('casebits_dagster.')})"
    found: list[str] = verifier(os.getpid()).submit(eval, code).result()
    return found


def test_a_region_is_admitted_by_a_process_that_has_nothing_of_the_producer(world: World) -> None:
    generation, home, rows = world
    make_region(generation, home, rows, 0)
    done = admit_apart(generation, 0, home, run_id="run-1")
    assert done.published is True
    assert done.admission == admit_region(generation, 0, home, run_id="run-2").admission
    assert rooms_imported() == ["admission", "processes", "records", "stores"]
    assert verifier(os.getpid()).submit(os.getppid).result() == os.getpid()


def test_a_generation_that_is_sent_pickled_is_the_same_one(world: World) -> None:
    generation, home, rows = world
    make_region(generation, home, rows, 0)
    done = admit_packed(pickle.dumps(generation), home, "run-1", False, 0)
    assert (done.published, done.admission.generation) == (True, generation.name)


def test_a_refusal_crosses_the_processes_whole(world: World) -> None:
    generation, home, rows = world
    make_region(generation, home, rows, 0, after=encode, mutate=lambda made: made.cases.__setitem__(43, 1 << 15))
    errors = []
    for prove in (admit_apart, admit_region):
        with pytest.raises(Rejected) as caught:
            prove(generation, 0, home, run_id=prove.__name__)
        errors.append((str(caught.value), caught.value.code, caught.value.document, caught.value.position))
    assert errors[0] == errors[1]
    assert errors[0][1:] == ("L2_MASK_LENGTH", 2, 43)


def test_a_verifier_that_dies_admits_nothing_and_the_next_one_works(world: World) -> None:
    generation, home, rows = world
    made = make_region(generation, home, rows, 0)
    pid = verifier(os.getpid()).submit(os.getpid).result()
    # Stopped, it cannot answer before it is killed.
    os.kill(pid, signal.SIGSTOP)
    threading.Timer(0.5, os.kill, (pid, signal.SIGKILL)).start()
    with pytest.raises(CasebitsError) as caught:
        admit_apart(generation, 0, home, run_id="run-1")
    assert str(caught.value) == (
        "VERIFIER_DIED tiny/00000: the process of the proof ended before its answer "
        "(run it again; if it was out of memory, with fewer regions at once)"
    )
    assert (made.folder / ADMISSION).exists() is False
    assert admit_apart(generation, 0, home, run_id="run-1").published is True


def test_a_worker_ends_with_the_process_it_works_for() -> None:
    code = (
        "import os, time\n"
        "from casebits_dagster.processes import process_pool\n"
        "print(process_pool(1).submit(os.getpid).result(), flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        worker = int(owner.stdout.readline())
        owner.kill()
    ended = time.monotonic() + 10
    while running(worker) and time.monotonic() < ended:
        time.sleep(0.05)
    assert running(worker) is False


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_pool_works_in_several_processes() -> None:
    with process_pool(2) as pool:
        assert sorted(pool.map(abs, [-2, -1])) == [1, 2]


def use_a_pool() -> None:
    process_pool(1).submit(abs, -1).result()


def test_a_process_of_multiprocessing_ends_with_a_pool_left_open() -> None:
    worker = multiprocessing.get_context("spawn").Process(target=use_a_pool)
    worker.start()
    worker.join(30)
    ended = worker.exitcode
    worker.kill()
    assert ended == 0
