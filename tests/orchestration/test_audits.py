"""The audit job: every question form, its files, and what Dagster's event log says otherwise."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from casebits_dagster.definitions import build
from casebits_dagster.lineage.records import Audit
from casebits_dagster.records.layout import ADMISSION, Home
from casebits_dagster.records.region import Admission
from tests.orchestration.conftest import Graph
from tests.orchestration.test_proofs import observations, run


@pytest.fixture
def graph(sample_pins: Path, sample_home: Home, home: Home) -> Iterator[Graph]:
    shutil.copytree(sample_home.root, home.root)
    with dg.instance_for_test() as instance:
        yield Graph(build(sample_pins, home), instance, home)


def test_every_form_is_answered_and_kept(graph: Graph) -> None:
    forms: dict[str, dict[str, object]] = {
        "shard-1-of-mix-sample_aligned": {"mix": "sample_aligned", "shard": 1},
        "tokens-5-to-9-of-mix-sample_aligned": {"mix": "sample_aligned", "tokens": "5:9"},
        "region-sample-00003": {"region": "sample/00003"},
        "row-0-of-pd_mix.parquet-source-of-sample": {"source_row": ["sample", "pd_mix.parquet", "0"]},
        "withdrawn-documents": {"withdrawn": True},
    }
    keys = []
    for name, config in forms.items():
        result = run(graph, "audit", "follow_window", recompute="slices", **config)
        assert result.success is True
        keys += [(one.asset_key.to_user_string(), one.partition) for one in observations(graph, result)]
        raw = (graph.home.root / "audits" / f"{name}.json").read_bytes()
        assert Audit.parse(raw, name).proven is True
    assert keys == [("mixes/sample_aligned", None)] * 2 + [("sample/admission_proof", "00003")]
    assert len([*(graph.home.root / "audits").iterdir()]) == 4 * len(forms)


def test_two_questions_are_refused(graph: Graph) -> None:
    result = run(graph, "audit", "follow_window", mix="sample_aligned", document="0" * 32)
    (failed,) = (event.step_failure_data for event in result.all_events if event.is_step_failure)
    assert failed.user_failure_data is not None
    assert (failed.user_failure_data.description or "").startswith("QUESTION_INVALID audit: expected one of: a mix")


def test_the_event_log_is_a_witness(graph: Graph) -> None:
    """A region that was made through Dagster agrees; one whose log says another run or admission is told."""
    region = graph.home.generation("sample").region(3)
    admission = Admission.parse((region / ADMISSION).read_bytes(), ADMISSION)
    made = graph.region("00003")
    assert made.success is True
    (agreed,) = observations(graph, run(graph, "audit", "follow_window", region="sample/00003"))
    assert agreed.metadata["event_log"].value == "no difference"
    (record,) = graph.home.generation("sample").runs(3).glob("*.json")
    record.unlink()
    (told,) = observations(graph, run(graph, "audit", "follow_window", region="sample/00003"))
    log = told.metadata["event_log"]
    assert isinstance(log, dg.TableMetadataValue)
    assert [dict(one.data) for one in log.records] == [
        {
            "of": "sample/00003",
            "what": "run that admitted it",
            "in the files": "no run record",
            "in the log": made.run_id,
        }
    ]
    assert Admission.parse((region / ADMISSION).read_bytes(), ADMISSION) == admission
