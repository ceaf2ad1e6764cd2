"""Admission in processes of its own, which import nothing of the producer's: what went wrong there cannot reach them.

A process is started at the first proof (0.7 s) and kept for the next ones.
"""

from __future__ import annotations

import functools
import os
from concurrent.futures import BrokenExecutor
from dataclasses import replace

from casebits_dagster.admission.admit import Admitted, admit_region
from casebits_dagster.processes import Workers, unpickled
from casebits_dagster.records.errors import CasebitsError
from casebits_dagster.records.layout import Home, region_id
from casebits_dagster.records.pins import Generation


def admit_apart(generation: Generation, index: int, home: Home, *, run_id: str, full: bool = False) -> Admitted:
    """Return what `admit_region` returns, and raise what it raises, from the verifier's own process.

    Raises VERIFIER_DIED when that process ended before its answer; nothing is admitted then.
    """
    # The process has the folder that was current when it started.
    home = replace(home, root=home.root.absolute())
    try:
        return verifier(os.getpid()).submit(_admit, generation, index, home, run_id, full).result()
    except BrokenExecutor as error:
        raise died(generation.name, index) from error


def admit_packed(packed: bytes, home: Home, run_id: str, full: bool, index: int) -> Admitted:
    """Return what `admit_region` returns for a pickled generation: many regions are admitted with the same one."""
    return _admit(unpickled(packed), index, home, run_id, full)


def died(generation: str, index: int) -> CasebitsError:
    """Return the error of a process that ended before its answer, which nobody else can give."""
    where, problem = f"{generation}/{region_id(index)}", "the process of the proof ended before its answer"
    remedy = "run it again; if it was out of memory, with fewer regions at once"
    return CasebitsError("VERIFIER_DIED", where, problem, remedy=remedy)


def _admit(generation: Generation, index: int, home: Home, run_id: str, full: bool) -> Admitted:
    return admit_region(generation, index, home, run_id=run_id, full=full)


@functools.cache
def verifier(process: int) -> Workers:
    """Return the verifier of a process, by its number: a forked copy of an executor would wait for ever."""
    return Workers(1)
