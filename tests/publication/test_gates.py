"""The gates: open only while their evidence says so, for whoever publishes and for whoever reads."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from casebits_dagster.frontier import root_of
from casebits_dagster.gates import PackedEvidence, evaluate, stratification
from casebits_dagster.mixing.verify import VerifiedMix, verify_mix
from casebits_dagster.publication.consume import open_frontier
from casebits_dagster.publication.frontier import advance_frontier
from casebits_dagster.publication.open_gates import keep_verdict, write_gates
from casebits_dagster.publication.stratification import write_stratification
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.errors import RecordError, Refused
from casebits_dagster.records.frontier import Latest, Manifest
from casebits_dagster.records.gates import GATES, Evidence, Gate, Gates
from casebits_dagster.records.layout import ADMISSION, Home
from casebits_dagster.records.pins import Generation, load_generation
from casebits_dagster.records.signed import Clearance, SignedMix, SignOff, clearances, sign_offs
from tests.publication.test_consume import NOW

MIX = "sample_interleaved"


@pytest.fixture(scope="module")
def verified(sample_home: Home) -> VerifiedMix:
    return verify_mix(sample_home.mix(MIX), sample_home)


@pytest.fixture
def home(sample_home: Home, tmp_path: Path) -> Home:
    """A copy of the sample's generation and of one of its mixes."""
    home = Home(tmp_path / "home")
    shutil.copytree(sample_home.generation("sample").root, home.generation("sample").root)
    shutil.copytree(sample_home.mix(MIX), home.mix(MIX))
    return home


@pytest.fixture
def generation(pins: Path, tmp_path: Path) -> Generation:
    """The sample under pins of its own, to which a test adds what a person signs."""
    folder = tmp_path / "pins"
    shutil.copytree(pins, folder)
    return load_generation(folder, "sample")


def states(gates: Gates) -> dict[str, str]:
    return {name: getattr(gates, name).state for name in GATES}


def sign(generation: Generation, home: Home, *mixes: tuple[str, str], **changes: object) -> None:
    """Write the pin of a person, and evaluate the gates anew."""
    frontier = open_frontier(home.root, "sample")
    pin = SignOff(
        generation="sample",
        version=frontier.manifest.version,
        manifest_sha256=frontier.manifest_sha256,
        mixes=tuple(SignedMix(mix=name, manifest_sha256=digest) for name, digest in mixes),
        signed_by="Ada Lovelace",
        signed_on="2026-01-03",
        statement="Two hundred windows were read.",
    )
    pin = dataclasses.replace(pin, **changes)  # type: ignore[arg-type]
    lines = [f'{key} = "{value}"' for key, value in pin.to_dict().items() if isinstance(value, str)]
    tables = [f'[[mixes]]\nmix = "{one.mix}"\nmanifest_sha256 = "{one.manifest_sha256}"' for one in pin.mixes]
    folder = generation.source.pins_folder / "production"
    folder.mkdir(exist_ok=True)
    text = "\n".join([*lines, f"version = {pin.version}", *([] if tables else ["mixes = []"]), *tables]) + "\n"
    (folder / "one.toml").write_text(text)


def test_each_gate_is_what_its_evidence_says(generation: Generation, home: Home, verified: VerifiedMix) -> None:
    home.generation("sample").stratification(1).unlink()
    done = write_gates(generation, home)
    assert (states(done.gates), done.changed) == (
        {"coverage": "open", "stratification": "closed", "packing": "closed", "production": "closed"},
        True,
    )
    assert {name: getattr(done.gates, name).why for name in GATES} == {
        "coverage": "14 of the 14 planned regions are admitted",
        "stratification": "no report was made of this version",
        "packing": "no verified mix was built on this version",
        "production": "no person has signed this version",
    }
    keep_verdict(verified, home)
    write_stratification("sample", home)
    sign(generation, home, (MIX, verified.manifest_sha256))
    done = write_gates(generation, home)
    assert (done.gates.packing.state, done.gates.packing.why) == (
        "open",
        f"built on this version and verified: {MIX}",
    )
    why = "signed by Ada Lovelace on 2026-01-03: Two hundred windows were read."
    assert (done.gates.production.state, done.gates.production.why) == ("open", why)
    assert len(done.gates.stratification.evidence) == 2
    opened = open_frontier(home.generation("sample").root)
    assert (opened.gates, opened.latest.gates and opened.latest.gates.sha256) == (done.gates, done.sha256)
    assert write_gates(generation, home).changed is False


