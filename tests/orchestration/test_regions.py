"""A region through the real assets: what its pages say, what is recorded, and how a refusal shows."""

from __future__ import annotations

import json

import dagster as dg

from casebits_dagster.orchestration.checks import LAYERS
from casebits_dagster.records.digests import sha256_file
from casebits_dagster.records.layout import ADMISSION, IDS, RECEIPT
from casebits_dagster.records.region import Admission, Receipt, Rejection
from casebits_dagster.records.run import RunRecord
from tests.orchestration.conftest import Graph, metadata, rows

REGION = "00013"


def checks(graph: Graph, result: dg.ExecuteInProcessResult) -> dict[str, bool]:
    return {check.check_name: check.passed for check in graph.checks(result)}


def data_versions(result: dg.ExecuteInProcessResult) -> dict[str, str]:
    events = [event.materialization for event in result.get_asset_materialization_events()]
    return {event.asset_key.path[-1]: (event.tags or {})["dagster/data_version"] for event in events}


def test_a_region_is_made_and_proven(graph: Graph) -> None:
    result = graph.region(REGION)
    folder = graph.home.generation("sample").region(13)
    receipt = Receipt.parse((folder / RECEIPT).read_bytes(), RECEIPT)
    assert result.success
    assert data_versions(result) == {
        "filtered_documents": receipt.verdicts_digest,
        "encoded_arrays": sha256_file(folder / RECEIPT),
        "admission_proof": sha256_file(folder / ADMISSION),
    }
    assert {event.partition for event in result.get_asset_materialization_events()} == {REGION}
    assert checks(graph, result) == {
        "L1_shape": True,
        "L2_structure": True,
        "L3_declared_ids": True,
        "L4_source": True,
        "L5_segmentation": True,
    }
    assert {check.partition for check in graph.checks(result)} == {REGION}


def test_pages_tell_how_much_why_not_and_from_what(graph: Graph) -> None:
    result = graph.region(REGION)
    counts = Receipt.parse((graph.home.generation("sample").region(13) / RECEIPT).read_bytes(), RECEIPT).counts
    filtered, encoded = metadata(result, "sample/filtered_documents"), metadata(result, "sample/encoded_arrays")
    assert (filtered["rows_read"], filtered["documents_kept"]) == (counts.rows_read, counts.documents)
    reasons = {row["reason"]: row["rows"] for row in rows(result, "sample/filtered_documents", "why_not")}
    assert reasons == {f"dropped: {name}": count for name, count in counts.dropped.items()}
    assert filtered["lengths_plot"].startswith("![plot](data:image/svg+xml;base64,")
    assert (encoded["tokens"], encoded["text_bytes"]) == (counts.tokens, counts.raw_bytes)


def test_an_upstream_record_is_exact(graph: Graph) -> None:
    result = graph.region(REGION)
    (encoded,) = metadata(result, "sample/encoded_arrays")["made_from"]
    events = {event.materialization.asset_key.path[-1]: event for event in result.get_asset_materialization_events()}
    assert encoded == {
        "asset": "sample/filtered_documents",
        "partition": REGION,
        "sha256": data_versions(result)["filtered_documents"],
        "run_id": result.run_id,
        "storage_id": encoded["storage_id"],
    }
    assert events["filtered_documents"].partition == REGION
    assert (
        metadata(result, "sample/admission_proof")["made_from"][0]["sha256"] == data_versions(result)["encoded_arrays"]
    )


def test_an_upstream_made_elsewhere_has_no_run(graph: Graph) -> None:
    graph.region(REGION, "filtered_documents")
    with dg.DagsterInstance.ephemeral() as other:
        result = Graph(graph.definitions, other, graph.home).region(REGION, "encoded_arrays")
    (upstream,) = metadata(result, "sample/encoded_arrays")["made_from"]
    assert (upstream["run_id"], upstream["storage_id"]) == (None, None)


def test_the_empty_region_is_made_and_proven(graph: Graph) -> None:
    result = graph.region("00008")
    assert result.success
    assert metadata(result, "sample/encoded_arrays")["documents"] == 0


def test_a_rerun_says_that_nothing_changed(graph: Graph) -> None:
    first, second = graph.region(REGION), graph.region(REGION, again=True)
    assert data_versions(second) == data_versions(first)
    assert metadata(second, "sample/encoded_arrays")["written"] == "identical bytes were published before"
    assert metadata(second, "sample/admission_proof")["written"] == "the same proof was there before"


