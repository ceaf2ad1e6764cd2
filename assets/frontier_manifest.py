"""Stage 4, one a generation: the gapless prefix of admitted regions, as a new manifest version and LATEST.json."""

import dagster as dg
from dagster import AssetExecutionContext

from casebits_dagster.orchestration import describe_whole as describe
from casebits_dagster.orchestration.checks import FRONTIER_CHECKS, frontier_results
from casebits_dagster.orchestration.resources import Corpus
from casebits_dagster.orchestration.runs import utc_now
from casebits_dagster.orchestration.stages import ADMITTED, FRONTIER, Materialized, generation_stage
from casebits_dagster.publication.frontier import advance_frontier
from casebits_dagster.records.pins import Generation

VERSION = 1


def frontier_manifest(generation: Generation) -> dg.AssetsDefinition:
    """Return the asset for a pinned generation."""

    @generation_stage(
        generation,
        FRONTIER,
        VERSION,
        kinds={"python", "json"},
        pins=generation.pins.to_dict(),
        after=[ADMITTED],
        checks=FRONTIER_CHECKS,
    )
    def asset(context: AssetExecutionContext, corpus: Corpus) -> Materialized:
        """**What a consumer may read**: regions 0, 1, 2 ... as far as every one of them is admitted.

        Reads admissions from disk, never from the event log. Extends the prefix, which never shrinks and never has a
        gap, writes one manifest version a batch of admissions, and moves LATEST.json. When nothing new is admitted it
        changes nothing. Regions admitted beyond a gap wait and are not named.
        """
        advanced = advance_frontier(generation, corpus.home, now=utc_now())
        return dg.MaterializeResult(
            metadata=describe.frontier(generation, advanced, corpus.home),
            check_results=frontier_results(generation, advanced, corpus.home),
            data_version=dg.DataVersion(advanced.manifest_sha256),
        )

    return asset
