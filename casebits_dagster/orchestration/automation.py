"""What starts runs by itself once it is switched on in the UI: the missing regions, the frontier behind them, and
proofs done again. All of it is off by default.

Each looks at what is there and asks for what is missing, so nothing is lost when a tick is missed, a run dies or the
daemon was away for a week.
"""

import time
from collections.abc import Iterator, Mapping, Sequence

import dagster as dg

from casebits_dagster.orchestration.attempts import (
    ATTEMPTS,
    CODE_VERSION,
    FAULT,
    IN_FLIGHT,
    QUARANTINED,
    Tried,
    failures,
    in_flight,
    next_ranges,
    pause,
)
from casebits_dagster.orchestration.jobs import corpus_job_name, regions_job_name
from casebits_dagster.orchestration.partitions import asset_key, plain_name, range_tags
from casebits_dagster.orchestration.regions import regions_a_run
from casebits_dagster.orchestration.resources import Corpus
from casebits_dagster.orchestration.retries import launch_missed_retries
from casebits_dagster.orchestration.stages import ADMITTED, FRONTIER
from casebits_dagster.publication.frontier import admitted_prefix
from casebits_dagster.records.layout import region_id
from casebits_dagster.records.pins import Generation
from casebits_dagster.stores.regions import admitted_regions

RUNS_IN_FLIGHT = 2
REQUESTED = "casebits/requested"
"""The tag of a run that was asked for by itself: the name of what asked."""
PREFIX = "casebits/admitted_prefix"
"""The tag of a run that is to advance a frontier: the version that is there, and how many regions the next can have."""


def next_regions(generation: Generation, stages: Sequence[dg.AssetsDefinition]) -> dg.ScheduleDefinition:
    """Return the schedule of the missing regions of a generation whose stages these are.

    Failures under other pins or older code than that of today's proof count no more.
    """
    admission = asset_key(generation.name, ADMITTED)
    specs = [spec for stage in stages for spec in stage.specs if spec.key == admission]
    code_version = specs[0].code_version or ""
    name = f"{plain_name(generation.name)}_next_regions"

    @dg.schedule(
        name=name,
        cron_schedule="* * * * *",
        job_name=regions_job_name(generation.name),
        description="Asks for the next missing regions in order, a few runs at a time. A region that failed is tried "
        "alone, and after three failures of its own no more: its partition says why. While runs make nothing at all, "
        "with a full disk for example, the next waits longer each time.",
    )
    def schedule(context: dg.ScheduleEvaluationContext, corpus: Corpus) -> Iterator[dg.RunRequest | dg.SkipReason]:
        if generation.missing:
            yield dg.SkipReason(f"cannot run yet: {generation.missing}")
            return
        instance, total = context.instance, len(generation.plan)
        admitted = set(admitted_regions(corpus.home, generation.name, total))
        runs, failed = in_flight(instance, generation.name), failures(instance, generation.name, code_version)
        failed = {index: tries for index, tries in failed.items() if index not in admitted}
        given_up = {index: tries for index, tries in failed.items() if len(tries.runs) >= ATTEMPTS}
        _quarantine(instance, generation.name, code_version, given_up)
        busy = set[int]().union(*runs.values())
        missing = [index for index in range(total) if index not in admitted | busy | set(given_up)]
        ranges = next_ranges(missing, failed, regions_a_run())[: max(0, RUNS_IN_FLIGHT - len(runs))]
        wait = pause(instance, {REQUESTED: name}, failed.values(), time.time()) if ranges else ""
        if not ranges or wait:
            said = f"{len(admitted)} of {total} admitted, {len(busy - admitted)} in work"
            names = ", ".join(f"{region_id(index)} ({tries.why})" for index, tries in sorted(given_up.items()))
            parts = [said, f"quarantined: {names}" if names else "", wait]
            yield dg.SkipReason("; ".join(part for part in parts if part))
        for first, last in () if wait else ranges:
            tags = {**range_tags(first, last), REQUESTED: name, "dagster/priority": str(-first)}
            # A tick that is worked on twice asks once; the next tick may ask for the same again.
            yield dg.RunRequest(f"{region_id(first)}-{region_id(last)}@{context.scheduled_execution_time}", tags=tags)

    return schedule


def _quarantine(instance: dg.DagsterInstance, generation: str, code_version: str, regions: Mapping[int, Tried]) -> None:
    """Say on the page of each region, once, that it is tried no more, and why."""
    for index, tries in regions.items():
        if tries.told:
            continue
        text = f"quarantined after {len(tries.runs)} failures: {tries.why}"
        instance.report_runless_asset_event(
            dg.AssetObservation(
                asset_key(generation, ADMITTED),
                description=text,
                partition=region_id(index),
                metadata={"why": tries.why, "next": "materialise this partition by hand once the cause is mended"},
                tags={FAULT: QUARANTINED, CODE_VERSION: code_version},
            )
        )


def missed_retries() -> dg.SensorDefinition:
    """Return the sensor that finds retries which Dagster's daemon has missed."""

    @dg.sensor(
        name="missed_retries",
        minimum_interval_seconds=60,
        description="Makes the daemon look again at runs that failed and are to be retried, where it has missed them. "
        "Starts no run itself.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        missed = launch_missed_retries(context.instance)
        return dg.SkipReason(f"to be looked at again: {', '.join(missed)}" if missed else "no retry was missed")

    return sensor


def frontier_follows(generation: Generation) -> dg.SensorDefinition:
    """Return the sensor that advances the frontier of a generation behind the admitted regions."""
    name = f"{plain_name(generation.name)}_frontier_follows"

    @dg.sensor(
        name=name,
        job_name=corpus_job_name(generation.name),
        minimum_interval_seconds=30,
        description="Advances the frontier when regions are admitted behind its end. It compares what is published, "
        "so it makes up for whatever was missed. The report and the mixes follow by their own conditions.",
    )
    def sensor(context: dg.SensorEvaluationContext, corpus: Corpus) -> Iterator[dg.RunRequest | dg.SkipReason]:
        version, listed, prefix = admitted_prefix(generation, corpus.home)
        if prefix == listed:
            waits = f"waits for {region_id(listed)}" if listed < len(generation.plan) else "is complete"
            yield dg.SkipReason(f"the frontier has {listed} of {len(generation.plan)} regions and {waits}")
            return
        tags, key = {REQUESTED: name}, {PREFIX: f"{version}+{prefix}"}
        if context.instance.get_run_records(dg.RunsFilter(tags=tags, statuses=IN_FLIGHT), limit=1):
            yield dg.SkipReason(f"a run is at work on the frontier; {prefix} regions are admitted without a gap")
        elif (tries := context.instance.get_runs_count(dg.RunsFilter(tags=tags | key))) >= ATTEMPTS:
            yield dg.SkipReason(f"{tries} runs over the same {prefix} regions failed: see why, and start one by hand")
        else:
            frontier = asset_key(generation.name, FRONTIER)
            yield dg.RunRequest(f"{key[PREFIX]}#{tries + 1}", tags=tags | key, asset_selection=[frontier])

    return sensor
