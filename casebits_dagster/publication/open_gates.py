"""Evaluate the gates of a frontier version, publish them with their evidence, and make LATEST.json name them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from casebits_dagster.gates import PackedEvidence, evaluate, stratification
from casebits_dagster.mixing.verify import VerifiedMix
from casebits_dagster.publication.consume import Frontier, open_frontier
from casebits_dagster.publication.frontier import pull_frontier
from casebits_dagster.publication.gates import packed_evidence
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.frontier import GatesPointer
from casebits_dagster.records.gates import CheckedMix, Evidence, Gate, Gates
from casebits_dagster.records.layout import Home
from casebits_dagster.records.mix import MANIFEST, REPORT, MixReport
from casebits_dagster.records.pins import Generation
from casebits_dagster.records.record import Record
from casebits_dagster.records.signed import SignOff, sign_offs
from casebits_dagster.records.stratification import StratificationReport
from casebits_dagster.records.tolerances import pinned_tolerances
from casebits_dagster.stores.local import LocalStore
from casebits_dagster.stores.regions import sha256_if_there, shared_store


@dataclass(frozen=True, slots=True)
class WrittenGates:
    """The gates as published; `changed` says whether LATEST.json names others than before."""

    gates: Gates
    path: Path
    sha256: str
    changed: bool


def keep_verdict(verified: VerifiedMix, home: Home) -> None:
    """Keep what the verifier proved of a mix below the home: the packing gate rests on it."""
    store, name = LocalStore(home.root, home.staging), home.name(home.checked(verified.report.recipe.mix))
    before = store.get(name) if store.exists(name) else None
    # Another run that verified the same mix meanwhile wrote the same.
    store.replace(name, before, verified.record().to_bytes())


def write_gates(generation: Generation, home: Home) -> WrittenGates:
    """Evaluate the gates of the newest frontier version and publish them.

    Of several runs at once each ends with the gates of the newest version; what another machine's mixes proved of the
    same version is kept. Raises as `open_frontier` does.
    """
    while True:
        pull_frontier(home, generation.name)
        frontier = open_frontier(home.root, generation.name)
        gates = _evaluated(generation, frontier, home)
        raw, folder = gates.to_bytes(), frontier.folder
        path = folder.gates(gates.version, sha256(raw))
        _put(home, path, raw)
        pointer = GatesPointer(path=folder.name(path), sha256=sha256(raw))
        changed = frontier.latest.gates != pointer
        if not changed or _swap(home, frontier, pointer):
            pull_frontier(home, generation.name)
            return WrittenGates(gates, path, sha256(raw), changed)


def _evaluated(generation: Generation, frontier: Frontier, home: Home) -> Gates:
    pointer = frontier.latest.manifest
    return evaluate(
        frontier.manifest,
        Evidence(path=pointer.path, sha256=pointer.sha256),
        _stratification(generation, frontier, home),
        _packed(frontier, home),
        _signed(generation, frontier, home),
    )


def _stratification(generation: Generation, frontier: Frontier, home: Home) -> Gate:
    """Return the gate, with the report of this version and the tolerances as evidence, so far as they are there."""
    manifest, digest, evidence = frontier.manifest, frontier.manifest_sha256, []
    tolerances = pinned_tolerances(generation.source.pins_folder, generation.name)
    path, report = frontier.folder.stratification(manifest.version), None
    if path.is_file():
        report = StratificationReport.parse(path.read_bytes(), frontier.folder.name(path))
        evidence.append(_evidence(frontier, home, "stratification", report))
        if tolerances:
            evidence.append(_evidence(frontier, home, "tolerances", tolerances))
    return stratification(manifest, digest, report, tolerances, evidence)


def _packed(frontier: Frontier, home: Home) -> list[PackedEvidence]:
    """Return the mixes that lie here as they were when the verifier passed them, and those that stand as evidence."""
    standing = packed_evidence(frontier.place, frontier.gates.packing.evidence) if frontier.gates else []
    found = {mix.checked.mix: mix for mix in standing}
    for path in sorted((home.root / "checked").glob("*.json")):
        checked = CheckedMix.parse(path.read_bytes(), home.name(path))
        folder = home.mix(checked.mix)
        if sha256_if_there(folder / MANIFEST) == checked.manifest_sha256:
            report = MixReport.parse((folder / REPORT).read_bytes(), f"mixes/{checked.mix}/{REPORT}")
            parts = {"checked": checked, "report": report}
            files = [_evidence(frontier, home, f"{checked.mix}.{part}", record) for part, record in parts.items()]
            found[checked.mix] = PackedEvidence(checked, report, files[1].sha256, tuple(files))
    return [found[name] for name in sorted(found)]


def _signed(generation: Generation, frontier: Frontier, home: Home) -> tuple[SignOff, Evidence] | None:
    """Return the pin of a person for this manifest; of another one there is nothing to say."""
    for pin in sign_offs(generation.source.pins_folder):
        if (pin.generation, pin.manifest_sha256) == (generation.name, frontier.manifest_sha256):
            return pin, _evidence(frontier, home, "sign-off", pin)
    return None


def _evidence(frontier: Frontier, home: Home, name: str, record: Record) -> Evidence:
    raw = record.to_bytes()
    path = frontier.folder.evidence(name, sha256(raw))
    _put(home, path, raw)
    return Evidence(path=frontier.folder.name(path), sha256=sha256(raw))


def _put(home: Home, path: Path, content: bytes) -> None:
    """Publish a file at home, and in the store that machines share."""
    LocalStore(home.root, home.staging).put_new(home.name(path), content)
    if store := shared_store(home):
        store.put_new(home.name(path), content)


def _swap(home: Home, frontier: Frontier, gates: GatesPointer) -> bool:
    """Make LATEST name the gates, unless another run has moved it meanwhile."""
    latest = replace(frontier.latest, gates=gates)
    store = shared_store(home) or LocalStore(home.root, home.staging)
    return store.replace(home.name(frontier.folder.latest), frontier.latest.to_bytes(), latest.to_bytes())
