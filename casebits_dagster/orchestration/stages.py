"""How an asset is declared, so that each file in `assets/` says only what is its own: pins, upstream, story, verb.

The assets of a generation that cannot run yet are declared all the same; each says why, and refuses to run.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import dagster as dg

from casebits_dagster.orchestration.checks import refusal
from casebits_dagster.orchestration.metadata import Metadata, code_version
from casebits_dagster.orchestration.partitions import asset_key, plain_name
from casebits_dagster.records.canonical import Json
from casebits_dagster.records.errors import CasebitsError
from casebits_dagster.records.pins import Generation

FILTERED, ENCODED, ADMITTED = "filtered_documents", "encoded_arrays", "admission_proof"
FRONTIER, STRATIFICATION = "frontier_manifest", "stratification_report"
GATES, PUBLICATION = "gates", "publication"
OWNERS = ["team:corpus"]

# Dagster tells a result from a value by the bare class; a value would go to the pickling IO manager.
if TYPE_CHECKING:
    Materialized: TypeAlias = dg.MaterializeResult[None]
else:
    Materialized = dg.MaterializeResult

Automation: TypeAlias = "dg.AutomationCondition[Any]"
Decorator: TypeAlias = "Callable[[Callable[..., Any]], dg.AssetsDefinition]"


@dataclass(frozen=True, kw_only=True, slots=True)
class RegionStage:
    """A stage that is done to one region at a time: what its page says, what it reads, and how it is done.

    - `version`, `pins`: what the code version is made of, beside the plan
    - `after`: the stage whose result it reads, empty for the first
    - `checks`: name -> what it says; `metadata`: of the definition
    - `work(packed generation, home, index)` is called in a process of the producer's and tells what it made; that of a
      stage `apart`, `work(packed generation, home, run id, in full, index)`, in one of the verifier's, which admits
    """

    name: str
    version: int
    story: str
    kinds: set[str]
    pins: Mapping[str, Json]
    work: Callable[..., Any]
    after: str = ""
    checks: Mapping[str, str] = field(default_factory=dict)
    metadata: Metadata = field(default_factory=dict)
    apart: bool = False


def generation_stage(
    generation: Generation,
    name: str,
    version: int,
    *,
    kinds: set[str],
    pins: Mapping[str, Json],
    after: Sequence[str] = (),
    beside: Sequence[dg.AssetKey] = (),
    checks: Mapping[str, str] | None = None,
    blocking: bool = True,
    automation: Automation | None = None,
) -> Decorator:
    """Return `stage` for a stage of a whole generation, after others of its stages and the assets `beside` them; `pins`
    are beside the plan's."""
    missing = generation.missing
    declare = stage(
        asset_key(generation.name, name),
        version,
        kinds=kinds,
        pins={"plan": generation.plan_sha256, **pins},
        after=[*(asset_key(generation.name, earlier) for earlier in after), *beside],
        checks=checks or {},
        blocking=blocking,
        metadata=about(generation),
        automation=automation,
    )
    return (lambda verb: declare(_refusing(verb, missing))) if missing else declare


def about(generation: Generation) -> Metadata:
    """Return what every page of a generation says of it."""
    source, missing = generation.source.pin, generation.missing
    facts = {
        "generation": generation.pin.description,
        "source": f"{source.repo} at {source.revision}",
        "licence": source.licence_spdx,
    }
    return facts | ({"cannot_run_yet": str(missing)} if missing else {})


def cannot_run_yet(story: str, missing: CasebitsError) -> str:
    """Return the story of a stage whose pins are not all there."""
    return f"**Cannot run yet**: {missing}. Then reload the definitions.\n\n{story}"


def refuse(missing: CasebitsError) -> dg.Failure:
    """Return the failure of a run that nothing can mend but a person."""
    return dg.Failure(str(missing), metadata=refusal(missing), allow_retries=False)


def _refusing(verb: Callable[..., Any], missing: CasebitsError) -> Callable[..., Any]:
    def asset() -> Materialized:
        raise refuse(missing)

    asset.__doc__ = cannot_run_yet(inspect.getdoc(verb) or "", missing)
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
    blocking: bool = True,
    automation: Automation | None = None,
) -> Decorator:
    """Return `@dg.asset`, whose docstring becomes the page's story, with `checks` (name: what it says)."""
    group, name = key.path
    decorator: Decorator = dg.asset(
        key=key,
        deps=after,
        group_name=plain_name(group),
        kinds=kinds,
        owners=OWNERS,
        code_version=code_version(name, version, pins),
        check_specs=check_specs(key, checks, blocking=blocking),
        metadata={"pins": pins, **metadata},
        automation_condition=automation,
    )
    return decorator


def check_specs(
    key: dg.AssetKey,
    checks: Mapping[str, str],
    partitions: dg.PartitionsDefinition[str] | None = None,
    *,
    blocking: bool = True,
) -> list[dg.AssetCheckSpec]:
    """Return the specs of checks; one of a partitioned asset has a verdict of its own for each partition."""
    with warnings.catch_warnings():
        # Partitioned checks are a preview in Dagster 1.13; the snapshot of the graph would show a change.
        warnings.simplefilter("ignore", dg.PreviewWarning)
        return [
            dg.AssetCheckSpec(check, asset=key, description=text, blocking=blocking, partitions_def=partitions)
            for check, text in checks.items()
        ]
