"""Stage 7, one a generation: what may be said of the frontier beyond "these regions are proven"."""

from collections.abc import Sequence

import dagster as dg
from dagster import AssetExecutionContext

from casebits_dagster.orchestration import describe_published as describe
from casebits_dagster.orchestration.checks import GATE_CHECKS, gate_results
from casebits_dagster.orchestration.partitions import MIXES, asset_key
from casebits_dagster.orchestration.resources import Corpus
from casebits_dagster.orchestration.stages import FRONTIER, GATES, STRATIFICATION, Materialized, generation_stage
from casebits_dagster.publication.open_gates import write_gates
from casebits_dagster.records.pins import Generation

VERSION = 1


def gates(generation: Generation, mixes: Sequence[str]) -> dg.AssetsDefinition:
    """Return the asset for a pinned generation, that `mixes` draw on."""

    @generation_stage(
        generation,
        GATES,
        VERSION,
        kinds={"python", "json"},
        pins={},
        after=[FRONTIER, STRATIFICATION],
        beside=[asset_key(MIXES, mix) for mix in mixes],
        checks=GATE_CHECKS,
        blocking=False,
        # A mix that nobody has made yet is no reason to wait.
        automation=dg.AutomationCondition.eager().without(~dg.AutomationCondition.any_deps_missing()),
    )
    def asset(context: AssetExecutionContext, corpus: Corpus) -> Materialized:
        """**What is proven of the frontier, and what is not**: four gates, each with its evidence.

        Coverage is open when every region of the plan is admitted, stratification when the report is within the pinned
        tolerances, packing when a mix was built on just this version and the verifier passed it, production when a
        person signed this version and its mixes in a pin. A gate is a function of evidence that lies beside it, and
        whoever opens the frontier evaluates it again. A closed gate is no failure: it is what may not be said yet.
        """
        done = write_gates(generation, corpus.home)
        return dg.MaterializeResult(
            metadata=describe.gates(done),
            check_results=gate_results(done.gates),
            data_version=dg.DataVersion(done.sha256),
        )

    return asset
