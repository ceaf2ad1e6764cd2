"""What is still to make of a generation, out of what is admitted, what runs are at, and how often each region failed.

Admitted is what the files or the shared store say; the event log only tells of attempts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import dagster as dg

from casebits_dagster.orchestration.jobs import regions_job_name
from casebits_dagster.orchestration.partitions import asset_key, regions_of
from casebits_dagster.orchestration.stages import ADMITTED, ENCODED, FILTERED

ATTEMPTS = 3
IN_FLIGHT = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
CODE_VERSION = "dagster/code_version"
FAULT = "casebits/fault"
"""The tag of an observation: whose fault it was, `region` or `machine` (any region would meet it), or QUARANTINED."""


QUARANTINED = "quarantined"
LOOKED_AT = 3000
"""Observations of a stage that are looked at, the newest first."""


@dataclass(frozen=True, slots=True)
class Tried:
    """The runs in which a region failed by its own fault, why the last time, and whether its quarantine was told."""

    runs: frozenset[str]
    why: str
    told: bool


def in_flight(instance: dg.DagsterInstance, generation: str) -> dict[str, set[int]]:
    """Return the regions of every run that waits or works, by run id; also of runs that others started."""
    keys = {asset_key(generation, stage) for stage in (FILTERED, ENCODED, ADMITTED)}
    found = {}
    for run in instance.get_runs(dg.RunsFilter(statuses=IN_FLIGHT)):
        if keys & set(run.asset_selection or ()) or run.job_name == regions_job_name(generation):
            found[run.run_id] = set(regions_of(run.tags))
    return found


def failures(instance: dg.DagsterInstance, generation: str, code_version: str) -> dict[int, Tried]:
    """Return the regions that failed by their own fault under a code version of the admission, and how often."""
    found: dict[int, Tried] = {}
    for stage in (FILTERED, ENCODED, ADMITTED):
        for record in instance.fetch_observations(asset_key(generation, stage), limit=LOOKED_AT).records:
            event = record.asset_observation
            if event is None or event.partition is None or event.tags.get(CODE_VERSION) != code_version:
                continue
            before = found.get(int(event.partition), Tried(frozenset(), "", False))
            if event.tags.get(FAULT) == "region":
                told = before.why or event.description or ""
                found[int(event.partition)] = replace(before, runs=before.runs | {record.run_id}, why=told)
            elif event.tags.get(FAULT) == QUARANTINED:
                found[int(event.partition)] = replace(before, told=True)
    return found


def pause(instance: dg.DagsterInstance, tags: Mapping[str, str], failed: Collection[Tried], now: float) -> str:
    """Return why no run is to be asked for yet; empty when one may.

    Runs that failed without making anything and without any region's fault met a fault of the machine: after each one
    more in a row the wait for the next doubles, from two minutes to an hour.
    """
    blamed = set[str]().union(*(tries.runs for tries in failed))
    ended, barren = 0.0, 0
    for record in instance.get_run_records(dg.RunsFilter(tags=dict(tags)), limit=12):
        run = record.dagster_run
        if run.status != dg.DagsterRunStatus.FAILURE or run.run_id in blamed:
            break
        if instance.get_run_stats(run.run_id).materializations:
            break
        ended, barren = max(ended, record.end_time or 0.0), barren + 1
    left = ended + 60 * min(2**barren, 60) - now
    if not barren or left <= 0:
        return ""
    return f"the last {barren} runs made nothing: see why; the next is in {left / 60:.0f} min, or start one by hand"


def next_ranges(missing: Sequence[int], tried_before: Iterable[int], longest: int) -> list[tuple[int, int]]:
    """Return ranges of missing regions (first, last) in order; one that failed before is a range of its own.

    >>> next_ranges([0, 1, 2, 3, 5, 6], [2], 2)
    [(0, 1), (2, 2), (3, 3), (5, 6)]
    """
    alone, ranges = set(tried_before), list[tuple[int, int]]()
    for region in missing:
        first, last = ranges[-1] if ranges else (-2, -2)
        joins = region == last + 1 and region - first < longest and not alone & {last, region}
        if joins:
            ranges[-1] = (first, region)
        else:
            ranges.append((region, region))
    return ranges
