"""Token files of a mix, written by any number of processes into a folder that an unfinished build leaves behind.

The folder is named by the hash of the plan, so that a build finds the files of its own plan only. What is there is
hashed before it is kept: a file that a crash cut short, or whose pages were lost, is written again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from casebits_dagster.mixing.write import TokenRuns, WrittenFile, write_tokens
from casebits_dagster.processes import process_pool
from casebits_dagster.stores.local import fsync_folder, make_folder


@contextlib.contextmanager
def unfinished(folder: Path, plan_sha256: str) -> Iterator[tuple[Path, Path]]:
    """Yield the folder of a plan's files and that of their hashes; both stay when the build fails, and go when it ends.

    Builds of one mix wait for each other here; files of its other plans are removed.
    """
    make_folder(folder)
    lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        work = folder / plan_sha256
        for other in folder.iterdir():
            if other != work:
                shutil.rmtree(other)
        files, done = work / "files", work / "done"
        done.mkdir(parents=True, exist_ok=True)
        files.mkdir(exist_ok=True)
        for path in files.iterdir():
            if not (done / path.name).exists():
                path.unlink()
        yield files, done
        shutil.rmtree(work)
    finally:
        os.close(lock)


def write_all(files: Iterable[TokenRuns], folder: Path, done: Path, workers: int) -> Iterator[WrittenFile]:
    """Write token files with that many processes (1: this one); yield them in order."""
    if workers == 1:
        yield from (write_tokens(folder, done, runs) for runs in files)
        return
    with process_pool(workers) as pool:
        waiting: deque[Future[WrittenFile]] = deque()
        for runs in files:
            waiting.append(pool.submit(write_tokens, folder, done, runs))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        yield from (future.result() for future in waiting)


@contextlib.contextmanager
def syncing() -> Iterator[Callable[[Path], None]]:
    """Yield what puts a file on its way to the disk while others are made. All are there at the end.

    Publishing waits for the disk anyway; begun late, all of it would wait at once.
    """
    with ThreadPoolExecutor(1) as thread:
        waiting: list[Future[None]] = []
        yield lambda path: waiting.append(thread.submit(fsync_folder, path))
        for synced in waiting:
            synced.result()
