"""The graph: one thin file a stage. Each makes the asset of a pinned generation, of a recipe, or of a codec."""

from collections.abc import Sequence
from pathlib import Path

import dagster as dg

from assets.admission_proof import admission_proof
from assets.encoded_arrays import encoded_arrays
from assets.filtered_documents import filtered_documents
from assets.frontier_manifest import frontier_manifest
from assets.gates import gates
from assets.packed_mix import packed_mix
from assets.publication import publication
from assets.stratification_report import stratification_report
from assets.trained_codec import trained_codec
from casebits_dagster.orchestration.regions import region_assets
from casebits_dagster.records.codec import CodecFiles
from casebits_dagster.records.pins import Generation
from casebits_dagster.records.recipe import Recipe, generations_of

__all__ = ["codec_assets", "generation_assets", "packed_mix"]


def generation_assets(generation: Generation, recipes: Sequence[Recipe]) -> list[dg.AssetsDefinition]:
    """Return the seven assets of a generation, in the order in which documents travel; the first three are one step."""
    stages = [stage(generation) for stage in (filtered_documents, encoded_arrays, admission_proof)]
    mixes = [recipe.mix for recipe in recipes if generation.name in generations_of(recipe, recipes)]
    return [
        region_assets(generation, stages),
        frontier_manifest(generation),
        stratification_report(generation),
        gates(generation, mixes),
        publication(generation),
    ]


def codec_assets(pins_folder: Path, generations: Sequence[Generation]) -> list[dg.AssetsDefinition]:
    """Return the asset of every codec that says what it was trained on."""
    named = {generation.name: generation for generation in generations}
    codecs = [CodecFiles.from_toml(path) for path in sorted((pins_folder / "codecs").glob("*/codec.toml"))]
    return [trained_codec(codec, named[codec.trained_on]) for codec in codecs if codec.trained_on in named]
