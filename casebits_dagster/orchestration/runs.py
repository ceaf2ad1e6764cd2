"""Who made a region, when and with what: `runs/<region>/<run>.json`, outside the identity of everything.

One small file a region and run, rewritten as each stage of the run ends. Nothing of it enters a receipt or admission.
"""

from __future__ import annotations

import importlib.metadata
import platform
from dataclasses import replace
from datetime import UTC, datetime

import dagster as dg

from casebits_dagster.processes import Ended
from casebits_dagster.records.layout import Home
from casebits_dagster.records.run import RunRecord, StageRun
from casebits_dagster.stores.local import LocalStore

PACKAGE = "casebits-dagster"
TRANSIENT = frozenset({"STORE_UNREACHABLE", "VERIFIER_DIED", "REGION_CHANGED"})


def utc_now() -> datetime:
    """Return the time; the only clock of this room."""
    return datetime.now(UTC)


def record_stage(run: dg.DagsterRun, home: Home, generation: str, version: int, ended: Ended) -> None:
    """Write into the record of a run and region how a stage ended."""
    path = home.generation(generation).runs(ended.region) / f"{run.run_id}.json"
    before = path.read_bytes() if path.exists() else None
    record = RunRecord.parse(before, str(path)) if before else _begin(run, generation, ended.region)
    stage = StageRun(
        stage=ended.stage,
        version=version,
        started_at=_text(ended.started_at),
        finished_at=_text(ended.finished_at),
        outcome=str(getattr(ended.error, "code", type(ended.error).__name__)) if ended.error else "done",
    )
    written = replace(record, stages=(*record.stages, stage)).to_bytes()
    LocalStore(home.root, home.staging).replace(home.name(path), before, written)


def _begin(run: dg.DagsterRun, generation: str, index: int) -> RunRecord:
    return RunRecord(
        generation=generation,
        region=index,
        run_id=run.run_id,
        job=run.job_name,
        host=platform.node() or "unknown",
        python=platform.python_version(),
        package=PACKAGE,
        package_version=importlib.metadata.version(PACKAGE),
    )


def _text(time: datetime) -> str:
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
