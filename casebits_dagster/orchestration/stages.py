"""How an asset is declared, so that each file in `assets/` says only what is its own: pins, upstream, story, verb.

The assets of a generation that cannot run yet are declared all the same; each says why, and refuses to run.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import dagster as dg

from casebits_dagster.orchestration.checks import refusal
from casebits_dagster.orchestration.metadata import Metadata, code_version
from casebits_dagster.orchestration.partitions import asset_key, plain_name, region_partitions
from casebits_dagster.records.canonical import Json
from casebits_dagster.records.errors import CasebitsError
from casebits_dagster.records.pins import Generation

FILTERED, ENCODED, ADMITTED = "filtered_documents", "encoded_arrays", "admission_proof"
FRONTIER, STRATIFICATION = "frontier_manifest", "stratification_report"

# Dagster tells a result from a value by the bare class; a value would go to the pickling IO manager.
if TYPE_CHECKING:
    Materialized: TypeAlias = dg.MaterializeResult[None]
else:
    Materialized = dg.MaterializeResult

Decorator: TypeAlias = "Callable[[Callable[..., Any]], dg.AssetsDefinition]"


def generation_stage(
    generation: Generation,
    name: str,
    version: int,
    *,
    kinds: set[str],
    pins: Mapping[str, Json],
    after: Sequence[str] = (),
    checks: Mapping[str, str] | None = None,
    metadata: Metadata | None = None,
    by_region: bool = False,
) -> Decorator:
    """Return `stage` for a stage of a generation, after others of its stages; `pins` are those beside the plan."""
    source = generation.source.pin
    about = {
        "generation": generation.pin.description,
        "source": f"{source.repo} at {source.revision}",
        "licence": source.licence_spdx,
    }
    missing = generation.missing
    about |= {"cannot_run_yet": str(missing)} if missing else {}
    declare = stage(
        asset_key(generation.name, name),
        version,
        kinds=kinds,
        pins={"plan": generation.plan_sha256, **pins},
        after=[asset_key(generation.name, earlier) for earlier in after],
        checks=checks or {},
        metadata=about | (metadata or {}),
        partitions=region_partitions(generation) if by_region else None,
    )
    return (lambda verb: declare(_refusing(verb, missing))) if missing else declare


def _refusing(verb: Callable[..., Any], missing: CasebitsError) -> Callable[..., Any]:
    """Return a step that says what is missing, with the story of the step in whose place it stands."""

    def asset() -> Materialized:
        raise dg.Failure(str(missing), metadata=refusal(missing), allow_retries=False)

    asset.__doc__ = f"**Cannot run yet**: {missing}. Then reload the definitions.\n\n{inspect.getdoc(verb)}"
    return asset


def stage(
    key: dg.AssetKey,
    version: int,
    *,
    kinds: set[str],
    pins: dict[str, Json],
    after: Sequence[dg.AssetKey],
    checks: Mapping[str, str],
    metadata: Metadata,
    partitions: dg.PartitionsDefinition[str] | None = None,
) -> Decorator:
    """Return `@dg.asset`, whose docstring becomes the page's story; each of `checks` (name: what it says) is blocking.

    A check of a partitioned asset has a verdict of its own for each partition.
    """
    group, name = key.path
    with warnings.catch_warnings():
        # Partitioned checks are a preview in Dagster 1.13; the snapshot of the graph would show a change.
        warnings.simplefilter("ignore", dg.PreviewWarning)
        specs = [
            dg.AssetCheckSpec(check, asset=key, description=text, blocking=True, partitions_def=partitions)
            for check, text in checks.items()
        ]
    decorator: Decorator = dg.asset(
        key=key,
        deps=after,
        group_name=plain_name(group),
        kinds=kinds,
        owners=["team:corpus"],
        code_version=code_version(name, version, pins),
        check_specs=specs,
        metadata={"pins": pins, **metadata},
        partitions_def=partitions,
    )
    return decorator
