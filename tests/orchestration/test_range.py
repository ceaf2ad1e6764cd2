"""A run over a range of regions, as a backfill starts it: each region is told of by itself, and fails by itself."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from casebits_dagster.definitions import build
from casebits_dagster.orchestration.checks import LAYERS
from casebits_dagster.records.digests import sha256_file
from casebits_dagster.records.layout import ADMISSION, RECEIPT, Home
from tests.orchestration.conftest import Graph

STAGES = ("filtered_documents", "encoded_arrays", "admission_proof")
RANGE = ("00007", "00009")


def made(graph: Graph, result: dg.ExecuteInProcessResult) -> set[tuple[str, str | None, str]]:
    """Return stage, partition and data version of every materialisation in the log of a run."""
    found = [
        (one.asset_key.path[-1], one.partition, (one.tags or {})["dagster/data_version"])
        for one in graph.materializations(result)
    ]
    assert len(found) == len(set(found))
    return set(found)


def digests(home: Home, *regions: int) -> set[tuple[str, str, str]]:
    """Return the same out of the files of regions."""
    expected = set()
    for index in regions:
        folder, partition = home.generation("sample").region(index), f"{index:05d}"
        verdicts = json.loads((folder / RECEIPT).read_bytes())["verdicts_digest"]
        expected |= {
            ("filtered_documents", partition, verdicts),
            ("encoded_arrays", partition, sha256_file(folder / RECEIPT)),
            ("admission_proof", partition, sha256_file(folder / ADMISSION)),
        }
    return expected


def lines(graph: Graph, result: dg.ExecuteInProcessResult) -> list[str]:
    """Return what the run said, without its times."""
    said = [entry.user_message for entry in graph.instance.all_logs(result.run_id) if entry.dagster_event is None]
    return [re.sub(r"[\d,.]+ (s\b|a second)", r"N \1", line) for line in said]


@pytest.fixture(scope="module")
def ranged(
    sample_pins: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Graph, dg.ExecuteInProcessResult]]:
    """A graph whose regions 7 to 9 were made by one run."""
    home = Home(tmp_path_factory.mktemp("ranged"))
    with dg.DagsterInstance.ephemeral() as instance:
        graph = Graph(build(sample_pins, home), instance, home)
        yield graph, graph.regions(*RANGE)


def test_a_range_is_told_region_by_region(ranged: tuple[Graph, dg.ExecuteInProcessResult]) -> None:
    graph, result = ranged
    assert result.success is True
    assert made(graph, result) == digests(graph.home, 7, 8, 9)
    assert sorted((check.partition, check.check_name, check.passed) for check in graph.checks(result)) == sorted(
        (partition, layer, True) for partition in ("00007", "00008", "00009") for layer in LAYERS
    )
    for stage in STAGES:
        found = graph.instance.get_materialized_partitions(dg.AssetKey(["sample", stage]))
        assert found == {"00007", "00008", "00009"}
    assert sorted(line for line in lines(graph, result) if line.startswith("region")) == [
        "region 00007: 123 rows, 88 kept, 203,615 tokens, admitted (N s)",
        "region 00008: 4 rows, 0 kept, 0 tokens, admitted (N s)",
        "region 00009: 103 rows, 78 kept, 280,900 tokens, admitted (N s)",
    ]
    assert "3 of 3 regions ended, 0 failed; 484,515 tokens, N a second; about N s left" in lines(graph, result)


def test_what_a_region_is_made_from_is_of_its_own_partition(ranged: tuple[Graph, dg.ExecuteInProcessResult]) -> None:
    graph, result = ranged
    events = {(one.asset_key.path[-1], one.partition): one for one in graph.materializations(result)}
    for (stage, partition), event in events.items():
        if stage == "filtered_documents":
            continue
        made_from: Any = event.metadata["made_from"].value
        above = made_from[0]
        key = dg.AssetKey(["sample", STAGES[STAGES.index(stage) - 1]])
        wanted = dg.AssetRecordsFilter(key, asset_partitions=[str(partition)])
        (record,) = graph.instance.fetch_materializations(wanted, limit=9).records
        version = (events[key.path[-1], partition].tags or {})["dagster/data_version"]
        assert above == {
            "asset": key.to_user_string(),
            "partition": partition,
            "sha256": version,
            "run_id": result.run_id,
            "storage_id": record.storage_id,
        }
        assert (event.tags or {})[f"dagster/input_data_version/{key.to_user_string()}"] == version
        assert (event.tags or {})[f"dagster/input_event_pointer/{key.to_user_string()}"] == str(record.storage_id)


def test_checks_point_at_the_materialisation_they_are_of(ranged: tuple[Graph, dg.ExecuteInProcessResult]) -> None:
    graph, result = ranged
    for check in graph.checks(result):
        wanted = dg.AssetRecordsFilter(
            dg.AssetKey(["sample", "admission_proof"]), asset_partitions=[str(check.partition)]
        )
        (record,) = graph.instance.fetch_materializations(wanted, limit=9).records
        assert check.target_materialization_data is not None
        assert check.target_materialization_data.storage_id == record.storage_id


def test_a_bad_region_fails_alone(graph: Graph) -> None:
    graph.regions(*RANGE, "filtered_documents")
    graph.home.generation("sample").kept_text(8).unlink()
    result = graph.regions(*RANGE, "encoded_arrays", "admission_proof")
    assert result.success is False
    assert made(graph, result) == {one for one in digests(graph.home, 7, 9) if one[0] != "filtered_documents"}
    (failed,) = (event.step_failure_data for event in result.all_events if event.is_step_failure)
    assert failed.user_failure_data is not None
    assert failed.user_failure_data.description == "1 of 3 regions failed: 00008"
    rows: Any = failed.user_failure_data.metadata["failed"]
    (row,) = rows.records
    assert row.data["why"].startswith("FILE_MISSING ")
    (told,) = (
        event.asset_observation_data.asset_observation
        for event in graph.events(result)
        if event.event_type_value == "ASSET_OBSERVATION"
    )
    assert (told.asset_key.path[-1], told.partition, told.metadata["check"].value) == (
        "encoded_arrays",
        "00008",
        "FILE_MISSING",
    )


def test_a_second_run_makes_what_is_missing_and_hashes_the_rest(
    ranged: tuple[Graph, dg.ExecuteInProcessResult],
) -> None:
    graph, first = ranged
    second = graph.regions("00008", "00010")
    assert made(graph, second) == digests(graph.home, 8, 9, 10)
    assert made(graph, first) == digests(graph.home, 7, 8, 9)
    assert sorted(line for line in lines(graph, second) if line.startswith("region")) == [
        "region 00008: every byte is as admitted, nothing to make",
        "region 00009: every byte is as admitted, nothing to make",
        "region 00010: 100 rows, 69 kept, 101,937 tokens, admitted (N s)",
    ]


def test_a_fault_of_the_machine_ends_a_run_early(graph: Graph) -> None:
    # Nothing can be made below a folder that is a file.
    graph.home.root.mkdir(parents=True)
    (graph.home.root / "generations").write_text("in the way")
    result = graph.regions("00000", "00009", stop_after=2, workers=1)
    (failed,) = (event.step_failure_data for event in result.all_events if event.is_step_failure)
    assert failed.user_failure_data is not None
    why = os.strerror(errno.EEXIST)
    assert failed.user_failure_data.description == (
        f"2 of 10 regions failed: 00000, 00001; 8 were not begun, since 2 in a row failed by {why}"
    )
