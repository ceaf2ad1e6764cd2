"""Stage 5, one a generation: is the admitted prefix a fair picture of the source?"""

import dagster as dg
from dagster import AssetExecutionContext

from casebits_dagster.orchestration import describe_strata as describe
from casebits_dagster.orchestration.resources import Corpus
from casebits_dagster.orchestration.stages import FRONTIER, STRATIFICATION, Materialized, generation_stage
from casebits_dagster.publication.stratification import write_stratification
from casebits_dagster.records.pins import Generation
from casebits_dagster.records.tolerances import pinned_tolerances

VERSION = 2


def stratification_report(generation: Generation) -> dg.AssetsDefinition:
    """Return the asset for a pinned generation."""
    tolerances = pinned_tolerances(generation.source.pins_folder, generation.name)

    @generation_stage(
        generation,
        STRATIFICATION,
        VERSION,
        kinds={"python", "json"},
        pins={"tolerances": tolerances.to_dict() if tolerances else None},
        after=[FRONTIER],
        checks=describe.FAIR_CHECKS,
        blocking=False,
        automation=dg.AutomationCondition.eager(),
    )
    def asset(context: AssetExecutionContext, corpus: Corpus) -> Materialized:
        """**Who is in the prefix**: documents, tokens and bytes by cluster, length, case class, score and split.

        A gapless, proven prefix can still be lopsided, because source files hold long runs of one cluster. The report
        counts the strata of the frontier version it names, from the document index alone, and sets each region beside
        the whole, the whole beside what the source publishes, and validation beside train. Pinned tolerances make a
        gate of it: open, closed, or not enough data.
        """
        done = write_stratification(generation.name, corpus.home, generation.source.pins_folder)
        return dg.MaterializeResult(
            metadata=describe.stratification(done),
            check_results=[describe.fair_picture(done.gate)],
            data_version=dg.DataVersion(done.sha256),
        )

    return asset
