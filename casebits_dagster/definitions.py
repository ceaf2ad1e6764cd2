"""What `workspace.yaml` loads: every pin file becomes its assets, checks and jobs. Importing this module does nothing.

A new generation or mix is one new TOML under `assets/pins/`; nothing here names one.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import dagster as dg

from casebits_dagster.orchestration.automation import frontier_follows, missed_retries, next_regions
from casebits_dagster.orchestration.jobs import generation_jobs
from casebits_dagster.orchestration.proofs import audit_job, reprove_job, reprove_weekly
from casebits_dagster.orchestration.publisher import Publisher
from casebits_dagster.orchestration.resources import Corpus
from casebits_dagster.orchestration.show_window import show_window_job
from casebits_dagster.records.errors import Absent
from casebits_dagster.records.layout import Home, home_from_environment, shared_from_environment
from casebits_dagster.records.pins import default_pins_folder, generation_names, load_generation
from casebits_dagster.records.recipe import load_recipes, require_known


@dg.definitions
def defs() -> dg.Definitions:
    """Return the code location of this checkout, working in `$CASEBITS_HOME`."""
    return build(default_pins_folder(), Home(home_from_environment(), shared_from_environment()))


def build(pins_folder: Path, home: Home) -> dg.Definitions:
    """Return the definitions of all pins of a folder. Raises Absent when only the wheel is installed."""
    if importlib.util.find_spec("assets") is None:
        remedy = "run from a checkout: clone the project, then `pip install -e .`"
        problem = "the graph lives in the checkout; the wheel carries the reading side alone"
        raise Absent("PIN_MISSING", "assets", problem, remedy=remedy)
    from assets import codec_assets, generation_assets, packed_mix

    generations = [load_generation(pins_folder, name) for name in generation_names(pins_folder)]
    recipes = load_recipes(pins_folder)
    require_known(recipes, {generation.name for generation in generations})
    stages = {generation.name: generation_assets(generation, recipes) for generation in generations}
    return dg.Definitions(
        assets=[asset for generation in generations for asset in stages[generation.name]]
        + [packed_mix(recipe, recipes, pins_folder, generations) for recipe in recipes]
        + codec_assets(pins_folder, generations),
        jobs=[job for generation in generations for job in generation_jobs(generation, recipes)]
        + [reprove_job(generation) for generation in generations]
        + [audit_job(generations), show_window_job()],
        schedules=[next_regions(generation, stages[generation.name]) for generation in generations]
        + [reprove_weekly(generation) for generation in generations],
        sensors=[*(frontier_follows(generation) for generation in generations), missed_retries()],
        resources={
            "corpus": Corpus(root=str(home.root), shared=home.shared),
            "publisher": Publisher(destination=os.environ.get("CASEBITS_PUBLISH", "")),
        },
        # A process a step costs 13 s a run of a region; the run's own process is enough of a fence.
        executor=dg.in_process_executor,
    )
