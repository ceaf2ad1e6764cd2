"""The job that shows a window puts it on the page of the mix."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest

from casebits_dagster.lineage.show import show_markdown, show_window
from casebits_dagster.orchestration.resources import Corpus
from casebits_dagster.orchestration.show_window import show_window_job
from casebits_dagster.records.layout import Home


def run(home: Home, **config: Any) -> dg.ExecuteInProcessResult:
    wanted: Any = {
        "ops": {"read_window": {"config": config}},
        "loggers": {"console": {"config": {"log_level": "CRITICAL"}}},
    }
    corpus = {"corpus": Corpus(root=str(home.root))}
    return show_window_job().execute_in_process(run_config=wanted, resources=corpus, raise_on_error=False)


@pytest.mark.parametrize(("split", "window"), [("train", 7), ("val", 3)])
def test_a_window_is_shown_on_the_page_of_its_mix(sample_home: Home, split: Any, window: int) -> None:
    result = run(sample_home, mix="sample_aligned", window=window, split=split)
    assert result.success is True
    (told,) = [event for event in result.all_events if event.event_type_value == "ASSET_OBSERVATION"]
    observed = told.asset_observation_data.asset_observation
    shown = show_window(sample_home, "sample_aligned", window, split)
    assert observed.asset_key.to_user_string() == "mixes/sample_aligned"
    assert observed.metadata["window"] == dg.MetadataValue.md(show_markdown(shown))
    listed = observed.metadata["segments"]
    assert isinstance(listed, dg.TableMetadataValue)
    assert [row.data["domain"] for row in listed.records] == [segment.domain for segment in shown.segments]


def test_a_window_that_is_not_there_fails_the_run(sample_home: Home) -> None:
    result = run(sample_home, mix="sample_aligned", window=400)
    (failed,) = (event.step_failure_data for event in result.all_events if event.is_step_failure)
    assert failed.user_failure_data is not None
    said = "NO_SUCH_WINDOW sample_aligned: train window 400: it has windows 0 to 399"
    assert failed.user_failure_data.description == said
