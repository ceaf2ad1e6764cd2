"""The run records of a region, for an audit: who made it, when, by which version. Outside identity; nothing here is
proven, and a record that cannot be read is told as one."""

from __future__ import annotations

import json
from pathlib import Path

from casebits_dagster.lineage.records import AuditedRun


def audited_runs(folder: Path) -> tuple[AuditedRun, ...]:
    """Return the runs whose records lie in a folder, by file name."""
    return tuple(_run(path) for path in sorted(folder.glob("*.json")))


def _run(path: Path) -> AuditedRun:
    try:
        said = json.loads(path.read_bytes())
        stages = [(f"{one['stage']} {one['version']}: {one['outcome']}", one["finished_at"]) for one in said["stages"]]
        return AuditedRun(
            run_id=said["run_id"],
            job=said["job"],
            package=said["package"],
            package_version=said["package_version"],
            finished_at=max((time for _, time in stages), default="unknown"),
            stages=tuple(stage for stage, _ in stages),
        )
    except (OSError, ValueError, LookupError, TypeError):
        unread = "unreadable"
        return AuditedRun(
            run_id=path.stem, job=unread, package=unread, package_version=unread, finished_at=unread, stages=()
        )
