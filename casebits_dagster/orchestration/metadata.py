"""How facts become what the UI shows: tables, plots, paths, and the exact records a result was made from.

Plots are PNGs of 10 to 20 kB inside the metadata, so a page needs no file server and the event log keeps the picture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias

import dagster as dg
from dagster import AssetExecutionContext

from casebits_dagster.records.canonical import Json, canonical
from casebits_dagster.records.digests import sha256

Metadata: TypeAlias = "dict[str, Any]"
Row: TypeAlias = "Mapping[str, Any]"
_KINDS = {bool: "bool", int: "int", float: "float"}


def code_version(stage: str, version: int, pins: Json) -> str:
    """Return the digest of a stage's version and the pins it reads: it moves only when the output may."""
    return sha256(canonical({"stage": stage, "version": version, "pins": pins}))[:16]


def table(rows: Sequence[Row]) -> dg.TableMetadataValue | str:
    """Return the rows as a table whose columns are those of the first row; "none" when there is no row."""
    if not rows:
        return "none"
    columns = [dg.TableColumn(name, _KINDS.get(type(value), "string")) for name, value in rows[0].items()]
    records = [dg.TableRecord({name: _cell(value) for name, value in row.items()}) for row in rows]
    return dg.TableMetadataValue(records, dg.TableSchema(columns=columns))


def counted(counts: Mapping[str, int], whole: int, name: str = "reason") -> dg.TableMetadataValue | str:
    """Return a table of counts with their shares of `whole`, largest first."""
    order = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return table([{name: key, "rows": count, "share": share(count, whole)} for key, count in order])


def share(part: float, whole: float) -> str:
    """Return a percentage for people.

    >>> share(1, 8), share(1, 0)
    ('12.5 %', '-')
    """
    return f"{100 * part / whole:.1f} %" if whole else "-"


def percent(fraction: Decimal) -> str:
    """Return an exact share as a percentage.

    >>> percent(Decimal("0.253100"))
    '25.31 %'
    """
    return f"{100 * fraction:.2f} %"


def json(value: Any) -> dg.JsonMetadataValue:
    """Return a JSON value, shown with its structure."""
    return dg.MetadataValue.json(value)


def path(location: Path) -> dg.PathMetadataValue:
    """Return a path with a button that copies it."""
    return dg.MetadataValue.path(str(location))


def columns(described: Mapping[str, tuple[str, str]]) -> Metadata:
    """Return the column schema {name: (dtype, meaning)} under the key that fills the page's Columns section."""
    schema = [dg.TableColumn(name, dtype, description=meaning) for name, (dtype, meaning) in described.items()]
    return {"dagster/column_schema": dg.TableSchema(columns=schema)}


def made_from(
    context: AssetExecutionContext, asset: dg.AssetKey, digest: str, partition: str | None = None
) -> dict[str, Json]:
    """Return the exact upstream record: asset, partition and the SHA-256 that was read from disk.

    Run and storage id are those of the event that reported this digest; null when it is not the latest event (the files
    are what was used; the event log is only a witness).
    """
    record: dict[str, Json] = {"asset": asset.to_user_string(), "partition": partition, "sha256": digest}
    wanted = dg.AssetRecordsFilter(asset, asset_partitions=[partition] if partition else None)
    events = context.instance.fetch_materializations(wanted, limit=1).records
    found = events[0] if events else None
    witness = found if found and _data_version(found) == digest else None
    record["run_id"] = witness.run_id if witness else None
    record["storage_id"] = witness.storage_id if witness else None
    return record


def _data_version(event: dg.EventLogRecord) -> str | None:
    materialization = event.asset_materialization
    return materialization.tags.get("dagster/data_version") if materialization and materialization.tags else None


def _cell(value: Any) -> str | int | float | bool | None:
    return value if isinstance(value, str | int | float | bool | None) else str(value)
