"""Stage 8, one a generation: the frontier where others read it, with its card; only what is cleared leaves."""

import dagster as dg
from dagster import AssetExecutionContext

from casebits_dagster.orchestration import describe_published as describe
from casebits_dagster.orchestration.checks import PUBLICATION_CHECKS, publication_results
from casebits_dagster.orchestration.publisher import PublishConfig, Publisher
from casebits_dagster.orchestration.resources import Corpus
from casebits_dagster.orchestration.runs import utc_now
from casebits_dagster.orchestration.stages import FRONTIER, GATES, PUBLICATION, Materialized, generation_stage
from casebits_dagster.publication.send import publish_frontier
from casebits_dagster.records.pins import Generation

VERSION = 1


def publication(generation: Generation) -> dg.AssetsDefinition:
    """Return the asset for a pinned generation. It has no automation: what leaves, leaves by hand."""

    @generation_stage(
        generation,
        PUBLICATION,
        VERSION,
        kinds={"python", "huggingface"},
        pins=generation.pins.to_dict(),
        after=[FRONTIER, GATES],
        checks=PUBLICATION_CHECKS,
    )
    def asset(
        context: AssetExecutionContext, corpus: Corpus, publisher: Publisher, config: PublishConfig
    ) -> Materialized:
        """**The frontier as others read it**: regions, manifest, gates and card at a folder, in an object store or on
        the Hugging Face Hub.

        Every file is hashed before it leaves, regions and manifest are there before LATEST.json names them, and what
        was published is never overwritten. Without a clearance pin (who allowed it, on what ground, for which licence)
        nothing leaves. Tokens come from the environment alone. A run that was cut off is completed by the next.
        """
        target = config.destination or publisher.destination_of(generation.name, corpus.home)
        done = publish_frontier(
            generation, corpus.home, target, now=utc_now(), valid=config.valid, say=context.log.info
        )
        return dg.MaterializeResult(
            metadata=describe.publication(done, generation.name),
            check_results=publication_results(done),
            data_version=dg.DataVersion(done.manifest_sha256),
        )

    return asset
