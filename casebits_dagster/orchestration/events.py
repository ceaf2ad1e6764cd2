"""What Dagster's event log is told of a region: a materialisation a stage, a verdict a check, a reason a failure.

The tags are those that Dagster gives to a result of its own, but exact for the one partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg
from dagster import AssetExecutionContext
from dagster._core.definitions.asset_checks.asset_check_evaluation import (
    AssetCheckEvaluationTargetMaterializationData as TargetMaterialization,
)

from casebits_dagster.orchestration.attempts import CODE_VERSION, FAULT
from casebits_dagster.orchestration.checks import admitted_layers, failure_facts, rejected_layers
from casebits_dagster.orchestration.metadata import latest_event, tag, upstream
from casebits_dagster.orchestration.partitions import asset_key
from casebits_dagster.orchestration.produce import Told
from casebits_dagster.orchestration.stages import ADMITTED, ENCODED, FILTERED, RegionStage
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.errors import Rejected
from casebits_dagster.records.layout import region_id
from casebits_dagster.records.pins import Generation
from casebits_dagster.records.region import Admission

# What Dagster compares to tell what is stale.
DATA_VERSION = "dagster/data_version"


@dataclass(frozen=True, slots=True)
class RegionEvents:
    """Writes what became of the regions of a run; each event is in the log when the method returns."""

    context: AssetExecutionContext
    generation: Generation
    stages: Sequence[RegionStage]

    def done(self, stage: RegionStage, region: int, told: Told) -> None:
        """Tell what a stage made of a region, what it was made from, and what the checks found."""
        metadata, tags = dict(told.metadata), self._tags(stage, told.data_version)
        if stage.after:
            above = asset_key(self.generation.name, stage.after)
            event = latest_event(self.context.instance, above, region_id(region))
            witness = event if event and tag(event, DATA_VERSION) == told.upstream else None
            ids = {"run_id": witness.run_id if witness else None, "storage_id": witness.storage_id if witness else None}
            metadata["made_from"] = [{**upstream(above, told.upstream, region_id(region)), **ids}, *told.made_from]
            tags[f"dagster/input_data_version/{above.to_user_string()}"] = told.upstream
            if witness:
                tags[f"dagster/input_event_pointer/{above.to_user_string()}"] = str(witness.storage_id)
        self._materialized(stage, region, metadata, tags)
        if told.checks:
            self._checked(stage, region, told.checks)

    def failed(self, stage: RegionStage, region: int, error: Exception, fault: str) -> None:
        """Tell why a region failed, on the page of the partition that it kept from being made, and by whose fault."""
        if isinstance(error, Rejected):
            self._checked(stage, region, rejected_layers(error))
        self.context.log_event(
            dg.AssetObservation(
                asset_key(self.generation.name, stage.name),
                description=str(error),
                metadata=failure_facts(error),
                partition=region_id(region),
                tags={FAULT: fault, CODE_VERSION: self._code_version(ADMITTED)},
            )
        )

    def known(self, regions: Sequence[int]) -> dict[int, Mapping[str, dg.EventLogRecord]]:
        """Return the regions that today's code and pins have taken through every stage, with their latest events.

        Empty when the run makes only some of the stages.
        """
        if [stage.name for stage in self.stages] != [FILTERED, ENCODED, ADMITTED]:
            return {}
        key, found = asset_key(self.generation.name, ADMITTED), dict[int, Mapping[str, dg.EventLogRecord]]()
        ends = self.context.instance.get_latest_storage_id_by_partition(
            key, dg.DagsterEventType.ASSET_MATERIALIZATION, {region_id(region) for region in regions}
        )
        for region in (region for region in regions if region_id(region) in ends):
            events = {}
            for stage in reversed(self.stages):
                event = latest_event(
                    self.context.instance, asset_key(self.generation.name, stage.name), region_id(region)
                )
                if event is None or tag(event, CODE_VERSION) != self._code_version(stage.name):
                    break
                events[stage.name] = event
            else:
                found[region] = events
        return found

    def stands(self, region: int, admission: Admission, events: Mapping[str, dg.EventLogRecord]) -> bool:
        """Tell that a region stands as its events say, showing each page again. Returns False when it does not."""
        published = {ENCODED: admission.receipt_sha256, ADMITTED: sha256(admission.to_bytes())}
        if {name: tag(events[name], DATA_VERSION) for name in published} != published:
            return False
        for stage in self.stages:
            if event := events[stage.name].asset_materialization:
                page = {**event.metadata, "written": "nothing: it is admitted, and every byte is as admitted"}
                self._materialized(stage, region, page, event.tags or {})
        self._checked(self.stages[-1], region, admitted_layers(admission))
        return True

    def _tags(self, stage: RegionStage, version: str) -> dict[str, str]:
        return {
            DATA_VERSION: version,
            f"{DATA_VERSION}_is_user_provided": "true",
            CODE_VERSION: self._code_version(stage.name),
        }

    def _code_version(self, stage: str) -> str:
        spec = self.context.assets_def.specs_by_key[asset_key(self.generation.name, stage)]
        return spec.code_version or ""

    def _materialized(
        self, stage: RegionStage, region: int, metadata: Mapping[str, Any], tags: Mapping[str, str]
    ) -> None:
        key, partition = asset_key(self.generation.name, stage.name), region_id(region)
        self.context.log_event(dg.AssetMaterialization(key, metadata=metadata, partition=partition, tags=tags))

    def _checked(self, stage: RegionStage, region: int, results: Iterable[dg.AssetCheckResult]) -> None:
        key, partition = asset_key(self.generation.name, stage.name), region_id(region)
        for event in evaluations(key, partition, results, latest_event(self.context.instance, key, partition)):
            self.context.log_event(event)


def evaluations(
    key: dg.AssetKey, partition: str, results: Iterable[dg.AssetCheckResult], event: dg.EventLogRecord | None
) -> Iterator[dg.AssetCheckEvaluation]:
    """Yield check results as verdicts of one partition, and of its materialisation `event`."""
    target = None
    if event:
        target = TargetMaterialization(storage_id=event.storage_id, run_id=event.run_id, timestamp=event.timestamp)
    for result in results:
        yield dg.AssetCheckEvaluation(
            asset_key=key,
            check_name=result.check_name or "",
            passed=result.passed,
            metadata=result.metadata,
            severity=result.severity,
            description=result.description,
            blocking=True,
            partition=partition,
            target_materialization_data=target,
        )