def test_a_region_that_is_admitted_is_hashed_and_not_made_again(graph: Graph) -> None:
    first, second = graph.region(REGION), graph.region(REGION)
    assert data_versions(second) == data_versions(first)
    assert checks(graph, second) == dict.fromkeys(LAYERS, True)
    kept = metadata(first, "sample/encoded_arrays") | {
        "written": "nothing: it is admitted, and every byte is as admitted"
    }
    assert metadata(second, "sample/encoded_arrays") == kept
    (path,) = graph.home.generation("sample").runs(13).iterdir()
    assert path.stem == first.run_id


def test_a_region_that_rotted_is_made_again(graph: Graph) -> None:
    first = graph.region(REGION)
    ids = graph.home.generation("sample").region(13) / IDS
    sound = ids.read_bytes()
    ids.write_bytes(sound[::-1])
    second = graph.region(REGION)
    assert data_versions(second) == data_versions(first)
    assert metadata(second, "sample/encoded_arrays")["written"] == "published now"
    assert ids.read_bytes() == sound


def test_each_run_leaves_one_record(graph: Graph) -> None:
    result = graph.region(REGION)
    (path,) = graph.home.generation("sample").runs(13).iterdir()
    record = RunRecord.parse(path.read_bytes(), path.name)
    assert path.name == f"{result.run_id}.json"
    assert (record.generation, record.region, record.job) == ("sample", 13, "sample_regions")
    assert [(run.stage, run.outcome) for run in record.stages] == [
        ("filtered_documents", "done"),
        ("encoded_arrays", "done"),
        ("admission_proof", "done"),
    ]


def test_a_broken_region_fails_its_check_and_is_never_admitted(graph: Graph) -> None:
    graph.region(REGION, "filtered_documents", "encoded_arrays")
    folder = graph.home.generation("sample").region(13)
    broken = bytearray((folder / IDS).read_bytes())
    broken[100] ^= 1
    (folder / IDS).write_bytes(broken)

    result = graph.region(REGION, "admission_proof")

    assert not result.success
    assert graph.materializations(result) == []
    assert not (folder / ADMISSION).exists()
    assert checks(graph, result) == {
        "L1_shape": False,
        "L2_structure": False,
        "L3_declared_ids": False,
        "L4_source": False,
        "L5_segmentation": False,
    }
    found = {check.check_name: check for check in graph.checks(result)}
    assert {name: check.severity.value for name, check in found.items()} == {
        "L1_shape": "ERROR",
        "L2_structure": "WARN",
        "L3_declared_ids": "WARN",
        "L4_source": "WARN",
        "L5_segmentation": "WARN",
    }
    why = {name: value.value for name, value in found["L1_shape"].metadata.items()}
    assert (why["check"], why["where"]) == ("L1_HASH", f"00013/{IDS}")
    assert found["L2_structure"].description == "not reached: L1_HASH failed before"
    (rejection,) = graph.home.generation("sample").rejections(13).iterdir()
    assert Rejection.parse(rejection.read_bytes(), rejection.name).check == "L1_HASH"
    (record,) = [path for path in graph.home.generation("sample").runs(13).iterdir() if result.run_id in path.name]
    assert json.loads(record.read_bytes())["stages"][0]["outcome"] == "L1_HASH"


def test_a_rejected_region_is_made_again_by_a_rerun_and_blocks_no_other(graph: Graph) -> None:
    graph.region(REGION, "filtered_documents", "encoded_arrays")
    folder = graph.home.generation("sample").region(13)
    (folder / IDS).write_bytes((folder / IDS).read_bytes()[::-1])
    assert graph.region(REGION, "admission_proof").success is False
    assert graph.region("00008").success is True
    result = graph.region(REGION)
    assert checks(graph, result) == dict.fromkeys(LAYERS, True)
    assert metadata(result, "sample/encoded_arrays")["written"] == "published now"


def test_a_failure_is_not_retried(graph: Graph) -> None:
    graph.region(REGION, "filtered_documents", "encoded_arrays")
    (graph.home.generation("sample").region(13) / IDS).unlink()
    result = graph.region(REGION, "admission_proof")
    (failed,) = (event for event in result.all_events if event.is_step_failure)
    failure = failed.step_failure_data.user_failure_data
    assert failure is not None
    assert {name: value.value for name, value in failure.metadata.items()}["check"] == "L1_FILES"
    assert [event for event in result.all_events if event.is_step_up_for_retry] == []


def test_an_admission_is_a_record(graph: Graph) -> None:
    graph.region("00008")
    path = graph.home.generation("sample").region(8) / ADMISSION
    assert Admission.parse(path.read_bytes(), ADMISSION).verdict == "admitted"
