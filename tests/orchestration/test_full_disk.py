"""A disk that runs full while a range of regions is worked through."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from casebits_dagster.definitions import build
from casebits_dagster.lineage.tree import snapshot
from casebits_dagster.records.layout import ADMISSION, Home
from tests.crashes.test_disks import disk, mount
from tests.orchestration.conftest import Graph

__all__ = ["disk"]


@pytest.fixture
def graph(sample_pins: Path, disk: Path) -> Iterator[Graph]:
    home = Home(disk / "home")
    with dg.DagsterInstance.ephemeral() as instance:
        yield Graph(build(sample_pins, home), instance, home)


def of_regions(home: Home) -> dict[str, str]:
    return {name: digest for name, digest in snapshot(home).items() if name.startswith("generations/sample/regions/")}


@pytest.mark.slow
def test_a_full_disk_ends_a_batch_and_one_with_room_completes_it(graph: Graph, disk: Path, sample_home: Home) -> None:
    mount("-o", "remount,size=6m", str(disk))
    result = graph.regions("00000", "00013")
    (failed,) = (event.step_failure_data for event in result.all_events if event.is_step_failure)
    assert failed.user_failure_data is not None, failed.error
    said = failed.user_failure_data.description or ""
    assert said.endswith(f"since 3 in a row failed by {os.strerror(errno.ENOSPC)}")
    expected = of_regions(sample_home)
    found = of_regions(graph.home)
    assert found == {name: expected[name] for name in found}
    admitted = {Path(name).parent.name for name in found if name.endswith(ADMISSION)}
    assert 0 < len(admitted) < 14
    assert graph.instance.get_materialized_partitions(dg.AssetKey(["sample", "admission_proof"])) == admitted

    mount("-o", "remount,size=64m", str(disk))
    again = graph.regions("00000", "00013")
    assert again.success is True
    assert of_regions(graph.home) == expected
