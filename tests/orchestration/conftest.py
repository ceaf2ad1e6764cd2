"""The real graph in an empty home, on an ephemeral Dagster instance: 0.5 s a region of the sample."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from casebits_dagster.definitions import build
from casebits_dagster.orchestration.jobs import regions_job_name
from casebits_dagster.orchestration.partitions import range_tags, step_name
from casebits_dagster.records.layout import Home
from casebits_dagster.records.pins import Generation, load_generation


@dataclass(frozen=True, slots=True)
class Graph:
    """The definitions of all pins, and a way to run them."""

    definitions: dg.Definitions
    instance: dg.DagsterInstance
    home: Home

    def run(
        self,
        job: str,
        keys: list[str] | None = None,
        config: dict[str, Any] | None = None,
        op: str = step_name("sample"),
        **options: Any,
    ) -> dg.ExecuteInProcessResult:
        selection = [dg.AssetKey(key.split("/")) for key in keys] if keys else None
        quiet: Any = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
        return self.definitions.resolve_job_def(job).execute_in_process(
            instance=self.instance,
            asset_selection=selection,
            run_config=quiet | ({"ops": {op: {"config": config}}} if config else {}),
            raise_on_error=False,
            **options,
        )

    def region(self, partition: str, *stages: str, **config: Any) -> dg.ExecuteInProcessResult:
        """Run the three region stages of the sample, or some of them."""
        keys = [f"sample/{stage}" for stage in stages] or None
        return self.run(regions_job_name("sample"), keys, config, partition_key=partition)

    def regions(self, first: str, last: str, *stages: str, **config: Any) -> dg.ExecuteInProcessResult:
        """Run a range of regions, as a backfill does."""
        tags = range_tags(int(first), int(last))
        keys = [f"sample/{stage}" for stage in stages] or None
        return self.run(regions_job_name("sample"), keys, {"workers": 2, **config}, tags=tags)

    def events(self, result: dg.ExecuteInProcessResult) -> list[dg.DagsterEvent]:
        """Return what is in the event log of a run: also what a step that failed had told."""
        entries = self.instance.all_logs(result.run_id)
        return [entry.dagster_event for entry in entries if entry.dagster_event is not None]

    def materializations(self, result: dg.ExecuteInProcessResult) -> list[dg.AssetMaterialization]:
        found = [event for event in self.events(result) if event.is_step_materialization]
        return [event.step_materialization_data.materialization for event in found]

    def checks(self, result: dg.ExecuteInProcessResult) -> list[dg.AssetCheckEvaluation]:
        found = [event for event in self.events(result) if event.event_type_value == "ASSET_CHECK_EVALUATION"]
        return [event.asset_check_evaluation_data for event in found]


@pytest.fixture(scope="session")
def generation(pins: Path) -> Generation:
    return load_generation(pins, "sample")


@pytest.fixture(scope="session")
def sample_pins(pins: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pins without the large generations, whose plans take a second to load."""
    folder = tmp_path_factory.mktemp("sample_pins")
    for name in ("codecs", "filters", "mixes", "sample"):
        (folder / name).symlink_to(pins / name)
    (folder / "generations").mkdir()
    (folder / "generations/sample.toml").symlink_to(pins / "generations/sample.toml")
    return folder


@pytest.fixture
def graph(sample_pins: Path, home: Home) -> Iterator[Graph]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Graph(build(sample_pins, home), instance, home)


def metadata(result: dg.ExecuteInProcessResult, key: str) -> dict[str, Any]:
    """Return the metadata values of an asset's one materialisation in a run."""
    events = [e.materialization for e in result.get_asset_materialization_events()]
    (found,) = (event for event in events if event.asset_key.to_user_string() == key)
    return {name: value.value for name, value in found.metadata.items()}


def rows(result: dg.ExecuteInProcessResult, key: str, name: str) -> list[dict[str, Any]]:
    """Return the rows of a table in that metadata."""
    events = [e.materialization for e in result.get_asset_materialization_events()]
    (found,) = (event.metadata[name] for event in events if event.asset_key.to_user_string() == key)
    assert isinstance(found, dg.TableMetadataValue)
    return [dict(record.data) for record in found.records]
