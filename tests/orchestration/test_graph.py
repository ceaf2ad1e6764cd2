"""The graph as Dagster's server sees it, and its snapshot: a change of keys, deps, partitions or checks shows here."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from casebits_dagster.definitions import build
from casebits_dagster.orchestration.partitions import plain_name
from casebits_dagster.records.errors import Absent
from casebits_dagster.records.layout import Home

CHECKOUT = Path(__file__).resolve().parents[2]
GATES = {"coverage", "stratification", "packing", "production"}
MIXES = {f"mixes/sample_{name}" for name in ("aligned", "concatenated", "interleaved", "stratified")}
LAYERS = {"L1_shape", "L2_structure", "L3_declared_ids", "L4_source", "L5_segmentation"}


@pytest.fixture
def definitions(pins: Path, home: Home) -> dg.Definitions:
    return build(pins, home)


def test_the_server_loads_the_workspace(home: Home) -> None:
    command = [sys.executable, "-m", "dagster", "definitions", "validate", "-w", "workspace.yaml", "--load-with-grpc"]
    environment = {**os.environ, "CASEBITS_HOME": str(home.root)}
    environment.pop("DAGSTER_HOME", None)
    done = subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, "All code locations passed validation." in done.stdout) == (0, True), done.stderr
    assert not home.root.exists()


def test_the_graph(definitions: dg.Definitions) -> None:
    graph = definitions.resolve_asset_graph()
    assert {
        key.to_user_string(): (
            {parent.to_user_string() for parent in node.parent_keys},
            _partitions(node.partitions_def),
            {check.name for check in graph.get_check_keys_for_assets({key})},
        )
        for key, node in ((node.key, node) for node in graph.asset_nodes)
    } == {
        **_generation("sample", "00000..00013"),
        **_generation("casebits-nvidia5eaa64-v1", "00000..02099"),
        **_generation("climbmix-lower32k-v1", "00000..02099"),
        "codecs/climbmix-lower-32768": (set(), None, {"vocabulary", "mixture"}),
        "mixes/sample_aligned": ({"sample/frontier_manifest"}, None, {"verified"}),
        "mixes/sample_concatenated": ({"sample/frontier_manifest", "mixes/sample_aligned"}, None, {"verified"}),
        "mixes/sample_interleaved": ({"sample/frontier_manifest"}, None, {"verified"}),
        "mixes/sample_stratified": ({"sample/frontier_manifest", "mixes/sample_aligned"}, None, {"verified"}),
    }


def _generation(name: str, regions: str) -> dict[str, tuple[set[str], str | None, set[str]]]:
    """Return the seven assets of a generation: what they follow, their partitions, their checks."""
    return {
        f"{name}/filtered_documents": (set(), regions, set()),
        f"{name}/encoded_arrays": ({f"{name}/filtered_documents"}, regions, set()),
        f"{name}/admission_proof": ({f"{name}/encoded_arrays"}, regions, LAYERS),
        f"{name}/frontier_manifest": ({f"{name}/admission_proof"}, None, {"gapless", "verified"}),
        f"{name}/stratification_report": ({f"{name}/frontier_manifest"}, None, {"fair_picture"}),
        f"{name}/gates": (
            {f"{name}/frontier_manifest", f"{name}/stratification_report", *(MIXES if name == "sample" else ())},
            None,
            GATES,
        ),
        f"{name}/publication": ({f"{name}/frontier_manifest", f"{name}/gates"}, None, {"consumable"}),
    }


def test_every_proof_is_blocking_and_one_region_a_verdict(definitions: dg.Definitions) -> None:
    specs = [spec for asset in definitions.resolve_asset_graph().assets_defs for spec in asset.check_specs]
    # A gate that is not open yet, and a prefix that is lopsided, are no faults: what follows goes on.
    assert {spec.name for spec in specs if not spec.blocking} == {*GATES, "fair_picture"}
    partitioned = {spec.name: spec.partitions_def is not None for spec in specs if spec.name in LAYERS}
    assert partitioned == dict.fromkeys(LAYERS, True)


def test_jobs_cover_the_graph(definitions: dg.Definitions) -> None:
    jobs = {
        name: {key.path[-1] for key in definitions.resolve_job_def(name).asset_layer.executable_asset_keys}
        for name in ("sample_regions", "sample_corpus", "sample_publish")
    }
    assert jobs == {
        "sample_regions": {"filtered_documents", "encoded_arrays", "admission_proof"},
        "sample_corpus": {
            "frontier_manifest",
            "stratification_report",
            "gates",
            "sample_aligned",
            "sample_concatenated",
            "sample_interleaved",
            "sample_stratified",
        },
        "sample_publish": {"publication"},
    }


def test_every_page_tells_a_story(definitions: dg.Definitions) -> None:
    for spec in (spec for asset in definitions.resolve_asset_graph().assets_defs for spec in asset.specs):
        assert (spec.description or "").startswith("**")
        assert list(spec.owners) == ["team:corpus"]
        assert spec.group_name == plain_name(spec.key.path[0])
        assert spec.code_version is not None
        assert "pins" in spec.metadata


def test_the_location_works_in_the_home_it_was_given(definitions: dg.Definitions, home: Home) -> None:
    assert definitions.resources is not None
    assert definitions.resources["corpus"].root == str(home.root)


def test_a_wheel_without_the_graph_says_so(monkeypatch: pytest.MonkeyPatch, pins: Path, home: Home) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Absent) as refused:
        build(pins, home)
    assert str(refused.value) == (
        "PIN_MISSING assets: the graph lives in the checkout; the wheel carries the reading side alone "
        "(run from a checkout: clone the project, then `pip install -e .`)"
    )


def _partitions(definition: dg.PartitionsDefinition[str] | None) -> str | None:
    keys = definition.get_partition_keys() if definition else []
    return f"{keys[0]}..{keys[-1]}" if keys else None
