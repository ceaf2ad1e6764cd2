"""How facts become what the UI shows: tables, shares, and the exact records a result was made from.

Paths, lists and objects go into a page as they are: Dagster shows a path with a button that copies it, and JSON with
its structure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import dagster as dg
from dagster import AssetExecutionContext

from casebits_dagster.records.canonical import Json, canonical
from casebits_dagster.records.digests import sha256

Metadata: TypeAlias = "dict[str, Any]"
Row: TypeAlias = "dict[str, Any]"


def code_version(stage: str, version: int, pins: Json) -> str:
    """Return the digest of a stage's version and the pins it reads: it moves only when the output may."""
    return sha256(canonical({"stage": stage, "version": version, "pins": pins}))[:16]


def table(rows: Sequence[Row]) -> dg.TableMetadataValue | str:
    """Return the rows as a table whose columns are those of the first row; "none" when there is no row."""
    return dg.MetadataValue.table([dg.TableRecord(row) for row in rows]) if rows else "none"


def fields(record: object, *names: str) -> Row:
    """Return some fields of a record as a row, or as a part of one."""
    return {name: getattr(record, name) for name in names}


def counted(counts: Mapping[str, int], whole: int) -> dg.TableMetadataValue | str:
    """Return a table of counts by reason with their shares of `whole`, largest first."""
    order = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return table([{"reason": reason, "rows": count, "share": share(count, whole)} for reason, count in order])


def share(part: float, whole: float) -> str:
    """Return a percentage for people.

    >>> share(1, 8), share(1, 0)
    ('12.5 %', '-')
    """
    return f"{100 * part / whole:.1f} %" if whole else "-"


def upstream(asset: dg.AssetKey, digest: str, partition: str | None = None, **more: Json) -> dict[str, Json]:
    """Return the exact upstream record: asset, partition and the SHA-256 that was read from disk."""
    return {"asset": asset.to_user_string(), "partition": partition, **more, "sha256": digest}


def made_from(context: AssetExecutionContext, asset: dg.AssetKey, digest: str) -> dict[str, Json]:
    """Return the upstream record of this partition, and the event that reported the same digest.

    Run and storage id are null when that is not the latest event: the files are what was used, the event log is only a
    witness.
    """
    partition = context.partition_key
    wanted = dg.AssetRecordsFilter(asset, asset_partitions=[partition])
    latest = context.instance.fetch_materializations(wanted, limit=1).records
    witness = next((event for event in latest if _data_version(event) == digest), None)
    return {
        **upstream(asset, digest, partition),
        "run_id": witness.run_id if witness else None,
        "storage_id": witness.storage_id if witness else None,
    }


def _data_version(event: dg.EventLogRecord) -> str | None:
    materialization = event.asset_materialization
    return (materialization.tags or {}).get("dagster/data_version") if materialization else None
