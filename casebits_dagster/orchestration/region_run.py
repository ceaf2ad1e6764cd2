"""One run of Dagster over a range of regions: what is selected is done to each, what fails is told, nothing is lost.

No region's failure stops another. The run fails last, naming the regions that failed, so that what was done before is
known as done. Only what is wrong with the machine or a store ends a run early: every other region would fail alike.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import dagster as dg
from dagster import AssetExecutionContext
from pydantic import Field

from casebits_dagster.admission.process import died, verifier
from casebits_dagster.orchestration import produce
from casebits_dagster.orchestration.batch import Stage, work_through
from casebits_dagster.orchestration.checks import failure_facts
from casebits_dagster.orchestration.events import RegionEvents
from casebits_dagster.orchestration.metadata import Metadata, table
from casebits_dagster.orchestration.runs import TRANSIENT, record_stage
from casebits_dagster.orchestration.stages import RegionStage
from casebits_dagster.processes import Ended, Workers, cores
from casebits_dagster.records.errors import CasebitsError
from casebits_dagster.records.layout import Home, region_id
from casebits_dagster.records.pins import Generation

SAY_EVERY = 10.0
"""Seconds between two lines of progress."""


class RegionsConfig(dg.Config):
    """How a run works through its regions; no field changes a byte of what it makes."""

    workers: int = Field(
        default=0, ge=0, description="Regions worked on at once, each in a process of its own. 0: one a core."
    )
    again: bool = Field(
        default=False,
        description="Make regions that are admitted again, and compare the bytes. Otherwise their files are hashed, "
        "and when they are as admitted nothing is made.",
    )
    full_proof: bool = Field(
        default=False, description="Prove in full what is otherwise proven on a seeded sample (segmentation, scores)."
    )
    stop_after: int = Field(
        default=3,
        ge=1,
        description="Give up after so many regions in a row failed by the same fault of the machine or a store (a full "
        "disk, an unreachable source). A region that does not prove stops nothing.",
    )


@dataclass(slots=True)
class RegionRun:
    """A run at work. `failed` has why a region failed, `tokens` counts those that were encoded, `told` has what the
    ended stages of a region said and their seconds, `alike` the machine's failures in a row,
    `gave_up` why the rest was not begun."""

    generation: Generation
    stages: Sequence[RegionStage]
    config: RegionsConfig
    context: AssetExecutionContext
    home: Home
    failed: dict[int, Exception] = field(default_factory=dict)
    ended: int = 0
    tokens: int = 0
    told: dict[int, tuple[str, float]] = field(default_factory=dict)
    alike: list[str] = field(default_factory=list)
    gave_up: str = ""
    begun: float = field(default_factory=time.monotonic)
    said: float = field(default_factory=time.monotonic)

    def run(self) -> None:
        """Work through all regions of the run. Raises Failure at the end when some failed or were not begun."""
        regions = [int(key) for key in self.context.partition_keys]
        # A worker has the folder that was current when it started.
        self.home = replace(self.home, root=self.home.root.absolute())
        if len(regions) == 1:
            # One region alone is made here: a process would cost it seconds.
            self._work(regions, None, verifier(os.getpid()), 1)
        else:
            at_once = min(self.config.workers or cores(), len(regions))
            producers, verifiers = Workers(at_once), Workers(at_once)
            try:
                self._work(regions, producers, verifiers, at_once)
            finally:
                producers.close()
                verifiers.close()
        self._conclude(regions)

    def _work(self, regions: Sequence[int], producers: Workers | None, verifiers: Workers, at_once: int) -> None:
        packed, events = pickle.dumps(self.generation), RegionEvents(self.context, self.generation, self.stages)
        stages = []
        for stage in self.stages:
            options = (self.context.run.run_id, self.config.full_proof) if stage.apart else ()
            work = partial(stage.work, packed, self.home, *options)
            stages.append(Stage(stage.name, work, verifiers if stage.apart else producers, partial(self._died, stage)))
        todo, known = list(regions), {} if self.config.again else events.known(regions)
        look = Stage(
            "look", partial(produce.standing, packed, self.home), producers, partial(self._died, self.stages[0])
        )
        for ended in work_through(sorted(known), [look], at_once):
            if ended.error is None and events.stands(ended.region, ended.value, known[ended.region]):
                todo.remove(ended.region)
                self.context.log.info(f"region {region_id(ended.region)}: every byte is as admitted, nothing to make")
                self._count(len(regions))
        for ended in work_through(todo, stages, at_once, self._given_up):
            self._end(ended, events, len(regions))

    def _given_up(self) -> bool:
        if len(self.alike) >= self.config.stop_after and not self.gave_up:
            self.gave_up = f"{len(self.alike)} in a row failed by {self.alike[0]}"
        return bool(self.gave_up)

    def _end(self, ended: Ended, events: RegionEvents, total: int) -> None:
        stage = next(stage for stage in self.stages if stage.name == ended.stage)
        try:
            record_stage(self.context.run, self.home, self.generation.name, stage.version, ended)
        except OSError as error:
            # Where the disk is full nothing is written down there, but the event log still hears of it.
            self.context.log.warning(f"no record of this run in region {region_id(ended.region)}: {error}")
        if ended.error is not None:
            self.failed[ended.region] = ended.error
            self.context.log.error(f"region {region_id(ended.region)} FAILED: {ended.error}")
            kind = _machines_fault(ended.error)
            events.failed(stage, ended.region, ended.error, "machine" if kind else "region")
            self.alike = [] if not kind else [*self.alike, kind] if kind in self.alike else [kind]
        else:
            told = produce.admitted(ended.value, self.home) if stage.apart else ended.value
            events.done(stage, ended.region, told)
            self.tokens += told.tokens
            if stage is self.stages[-1]:
                self.alike = []
            self._say(ended, told.said)
        if ended.error is not None or stage is self.stages[-1]:
            self._count(total)

    def _say(self, ended: Ended, said: str) -> None:
        """Say what became of a region, in one line when its last stage has ended."""
        seconds = (ended.finished_at - ended.started_at).total_seconds()
        words, passed = self.told.pop(ended.region, ("", 0.0))
        words, passed = f"{words}, {said}".removeprefix(", "), passed + seconds
        if ended.stage == self.stages[-1].name:
            self.context.log.info(f"region {region_id(ended.region)}: {words} ({passed:.1f} s)")
        else:
            self.told[ended.region] = words, passed

    def _count(self, total: int) -> None:
        self.ended += 1
        now = time.monotonic()
        if now - self.said < SAY_EVERY and self.ended < total:
            return
        self.said, passed = now, now - self.begun
        said = f"{self.ended} of {total} regions ended, {len(self.failed)} failed; {self.tokens:,} tokens, "
        said += f"{self.tokens / passed:,.0f} a second"
        if self.ended > 1:
            # After one region most of the time was the start of the processes.
            said += f"; about {_minutes(passed / self.ended * (total - self.ended))} left"
        self.context.log.info(said)

    def _died(self, stage: RegionStage, index: int) -> CasebitsError:
        if stage.apart:
            return died(self.generation.name, index)
        where, problem = f"{self.generation.name}/{region_id(index)}", "its process ended before its answer, twice"
        remedy = "if it was out of memory, run it with fewer workers"
        return CasebitsError("WORKER_DIED", where, problem, remedy=remedy)

    def _conclude(self, regions: Sequence[int]) -> None:
        left = len(regions) - self.ended
        if not self.failed:
            return
        if len(regions) == 1:
            (error,) = self.failed.values()
            raise _failure(str(error), failure_facts(error), [error]) from error
        rows = [{"region": region_id(index), "why": str(error)} for index, error in sorted(self.failed.items())]
        names = ", ".join(row["region"] for row in rows[:10]) + (", ..." if len(rows) > 10 else "")
        text = f"{len(rows)} of {len(regions)} regions failed: {names}"
        if left:
            text += f"; {left} were not begun, since {self.gave_up}"
        raise _failure(text, {"failed": table(rows), "not_begun": left}, [*self.failed.values()])


def _failure(text: str, metadata: Metadata, errors: Sequence[Exception]) -> dg.Failure:
    return dg.Failure(text, metadata=metadata, allow_retries=all(getattr(e, "code", "") in TRANSIENT for e in errors))


def _machines_fault(error: Exception) -> str:
    """Return what kind of fault of the machine or a store this is; empty for one of the region.

    A process that died, alone and for the second time, died of its region.
    """
    if isinstance(error, OSError):
        return os.strerror(error.errno) if error.errno else type(error).__name__
    code = str(getattr(error, "code", ""))
    return code if code.startswith("STORE_") or code == "REGION_CHANGED" else ""


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