@pytest.mark.parametrize(
    ("mixes", "changes", "why"),
    [
        ([], {}, "Ada Lovelace signed no mix"),
        ([(MIX, "0" * 64)], {}, f"Ada Lovelace signed the mix {MIX} by a hash that is not verified"),
        ([("other", "0" * 64)], {}, "Ada Lovelace signed the mix other by a hash that is not verified"),
        ([(MIX, "")], {"version": 7}, "Ada Lovelace signed another manifest"),
    ],
)
def test_a_sign_off_opens_nothing_but_what_it_names(
    generation: Generation,
    home: Home,
    verified: VerifiedMix,
    mixes: list[tuple[str, str]],
    changes: dict[str, object],
    why: str,
) -> None:
    keep_verdict(verified, home)
    sign(generation, home, *((name, digest or verified.manifest_sha256) for name, digest in mixes), **changes)
    gate = write_gates(generation, home).gates.production
    assert (gate.state, gate.why) == ("closed", why)


def test_a_sign_off_of_another_manifest_is_none(generation: Generation, home: Home) -> None:
    sign(generation, home, manifest_sha256="0" * 64)
    assert write_gates(generation, home).gates.production.why == "no person has signed this version"


def test_a_mix_that_changed_since_it_was_verified_opens_nothing(
    generation: Generation, home: Home, verified: VerifiedMix
) -> None:
    keep_verdict(verified, home)
    manifest = home.mix(MIX) / "MANIFEST.txt"
    manifest.write_bytes(manifest.read_bytes() + b"\n")
    assert states(write_gates(generation, home).gates)["packing"] == "closed"


def test_a_new_version_has_no_gate_until_they_are_evaluated(
    generation: Generation, home: Home, verified: VerifiedMix
) -> None:
    """Nothing is carried over: neither the report nor the mix nor the signature is of the new manifest."""
    folder = home.generation("sample")
    shutil.rmtree(folder.manifests)
    folder.latest.unlink()
    shutil.rmtree(folder.root / "stratification")
    (folder.region(13) / ADMISSION).rename(home.root / "aside")
    advance_frontier(generation, home, now=NOW)
    keep_verdict(verified, home)
    first = write_gates(generation, home).gates
    assert states(first) == dict.fromkeys(GATES, "closed")
    assert first.coverage.why == "13 of the 14 planned regions are admitted"
    (home.root / "aside").rename(folder.region(13) / ADMISSION)
    advance_frontier(generation, home, now=NOW)
    assert open_frontier(home.root, "sample").gates is None
    second = write_gates(generation, home).gates
    assert (states(second)["coverage"], second.version) == ("open", 2)
    assert [path.name.partition(".")[0] for path in sorted((folder.root / "gates").glob("*.json"))] == [
        "00000001",
        "00000002",
    ]


def test_evidence_of_other_machines_stays(generation: Generation, home: Home, verified: VerifiedMix) -> None:
    """A mix that lies on another machine was verified there: its evidence is published, and stands."""
    keep_verdict(verified, home)
    first = write_gates(generation, home).gates
    home.checked(MIX).unlink()
    shutil.rmtree(home.mix(MIX))
    assert write_gates(generation, home).gates == first


def spoil(home: Home, change: Callable[[Gates], Gates]) -> None:
    """Publish other gates, by their true hash."""
    folder = home.generation("sample")
    latest = Latest.parse(folder.latest.read_bytes(), "l")
    pointer = latest.gates or pytest.fail("no gates")
    raw = change(Gates.parse((folder.root / pointer.path).read_bytes(), "g")).to_bytes()
    (folder.root / pointer.path).write_bytes(raw)
    spoiled = dataclasses.replace(latest, gates=dataclasses.replace(pointer, sha256=sha256(raw)))
    folder.latest.write_bytes(spoiled.to_bytes())


def gate_without(gates: Gates, name: str) -> Gates:
    return dataclasses.replace(gates, **{name: dataclasses.replace(getattr(gates, name), evidence=())})


