"""Stage 2, one region a partition: the kept documents as token ids, case masks and cuts, with a receipt."""

import dagster as dg
from dagster import AssetExecutionContext

from casebits_dagster.orchestration import describe_region as describe
from casebits_dagster.orchestration.metadata import made_from
from casebits_dagster.orchestration.partitions import asset_key
from casebits_dagster.orchestration.resources import Corpus
from casebits_dagster.orchestration.runs import recorded
from casebits_dagster.orchestration.stages import ENCODED, FILTERED, Materialized, generation_stage
from casebits_dagster.records.pins import Generation
from casebits_dagster.regions.encode import encode_region

VERSION = 1


def encoded_arrays(generation: Generation) -> dg.AssetsDefinition:
    """Return the asset for a pinned generation."""

    @generation_stage(
        generation,
        ENCODED,
        VERSION,
        kinds={"python", "numpy"},
        pins=generation.pins.to_dict(),
        after=[FILTERED],
        by_region=True,
    )
    def asset(context: AssetExecutionContext, corpus: Corpus) -> Materialized:
        """**The region as a trainer reads it**: lower-case token ids, a case mask a token, cuts between documents.

        Encodes the kept text with the pinned vocabulary, ends every document with one end-of-document id, and publishes
        arrays, document lines and receipt together by one folder rename. The receipt is a *claim*, sealed by its
        content id; it proves nothing until the region is admitted.
        """
        with recorded(context, corpus.home, VERSION) as region:
            done = encode_region(generation, region, corpus.home)
        upstream = made_from(context, asset_key(generation.name, FILTERED), done.receipt.verdicts_digest)
        metadata = describe.encoded(done, upstream)
        return dg.MaterializeResult(metadata=metadata, data_version=dg.DataVersion(done.receipt_sha256))

    return asset
