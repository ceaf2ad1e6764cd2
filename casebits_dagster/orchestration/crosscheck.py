"""What an audit found in the files, against what Dagster's event log says of the same regions and mixes.

The files decide; the log is a witness that may be missing, another one, or cut. What it does not know is no difference,
except a run that a run record names while the log has events of that region.
"""

from __future__ import annotations

import dagster as dg

from casebits_dagster.lineage.records import AuditedRegion, WindowAudit
from casebits_dagster.lineage.render import AnyAudit
from casebits_dagster.orchestration.events import DATA_VERSION
from casebits_dagster.orchestration.metadata import Row, latest_event, tag
from casebits_dagster.orchestration.partitions import MIXES, asset_key
from casebits_dagster.orchestration.stages import ADMITTED


def differences(instance: dg.DagsterInstance, audit: AnyAudit) -> list[Row]:
    """Return where the event log says something else than the files: subject, what, in the files, in the log."""
    found = [row for region in audit.regions for row in _region(instance, region)]
    if isinstance(audit, WindowAudit):
        mixes = {audit.mix: audit.mix_manifest_sha256}
    else:
        mixes = {use.mix: use.mix_manifest_sha256 for use in audit.uses}
    return found + [row for mix, digest in sorted(mixes.items()) for row in _mix(instance, mix, digest)]


def _region(instance: dg.DagsterInstance, region: AuditedRegion) -> list[Row]:
    subject = f"{region.generation}/{region.region}"
    event = latest_event(instance, asset_key(region.generation, ADMITTED), region.region)
    if event is None:
        return []
    rows = []
    if (said := tag(event, DATA_VERSION)) != region.admission_sha256:
        rows.append(_row(subject, "admission", region.admission_sha256, said))
    if event.run_id not in region.runs:
        rows.append(_row(subject, "run that admitted it", ", ".join(region.runs) or "no run record", event.run_id))
    unknown = [run for run in region.runs if not instance.has_run(run)]
    return rows + [_row(subject, "run", run, "not in the log") for run in unknown]


def _mix(instance: dg.DagsterInstance, mix: str, digest: str) -> list[Row]:
    event = instance.get_latest_materialization_event(asset_key(MIXES, mix))
    made = event.asset_materialization if event else None
    said = (made.tags or {}).get(DATA_VERSION) if made else None
    return [_row(f"mix {mix}", "manifest", digest, said)] if said and said != digest else []


def _row(subject: str, what: str, files: str, log: str | None) -> Row:
    return {"of": subject, "what": what, "in the files": files, "in the log": log or "none"}
