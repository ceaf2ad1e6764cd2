"""The filter policy: ordered rules over named metrics, pinned by hash. A change is a new file under a new name."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import ClassVar, Literal

from casebits_dagster.records.errors import RecordError
from casebits_dagster.records.record import Name, Record, RelativePath, Sha256, Text, pin_place


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule(Record):
    """One filter rule; the first that applies gives the document its drop reason.

    `threshold` drops when the metric is below `at_least` or above `at_most`. `clusters` drops a cluster that is not
    accepted. `duplicate` drops a document whose id was kept earlier in the region.
    """

    reason: Name
    kind: Literal["threshold", "clusters", "duplicate"]
    metric: Name | None = None
    at_least: Decimal | None = None
    at_most: Decimal | None = None
    accept: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightsPin(Record):
    """Frozen token weights for the `advertisement` and `exposition` metrics: a file below the pins' `filters/`."""

    path: RelativePath
    sha256: Sha256


@dataclass(frozen=True, kw_only=True, slots=True)
class FilterPolicy(Record):
    """`metrics` are recorded for every document, kept or dropped, in this order; rules apply in order."""

    LEFT_OUT: ClassVar[frozenset[str]] = frozenset({"weights"})

    policy_id: Name
    description: Text
    metrics: tuple[Name, ...]
    rules: tuple[Rule, ...]
    weights: WeightsPin | None = None

    def check(self, where: str) -> None:
        """Raise RecordError on a rule that cannot decide, or where equal texts may both be kept. `where`: the file."""

        def refused(field: str, problem: str) -> RecordError:
            return RecordError("PIN_INVALID", pin_place(Path(where), field), problem)

        for number, rule in enumerate(self.rules):
            place = f"rules[{number}]"
            bounds = (rule.at_least is not None) + (rule.at_most is not None)
            if rule.kind == "threshold" and (rule.metric is None or not bounds or rule.accept):
                raise refused(place, "a threshold needs a metric and at_least or at_most")
            if rule.metric and rule.metric not in self.metrics:
                problem = f"expected one of the metrics that the policy records, read {rule.metric}"
                raise refused(f"{place}.metric", problem)
            if rule.kind != "threshold" and (rule.metric or bounds):
                raise refused(place, f"a {rule.kind} rule takes no metric and no bound")
            if (rule.kind == "clusters") != bool(rule.accept):
                raise refused(place, "a clusters rule, and no other, lists what it accepts")
        kinds = [rule.kind for rule in self.rules]
        if kinds.count("duplicate") != 1 or kinds[-1] != "duplicate":
            # A document is a repeat of one that was *kept*, so every other rule decides before.
            raise refused("rules", "a policy needs one duplicate rule, the last: document ids are unique in a region")
        if not self.metrics or len(set(self.metrics)) != len(self.metrics):
            raise refused("metrics", "one metric or more, each named once")
