"""The pinned policy applied: the first rule that a document breaks is its drop reason.

`judge` sees scores, clusters and ids as columns, never text, so the decision can be re-derived from the record alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.filters.metrics import METRICS
from casebits_dagster.records.errors import RecordError
from casebits_dagster.records.policy import FilterPolicy, Rule
from casebits_dagster.records.record import micro

KEEP = "keep"


def require_metrics(policy: FilterPolicy) -> None:
    """Refuse a policy that names a metric nobody computes."""
    for name in policy.metrics:
        if name not in METRICS:
            where = f"{policy.policy_id}: metrics"
            raise RecordError("PIN_INVALID", where, expected=f"one of {', '.join(METRICS)}", read=name)


def judge(
    policy: FilterPolicy,
    scores: NDArray[np.int64],
    clusters: NDArray[np.int32],
    document_ids: NDArray[np.void],
    readable: NDArray[np.bool_],
    kept_before: NDArray[np.void],
) -> list[str]:
    """Return the verdict of every readable row, in order: `keep` or `dropped:<reason>`; "" for unreadable rows.

    `scores` "<i8" (N, metrics) in the policy's order; `document_ids` "V16" (N,); `kept_before` "V16", the ids that
    earlier rows of the region were kept with.
    """
    rank = np.full(len(readable), len(policy.rules), "<i8")
    rank[~readable] = -1
    for number, rule in enumerate(policy.rules):
        undecided = rank == len(policy.rules)
        if rule.kind == "duplicate":
            broken = _repeats(document_ids, undecided) | np.isin(document_ids, kept_before)
        else:
            broken = _broken(policy, rule, scores, clusters)
        rank[undecided & broken] = number
    names = [f"dropped:{rule.reason}" for rule in policy.rules] + [KEEP, ""]
    return [names[place] for place in rank]


def _broken(
    policy: FilterPolicy, rule: Rule, scores: NDArray[np.int64], clusters: NDArray[np.int32]
) -> NDArray[np.bool_]:
    if rule.kind == "clusters":
        return ~np.isin(clusters, rule.accept)
    column = scores[:, policy.metrics.index(str(rule.metric))]
    broken = np.zeros(len(column), bool)
    if rule.at_least is not None:
        broken |= column < micro(rule.at_least)
    if rule.at_most is not None:
        broken |= column > micro(rule.at_most)
    return broken


def _repeats(document_ids: NDArray[np.void], candidates: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which candidates have the id of an earlier candidate."""
    rows = np.flatnonzero(candidates)
    repeats = np.zeros(len(candidates), bool)
    first = np.unique(document_ids[rows], return_index=True)[1] if len(rows) else rows
    repeats[np.delete(rows, first)] = True
    return repeats
