"""What the gates and a publication show on their pages."""

from __future__ import annotations

from casebits_dagster.orchestration.metadata import Metadata, table, upstream
from casebits_dagster.orchestration.partitions import asset_key
from casebits_dagster.orchestration.stages import FRONTIER
from casebits_dagster.publication.open_gates import WrittenGates
from casebits_dagster.publication.send import Sent


def gates(done: WrittenGates) -> Metadata:
    """Return the page of the gates."""
    found = done.gates
    rows = []
    for name, gate in found.named.items():
        numbers = ", ".join(f"{key} {value}" for key, value in gate.numbers.items())
        rows.append({"gate": name, "state": gate.state.replace("_", " "), "why": gate.why, "numbers": numbers})
    return {
        "open": ", ".join(name for name, gate in found.named.items() if gate.state == "open") or "none",
        "gates": table(rows),
        "frontier_version": found.version,
        "file": done.path,
        "gates_sha256": done.sha256,
        "written": "LATEST.json names these gates now" if done.changed else "nothing changed",
        "made_from": [upstream(asset_key(found.generation, FRONTIER), found.manifest_sha256)],
        "next": "a publication carries the gates with their evidence; its card says no more than they do.",
    }


def publication(done: Sent, generation: str) -> Metadata:
    """Return the page of a publication."""
    return {
        "destination": done.destination,
        "version": done.version,
        "files": done.files,
        "bytes": done.size_bytes,
        "revision": done.published.revision,
        "sent_files": done.published.sent_files,
        "sent_bytes": done.published.sent_bytes,
        "written": "LATEST.json names this version now" if done.published.changed else "it stood there before",
        "manifest_sha256": done.manifest_sha256,
        "made_from": [upstream(asset_key(generation, FRONTIER), done.manifest_sha256)],
        "audit": f"casebits verify frontier {done.destination} reads all of it as a stranger does",
        "next": "a published frontier stays: what is listed is listed in every later version.",
    }
