"""The demo: everything of one generation and its mixes, through Dagster, in this process, on the persistent instance.

The same jobs that the UI starts, one run for all regions and one for the rest, so `make ui` shows what happened. A
rerun does everything again and must change no byte; the result says whether it did.
"""

from __future__ import annotations

import itertools
import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import dagster as dg

from casebits_dagster.lineage.mix_summary import read_report
from casebits_dagster.lineage.summary import GenerationSummary, summarise
from casebits_dagster.lineage.tree import difference, snapshot, tree_digest
from casebits_dagster.orchestration.instance import open_instance
from casebits_dagster.orchestration.jobs import corpus_job_name, mixes_of, publish_job_name, regions_job_name
from casebits_dagster.orchestration.partitions import range_tags, step_name
from casebits_dagster.records.layout import Home, region_id
from casebits_dagster.records.mix import REPORT, MixReport
from casebits_dagster.records.pins import Generation, load_generation
from casebits_dagster.records.recipe import load_recipes

Echo: TypeAlias = Callable[[str], None]
Build: TypeAlias = Callable[[Path, Home], dg.Definitions]


@dataclass(frozen=True, kw_only=True, slots=True)
class DemoResult:
    """The facts of a demo, read back from the files it made (never from the event log).

    - `generation`, `home`: what was made, and the root of all files
    - `summary`: regions, rows, documents, tokens, reasons, LATEST (see `lineage.summary`)
    - `mixes`: the report of each mix of this generation, by name, in the order of the pins
    - `failures`: {"region 00003", "corpus" or "publication": why}, empty when all is well; the demo goes on after a
      failed region
    - `first_run`: there was nothing below the home before
    - `unchanged`: every file that counts has the bytes it had before (False in a first run)
    - `difference`: the same in words, with numbers and the first file that differs
    - `tree_digest`: one digest of all files that count, to compare two homes by eye
    - `seconds`: wall time of everything above
    """

    generation: str
    home: Path
    summary: GenerationSummary
    mixes: dict[str, MixReport]
    failures: dict[str, str]
    first_run: bool
    unchanged: bool
    difference: str
    tree_digest: str
    seconds: float


def run_demo(
    home: Path, pins_folder: Path, echo: Echo, build: Build, generation: str = "sample", *, shared: str = ""
) -> DemoResult:
    """Materialise a generation and its mixes, and return what came of it. `echo` gets one line as each step ends.

    `build` makes the definitions of a pins folder (that of `casebits_dagster.definitions`, which stands above here).
    """
    started, root = time.monotonic(), Home(home.absolute(), shared)
    pinned = load_generation(pins_folder, generation)
    definitions, before = build(pins_folder, root), snapshot(root)
    with open_instance(root) as instance:
        failures = _make_regions(definitions, pinned, instance, echo)
        failures |= _make(definitions, "corpus", corpus_job_name(generation), instance, echo)
        if not failures:
            failures = _make(definitions, "publication", publish_job_name(generation), instance, echo)
    after = snapshot(root)
    mixes = {mix: root.mix(mix) for mix in mixes_of(generation, load_recipes(pins_folder))}
    return DemoResult(
        generation=generation,
        home=root.root,
        summary=summarise(pinned, root),
        mixes={mix: read_report(folder) for mix, folder in mixes.items() if (folder / REPORT).exists()},
        failures=failures,
        first_run=not before,
        unchanged=before == after,
        difference=difference(before, after),
        tree_digest=tree_digest(after),
        seconds=time.monotonic() - started,
    )


def _make_regions(
    definitions: dg.Definitions, generation: Generation, instance: dg.DagsterInstance, echo: Echo
) -> dict[str, str]:
    """Make all regions in one run, as a backfill does, and return why some failed."""
    regions, failures = [region_id(region.index) for region in generation.plan], dict[str, str]()
    ended = itertools.count(1)

    def tell(line: str) -> None:
        if match := re.match(r"region (\d{5})(: .*| FAILED: (.*))", line):
            if match[3]:
                failures[f"region {match[1]}"] = match[3]
            echo(f"[{next(ended):>2}/{len(regions)}] {line}")

    told = dg.Definitions.merge(definitions, dg.Definitions(loggers={"told": _telling(tell)}))
    tags = range_tags(0, len(regions) - 1)
    again = {step_name(generation.name): {"config": {"again": True}}}
    config = {"ops": again, "loggers": {"told": {}}}
    _, why, _ = _run(told.resolve_job_def(regions_job_name(generation.name)), instance, run_config=config, tags=tags)
    return failures or ({"regions": why} if why else {})


def _telling(tell: Echo) -> dg.LoggerDefinition:
    """Return a logger that hands each line of a run to a function as it is written."""

    class Teller(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            tell(getattr(record, "dagster_meta", {}).get("orig_message") or "")

    def make(_: dg.InitLoggerContext) -> logging.Logger:
        logger = logging.Logger("told", logging.INFO)
        logger.addHandler(Teller())
        return logger

    return dg.LoggerDefinition(make)


def _make(definitions: dg.Definitions, what: str, job: str, instance: dg.DagsterInstance, echo: Echo) -> dict[str, str]:
    echo(f"{what} ...")
    result, why, seconds = _run(definitions.resolve_job_def(job), instance)
    made = [event.materialization.asset_key.path[-1] for event in result.get_asset_materialization_events()]
    echo(f"made: {', '.join(made)}  ({seconds:.1f} s)")
    if why:
        echo(f"FAILED: {why}")
    return {what: why} if why else {}


def _run(
    job: dg.JobDefinition, instance: dg.DagsterInstance, **options: Any
) -> tuple[dg.ExecuteInProcessResult, str, float]:
    """Run a job; return its result, why it failed (see `_failure`) and the seconds it took."""
    begun = time.monotonic()
    quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    options["run_config"] = quiet | options.get("run_config", {})
    result = job.execute_in_process(instance=instance, raise_on_error=False, **options)
    return result, _failure(result), time.monotonic() - begun


def _failure(result: dg.ExecuteInProcessResult) -> str:
    """Return why a run failed, in the words of the first step that did; nothing when it succeeded."""
    if result.success:
        return ""
    checks = result.get_asset_check_evaluations()
    refused = [check for check in checks if not check.passed and check.severity == dg.AssetCheckSeverity.ERROR]
    if refused:
        return refused[0].description or f"check {refused[0].check_name} failed"
    events = [event for event in result.all_events if event.is_step_failure]
    error = events[0].step_failure_data.error if events else None
    cause = error.cause if error and error.cause else error
    # The message of an error starts with its class, which says nothing to a person.
    return cause.message.strip().partition(": ")[2] if cause else "the run failed"
