"""A generation whose vocabulary has to be supplied: it is declared and shown, says why it waits, and refuses to run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from casebits_dagster.definitions import build
from casebits_dagster.orchestration.jobs import corpus_job_name, regions_job_name
from casebits_dagster.records.layout import Home
from casebits_dagster.records.pins import load_generation
from tests.orchestration.conftest import Graph

STAGES = ("filtered_documents", "encoded_arrays", "admission_proof", "frontier_manifest", "stratification_report")


@pytest.fixture
def waiting(pins: Path, tmp_path: Path) -> Path:
    """Pins of the sample and of generation `waiting`, which is the sample without the file of its vocabulary."""
    folder = tmp_path / "pins"
    for name in ("generations", "filters", "codecs"):
        shutil.copytree(pins / name, folder / name)
    shutil.copytree(pins / "mixes", folder / "mixes")
    (folder / "sample").symlink_to(pins / "sample")
    for path in (folder / "generations").glob("*.toml"):
        if path.stem != "sample":
            path.unlink()
    sample = (folder / "generations/sample.toml").read_text()
    codec = (folder / "codecs/sample-lower-8192/codec.toml").read_text()
    declared = sample.replace('"sample"', '"waiting"', 1).replace("sample-lower-8192", "supplied", 1)
    (folder / "generations/waiting.toml").write_text(declared)
    (folder / "codecs/supplied").mkdir()
    (folder / "codecs/supplied/codec.toml").write_text(codec.replace("sample-lower-8192", "supplied", 1))
    return folder


@pytest.fixture
def graph(waiting: Path, home: Home) -> Iterator[Graph]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Graph(build(waiting, home), instance, home)


def _said(folder: Path) -> str:
    return (
        f"PIN_MISSING {folder}/codecs/supplied/vocabulary.json: the pinned file cannot be read: "
        "No such file or directory (put the file whose sha256 is "
        "14c63738d2831fb5c44608720fff824e39a19c65ffcf94448ff89a91b3bff6bc there; any other is refused)"
    )


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_refuses_with_the_same_text(graph: Graph, waiting: Path, stage: str) -> None:
    whole = stage in STAGES[3:]
    job, partition = (corpus_job_name, None) if whole else (regions_job_name, "00000")
    result = graph.run(job("waiting"), [f"waiting/{stage}"], partition_key=partition)
    (failed,) = (event.step_failure_data for event in result.all_events if event.is_step_failure)
    assert failed.user_failure_data is not None
    facts = {name: value.value for name, value in failed.user_failure_data.metadata.items()}
    assert (result.success, failed.user_failure_data.description) == (False, _said(waiting))
    assert (facts["check"], facts["where"]) == ("PIN_MISSING", f"{waiting}/codecs/supplied/vocabulary.json")
    assert not graph.home.root.exists()


def test_its_pages_say_why_before_they_tell_their_story(graph: Graph, waiting: Path) -> None:
    nodes = graph.definitions.resolve_asset_graph()
    for stage in STAGES:
        node, ready = nodes.get(dg.AssetKey(["waiting", stage])), nodes.get(dg.AssetKey(["sample", stage]))
        why = f"**Cannot run yet**: {_said(waiting)}. Then reload the definitions."
        assert node.description == f"{why}\n\n{ready.description}"
        assert (node.metadata["cannot_run_yet"], "cannot_run_yet" in ready.metadata) == (_said(waiting), False)
        assert (node.partitions_def, node.parent_keys == set()) == (ready.partitions_def, ready.parent_keys == set())


def test_once_the_file_is_there_it_runs(waiting: Path, pins: Path, home: Home) -> None:
    for name in ("vocabulary.json", "mixture.npz"):
        shutil.copy(pins / "codecs/sample-lower-8192" / name, waiting / "codecs/supplied")
    assert load_generation(waiting, "waiting").missing is None
    with dg.DagsterInstance.ephemeral() as instance:
        graph = Graph(build(waiting, home), instance, home)
        assert graph.run(regions_job_name("waiting"), partition_key="00008").success is True
