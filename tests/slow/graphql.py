"""What the pages ask the web server, asked by a test: backfills, schedules, sensors, and what became of them."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

LOCATION = {"repositoryName": "__repository__", "repositoryLocationName": "casebits"}


@dataclass(frozen=True, slots=True)
class Dagster:
    """A running web server."""

    url: str

    def ask(self, query: str, **variables: Any) -> Any:
        """Return the data of a GraphQL answer; an error in it fails the test."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.url}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            found = json.load(answer)
        assert "errors" not in found, found["errors"]
        return found["data"]

    def backfill(self, keys: Sequence[str], partitions: Sequence[str]) -> str:
        """Launch an asset backfill, as the Materialize button does, and return its id."""
        query = """
            mutation Launch($params: LaunchBackfillParams!) {
              launchPartitionBackfill(backfillParams: $params) {
                __typename
                ... on LaunchBackfillSuccess { backfillId }
                ... on PythonError { message }
              }
            }"""
        selection = [{"path": key.split("/")} for key in keys]
        params = {"assetSelection": selection, "partitionNames": list(partitions)}
        launched = self.ask(query, params=params)["launchPartitionBackfill"]
        assert launched["__typename"] == "LaunchBackfillSuccess", launched
        return str(launched["backfillId"])

    def backfill_status(self, backfill: str) -> str:
        query = """query B($id: String!) {
            partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill { status } } }"""
        return str(self.ask(query, id=backfill)["partitionBackfillOrError"]["status"])

    def end_of_backfill(self, backfill: str, seconds: float) -> str:
        """Return the status of a backfill that has ended."""
        ended = {"COMPLETED_SUCCESS", "COMPLETED_FAILED", "COMPLETED", "FAILED", "CANCELED"}
        wait_for(f"the end of backfill {backfill}", lambda: self.backfill_status(backfill) in ended, seconds)
        return self.backfill_status(backfill)

    def runs(self) -> list[dict[str, Any]]:
        """Return all runs, the newest first, with status, tags and times."""
        query = """{ runsOrError { ... on Runs { results {
            runId status jobName startTime endTime creationTime tags { key value } } } } }"""
        found = self.ask(query)["runsOrError"]["results"]
        return [{**run, "tags": {tag["key"]: tag["value"] for tag in run["tags"]}} for run in found]

    def partitions(self, key: str) -> dict[str, int]:
        """Return how many partitions of an asset are materialised, failed and in the making."""
        query = """query A($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
            partitionStats { numMaterialized numFailed numMaterializing } } } }"""
        return dict(self.ask(query, key={"path": key.split("/")})["assetNodeOrError"]["partitionStats"])

    def start_schedule(self, name: str) -> None:
        query = """mutation S($selector: ScheduleSelector!) { startSchedule(scheduleSelector: $selector) {
            __typename ... on PythonError { message } } }"""
        found = self.ask(query, selector={**LOCATION, "scheduleName": name})["startSchedule"]
        assert found["__typename"] == "ScheduleStateResult", found

    def start_sensor(self, name: str) -> None:
        query = """mutation S($selector: SensorSelector!) { startSensor(sensorSelector: $selector) {
            __typename ... on PythonError { message } } }"""
        found = self.ask(query, selector={**LOCATION, "sensorName": name})["startSensor"]
        assert found["__typename"] == "Sensor", found

    def reload(self) -> None:
        """Load the code again, as the button of the deployment page does."""
        query = """mutation R { reloadRepositoryLocation(repositoryLocationName: "casebits") {
            __typename ... on WorkspaceLocationEntry { loadStatus } } }"""
        found = self.ask(query)["reloadRepositoryLocation"]
        assert found == {"__typename": "WorkspaceLocationEntry", "loadStatus": "LOADED"}, found

    def lines(self, run_id: str) -> list[str]:
        """Return what a run said, line by line."""
        query = """query L($id: ID!) { logsForRun(runId: $id) { ... on EventConnection { events {
            __typename ... on MessageEvent { message } } } } }"""
        events = self.ask(query, id=run_id)["logsForRun"]["events"]
        return [event["message"] for event in events if event["__typename"] == "LogMessageEvent"]

    def skipped(self, schedule: str) -> str:
        """Return why the last tick of a schedule asked for nothing; empty when it asked for runs."""
        query = """query S($selector: ScheduleSelector!) { scheduleOrError(scheduleSelector: $selector) {
            ... on Schedule { scheduleState { ticks(limit: 1) { skipReason } } } } }"""
        found = self.ask(query, selector={**LOCATION, "scheduleName": schedule})["scheduleOrError"]
        return _reason(found["scheduleState"]["ticks"])

    def skipped_sensor(self, sensor: str) -> str:
        """Return the same of a sensor."""
        query = """query S($selector: SensorSelector!) { sensorOrError(sensorSelector: $selector) {
            ... on Sensor { sensorState { ticks(limit: 1) { skipReason } } } } }"""
        found = self.ask(query, selector={**LOCATION, "sensorName": sensor})["sensorOrError"]
        return _reason(found["sensorState"]["ticks"])

    def terminate(self, run_id: str) -> None:
        query = "mutation T($id: String!) { terminateRun(runId: $id) { __typename } }"
        assert self.ask(query, id=run_id)["terminateRun"]["__typename"] == "TerminateRunSuccess"


def _reason(ticks: list[dict[str, Any]]) -> str:
    return (ticks[0]["skipReason"] or "") if ticks else ""


def wait_for(what: str, found: Callable[[], Any], seconds: float) -> Any:
    """Return the first answer that is true; fail when none is in time."""
    end = time.monotonic() + seconds
    while not (answer := found()):
        assert time.monotonic() < end, f"{what}: not within {seconds:.0f} s"
        time.sleep(0.5)
    return answer
