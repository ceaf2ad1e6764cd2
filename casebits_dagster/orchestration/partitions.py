"""The names of the graph: asset keys, groups, partition keys. A partition is one region of the pinned plan."""

from __future__ import annotations

import re

import dagster as dg

from casebits_dagster.records.layout import region_id
from casebits_dagster.records.pins import Generation

MIXES = "mixes"


def region_partitions(generation: Generation) -> dg.StaticPartitionsDefinition:
    """Return one partition a region of the plan, in order; a plan never changes, so neither do they."""
    return dg.StaticPartitionsDefinition([region_id(region.index) for region in generation.plan])


def asset_key(group: str, stage: str) -> dg.AssetKey:
    """Return the key of a stage of a generation, or of a mix when `group` is MIXES."""
    return dg.AssetKey([group, stage])


def plain_name(name: str) -> str:
    """Return the name as Dagster wants groups and jobs: `-` and `.`, which pins may have, become `_`."""
    return re.sub(r"\W", "_", name)
