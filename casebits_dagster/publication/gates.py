"""The gates of a published frontier: evaluated again from the evidence that is published beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from casebits_dagster.gates import PackedEvidence, evaluate, stratification
from casebits_dagster.publication.place import Place
from casebits_dagster.publication.verify_region import parsed, require_file
from casebits_dagster.records.errors import Refused
from casebits_dagster.records.frontier import GatesPointer, Latest, Manifest
from casebits_dagster.records.gates import GATES, CheckedMix, Evidence, Gate, Gates
from casebits_dagster.records.mix import MixReport
from casebits_dagster.records.record import Record
from casebits_dagster.records.signed import SignOff
from casebits_dagster.records.stratification import StratificationReport
from casebits_dagster.records.tolerances import Tolerances

R = TypeVar("R", bound=Record)


def read_gates(place: Place, latest: Latest, manifest: Manifest) -> Gates | None:
    """Return the gates that LATEST names, or None when it names none.

    Raises FILE_MISSING, FILE_HASH or what is wrong with a record for the gates or their evidence, and GATE_UNPROVEN
    when the evidence does not say what the gates say.
    """
    if latest.gates is None:
        return None
    where = latest.gates.path
    gates = parsed(Gates, _bytes(place, latest.gates), where)
    file = Evidence(path=latest.manifest.path, sha256=latest.manifest.sha256)
    proven = evaluate(
        manifest,
        file,
        _stratification(place, gates.stratification.evidence, manifest, file.sha256),
        packed_evidence(place, gates.packing.evidence),
        _signed(place, gates.production.evidence),
    )
    for name in ("generation", "version", "manifest_sha256", *GATES):
        said, found = getattr(gates, name), getattr(proven, name)
        if said != found:
            expected, read = (f"{gate.state}: {gate.why}" if isinstance(gate, Gate) else gate for gate in (found, said))
            problem = "the published evidence does not say so"
            raise Refused("GATE_UNPROVEN", f"{where}: {name}", problem, expected=expected, read=read)
    return gates


def _stratification(place: Place, evidence: Sequence[Evidence], manifest: Manifest, digest: str) -> Gate:
    report = _record(StratificationReport, place, evidence[0]) if evidence else None
    tolerances = _record(Tolerances, place, evidence[1]) if evidence[1:] else None
    return stratification(manifest, digest, report, tolerances, evidence)


def packed_evidence(place: Place, evidence: Sequence[Evidence]) -> list[PackedEvidence]:
    """Return the mixes of a packing gate: each has its verdict and its report among the evidence, in this order."""
    return [
        PackedEvidence(
            _record(CheckedMix, place, checked), _record(MixReport, place, report), report.sha256, (checked, report)
        )
        for checked, report in zip(evidence[::2], evidence[1::2], strict=False)
    ]


def _signed(place: Place, evidence: Sequence[Evidence]) -> tuple[SignOff, Evidence] | None:
    return (_record(SignOff, place, evidence[0]), evidence[0]) if evidence else None


def _record(kind: type[R], place: Place, file: Evidence) -> R:
    return parsed(kind, _bytes(place, file), file.path)


def _bytes(place: Place, file: Evidence | GatesPointer) -> bytes:
    place.mend(file.path, file.sha256)
    path = place.bring(file.path, digest=file.sha256)
    size = path.stat().st_size if path.is_file() else 0
    require_file(path, file.path, size, file.sha256)
    return path.read_bytes()
