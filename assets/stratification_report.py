"""Stage 5, one a generation: is the admitted prefix a fair picture of the source?"""

import dagster as dg
from dagster import AssetExecutionContext

from casebits_dagster.orchestration import describe_whole as describe
from casebits_dagster.orchestration.resources import Corpus
from casebits_dagster.orchestration.stages import FRONTIER, STRATIFICATION, Materialized, generation_stage
from casebits_dagster.publication.stratification import write_stratification
from casebits_dagster.records.pins import Generation

VERSION = 1


def stratification_report(generation: Generation) -> dg.AssetsDefinition:
    """Return the asset for a pinned generation."""

    @generation_stage(
        generation,
        STRATIFICATION,
        VERSION,
        kinds={"python", "json"},
        pins={},
        after=[FRONTIER],
        automation=dg.AutomationCondition.eager(),
    )
    def asset(context: AssetExecutionContext, corpus: Corpus) -> Materialized:
        """**Who is in the prefix**: documents and tokens by cluster, length, case class and split, region by region.

        A gapless, proven prefix can still be lopsided, because source files hold long runs of one cluster. The report
        counts the strata of the frontier version it names, from the document index alone.
        """
        done = write_stratification(generation.name, corpus.home)
        return dg.MaterializeResult(metadata=describe.stratification(done), data_version=dg.DataVersion(done.sha256))

    return asset
