"""The filter decision of a row: what was recorded, by which rule, and whether the filter says so again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from casebits_dagster.filters.judge import judge, require_metrics, verdict_names
from casebits_dagster.filters.metrics import score
from casebits_dagster.filters.region import document_ids, verdicts_digest
from casebits_dagster.lineage.chain import FILTER_AGAIN, Chain, OpenedRegion
from casebits_dagster.lineage.ledger import Ledger
from casebits_dagster.lineage.locate import line_of_row
from casebits_dagster.lineage.records import AuditedRow
from casebits_dagster.records.errors import Absent
from casebits_dagster.records.pins import Generation
from casebits_dagster.records.plan import RegionSpec
from casebits_dagster.records.policy import FilterPolicy
from casebits_dagster.records.record import micro_text
from casebits_dagster.records.withdrawal import SourceRow
from casebits_dagster.regions.read import Region
from casebits_dagster.sources import read_rows
from casebits_dagster.sources.columns import PROBLEMS, SourceRows

_DUPLICATE = "dropped:"


def decide(row: SourceRow, opened: OpenedRegion, chain: Chain) -> AuditedRow:
    """Return what became of a row of a region that was followed, from the verdict table, documents.jsonl and, where
    the source is at hand, the filter run again on that row. Raises Absent when no row begins there, or none is told."""
    where = f"{row.generation}/{opened.audited.region} row {row.position}"
    index = line_of_row(opened.lines, row.position)
    recorded = _recorded(row, opened, chain, where)
    again = _again(row, opened, chain, recorded, where) if chain.ledger.looks else None
    if recorded and again:
        chain.ledger.holds(FILTER_AGAIN, where, recorded == again, f"it says {again.verdict}")
    found = recorded or again
    if index is not None:
        line = opened.line(index)
        kept = replace(
            _row(row, opened, "keep"), document=line["id"], cluster=line["cluster"], scores=line["scores"], index=index
        )
        found = found and replace(found, index=index)
        if found is not None:
            chain.ledger.holds("verdict of the row", where, found == kept, "documents.jsonl keeps it, otherwise told")
        return kept
    if found is None:
        remedy = "the verdict table is a working file: filter the region again, or have its source at hand"
        raise Absent("NO_SUCH_ROW", where, "it is no document, and nothing says why", remedy=remedy)
    chain.ledger.holds("verdict of the row", where, found.verdict != "keep", "the region has no document of it")
    return found


def _row(row: SourceRow, opened: OpenedRegion, verdict: str) -> AuditedRow:
    return AuditedRow(
        generation=row.generation,
        path=row.path,
        position=row.position,
        region=opened.audited.region,
        verdict=verdict,
        document="",
        index=None,
        cluster=None,
        scores={},
    )


def _recorded(row: SourceRow, opened: OpenedRegion, chain: Chain, where: str) -> AuditedRow | None:
    """Return what the verdict table says; None where it is not there: it is a working file."""
    path = chain.home.generation(row.generation).verdicts(opened.audited.entry)
    if not path.is_file():
        return None
    with chain.ledger.following("verdicts of the region", where):
        table = pq.read_table(path)
        if chain.ledger.looks:
            claimed = opened.region.receipt.verdicts_digest
            chain.ledger.hashes("verdicts of the region", where, claimed, verdicts_digest(table))
        at = np.flatnonzero(table["position"].to_numpy() == row.position)
        if not len(at):
            raise Absent("NO_SUCH_ROW", where, "no row begins there")
        (said,) = table.slice(int(at[0]), 1).to_pylist()
        names = [name for name in said if name.startswith("score_") and said[name] is not None]
        return replace(
            _row(row, opened, said["verdict"]),
            document=_hex(said["document_id"]),
            cluster=_cluster(said["cluster"]),
            scores={name.removeprefix("score_"): micro_text(said[name]) for name in names},
        )
    return None


def _again(
    row: SourceRow, opened: OpenedRegion, chain: Chain, recorded: AuditedRow | None, where: str
) -> AuditedRow | None:
    """Read the row from its source and run the filter on it; None where that cannot be done here."""
    generation = chain.with_source(row.generation, row.path)
    if generation is None or not _can_score(generation, chain.ledger, where):
        return None
    spec = RegionSpec(opened.audited.entry, row.path, opened.audited.source.unit, row.position, row.position + 1)
    rows = next(iter(read_rows(generation.source, spec)))
    if not len(rows.positions) or rows.positions[0] != row.position:
        raise Absent("NO_SUCH_ROW", where, "no row begins there")
    return replace(_row(row, opened, ""), **_judged(generation.policy, rows, generation, opened.region, recorded))


def _can_score(generation: Generation, ledger: Ledger, where: str) -> bool:
    try:
        require_metrics(generation.policy, generation.policy_file, generation.source.pin.format)
    except Absent:
        ledger.trusts(FILTER_AGAIN, where, "")
        return False
    return True


def _judged(
    policy: FilterPolicy, rows: SourceRows, generation: Generation, region: Region, recorded: AuditedRow | None
) -> dict[str, Any]:
    if rows.problems[0]:
        return {"verdict": f"quarantined:{PROBLEMS[rows.problems[0]]}", "cluster": _cluster(int(rows.clusters[0]))}
    scores, ids = score(policy.metrics, rows, generation.weights), document_ids(rows.text, rows.cuts)
    # A repeat cannot be seen in one row alone: the text must be a document of the region, from an earlier row.
    text, repeat = ids[0].tobytes(), policy.rules[-1].reason
    before = recorded is not None and recorded.verdict == _DUPLICATE + repeat
    kept = {text} if before and text.hex() in {line["id"] for line in region.documents()} else set()
    code = judge(policy, scores, rows.clusters, ids, rows.problems == 0, kept)[0]
    return {
        "verdict": verdict_names(policy)[code],
        "document": text.hex(),
        "cluster": _cluster(int(rows.clusters[0])),
        "scores": {name: micro_text(int(values[0])) for name, values in zip(policy.metrics, scores, strict=True)},
    }


def _hex(document: bytes) -> str:
    return document.hex() if any(document) else ""


def _cluster(cluster: int) -> int | None:
    return None if cluster < 0 else cluster


def rule_rows(policy: FilterPolicy, scores: Mapping[str, str], cluster: int | None, verdict: str) -> list[list[str]]:
    """Return for each rule its reason, what it looks at, the value, the bounds, and whether it holds; rules behind the
    one that decided are not said to hold or not."""
    rows, decided = [], False
    for rule in policy.rules:
        broken = verdict == f"dropped:{rule.reason}"
        value = scores.get(str(rule.metric), "-") if rule.metric else "-" if cluster is None else str(cluster)
        bounds = [f"at least {rule.at_least}"] * (rule.at_least is not None)
        bounds += [f"at most {rule.at_most}"] * (rule.at_most is not None)
        if rule.kind == "clusters":
            bounds = [f"one of {', '.join(map(str, rule.accept))}"]
        if rule.kind == "duplicate":
            value, bounds = "-", ["no earlier document of the region has its text"]
        state = "broken: dropped" if broken else "not reached" if decided else "holds"
        rows.append([rule.reason, rule.metric or rule.kind, value, " and ".join(bounds), state])
        decided |= broken
    ruled = {rule.metric for rule in policy.rules}
    return rows + [
        ["-", name, scores.get(name, "-"), "recorded only", "-"] for name in policy.metrics if name not in ruled
    ]
