"""What a stratification report shows on its page: the verdict with its numbers, then who is in the prefix."""

from __future__ import annotations

from collections.abc import Sequence

import dagster as dg
import numpy as np

from casebits_dagster.orchestration import plots
from casebits_dagster.orchestration.metadata import Metadata, Row, plain, share, table, upstream
from casebits_dagster.orchestration.partitions import asset_key
from casebits_dagster.orchestration.stages import FRONTIER
from casebits_dagster.publication.stratification import WrittenReport
from casebits_dagster.records.gates import Gate
from casebits_dagster.records.stratification import StratificationReport
from casebits_dagster.stratify.gate import is_outlier
from casebits_dagster.stratify.strata import BUCKETS

FAIR_CHECKS = {
    "fair_picture": "The prefix is within the pinned tolerances: shares of clusters beside those of the source, "
    "validation beside train, repeats, and regions that stray. A warning: it closes a gate and blocks nothing."
}

_LISTED = 20
_BARS = 200
_NAMED = 12


def stratification(done: WrittenReport) -> Metadata:
    """Return the page of a stratification report."""
    report, earlier = done.report, done.report.earlier
    return {
        "dagster/row_count": report.documents,
        "frontier_version": report.version,
        "documents": report.documents,
        "tokens": report.tokens,
        "gate": f"{done.gate.state.replace('_', ' ')}: {done.gate.why}",
        "tolerances": table(_limits(done.gate)),
        "control_chart_plot": _control_chart(done),
        "regions_that_stray_most": table(_strayed(done)),
        "cluster_shares_plot": _shares(report),
        "beside_the_source": table(_expectation(report)),
        "validation_beside_train": table(_validation(report)),
        "by_region_plot": _cluster_shares(report),
        "by_cluster": table(_strata(report, "by_cluster", "cluster")),
        "by_length": table(_strata(report, "by_length", "tokens", "length in tokens")),
        "by_case_class": table(_strata(report, "by_case_class", "case_class")),
        "cluster_by_length_plot": _cells(report),
        "scores": table(_scores(report)),
        "validation_by_score_plot": _score_quarters(report),
        "duplicates": report.repeats.documents,
        "duplicate_tokens": report.repeats.tokens,
        "largest_duplicates": table(_rows(report, "duplicates")),
        "effective_sizes": table(_effective(report)),
        "since": f"version {earlier.version}, of {earlier.regions} regions" if earlier else "this is the first version",
        "what_changed": table(_changes(report)),
        "report": done.path,
        "report_sha256": done.sha256,
        "written": "now" if done.published else "identical bytes were there before",
        "made_from": [upstream(asset_key(report.generation, FRONTIER), report.manifest_sha256)],
        "next": "a mix takes its own shares of these clusters and lengths from the frontier.",
    }


def fair_picture(gate: Gate) -> dg.AssetCheckResult:
    """Return the check that is no more than the gate: it warns, as a prefix that is not fair is proven all the same."""
    return dg.AssetCheckResult(
        check_name="fair_picture",
        passed=gate.state == "open",
        severity=dg.AssetCheckSeverity.WARN,
        description=gate.why,
        metadata={"state": gate.state, "evidence": table(_limits(gate)), **gate.numbers},
    )


def _limits(gate: Gate) -> list[Row]:
    """Return what was read beside its limit, for each number that has one."""
    return [
        {"measure": name.replace("_", " "), "read": _shown(read), "limit": f"{word} {_shown(gate.numbers[key])}"}
        for name, read in gate.numbers.items()
        for key, word in ((f"max_{name}", "at most"), (f"min_{name}", "at least"), (f"least_{name}", "at least"))
        if key in gate.numbers
    ]


def _shown(number: int | str) -> str:
    return plain(number) if isinstance(number, str) else f"{number:,}"


def _rows(report: StratificationReport, name: str) -> list[Row]:
    return list(report.tables[name].records())


