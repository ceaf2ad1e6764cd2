"""The stratification report of one frontier version: tables of integers and names, nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from casebits_dagster.records.canonical import Json
from casebits_dagster.records.errors import RecordError
from casebits_dagster.records.record import Count, Name, Positive, Record, Sha256

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, slots=True)
class Table(Record):
    """Rows of whole numbers and names; shares are in millionths and their columns end in `_micro`, standard errors in
    thousandths and theirs in `_milli`."""

    columns: tuple[str, ...]
    rows: tuple[tuple[int | str, ...], ...]

    @classmethod
    def from_dict(cls, value: object, where: str) -> Self:
        """Return the table; a report has some 100,000 cells, so they are looked at one by one only to name a wrong one.

        Raises RecordError as every record does, and where a row has not a cell a column.
        """
        match value:
            case {"columns": list(columns), "rows": list(rows), **others} if not others:
                shaped = all(type(row) is list and len(row) == len(columns) for row in rows)
                if (
                    shaped
                    and {*map(type, columns)} <= {str}
                    and {type(cell) for row in rows for cell in row} <= {int, str}
                ):
                    return cls(columns=tuple(columns), rows=tuple(map(tuple, rows)))
        table = super(Table, cls).from_dict(value, where)
        wrong = next(number for number, row in enumerate(table.rows) if len(row) != len(table.columns))
        expected, read = f"{len(table.columns)} cells", len(table.rows[wrong])
        raise RecordError("JSON_INVALID", f"{where}.rows[{wrong}]", expected=expected, read=read)

    def to_dict(self) -> dict[str, Json]:
        """Return the JSON value."""
        return {"columns": list(self.columns), "rows": list(map(list, self.rows))}

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield each row as a dict by column."""
        return (dict(zip(self.columns, row, strict=True)) for row in self.rows)

    def frame(self) -> pd.DataFrame:
        """Return the rows as a pandas frame."""
        import pandas as pd

        return pd.DataFrame(list(self.rows), columns=list(self.columns))


@dataclass(frozen=True, kw_only=True, slots=True)
class Earlier(Record):
    """The version before: it holds the first `regions` regions of this one."""

    version: Positive
    regions: Count
    documents: Count
    tokens: Count


@dataclass(frozen=True, kw_only=True, slots=True)
class Repeats(Record):
    """Documents whose id stands earlier in the prefix: `documents` in all, in `groups` of one id each; `new` of them
    lie in regions that the version before did not have."""

    documents: Count
    tokens: Count
    groups: Count
    new: Count


@dataclass(frozen=True, kw_only=True, slots=True)
class StratificationReport(Record):
    """A report follows from the index, the recorded scores, the two manifests and the expected counts alone.

    `tables` (a count is of documents, tokens and raw_bytes of each split unless said otherwise):

    - by_cluster, by_length, by_case_class: the marginals; cluster_by_length: tokens
    - strata: each cluster x length x case class that has a document
    - scores: quantiles; by_score: each quantile bucket of each score; strata_by_score: crossed with the strata
    - by_region: documents, tokens and each cluster's share of tokens; control_chart: the stratum in which a region
      strays the most, by how many standard errors, and how many documents it repeats
    - expectation: each cluster's share of documents beside the expected one (no rows when nothing is expected)
    - validation: each stratum's share of the documents of either split
    - duplicates: the largest groups of repeats
    - effective: what the documents of a cluster are worth when lengths differ, and when regions do
    - changes: each stratum's share of documents before and now (no rows in the first version)
    """

    SCHEMA: ClassVar[str] = "casebits/stratification/2"

    generation: Name
    version: Positive
    manifest_sha256: Sha256
    regions: Count
    documents: Count
    tokens: Count
    earlier: Earlier | None
    repeats: Repeats
    tables: dict[str, Table]
