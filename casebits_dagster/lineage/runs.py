"""The run records of a region, for an audit: who made it, when, by which version. Outside identity; nothing here is
proven, and a record that cannot be read is told as one."""

from __future__ import annotations

from pathlib import Path

from casebits_dagster.lineage.records import AuditedRun
from casebits_dagster.records.errors import RecordError
from casebits_dagster.records.run import RunRecord


def audited_runs(folder: Path) -> tuple[AuditedRun, ...]:
    """Return the runs whose records lie in a folder, by file name."""
    return tuple(_run(path) for path in sorted(folder.glob("*.json")))


def _run(path: Path) -> AuditedRun:
    try:
        said = RunRecord.parse(path.read_bytes(), path.name)
    except (OSError, RecordError):
        unread = "unreadable"
        return AuditedRun(
            run_id=path.stem, job=unread, package=unread, package_version=unread, finished_at=unread, stages=()
        )
    return AuditedRun(
        run_id=said.run_id,
        job=said.job,
        package=said.package,
        package_version=said.package_version,
        finished_at=max((one.finished_at for one in said.stages), default="unknown"),
        stages=tuple(f"{one.stage} {one.version}: {one.outcome}" for one in said.stages),
    )
