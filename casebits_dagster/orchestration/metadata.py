"""How facts become what the UI shows: tables, shares, and the exact records a result was made from.

Paths, lists and objects go into a page as they are: Dagster shows a path with a button that copies it, and JSON with
its structure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import dagster as dg

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


def column_schema(described: Mapping[str, tuple[str, str]]) -> Metadata:
    """Return columns (name: type, what it is) under the key that fills the page's Columns section."""
    columns = [dg.TableColumn(name, dtype, text) for name, (dtype, text) in described.items()]
    return {"dagster/column_schema": dg.TableSchema(columns)}


def digest(sha256: str) -> Row:
    """Return the beginning of a digest as a part of a row: enough to compare by eye, and no wider than a page."""
    return {"sha256 begins": sha256[:16]}


def plain(decimal: str) -> str:
    """Return a decimal with a point, as text, without the zeros at its end.

    >>> plain("14209.000000"), plain("0.500000")
    ('14209', '0.5')
    """
    return decimal.rstrip("0").removesuffix(".")


def upstream(asset: dg.AssetKey, digest: str, partition: str | None = None, **more: Json) -> dict[str, Json]:
    """Return the exact upstream record: asset, partition and the SHA-256 that was read from disk."""
    return {"asset": asset.to_user_string(), "partition": partition, **more, "sha256": digest}


def latest_event(instance: dg.DagsterInstance, asset: dg.AssetKey, partition: str) -> dg.EventLogRecord | None:
    """Return the latest materialisation of a partition."""
    wanted = dg.AssetRecordsFilter(asset, asset_partitions=[partition])
    return next(iter(instance.fetch_materializations(wanted, limit=1).records), None)


def tag(event: dg.EventLogRecord, name: str) -> str | None:
    """Return a tag of a materialisation."""
    materialization = event.asset_materialization
    return (materialization.tags or {}).get(name) if materialization else None


def audit_command(generation: str, region: str) -> str:
    """Return how a region is followed, from its files to the bytes of its source, by hand or in a run."""
    return f"casebits audit --region {generation}/{region}, or the job `audit` with region: {generation}/{region}"
