"""Stage 3, one region a partition: an independent verifier proves the region from its bytes and its source."""

from collections.abc import Iterator

import dagster as dg
from dagster import AssetExecutionContext

from casebits_dagster.admission import admit_apart
from casebits_dagster.orchestration import describe_region as describe
from casebits_dagster.orchestration.checks import LAYERS, admitted_layers, refusal, rejected_layers
from casebits_dagster.orchestration.metadata import made_from
from casebits_dagster.orchestration.partitions import asset_key
from casebits_dagster.orchestration.resources import Corpus
from casebits_dagster.orchestration.runs import recorded
from casebits_dagster.orchestration.stages import ADMITTED, ENCODED, Materialized, generation_stage
from casebits_dagster.records.errors import Rejected
from casebits_dagster.records.pins import Generation

VERSION = 1


def admission_proof(generation: Generation) -> dg.AssetsDefinition:
    """Return the asset for a pinned generation, with one blocking check a layer of the proof."""

    @generation_stage(
        generation,
        ADMITTED,
        VERSION,
        kinds={"python", "proof"},
        pins=generation.pins.to_dict(),
        after=[ENCODED],
        checks=LAYERS,
        by_region=True,
    )
    def asset(context: AssetExecutionContext, corpus: Corpus) -> Iterator[dg.AssetCheckResult | Materialized]:
        """**The proof of the region**, by code that shares nothing with the producer's, in a process of its own.

        Hashes the files where they are published, decodes every document, reads the source rows again by itself, and
        compares text, order, selection and split. Only then is `admission.json` linked in: without it the region does
        not exist for anyone downstream. A refusal names check, file, document and position, and admits nothing.
        """
        try:
            with recorded(context, corpus.home, VERSION) as region:
                done = admit_apart(generation, region, corpus.home, run_id=context.run.run_id)
        except Rejected as rejected:
            yield from rejected_layers(rejected)
            raise dg.Failure(str(rejected), metadata=refusal(rejected), allow_retries=False) from rejected
        yield from admitted_layers(done.admission)
        upstream = made_from(context, asset_key(generation.name, ENCODED), done.admission.receipt_sha256)
        metadata = describe.admitted(done, corpus.home, upstream)
        yield dg.MaterializeResult(metadata=metadata, data_version=dg.DataVersion(done.admission_sha256))

    return asset
