"""What follows the admissions: frontier, report and mixes, with the checks that open them again."""

from __future__ import annotations

import shutil
from pathlib import Path

import dagster as dg
import pytest

from casebits_dagster.definitions import build
from casebits_dagster.orchestration.jobs import corpus_job_name, publish_job_name
from casebits_dagster.records.digests import sha256_file
from casebits_dagster.records.frontier import Latest
from casebits_dagster.records.layout import ADMISSION, IDS, LATEST, Home
from casebits_dagster.records.mix import MANIFEST
from tests.orchestration.conftest import Graph, metadata, rows

FRONTIER, REPORT = "sample/frontier_manifest", "sample/stratification_report"


@pytest.fixture
def whole(graph: Graph, pins: Path, sample_home: Home, tmp_path: Path) -> Graph:
    """The graph over a copy of the whole sample, made without Dagster."""
    home = Home(tmp_path / "whole")
    shutil.copytree(sample_home.root, home.root)
    return Graph(build(pins, home), graph.instance, home)


def results(result: dg.ExecuteInProcessResult) -> dict[str, bool]:
    return {
        f"{check.asset_key.to_user_string()}/{check.check_name}": check.passed
        for check in result.get_asset_check_evaluations()
    }


def test_the_prefix_stops_before_a_gap_and_says_so(graph: Graph) -> None:
    for region in ("00000", "00001", "00008"):
        graph.region(region)
    result = graph.run(corpus_job_name("sample"), [FRONTIER, REPORT])
    page = metadata(result, FRONTIER)
    assert results(result) == {
        f"{FRONTIER}/gapless": True,
        f"{FRONTIER}/verified": True,
        f"{REPORT}/fair_picture": False,
    }
    assert (page["regions"], page["status"]) == ("2 of 14", "building")
    assert (page["waits_for"], page["beyond_the_gap"]) == ("region 00002", "1: 00008")
    assert metadata(result, REPORT)["frontier_version"] == 1
    folder = graph.home.generation("sample")
    assert page["made_from"] == [
        {
            "asset": "sample/admission_proof",
            "partition": f"{index:05d}",
            "sha256": sha256_file(folder.region(index) / ADMISSION),
        }
        for index in (0, 1)
    ]


def test_without_admissions_there_is_no_frontier(graph: Graph) -> None:
    result = graph.run(corpus_job_name("sample"), [FRONTIER])
    (failed,) = (event for event in result.all_events if event.is_step_failure)
    error = failed.step_failure_data.error
    assert error is not None
    assert error.cause is not None
    assert "ADMISSION_MISSING sample/regions/00000/admission.json" in error.cause.message


def test_the_whole_sample(whole: Graph) -> None:
    result = whole.run(corpus_job_name("sample"))
    assert result.success
    assert {name for name, passed in results(result).items() if not passed} == {
        f"{REPORT}/fair_picture",
        "sample/gates/stratification",
        "sample/gates/production",
    }
    assert [row["state"] for row in rows(result, "sample/gates", "gates")] == ["open", "closed", "open", "closed"]
    assert metadata(result, FRONTIER)["status"] == "complete"
    assert metadata(result, FRONTIER)["written"] == "nothing new was admitted: no byte changed"
    assert sum(int(row["documents"]) for row in rows(result, REPORT, "by_cluster")) == 933
    for mix in ("sample_aligned", "sample_concatenated", "sample_interleaved", "sample_stratified"):
        page = metadata(result, f"mixes/{mix}")
        assert page["manifest_sha256"] == sha256_file(whole.home.mix(mix) / MANIFEST)
        assert page["written"] == "identical bytes were published before"
    assert list(rows(result, "mixes/sample_concatenated", "context")[0]) == [
        "tokens back",
        "concatenated",
        "aligned",
        "upper bound",
    ]
    assert [row["order"] for row in rows(result, "mixes/sample_stratified", "off_the_shares")] == [
        "stratified",
        "shuffled",
    ]


def test_a_frontier_that_rotted_on_disk_fails_its_check(whole: Graph) -> None:
    path = whole.home.generation("sample").region(3) / IDS
    broken = bytearray(path.read_bytes())
    broken[0] ^= 1
    path.write_bytes(broken)
    result = whole.run(corpus_job_name("sample"), [FRONTIER])
    assert results(result) == {f"{FRONTIER}/gapless": True, f"{FRONTIER}/verified": False}
    (verified,) = (check for check in result.get_asset_check_evaluations() if check.check_name == "verified")
    why = {name: value.value for name, value in verified.metadata.items()}
    assert (why["check"], why["where"]) == ("FILE_HASH", f"regions/00003/{IDS}")


def test_a_frontier_is_published_where_the_resource_or_the_launchpad_says(whole: Graph, tmp_path: Path) -> None:
    whole.run(corpus_job_name("sample"), [FRONTIER, "sample/gates"])
    result = whole.run(publish_job_name("sample"))
    assert results(result) == {"sample/publication/consumable": True}
    page = metadata(result, "sample/publication")
    place = whole.home.root / "published" / "sample"
    assert (page["destination"], page["version"], (place / LATEST).exists()) == (str(place), 1, True)
    again = whole.run(publish_job_name("sample"))
    assert metadata(again, "sample/publication")["written"] == "it stood there before"
    there = {"destination": str(tmp_path / "there"), "valid_days": 7}
    other = whole.run(publish_job_name("sample"), config=there, op="sample__publication")
    assert metadata(other, "sample/publication")["destination"] == str(tmp_path / "there")
    expires = Latest.parse((tmp_path / "there" / LATEST).read_bytes(), LATEST).expires_at
    assert expires is not None


def test_without_a_clearance_nothing_leaves(whole: Graph, pins: Path, tmp_path: Path) -> None:
    shutil.copytree(pins, tmp_path / "pins")
    shutil.rmtree(tmp_path / "pins" / "clearances")
    graph = Graph(build(tmp_path / "pins", whole.home), whole.instance, whole.home)
    result = graph.run(publish_job_name("sample"))
    (failed,) = (event for event in result.all_events if event.is_step_failure)
    error = failed.step_failure_data.error
    assert error is not None
    assert error.cause is not None
    assert "CLEARANCE_MISSING clearances: sample" in error.cause.message
    assert not (whole.home.root / "published").exists()
