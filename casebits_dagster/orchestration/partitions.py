"""The names of the graph: asset keys, groups, partition keys. A partition is one region of the pinned plan."""

from __future__ import annotations

import re
from collections.abc import Mapping

import dagster as dg
from dagster._core.storage.tags import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
    PARTITION_NAME_TAG,
)

from casebits_dagster.records.layout import region_id
from casebits_dagster.records.pins import Generation

MIXES = "mixes"


def region_partitions(generation: Generation) -> dg.StaticPartitionsDefinition:
    """Return one partition a region of the plan, in order; a plan never changes, so neither do they."""
    return dg.StaticPartitionsDefinition([region_id(region.index) for region in generation.plan])


def range_tags(first: int, last: int) -> dict[str, str]:
    """Return the tags of a run over the regions first to last."""
    return {ASSET_PARTITION_RANGE_START_TAG: region_id(first), ASSET_PARTITION_RANGE_END_TAG: region_id(last)}


def regions_of(tags: Mapping[str, str]) -> range:
    """Return the regions that a run with these tags is over; none when it is over no partition.

    >>> regions_of(range_tags(3, 5)), regions_of({"dagster/partition": "00007"}), regions_of({})
    (range(3, 6), range(7, 8), range(0, 0))
    """
    first = tags.get(ASSET_PARTITION_RANGE_START_TAG) or tags.get(PARTITION_NAME_TAG)
    last = tags.get(ASSET_PARTITION_RANGE_END_TAG) or first
    return range(int(first), int(last) + 1) if first and last else range(0)


def asset_key(group: str, stage: str) -> dg.AssetKey:
    """Return the key of a stage of a generation, or of a mix when `group` is MIXES."""
    return dg.AssetKey([group, stage])


def step_name(generation: str) -> str:
    """Return the name of the step that makes regions of a generation, which the launchpad's configuration names."""
    return f"{plain_name(generation)}_stages"


def plain_name(name: str) -> str:
    """Return the name as Dagster wants groups and jobs: `-` and `.`, which pins may have, become `_`."""
    return re.sub(r"\W", "_", name)
