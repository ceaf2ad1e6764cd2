"""A range of regions, worked through by a few processes: each region gets as far as it can, whatever others do.

The furthest region goes first, so that regions end one after another instead of all together at the end.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

from casebits_dagster.processes import Ended, Workers, timed
from casebits_dagster.records.errors import CasebitsError

Task: TypeAlias = tuple[int, int]
"""The number of a stage and the index of a region."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What is done to a region. `work` is called with its index, in one of the `workers`, or here when there are none.

    `died` makes the error of a region whose process ended before its answer.
    """

    name: str
    work: Callable[[int], Any]
    workers: Workers | None
    died: Callable[[int], CasebitsError]


def work_through(
    regions: Sequence[int], stages: Sequence[Stage], at_once: int, given_up: Callable[[], bool] = lambda: False
) -> Iterator[Ended]:
    """Yield each stage of each region as it ends, at most `at_once` at the same time; a failure ends its region.

    Nothing more is begun once `given_up` returns True; what was begun is still yielded.

    When a process dies, all that were at work beside it are done again, one after another; the one that dies a second
    time is to blame, and fails.
    """
    waiting = [(0, region) for region in regions]
    running: dict[Future[Ended], Task] = {}
    suspects: list[Task] = []
    blamed: set[Task] = set()
    while waiting or running or suspects:
        if given_up():
            waiting, suspects = [], []
            if not running:
                return
        if suspects and not running:
            blamed.add(task := suspects.pop())
            running[_submit(stages, task)] = task
        while waiting and not suspects and not (blamed & {*running.values()}) and len(running) < at_once:
            stage, region = heapq.heappop(waiting)
            running[_submit(stages, (-stage, region))] = (-stage, region)
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            task = running.pop(future)
            ended = _ended(stages, task, future, task in blamed)
            if ended is None:
                suspects.append(task)
                continue
            if ended.error is None and task[0] + 1 < len(stages):
                heapq.heappush(waiting, (-task[0] - 1, task[1]))
            yield ended


def _submit(stages: Sequence[Stage], task: Task) -> Future[Ended]:
    stage, region = stages[task[0]], task[1]
    if stage.workers:
        return stage.workers.submit(timed, stage.name, stage.work, region)
    done: Future[Ended] = Future()
    done.set_result(timed(stage.name, stage.work, region))
    return done


def _ended(stages: Sequence[Stage], task: Task, future: Future[Ended], blamed: bool) -> Ended | None:
    """Return how a task ended; None when its process died for the first time."""
    stage, region = stages[task[0]], task[1]
    try:
        return future.result()
    except BrokenExecutor:
        now = datetime.now(UTC)
        return Ended(stage.name, region, None, stage.died(region), now, now) if blamed else None
    except Exception as error:
        # The answer could not be sent.
        now = datetime.now(UTC)
        return Ended(stage.name, region, None, error, now, now)
