"""Stage 6, one asset a recipe: whole documents to targets, packed into windows of exactly T tokens."""

from collections.abc import Sequence
from pathlib import Path

import dagster as dg
from dagster import AssetExecutionContext

from casebits_dagster.lineage.locate import in_force
from casebits_dagster.mixing.build import build_mix
from casebits_dagster.orchestration import describe_mix as describe
from casebits_dagster.orchestration.checks import MIX_CHECKS, mix_results
from casebits_dagster.orchestration.partitions import MIXES, asset_key
from casebits_dagster.orchestration.resources import Corpus
from casebits_dagster.orchestration.stages import FRONTIER, Materialized, stage
from casebits_dagster.publication.mix_sources import mix_sources
from casebits_dagster.records.canonical import Json
from casebits_dagster.records.pins import Generation
from casebits_dagster.records.recipe import Recipe, earlier_mixes, generations_of
from casebits_dagster.records.withdrawal import load_withdrawals, used

VERSION = 3


def packed_mix(
    recipe: Recipe, recipes: Sequence[Recipe], pins_folder: Path, declared: Sequence[Generation]
) -> dg.AssetsDefinition:
    """Return the asset for a recipe; `recipes` and `declared` are all that are pinned, with those it depends on."""
    generations = generations_of(recipe, recipes)
    named: dict[str, Generation] = {one.name: one for one in declared}
    withdrawn: list[Json] = [pin.to_dict() for pin in used(load_withdrawals(pins_folder))]
    frontiers = [asset_key(generation, FRONTIER) for generation in generations]

    @stage(
        asset_key(MIXES, recipe.mix),
        VERSION,
        kinds={"python", "numpy"},
        # Left out while nothing is withdrawn, so that no mix looks stale for it.
        pins={"recipe": recipe.to_dict(), **({"withdrawn": withdrawn} if withdrawn else {})},
        after=frontiers + [asset_key(MIXES, earlier) for earlier in earlier_mixes(recipe)],
        checks=MIX_CHECKS,
        metadata={"recipe": recipe.description, **describe.columns()},
        automation=None if recipe.production else dg.AutomationCondition.eager(),
    )
    def asset(context: AssetExecutionContext, corpus: Corpus) -> Materialized:
        """**What a trainer maps into memory**: token shards whose window k is `tokens[k*T:(k+1)*T]`.

        Chooses whole documents from verified frontiers so that token shares by domain and by length hit their targets,
        plans windows from lengths alone, copies ids and masks from the regions, and lists every run of every document
        in `segments.npy`. The report prints targets beside what was achieved, and an equation that loses no token.
        """
        sources = mix_sources(generations, corpus.home, in_force(pins_folder, corpus.home, named))
        done = build_mix(recipe, sources, corpus.home, say=context.log.info)
        return dg.MaterializeResult(
            metadata=describe.mix(done, corpus.home),
            check_results=mix_results(done.folder, corpus.home),
            data_version=dg.DataVersion(done.manifest_sha256),
        )

    return asset
