"""How a range of regions is worked through: order, failures, and processes that die."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from casebits_dagster.orchestration.batch import Stage, work_through
from casebits_dagster.processes import Workers
from casebits_dagster.records.errors import CasebitsError


def died(index: int) -> CasebitsError:
    return CasebitsError("DIED", f"{index:05d}", "its process died")


def double(index: int) -> int:
    return 2 * index


def odd_fails(index: int) -> int:
    if index % 2:
        raise ValueError(f"{index} is odd")
    return index


def dies(folder: Path, which: int, times: int, index: int) -> int:
    """Kill the own process in region `which`, the first `times` times; note every beginning."""
    with (folder / str(index)).open("a") as note:
        note.write("x")
    begun = len((folder / str(index)).read_text())
    if index == which and begun <= times:
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.3)
    return index


def unsendable(index: int) -> object:
    return (n for n in range(index))


@pytest.fixture
def workers() -> Iterator[Workers]:
    started = Workers(2)
    yield started
    started.close()


def test_the_furthest_region_goes_first() -> None:
    stages = [Stage("first", double, None, died), Stage("second", double, None, died)]
    ended = [(one.stage, one.region, one.value) for one in work_through([3, 4], stages, 1)]
    assert ended == [("first", 3, 6), ("second", 3, 6), ("first", 4, 8), ("second", 4, 8)]


def test_a_failure_ends_its_region_alone() -> None:
    stages = [Stage("first", odd_fails, None, died), Stage("second", double, None, died)]
    ended = [(one.stage, one.region, one.value, repr(one.error)) for one in work_through([1, 2], stages, 1)]
    assert ended == [
        ("first", 1, None, "ValueError('1 is odd')"),
        ("first", 2, 2, "None"),
        ("second", 2, 4, "None"),
    ]


def test_what_was_begun_is_told_when_the_rest_is_given_up() -> None:
    told: list[int] = []
    for ended in work_through([1, 2, 3], [Stage("first", double, None, died)], 1, lambda: len(told) == 2):
        told.append(ended.region)
    assert told == [1, 2]


def test_no_region_is_no_work() -> None:
    assert list(work_through([], [Stage("first", double, None, died)], 2)) == []


def test_processes_work_beside_each_other(workers: Workers) -> None:
    stages = [Stage("first", double, workers, died), Stage("second", double, workers, died)]
    ended = list(work_through(range(20), stages, 2))
    assert sorted((one.stage, one.region, one.value) for one in ended) == sorted(
        (name, k, 2 * k) for name in ("first", "second") for k in range(20)
    )
    assert {one.started_at <= one.finished_at for one in ended} == {True}


def test_a_process_that_dies_once_costs_no_region(workers: Workers, tmp_path: Path) -> None:
    stage = Stage("first", partial(dies, tmp_path, 1, 1), workers, died)
    ended = list(work_through(range(4), [stage], 2))
    assert sorted((one.region, one.value, one.error) for one in ended) == [(k, k, None) for k in range(4)]


def test_a_region_whose_process_dies_twice_fails_alone(workers: Workers, tmp_path: Path) -> None:
    stage = Stage("first", partial(dies, tmp_path, 1, 9), workers, died)
    ended = {one.region: (one.value, str(one.error)) for one in work_through(range(4), [stage], 2)}
    assert ended == {
        0: (0, "None"),
        1: (None, "DIED 00001: its process died"),
        2: (2, "None"),
        3: (3, "None"),
    }
    assert (tmp_path / "1").read_text() == "xx"


def test_an_answer_that_cannot_be_sent_is_a_failure(workers: Workers) -> None:
    (ended,) = work_through([1], [Stage("first", unsendable, workers, died)], 2)
    assert (ended.value, type(ended.error).__name__) == (None, "TypeError")


def test_workers_that_were_closed_start_anew(workers: Workers) -> None:
    first = workers.submit(os.getpid).result()
    workers.close()
    assert (workers.submit(os.getpid).result() != first, first != os.getpid()) == (True, True)
