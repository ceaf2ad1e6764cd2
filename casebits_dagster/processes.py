"""Worker processes that start clean, import only what their work needs, and never outlive the process they work for."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import Executor
from multiprocessing.util import Finalize

from loky import ProcessPoolExecutor


def process_pool(workers: int) -> Executor:
    """Return a pool of fresh interpreters, started at the first task; they stay until the pool or this process ends.

    A worker that dies breaks the pool: its tasks raise `concurrent.futures.BrokenExecutor`.
    """
    # Nothing of this process is inherited: no import of its main module, no lock or memory map of a fork.
    pool: Executor = ProcessPoolExecutor(max_workers=workers, initializer=_watch, initargs=(os.getpid(),))
    # A process that multiprocessing started, as a run of Dagster is, leaves through this door alone.
    Finalize(None, pool.shutdown, kwargs={"kill_workers": True}, exitpriority=100)
    return pool


def _watch(parent: int) -> None:
    """End this process when its parent is gone, however that ended: a pool's worker would wait for work for ever."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
