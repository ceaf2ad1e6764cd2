"""Worker processes that start clean, import only what their work needs, and never outlive the process they work for."""

from __future__ import annotations

import functools
import os
import pickle
import threading
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from multiprocessing.util import Finalize
from typing import Any, TypeVar

from loky import ProcessPoolExecutor, cpu_count

T = TypeVar("T")


def cores() -> int:
    """Return how many processors this process may use, also within a container's limits."""
    return int(cpu_count())


def process_pool(workers: int) -> Executor:
    """Return a pool of fresh interpreters, started at the first task; they stay until the pool or this process ends.

    A worker that dies breaks the pool: its tasks raise `concurrent.futures.BrokenExecutor`.
    """
    # Nothing of this process is inherited: no import of its main module, no lock or memory map of a fork.
    pool: Executor = ProcessPoolExecutor(max_workers=workers, initializer=_watch, initargs=(os.getpid(),))
    # A process that multiprocessing started, as a run of Dagster is, leaves through this door alone.
    Finalize(None, pool.shutdown, kwargs={"kill_workers": True}, exitpriority=100)
    return pool


class Workers:
    """A pool that is started anew when one of its processes died; the tasks of the time raise BrokenExecutor."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._pool: Executor | None = None

    def submit(self, call: Callable[..., T], *arguments: Any) -> Future[T]:
        """Return the answer to come of a call that can be pickled."""
        try:
            self._pool = self._pool or process_pool(self._count)
            return self._pool.submit(call, *arguments)
        except BrokenExecutor:
            self._pool = process_pool(self._count)
            return self._pool.submit(call, *arguments)

    def close(self) -> None:
        """End the processes, whatever they are at."""
        if self._pool:
            self._pool.shutdown(kill_workers=True)  # type: ignore[call-arg]
        self._pool = None


@dataclass(frozen=True, slots=True)
class Ended:
    """A stage of a region that ended, with what `work` returned, or with why it failed; times are UTC."""

    stage: str
    region: int
    value: Any
    error: Exception | None
    started_at: datetime
    finished_at: datetime


def timed(name: str, work: Callable[[int], Any], region: int) -> Ended:
    """Return how a stage of a region ended, measured where it is worked on."""
    started = datetime.now(UTC)
    ended = Ended(name, region, None, None, started, started)
    try:
        ended = replace(ended, value=work(region))
    except Exception as error:
        ended = replace(ended, error=error)
    return replace(ended, finished_at=datetime.now(UTC))


@functools.lru_cache(maxsize=4)
def unpickled(packed: bytes) -> Any:
    """Return an object that many tasks are sent, unpickled once a process."""
    return pickle.loads(packed)


def _watch(parent: int) -> None:
    """End this process when its parent is gone, however that ended: a pool's worker would wait for work for ever."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
