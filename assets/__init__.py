"""The graph: one thin file a stage. Each makes the asset of a pinned generation, or of a recipe."""

import dagster as dg

from assets.admission_proof import admission_proof
from assets.encoded_arrays import encoded_arrays
from assets.filtered_documents import filtered_documents
from assets.frontier_manifest import frontier_manifest
from assets.packed_mix import packed_mix
from assets.stratification_report import stratification_report
from casebits_dagster.records.pins import Generation

__all__ = ["generation_assets", "packed_mix"]


def generation_assets(generation: Generation) -> list[dg.AssetsDefinition]:
    """Return the five assets of a generation, in the order in which documents travel."""
    stages = (filtered_documents, encoded_arrays, admission_proof, frontier_manifest, stratification_report)
    return [stage(generation) for stage in stages]
