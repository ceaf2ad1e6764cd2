"""How an asset is declared, so that each file in `assets/` says only what is its own: pins, upstream, story, verb."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import dagster as dg

from casebits_dagster.orchestration.metadata import Metadata, code_version, json
from casebits_dagster.orchestration.partitions import MIXES, asset_key, plain_name, region_partitions
from casebits_dagster.records.canonical import Json
from casebits_dagster.records.pins import Generation

OWNERS = ["team:corpus"]
FILTERED, ENCODED, ADMITTED = "filtered_documents", "encoded_arrays", "admission_proof"
FRONTIER, STRATIFICATION = "frontier_manifest", "stratification_report"

# Dagster tells a result from a value by the bare class; a value would go to the pickling IO manager.
if TYPE_CHECKING:
    Materialized: TypeAlias = dg.MaterializeResult[None]
else:
    Materialized = dg.MaterializeResult

Decorator: TypeAlias = "Callable[[Callable[..., Any]], dg.AssetsDefinition]"


def region_stage(
    generation: Generation,
    name: str,
    version: int,
    *,
    kinds: set[str],
    pins: Mapping[str, Json],
    after: Sequence[str] = (),
    checks: Sequence[dg.AssetCheckSpec] = (),
    metadata: Metadata | None = None,
) -> Decorator:
    """Return `@dg.asset` for a stage that works on one region at a time; the docstring becomes the page's story."""
    shown = {**_about(generation), **(metadata or {})}
    upstream = [asset_key(generation.name, stage) for stage in after]
    return _asset((generation.name, name), version, kinds, pins, upstream, checks, shown, region_partitions(generation))


def generation_stage(
    generation: Generation,
    name: str,
    version: int,
    *,
    kinds: set[str],
    pins: Mapping[str, Json],
    after: Sequence[str],
    checks: Sequence[dg.AssetCheckSpec] = (),
) -> Decorator:
    """Return `@dg.asset` for a stage that folds over all regions of a generation."""
    upstream = [asset_key(generation.name, stage) for stage in after]
    return _asset((generation.name, name), version, kinds, pins, upstream, checks, _about(generation))


def mix_stage(
    name: str,
    version: int,
    *,
    kinds: set[str],
    pins: Mapping[str, Json],
    after: Sequence[dg.AssetKey],
    checks: Sequence[dg.AssetCheckSpec] = (),
    metadata: Metadata | None = None,
) -> Decorator:
    """Return `@dg.asset` for a mix, whose sources are whole frontiers and perhaps other mixes."""
    return _asset((MIXES, name), version, kinds, pins, after, checks, metadata or {})


def _asset(
    key: tuple[str, str],
    version: int,
    kinds: set[str],
    pins: Mapping[str, Json],
    after: Sequence[dg.AssetKey],
    checks: Sequence[dg.AssetCheckSpec],
    metadata: Metadata,
    partitions: dg.PartitionsDefinition[str] | None = None,
) -> Decorator:
    decorator: Decorator = dg.asset(
        key=asset_key(*key),
        deps=after,
        group_name=plain_name(key[0]),
        kinds=kinds,
        owners=OWNERS,
        code_version=code_version(key[1], version, dict(pins)),
        check_specs=checks,
        metadata={"pins": json(dict(pins)), **metadata},
        partitions_def=partitions,
    )
    return decorator


def _about(generation: Generation) -> Metadata:
    source = generation.pin.source
    return {
        "generation": generation.pin.description,
        "source": f"{source.repo} at {source.revision}",
        "licence": source.licence_spdx,
    }