LIES: list[tuple[str, Callable[[Gates], Gates]]] = [
    ("coverage", lambda g: dataclasses.replace(g, coverage=dataclasses.replace(g.coverage, state="closed"))),
    ("coverage", lambda g: dataclasses.replace(g, coverage=dataclasses.replace(g.coverage, numbers={"regions": 1}))),
    ("stratification", lambda g: gate_without(g, "stratification")),
    ("packing", lambda g: gate_without(g, "packing")),
    ("production", lambda g: gate_without(g, "production")),
    ("version", lambda g: dataclasses.replace(g, version=2)),
    ("manifest_sha256", lambda g: dataclasses.replace(g, manifest_sha256="0" * 64)),
    ("generation", lambda g: dataclasses.replace(g, generation="other")),
]


@pytest.mark.parametrize(("field", "change"), LIES)
def test_gates_that_say_another_thing_than_their_evidence_are_refused(
    generation: Generation, home: Home, verified: VerifiedMix, field: str, change: Callable[[Gates], Gates]
) -> None:
    keep_verdict(verified, home)
    sign(generation, home, (MIX, verified.manifest_sha256))
    write_gates(generation, home)
    spoil(home, change)
    with pytest.raises(Refused, match=rf"GATE_UNPROVEN gates/00000001\.[0-9a-f]+\.json: {field}: the published"):
        open_frontier(home.root, "sample")


@pytest.mark.parametrize("kind", ["checked", "report", "tolerances"])
def test_evidence_that_changed_or_went_is_refused(
    generation: Generation, home: Home, verified: VerifiedMix, kind: str
) -> None:
    keep_verdict(verified, home)
    write_gates(generation, home)
    folder = home.generation("sample")
    path = next((folder.root / "gates" / "evidence").glob(f"*{kind}.*"))
    raw = path.read_bytes()
    path.write_bytes(raw[:-2] + b" \n")
    with pytest.raises(Refused, match=f"FILE_HASH gates/evidence/{path.name}"):
        open_frontier(folder.root)
    path.unlink()
    with pytest.raises(Refused, match=f"FILE_MISSING gates/evidence/{path.name}"):
        open_frontier(folder.root)


def test_a_report_of_a_mix_that_is_not_the_verified_one_proves_nothing(home: Home, verified: VerifiedMix) -> None:
    frontier = open_frontier(home.root, "sample")
    file = Evidence(path="m.json", sha256=frontier.manifest_sha256)
    report, closed = verified.report, Gate(state="closed", why="-", evidence=(), numbers={})
    digest = sha256(report.to_bytes())

    def packing(
        record: object = verified.record(), digest: str = digest, manifest: Manifest = frontier.manifest
    ) -> str:
        mix = PackedEvidence(record, report, digest, (file, file))  # type: ignore[arg-type]
        return evaluate(manifest, file, closed, [mix], None).packing.state

    assert packing() == "open"
    assert packing(digest="0" * 64) == "closed"
    assert packing(dataclasses.replace(verified.record(), checks=())) == "closed"
    assert packing(dataclasses.replace(verified.record(), mix="other")) == "closed"
    shorter = frontier.manifest.regions[:-1]
    manifest = dataclasses.replace(frontier.manifest, version=2, regions=shorter, count=13, tree_root=root_of(shorter))
    assert packing(manifest=manifest) == "closed"


def test_tolerances_of_another_generation_are_none(generation: Generation, home: Home) -> None:
    frontier = open_frontier(home.root, "sample")
    report = write_stratification("sample", home).report
    from casebits_dagster.records.tolerances import pinned_tolerances

    pinned = pinned_tolerances(generation.source.pins_folder, "sample") or pytest.fail("not pinned")
    other = dataclasses.replace(pinned, generation="other")
    gate = stratification(frontier.manifest, frontier.manifest_sha256, report, other, ())
    assert (gate.state, gate.why) == ("closed", "no tolerances are pinned for sample")


def test_what_a_person_signs_is_read_from_pins(pins: Path, tmp_path: Path) -> None:
    assert [pin.generation for pin in clearances(pins)] == ["sample"]
    assert (sign_offs(pins), clearances(tmp_path)) == ([], [])
    (tmp_path / "clearances").mkdir()
    (tmp_path / "clearances" / "a.toml").write_text('generation = "a"\ncleared_on = "yesterday"\n')
    with pytest.raises(RecordError, match=r"a.toml: repo: field is missing"):
        clearances(tmp_path)
    day = dict.fromkeys(Clearance.__slots__, "x") | {"revision": "0" * 40, "cleared_on": "yesterday"}
    with pytest.raises(RecordError, match="cleared_on: expected a day as YYYY-MM-DD, read"):
        Clearance.from_dict(day, "pin")
