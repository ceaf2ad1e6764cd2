"""Who made a region, when and with what: `runs/<region>/<run>.json`, outside the identity of everything.

One small file a region and run, rewritten as each stage of the run ends. Nothing of it enters a receipt or admission.
"""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import ClassVar

from dagster import AssetExecutionContext, Failure

from casebits_dagster.orchestration.checks import refusal
from casebits_dagster.records.errors import CasebitsError, Rejected
from casebits_dagster.records.layout import Home
from casebits_dagster.records.record import Count, Name, Positive, Record, Text
from casebits_dagster.stores.local import LocalStore

PACKAGE = "casebits-dagster"
TRANSIENT = frozenset({"STORE_UNREACHABLE", "VERIFIER_DIED", "REGION_CHANGED"})


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


def utc_now() -> datetime:
    """Return the time; the only clock of this room."""
    return datetime.now(UTC)


@contextmanager
def recorded(context: AssetExecutionContext, home: Home, version: int) -> Iterator[int]:
    """Yield the index of the region this run works on; then write its run record, also when the stage failed.

    What fails by name is shown by name in the UI; only what another try may mend may be tried again.
    """
    stage, started_at, outcome = context.asset_key.path[-1], _now_text(), "done"
    try:
        yield int(context.partition_key)
    except Exception as error:
        outcome = str(getattr(error, "code", type(error).__name__))
        if isinstance(error, CasebitsError) and not isinstance(error, Rejected):
            retry = error.code in TRANSIENT
            raise Failure(str(error), metadata=refusal(error), allow_retries=retry) from error
        raise
    finally:
        times = {"started_at": started_at, "finished_at": _now_text()}
        _append(context, home, StageRun(stage=stage, version=version, outcome=outcome, **times))


def _append(context: AssetExecutionContext, home: Home, stage: StageRun) -> None:
    generation, index = context.asset_key.path[0], int(context.partition_key)
    path = home.generation(generation).runs(index) / f"{context.run.run_id}.json"
    before = path.read_bytes() if path.exists() else None
    record = RunRecord.parse(before, str(path)) if before else _begin(context, generation, index)
    written = replace(record, stages=(*record.stages, stage)).to_bytes()
    LocalStore(home.root, home.staging).replace(home.name(path), before, written)


def _begin(context: AssetExecutionContext, generation: str, index: int) -> RunRecord:
    return RunRecord(
        generation=generation,
        region=index,
        run_id=context.run.run_id,
        job=context.run.job_name,
        host=platform.node() or "unknown",
        python=platform.python_version(),
        package=PACKAGE,
        package_version=importlib.metadata.version(PACKAGE),
    )


def _now_text() -> str:
    return utc_now().isoformat(timespec="milliseconds").replace("+00:00", "Z")
