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
from casebits_dagster.records.layout import Home
from casebits_dagster.records.pins import Generation, load_generation


@dataclass(frozen=True, slots=True)
class Graph:
    """The definitions of all pins, and a way to run them."""

    definitions: dg.Definitions
    instance: dg.DagsterInstance
    home: Home

    def run(self, job: str, keys: list[str] | None = None, partition: str | None = None) -> dg.ExecuteInProcessResult:
        selection = [dg.AssetKey(key.split("/")) for key in keys] if keys else None
        quiet: Any = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
        return self.definitions.resolve_job_def(job).execute_in_process(
            instance=self.instance,
            asset_selection=selection,
            partition_key=partition,
            run_config=quiet,
            raise_on_error=False,
        )

    def region(self, partition: str, *stages: str) -> dg.ExecuteInProcessResult:
        """Run the three region stages of the sample, or some of them."""
        return self.run(regions_job_name("sample"), [f"sample/{stage}" for stage in stages] or None, partition)


@pytest.fixture(scope="session")
def generation(pins: Path) -> Generation:
    return load_generation(pins, "sample")


@pytest.fixture
def graph(pins: Path, home: Home) -> Iterator[Graph]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Graph(build(pins, home), instance, home)


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