def _percent(micro: int) -> str:
    return f"{micro / 10_000:.2f} %"


def _points(micro: int) -> str:
    return f"{micro / 10_000:+.2f} points"


def _errors(milli: int) -> str:
    return f"{milli / 1_000:+.1f}"


def _control_chart(done: WrittenReport) -> object:
    """Return each region's largest deviation, the limits, and the regions beyond them by name."""
    rows, tolerances = _rows(done.report, "control_chart"), done.tolerances
    figure, axes = plots._canvas(8)
    outside = [row for row in rows if tolerances and is_outlier(row["deviation_milli"], tolerances)]
    for name, some, colour in (("region", rows, plots.INK[0]), ("outlier", outside, plots.INK[1])):
        at = [int(row["region"]) for row in some], [row["deviation_milli"] / 1_000 for row in some]
        axes.scatter(*at, s=14, color=colour, label=f"{name} ({len(some):,})", zorder=3)
    for row in sorted(outside, key=_strays)[:_NAMED]:
        place = int(row["region"]), row["deviation_milli"] / 1_000
        axes.annotate(
            f"{row['dimension']} {row['stratum']}", place, fontsize=7, xytext=(4, 2), textcoords="offset points"
        )
    axes.axhline(0, color=plots._PALE, linewidth=1)
    if tolerances:
        limit = float(tolerances.outlier_standard_errors)
        for side in (limit, -limit):
            axes.axhline(side, color=plots.INK[1], linewidth=1, linestyle="--", label="limit" if side > 0 else None)
    axes.set(xlabel="region", ylabel="standard errors")
    return plots._markdown(figure)


def _strays(row: Row) -> int:
    return -abs(int(row["deviation_milli"]))


def _strayed(done: WrittenReport) -> list[Row]:
    return [
        {
            "region": row["region"],
            "documents": f"{row['documents']:,}",
            "strays in": f"{row['dimension']} {row['stratum']}",
            "standard errors": _errors(row["deviation_milli"]),
            "outlier": "yes" if done.tolerances and is_outlier(row["deviation_milli"], done.tolerances) else "no",
            "repeats": f"{row['repeated_documents']:,}",
        }
        for row in sorted(_rows(done.report, "control_chart"), key=_strays)[:_LISTED]
    ]


def _shares(report: StratificationReport) -> object:
    """Return each cluster's share of the documents: of the source where it is known, of train, of validation."""
    found = {row["stratum"]: row for row in _rows(report, "validation") if row["dimension"] == "cluster"}
    expected = {row["cluster"]: row["expected_micro"] / 10_000 for row in _rows(report, "expectation")}
    names = list(expected or found)
    series = {"source, expected": [expected[name] for name in names]} if expected else {}
    for split in ("train", "validation"):
        series[split] = [found[name][f"{split}_micro"] / 10_000 if name in found else 0.0 for name in names]
    return plots.bars(series, names, "% of documents, by cluster")


def _expectation(report: StratificationReport) -> list[Row]:
    return [
        {
            "cluster": row["cluster"],
            "expected": _percent(row["expected_micro"]),
            "in the prefix": _percent(row["share_micro"]),
            "error": _points(row["error_micro"]),
            "standard errors": _errors(row["deviation_milli"]),
        }
        for row in _rows(report, "expectation")
    ]


def _validation(report: StratificationReport) -> list[Row]:
    return [
        {
            "stratum": f"{row['dimension']} {row['stratum']}",
            "train": f"{row['train_documents']:,}",
            "validation": f"{row['validation_documents']:,}",
            "of train": _percent(row["train_micro"]),
            "of validation": _percent(row["validation_micro"]),
            "standard errors": _errors(row["deviation_milli"]),
        }
        for row in _rows(report, "validation")
    ]


