"""The run record of a region: who made it, when and with what. Outside the identity of everything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from casebits_dagster.records.record import Count, Name, Positive, Record, Text


@dataclass(frozen=True, kw_only=True, slots=True)
class StageRun(Record):
    """One stage's share of a run. `outcome` is `done`, or the code of the error that ended it."""

    stage: Name
    version: Positive
    started_at: Text
    finished_at: Text
    outcome: Text


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRecord(Record):
    """One run of one region: Dagster's run id, the machine, the package, the stages in the order they ended."""

    SCHEMA: ClassVar[str] = "casebits/run/1"

    generation: Name
    region: Count
    run_id: Name
    job: Text
    host: Text
    python: Text
    package: Name
    package_version: Text
    stages: tuple[StageRun, ...] = ()
