"""Stage 1, one region a partition: which rows of the source are kept, and why the others are not."""

# No `from __future__ import annotations` in these files: Dagster compares the annotations themselves.
import dagster as dg
from dagster import AssetExecutionContext

from casebits_dagster.filters.region import filter_region
from casebits_dagster.orchestration import describe_region as describe
from casebits_dagster.orchestration.resources import Corpus
from casebits_dagster.orchestration.runs import recorded
from casebits_dagster.orchestration.stages import FILTERED, Materialized, generation_stage
from casebits_dagster.records.pins import Generation

VERSION = 1


def filtered_documents(generation: Generation) -> dg.AssetsDefinition:
    """Return the asset for a pinned generation."""

    @generation_stage(
        generation,
        FILTERED,
        VERSION,
        kinds={"python", "parquet"},
        pins={"filter": generation.pins.filter.to_dict()},
        metadata=describe.verdict_columns(generation),
        by_region=True,
    )
    def asset(context: AssetExecutionContext, corpus: Corpus) -> Materialized:
        """**One verdict for every row of the region**: kept, dropped for one reason, or quarantined as malformed.

        Reads the rows of the pinned source range, turns their tokens back into text, scores each document with every
        metric of the filter policy, and applies the policy's rules in order. Nothing is lost: rows read = kept +
        dropped + quarantined, and the verdict table answers "why not?" for each row.
        """
        with recorded(context, corpus.home, VERSION) as region:
            done = filter_region(generation, region, corpus.home)
        metadata = describe.filtered(generation, done)
        return dg.MaterializeResult(metadata=metadata, data_version=dg.DataVersion(done.verdicts_digest))

    return asset
