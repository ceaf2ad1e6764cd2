"""Every code of the closed list, fired by a publication that was tampered with in just this way."""

from __future__ import annotations

import dataclasses
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from casebits_dagster.frontier import root_of
from casebits_dagster.publication.consume import Frontier, open_frontier
from casebits_dagster.publication.frontier import advance_frontier
from casebits_dagster.publication.open_gates import write_gates
from casebits_dagster.publication.place import open_place
from casebits_dagster.publication.send import publish_frontier
from casebits_dagster.publication.stratification import write_stratification
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.errors import REFUSAL_CODES, Refused
from casebits_dagster.records.frontier import GatesPointer, Latest, Manifest
from casebits_dagster.records.gates import Gates
from casebits_dagster.records.layout import ADMISSION, GenerationFolder, Home
from casebits_dagster.records.pins import Generation, load_generation
from casebits_dagster.stores.hub import Patience
from casebits_dagster.stores.hub_repository import HubRepository
from tests.publication.test_consume import (
    AT_ONCE,
    LIES,
    NOW,
    ON_FIRST_USE,
    manifest_of,
    resign,
    rewrite_latest,
    rewrite_manifest,
)
from tests.stores.conftest import set_environment
from tests.stores.hub_server import hub_server
from tests.stores.s3_server import BUCKET, rclone

DOC = Path(__file__).parents[2] / "docs" / "refusals.md"


@dataclass
class World:
    """A home whose frontier has two versions, gates included, and the trust file of a reader who saw the first."""

    home: Home
    generation: Generation
    trust: Path
    monkeypatch: pytest.MonkeyPatch

    @property
    def folder(self) -> GenerationFolder:
        return self.home.generation("sample")

    def open(self) -> Frontier:
        return open_frontier(self.folder.root, trust=self.trust)

    def publish(self, **changes: object) -> None:
        """Publish the frontier under pins that say otherwise of the source."""
        source = self.generation.source
        pin = dataclasses.replace(source.pin, **changes)  # type: ignore[arg-type]
        generation = dataclasses.replace(self.generation, source=dataclasses.replace(source, pin=pin))
        publish_frontier(generation, self.home, str(self.home.root / "published"), now=NOW, say=lambda _: None)


