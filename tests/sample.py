"""Build generation `sample` and its mixes by the verbs alone, without Dagster: about ten seconds."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from casebits_dagster.admission import admit_region
from casebits_dagster.filters.region import filter_region
from casebits_dagster.lineage.mix_summary import read_report
from casebits_dagster.mixing.build import build_mix
from casebits_dagster.publication.frontier import advance_frontier
from casebits_dagster.publication.mix_sources import mix_sources
from casebits_dagster.publication.stratification import write_stratification
from casebits_dagster.records.layout import Home
from casebits_dagster.records.mix import REPORT, MixReport
from casebits_dagster.records.pins import load_generation
from casebits_dagster.records.recipe import generations_of, load_recipes
from casebits_dagster.regions.encode import encode_region

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def build_sample(home: Home, pins: Path) -> None:
    """Filter, encode and admit every region, advance the frontier, stratify, and build each mix of this generation."""
    generation = load_generation(pins, "sample")
    for region in generation.plan:
        filter_region(generation, region.index, home)
        encode_region(generation, region.index, home)
        admit_region(generation, region.index, home, run_id="tests")
    advance_frontier(generation, home, now=NOW)
    write_stratification(generation.name, home)
    recipes = load_recipes(pins)
    # A mix that lays out the documents of another one comes after it.
    for recipe in sorted(recipes, key=lambda one: (one.documents_of is not None, one.mix)):
        if generations_of(recipe, recipes) == (generation.name,):
            build_mix(recipe, mix_sources([generation.name], home), home)


def mix_reports(home: Home) -> dict[str, MixReport]:
    """Return the report of every mix below the home, by name."""
    paths = sorted((home.root / "mixes").glob(f"*/{REPORT}"))
    return {path.parent.name: read_report(path.parent) for path in paths}