def _strata(report: StratificationReport, name: str, by: str, shown: str = "") -> list[Row]:
    """Return documents and tokens of each stratum, with its share of all tokens, and what of it is for validation."""
    return [
        {
            shown or by: row[by],
            "documents": f"{row['train_documents'] + row['validation_documents']:,}",
            "tokens": f"{(tokens := row['train_tokens'] + row['validation_tokens']):,}",
            "of all tokens": share(tokens, report.tokens),
            "validation": share(row["validation_tokens"], tokens),
        }
        for row in _rows(report, name)
    ]


def _cells(report: StratificationReport) -> object:
    """Return the grid of clusters by lengths: what each has of all tokens."""
    found = report.tables["cluster_by_length"]
    shares = [[100 * int(count) / max(1, report.tokens) for count in row[1:]] for row in found.rows]
    texts = [[f"{value:.1f} %" if value else "-" for value in row] for row in shares]
    return plots.grid(shares, texts, [f"cluster {row[0]}" for row in found.rows], found.columns[1:])


def _scores(report: StratificationReport) -> list[Row]:
    cuts = ("p0", "p10", "p25", "p50", "p75", "p90", "p100")
    return [
        {"metric": row["metric"], "split": row["split"], **{cut: plain(str(row[cut])) for cut in cuts}}
        for row in _rows(report, "scores")
    ]


def _score_quarters(report: StratificationReport) -> object:
    """Return how many of the validation documents lie in each quarter of the train documents, score by score."""
    rows = _rows(report, "by_score")
    if not rows:
        return "no score is recorded"
    counts = np.array([row["validation_documents"] for row in rows], float).reshape(-1, len(BUCKETS))
    shares = (100 * counts / np.maximum(1, counts.sum(axis=1, keepdims=True))).tolist()
    texts = [[f"{value:.1f} %" for value in row] for row in shares]
    names = [row["metric"].replace("_", "\n", 1) for row in rows[:: len(BUCKETS)]]
    return plots.grid(shares, texts, names, BUCKETS)


def _effective(report: StratificationReport) -> list[Row]:
    return [
        {
            "cluster": row["cluster"],
            "documents": f"{row['documents']:,}",
            "train, as if of one length": f"{row['train_equal_length']:,}",
            "validation, as if of one length": f"{row['validation_equal_length']:,}",
            "design effect of regions": f"{row['design_effect_milli'] / 1_000:.1f}",
            "independent documents": f"{row['independent_documents']:,}",
        }
        for row in _rows(report, "effective")
    ]


def _changes(report: StratificationReport) -> list[Row]:
    """Return the strata whose share changed the most."""
    rows = sorted(_rows(report, "changes"), key=lambda row: -abs(row["change_micro"]))
    return [
        {
            "stratum": f"{row['dimension']} {row['stratum']}",
            "documents before": f"{row['documents_before']:,}",
            "documents": f"{row['documents']:,}",
            "share before": _percent(row["before_micro"]),
            "share": _percent(row["share_micro"]),
            "change": _points(row["change_micro"]),
        }
        for row in rows[:_LISTED]
    ]


def _cluster_shares(report: StratificationReport) -> object:
    rows = _rows(report, "by_region")
    names: Sequence[str] = [column for column in report.tables["by_region"].columns if column.endswith("_micro")]
    cuts = np.arange(0, len(rows), 1 + len(rows) // _BARS)
    tokens = np.array([row["tokens"] for row in rows], float)
    shares = np.array([[row[name] for name in names] for row in rows], float).reshape(len(rows), len(names)) / 10_000
    if len(rows):
        shares = np.add.reduceat(shares * tokens[:, None], cuts) / np.maximum(1, np.add.reduceat(tokens, cuts))[:, None]
    labels = [name.removeprefix("cluster_").removesuffix("_micro") for name in names]
    series = dict(zip(labels, shares.T.tolist(), strict=True))
    return plots.stacked(series, [rows[cut]["region"] for cut in cuts], "region", "% of tokens, by cluster")
