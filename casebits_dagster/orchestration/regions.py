"""The three stages of a region as one step of Dagster, which works through a range of partitions with some processes.

Each stage of each region is written into the event log the moment it ends, with its own page, data version and exact
upstream record; so whatever becomes of the others, of the run or of the machine, what is done is known as done.
"""

import os
from collections.abc import Iterator, Sequence

# No `from __future__ import annotations` here: Dagster reads the annotations of the step themselves.
import dagster as dg
from dagster import AssetExecutionContext

from casebits_dagster.orchestration.metadata import code_version
from casebits_dagster.orchestration.partitions import asset_key, plain_name, region_partitions, step_name
from casebits_dagster.orchestration.region_run import RegionRun, RegionsConfig
from casebits_dagster.orchestration.resources import Corpus
from casebits_dagster.orchestration.stages import (
    OWNERS,
    RegionStage,
    about,
    cannot_run_yet,
    check_specs,
    refuse,
)
from casebits_dagster.records.pins import Generation

REGIONS_A_RUN = 100
"""How many regions of a backfill are one run, unless the environment says otherwise: a run spends some seconds before
its first region, and holds its place in the queue until its last."""


def regions_a_run() -> int:
    """Return how many regions of a backfill are one run: `$CASEBITS_REGIONS_A_RUN`, or REGIONS_A_RUN."""
    return int(os.environ.get("CASEBITS_REGIONS_A_RUN") or REGIONS_A_RUN)


def region_assets(generation: Generation, stages: Sequence[RegionStage]) -> dg.AssetsDefinition:
    """Return the assets of the stages of a region, one partition a region, in one step that can do some of them."""
    name, partitions = generation.name, region_partitions(generation)
    keys = {stage.name: asset_key(name, stage.name) for stage in stages}

    @dg.multi_asset(
        name=step_name(name),
        specs=[_spec(generation, stage, partitions) for stage in stages],
        check_specs=[spec for stage in stages for spec in check_specs(keys[stage.name], stage.checks, partitions)],
        partitions_def=partitions,
        backfill_policy=dg.BackfillPolicy.multi_run(regions_a_run()),
        can_subset=True,
        pool=plain_name(name),
    )
    def regions(context: AssetExecutionContext, config: RegionsConfig, corpus: Corpus) -> Iterator[dg.Output[None]]:
        if generation.missing:
            raise refuse(generation.missing)
        selected = [stage for stage in stages if keys[stage.name] in context.selected_asset_keys]
        RegionRun(generation, selected, config, context, corpus.home).run()
        # Nothing is yielded: a result here would be one for all partitions at once.
        yield from ()

    return regions


def _spec(generation: Generation, stage: RegionStage, partitions: dg.PartitionsDefinition[str]) -> dg.AssetSpec:
    pins = {"plan": generation.plan_sha256, **stage.pins}
    missing = generation.missing
    return dg.AssetSpec(
        asset_key(generation.name, stage.name),
        deps=[asset_key(generation.name, stage.after)] if stage.after else [],
        description=cannot_run_yet(stage.story, missing) if missing else stage.story,
        skippable=True,
        group_name=plain_name(generation.name),
        kinds=stage.kinds,
        owners=OWNERS,
        code_version=code_version(stage.name, stage.version, pins),
        metadata={"pins": pins, **about(generation), **stage.metadata},
        partitions_def=partitions,
    )