@pytest.fixture(scope="module")
def two_versions(sample_home: Home, pins: Path, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """The sample generation in two steps: the regions before number 7, and then all."""
    home, generation = Home(tmp_path_factory.mktemp("codes") / "home"), load_generation(pins, "sample")
    shutil.copytree(sample_home.generation("sample").root, home.generation("sample").root)
    folder = home.generation("sample")
    shutil.rmtree(folder.manifests.parent)
    folder.latest.unlink()
    admission, aside = folder.region(7) / ADMISSION, home.root / "aside"
    admission.rename(aside)
    advance_frontier(generation, home, now=NOW)
    open_frontier(folder.root, trust=home.root / "trust.json")
    aside.rename(admission)
    advance_frontier(generation, home, now=NOW)
    write_stratification("sample", home)
    write_gates(generation, home)
    return home


@pytest.fixture
def world(two_versions: Home, pins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    home = Home(tmp_path / "home")
    shutil.copytree(two_versions.root, home.root)
    return World(home, load_generation(pins, "sample"), home.root / "trust.json", monkeypatch)


def back_to_one(world: World) -> None:
    """Take the second version back, after the reader saw it."""
    world.open()
    raw = world.folder.manifest(1).read_bytes()
    latest = Latest.parse(world.folder.latest.read_bytes(), "l")
    pointer = dataclasses.replace(
        latest.manifest, path="frontier/manifests/00000001.json", sha256=sha256(raw), bytes=len(raw),
        revision=f"sha256:{sha256(raw)}",
    )  # fmt: skip
    manifest = Manifest.parse(raw, "m")
    rewrite_latest(
        world.folder, version=1, manifest=pointer, gates=None, count=manifest.count, tree_root=manifest.tree_root,
        status="building",
    )  # fmt: skip


def rewrite_history(world: World) -> None:
    """List the first region otherwise than the version before did."""
    manifest = Manifest.parse(world.folder.manifest(2).read_bytes(), "m")
    entries = (dataclasses.replace(manifest.regions[0], content_id="0" * 64), *manifest.regions[1:])
    rewrite_manifest(world.folder, regions=entries, tree_root=root_of(entries))
    rewrite_latest(world.folder, tree_root=root_of(entries))


def open_a_gate(world: World) -> None:
    """Say that production is open, hashes and all."""
    latest = Latest.parse(world.folder.latest.read_bytes(), "l")
    if latest.gates is None:
        raise LookupError("no gates")
    gates = Gates.parse((world.folder.root / latest.gates.path).read_bytes(), "g")
    said = dataclasses.replace(gates.production, state="open", why="signed by nobody")
    raw = dataclasses.replace(gates, production=said).to_bytes()
    path = world.folder.gates(2, sha256(raw))
    path.write_bytes(raw)
    rewrite_latest(world.folder, gates=GatesPointer(path=world.folder.name(path), sha256=sha256(raw)))


def without_clearance(world: World) -> None:
    pins = world.home.root / "pins"
    shutil.copytree(world.generation.source.pins_folder, pins)
    shutil.rmtree(pins / "clearances")
    world.generation = load_generation(pins, "sample")
    world.publish()


def of_other_source(world: World) -> None:
    resign(world.folder, lambda r: dataclasses.replace(r, source=dataclasses.replace(r.source, revision="0" * 40)))
    shutil.rmtree(world.folder.manifests)
    world.folder.latest.unlink()
    advance_frontier(world.generation, world.home, now=NOW)


def ask_for_a_token(world: World) -> None:
    with hub_server() as server:
        server.put("owner/name", "a" * 40, "LATEST.json", b"{}")
        server.token = "secret"
        world.monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        world.monkeypatch.delenv("HF_TOKEN", raising=False)
        open_frontier("hf://datasets/owner/name", cache=world.home.root / "cache")


def ignore_conditions(world: World) -> None:
    (folder := world.home.root / "rclone").mkdir()
    with rclone(folder) as server:
        set_environment(world.monkeypatch, server.port)
        open_frontier(f"s3://{BUCKET}/a", cache=world.home.root / "cache")


def nobody_answers(_: World) -> None:
    HubRepository("owner/name", "http://127.0.0.1:9", Patience(attempts=1)).head()


def _firing() -> dict[str, Callable[[World], object]]:
    """Return what fires each code: the tampering of `test_consume`, and what needs more than a folder."""
    firing: dict[str, Callable[[World], object]] = {}
    for code, tamper, _ in (*AT_ONCE, *ON_FIRST_USE, *LIES):
        firing.setdefault(code, lambda world, tamper=tamper: _all_after(world, tamper))  # type: ignore[misc]
    return firing | {
        "REVISION_NOT_PINNED": lambda w: _after(w, lambda: rewrite_latest(w.folder, manifest=_on_a_branch(w))),
        "ROLLBACK": lambda w: _after(w, lambda: back_to_one(w)),
        "EQUIVOCATION": lambda w: _after(w, lambda: _other_manifest(w)),
        "STALE_FRONTIER": lambda w: _after(w, lambda: rewrite_latest(w.folder, expires_at="2026-01-01T00:00:00Z")),
        "HISTORY_REWRITTEN": lambda w: _after(w, lambda: rewrite_history(w)),
        "VOCAB_MISMATCH": lambda w: _all_after(w, lambda f: _without_mixture(f)),
        "GATE_UNPROVEN": lambda w: _after(w, lambda: open_a_gate(w)),
        "SOURCE_PIN": of_other_source,
        "LICENCE_MISSING": lambda w: w.publish(licence_spdx="NOASSERTION"),
        "CLEARANCE_MISSING": without_clearance,
        "STORE_FORBIDDEN": ask_for_a_token,
        "STORE_NO_CAS": ignore_conditions,
        "STORE_PROTOCOL": lambda _: open_place("s3://no_bucket!"),
        "STORE_UNREACHABLE": nobody_answers,
    }


FIRING = _firing()


@pytest.mark.parametrize("code", sorted(REFUSAL_CODES))
def test_each_code_is_fired_by_a_tampered_publication(world: World, code: str) -> None:
    with pytest.raises(Refused) as caught:
        FIRING[code](world)
    assert caught.value.code == code


def test_the_table_of_the_documents_has_just_these_codes() -> None:
    rows = re.findall(r"^\| ([A-Z_]+) \| [^|]+ \| [^|]+ \|$", DOC.read_text(), re.MULTILINE)
    assert (sorted(rows), sorted(FIRING)) == (sorted(REFUSAL_CODES), sorted(REFUSAL_CODES))


def test_a_refusal_leaves_the_trust_as_it_was(world: World) -> None:
    before = world.trust.read_bytes()
    rewrite_history(world)
    with pytest.raises(Refused, match="HISTORY_REWRITTEN"):
        world.open()
    assert world.trust.read_bytes() == before
    assert re.search(rb'"version":1}', before) is not None


def test_a_publication_is_believed_until_it_expires(world: World) -> None:
    rewrite_latest(world.folder, expires_at="2026-01-02T00:00:00Z")
    last = NOW + timedelta(hours=23, minutes=59)
    assert open_frontier(world.folder.root, now=last).manifest.version == 2
    with pytest.raises(Refused, match=r"STALE_FRONTIER .*expected before 2026-01-02T00:00:00Z, read 2026-01-02"):
        open_frontier(world.folder.root, now=last + timedelta(minutes=1))


def test_a_moment_without_a_zone_is_refused(world: World) -> None:
    rewrite_latest(world.folder, expires_at="2026-01-02")
    with pytest.raises(Refused, match=r"JSON_INVALID LATEST.json: expires_at: expected a moment"):
        open_frontier(world.folder.root)


def _after(world: World, tamper: Callable[[], object]) -> None:
    """Open both before and after: what is refused was fine."""
    open_frontier(world.folder.root)
    tamper()
    world.open()


def _all_after(world: World, tamper: Callable[[GenerationFolder], object]) -> None:
    """A folder of one version, as the tampering of `test_consume` knows it; everything in it is verified."""
    folder = world.folder
    shutil.rmtree(folder.manifests)
    folder.latest.unlink()
    advance_frontier(world.generation, world.home, now=NOW)
    open_frontier(folder.root)
    tamper(folder)
    open_frontier(folder.root).verify_all()


def _on_a_branch(world: World) -> object:
    pointer = Latest.parse(world.folder.latest.read_bytes(), "l").manifest
    return dataclasses.replace(pointer, revision="main")


def _without_mixture(folder: GenerationFolder) -> None:
    rewrite_manifest(folder, codec=manifest_of(folder).codec[1:])


def _other_manifest(world: World) -> None:
    """Show a reader who saw the second version another one under its number: a region less."""
    world.open()
    manifest = Manifest.parse(world.folder.manifest(2).read_bytes(), "m")
    entries = manifest.regions[:-1]
    rewrite_manifest(world.folder, regions=entries, count=len(entries), tree_root=root_of(entries))
    rewrite_latest(world.folder, count=len(entries), tree_root=root_of(entries), status="building")
