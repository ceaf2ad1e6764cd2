"""Admission in a process of its own, which imports nothing of the producer's: what went wrong there cannot reach it.

The process is started at the first proof (0.7 s) and kept for the next ones.
"""

from __future__ import annotations

import functools
import os
from concurrent.futures import BrokenExecutor, Executor
from dataclasses import replace

from casebits_dagster.admission.admit import Admitted, admit_region
from casebits_dagster.processes import process_pool
from casebits_dagster.records.errors import CasebitsError
from casebits_dagster.records.layout import Home, region_id
from casebits_dagster.records.pins import Generation


def admit_apart(generation: Generation, index: int, home: Home, *, run_id: str, full: bool = False) -> Admitted:
    """Return what `admit_region` returns, and raise what it raises, from the verifier's own process.

    Raises VERIFIER_DIED when that process ended before its answer; nothing is admitted then. A run that is cancelled
    waits for the proof under way, which admits the region if it holds.
    """
    # The process has the folder that was current when it started.
    home = replace(home, root=home.root.absolute())
    try:
        return verifier(os.getpid()).submit(admit_region, generation, index, home, run_id=run_id, full=full).result()
    except BrokenExecutor as error:
        verifier.cache_clear()
        where, problem = f"{generation.name}/{region_id(index)}", "the process of the proof ended before its answer"
        remedy = "run it again; if it was out of memory, with fewer regions at once"
        raise CasebitsError("VERIFIER_DIED", where, problem, remedy=remedy) from error


@functools.cache
def verifier(process: int) -> Executor:
    """Return the verifier of a process, by its number: a forked copy of an executor would wait for ever."""
    return process_pool(1)
