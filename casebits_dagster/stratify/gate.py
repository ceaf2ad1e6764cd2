"""Judge a report by the pinned tolerances of its generation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from casebits_dagster.records.digests import sha256
from casebits_dagster.records.gates import Evidence, Gate
from casebits_dagster.records.record import micro, micro_text
from casebits_dagster.records.stratification import StratificationReport
from casebits_dagster.records.tolerances import Tolerances


@dataclass(frozen=True, slots=True)
class _Measure:
    """What was read beside its limit; shares are in millionths and shown as decimals."""

    name: str
    read: int
    limit_name: str
    limit: int
    holds: bool
    show: Callable[[int], int | str] = int

    def __str__(self) -> str:
        return f"{self.name} {self.show(self.read)} ({self.limit_name} {self.show(self.limit)})"


def stratification_gate(
    report: StratificationReport, tolerances: Tolerances | None, evidence: Sequence[Evidence]
) -> Gate:
    """Return the gate: open when every tolerance holds, closed when one does not or none are pinned, and neither while
    the prefix has fewer documents than a verdict takes."""
    if tolerances is None:
        why, numbers = f"no tolerances are pinned for {report.generation}", {"documents": report.documents}
        return Gate(state="closed", why=why, evidence=tuple(evidence), numbers=dict(numbers))
    measures = _measures(report, tolerances)
    least, failed = tolerances.least_documents, [measure for measure in measures if not measure.holds]
    if report.documents < least:
        why = f"the prefix has {report.documents:,} documents, and a verdict takes {least:,}"
    elif not _expects(report, tolerances):
        why = "the report was made beside other expected counts than those that are pinned"
    elif failed:
        why = f"not a fair picture: {'; '.join(map(str, failed))}"
    else:
        why = f"a fair picture: all {len(measures)} tolerances hold"
    fair = not failed and _expects(report, tolerances)
    return Gate(
        state="not_enough_data" if report.documents < least else "open" if fair else "closed",
        why=why,
        evidence=tuple(evidence),
        numbers={
            "tolerances_sha256": sha256(tolerances.to_bytes()),
            "documents": report.documents,
            "least_documents": least,
            "outlier_standard_errors": micro_text(micro(tolerances.outlier_standard_errors)),
            "judged_train_documents": tolerances.judged_train_documents,
            **{measure.name: measure.show(measure.read) for measure in measures},
            **{measure.limit_name: measure.show(measure.limit) for measure in measures},
        },
    )


def is_outlier(deviation_milli: int, tolerances: Tolerances) -> bool:
    """Return whether a region strays by more standard errors than the tolerances allow."""
    return abs(deviation_milli) * 1_000 > micro(tolerances.outlier_standard_errors)


def _measures(report: StratificationReport, tolerances: Tolerances) -> list[_Measure]:
    tables = {name: list(table.records()) for name, table in report.tables.items() if name != "strata_by_score"}
    unseen = [
        row
        for row in tables["strata"]
        if row["train_documents"] >= tolerances.judged_train_documents and not row["validation_documents"]
    ]
    outliers = [row for row in tables["control_chart"] if is_outlier(row["deviation_milli"], tolerances)]
    clusters = [row for row in tables["validation"] if row["dimension"] == "cluster"]
    fewest = min((row["validation_documents"] for row in clusters), default=0)
    repeated = report.repeats.documents * 1_000_000
    measures = [
        _at_most(
            "validation_share_error", _largest(clusters), micro(tolerances.max_validation_share_error), micro_text
        ),
        _at_most(
            # Upwards, so that a share is never shown smaller than it is.
            "duplicate_share",
            -(-repeated // max(1, report.documents)),
            micro(tolerances.max_duplicate_share),
            micro_text,
        ),
        _at_most("outlier_regions", len(outliers), tolerances.max_outlier_regions),
        _at_most("strata_without_validation", len(unseen), 0),
        _Measure(
            "validation_documents",
            fewest,
            "min_validation_documents",
            tolerances.min_validation_documents,
            fewest >= tolerances.min_validation_documents,
        ),
    ]
    if tolerances.max_cluster_share_error is not None:
        error, most = _largest(tables["expectation"]), micro(tolerances.max_cluster_share_error)
        measures.insert(0, _at_most("cluster_share_error", error, most, micro_text))
    return measures


def _at_most(name: str, read: int, limit: int, show: Callable[[int], int | str] = int) -> _Measure:
    return _Measure(name, read, f"max_{name}", limit, read <= limit, show)


def _largest(rows: Sequence[dict[str, int]]) -> int:
    return max((abs(row["error_micro"]) for row in rows), default=0)


def _expects(report: StratificationReport, tolerances: Tolerances) -> bool:
    """Return whether the report stands beside the counts that are pinned."""
    rows = report.tables["expectation"].records()
    return {row["cluster"]: row["expected_documents"] for row in rows if row["expected_documents"]} == dict(
        tolerances.expected_documents
    )
