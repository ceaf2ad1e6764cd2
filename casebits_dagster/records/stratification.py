"""The stratification report of one frontier version: tables of integers and names, nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from casebits_dagster.records.record import Count, Name, Positive, Record, Sha256


@dataclass(frozen=True, kw_only=True, slots=True)
class Table(Record):
    """Rows of whole numbers and names; shares are in millionths and their columns end in `_micro`."""

    columns: tuple[str, ...]
    rows: tuple[tuple[int | str, ...], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class StratificationReport(Record):
    """`tables`: by_cluster, by_length, by_case_class, cluster_by_length, scores, by_region, duplicates."""

    SCHEMA: ClassVar[str] = "casebits/stratification/1"

    generation: Name
    version: Positive
    manifest_sha256: Sha256
    documents: Count
    tokens: Count
    tables: dict[str, Table]
