"""Jobs: what a person starts from the UI; the demo starts the same ones. Three a generation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dagster as dg

from casebits_dagster.orchestration.partitions import MIXES, asset_key, plain_name
from casebits_dagster.orchestration.stages import (
    ADMITTED,
    ENCODED,
    FILTERED,
    FRONTIER,
    GATES,
    PUBLICATION,
    STRATIFICATION,
)
from casebits_dagster.records.pins import Generation
from casebits_dagster.records.recipe import Recipe, generations_of


def regions_job_name(generation: str) -> str:
    """Return the name of the job that takes one region from its source rows to its proof."""
    return f"{plain_name(generation)}_regions"


def corpus_job_name(generation: str) -> str:
    """Return the name of the job that makes everything that follows the admissions."""
    return f"{plain_name(generation)}_corpus"


def publish_job_name(generation: str) -> str:
    """Return the name of the job that publishes a frontier."""
    return f"{plain_name(generation)}_publish"


def mixes_of(generation: str, recipes: Sequence[Recipe]) -> list[str]:
    """Return the names of the mixes that draw on this generation alone, in the order of the recipes."""
    return [recipe.mix for recipe in recipes if generations_of(recipe, recipes) == (generation,)]


def generation_jobs(generation: Generation, recipes: Sequence[Recipe]) -> list[Any]:
    """Return the jobs of a generation; the second makes the mixes that draw on this generation alone."""
    name = generation.name
    regions = [asset_key(name, stage) for stage in (FILTERED, ENCODED, ADMITTED)]
    whole = [asset_key(name, stage) for stage in (FRONTIER, STRATIFICATION, GATES)]
    return [
        dg.define_asset_job(
            regions_job_name(name),
            selection=regions,
            description=f"One region of {name}: filter, encode, prove.",
        ),
        dg.define_asset_job(
            corpus_job_name(name),
            selection=whole + [asset_key(MIXES, mix) for mix in mixes_of(name, recipes)],
            description=f"All that follows the admissions of {name}: frontier, report, mixes, gates.",
        ),
        dg.define_asset_job(
            publish_job_name(name),
            selection=[asset_key(name, PUBLICATION)],
            description=f"Give the frontier of {name} to others: a folder, an object store, or the Hub.",
        ),
    ]
