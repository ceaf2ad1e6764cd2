"""A publication that lies elsewhere: fetched as it is used, hashed on the way in, and remembered."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from casebits_dagster.publication.consume import Frontier, open_frontier
from casebits_dagster.publication.open_gates import write_gates
from casebits_dagster.publication.open_mix import open_mix
from casebits_dagster.publication.place import open_place
from casebits_dagster.publication.send import publish_frontier, publish_mix
from casebits_dagster.records.errors import RecordError, Refused
from casebits_dagster.records.frontier import Latest
from casebits_dagster.records.layout import DOCUMENTS, IDS, LATEST, Home
from casebits_dagster.records.pins import Generation, load_generation
from casebits_dagster.stores.base import WritableStore
from casebits_dagster.stores.object import object_store
from tests.publication.test_consume import NOW
from tests.publication.test_publish import REPO, Place, hub, server
from tests.stores.conftest import contract_server, s3_server, s3_url, serving

__all__ = ["contract_server", "hub", "s3_server", "s3_url", "server", "serving"]


@pytest.fixture(scope="module")
def gated(sample_home: Home, pins: Path, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """The sample generation with its gates, and a mix."""
    home = Home(tmp_path_factory.mktemp("gated") / "home")
    shutil.copytree(sample_home.generation("sample").root, home.generation("sample").root)
    shutil.copytree(sample_home.mix("sample_aligned"), home.mix("sample_aligned"))
    write_gates(load_generation(pins, "sample"), home)
    return home


@pytest.fixture
def generation(pins: Path) -> Generation:
    return load_generation(pins, "sample")


@pytest.fixture(params=["hub", "s3"])
def place(request: pytest.FixtureRequest, gated: Home, generation: Generation) -> Place:
    """Where the sample is published."""
    if request.param == "hub":
        found: Place = request.getfixturevalue("hub")
    else:
        url = request.getfixturevalue("s3_url")
        found = Place(url, object_store(url))
    publish_frontier(generation, gated, found.url, now=NOW, say=found.said.append)
    return found


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def fetched(frontier: Frontier) -> list[str]:
    root = frontier.folder.root
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


def test_what_is_published_is_what_was_made(place: Place, gated: Home, cache: Path) -> None:
    frontier, home = open_frontier(place.url, cache=cache), open_frontier(gated.root, "sample")
    assert (frontier.manifest, frontier.gates) == (home.manifest, home.gates)
    assert [path for path in fetched(frontier) if path.startswith(("regions/", "index/"))] == []
    document = frontier.documents("train")[0]
    assert document.text == home.documents("train")[0].text
    assert [path for path in fetched(frontier) if path.startswith("regions/00000/")] == [
        f"regions/00000/{file.name}" for file in home.manifest.regions[0].files
    ]
    assert [path for path in fetched(frontier) if path.startswith("regions/00001/")] == []
    frontier.verify_all()
    assert [one.id for one in frontier.documents()] == [one.id for one in home.documents()]


def test_a_second_reader_of_the_cache_fetches_nothing_of_a_region(place: Place, cache: Path) -> None:
    open_frontier(place.url, cache=cache).region(0)
    again = open_frontier(place.url, cache=cache)
    if place.store:
        again.place.store = _Deaf(place.store)
    assert len(again.region(0)) == again.manifest.regions[0].documents


class _Deaf:
    """A store that lists and fetches nothing."""

    def __init__(self, store: WritableStore) -> None:
        self.list = store.list
        self.read_range, self.size, self.get = store.read_range, store.size, store.get

    def fetch(self, path: str, target: Path) -> str:
        raise LookupError(path)


@pytest.mark.parametrize("cut", [True, False])
def test_a_cache_that_went_bad_is_fetched_again(place: Place, cache: Path, cut: bool) -> None:
    frontier = open_frontier(place.url, cache=cache)
    frontier.region(0)
    for path in (
        frontier.folder.region(0) / IDS,
        frontier.folder.codec / "vocabulary.json",
        frontier.folder.manifest(1),
    ):
        raw = path.read_bytes()
        path.write_bytes(raw[:-1] if cut else raw[:-1] + bytes([raw[-1] ^ 1]))
    again = open_frontier(place.url, cache=cache)
    assert again.region(0).receipt.counts.tokens == again.manifest.regions[0].tokens


@pytest.mark.parametrize("name", [f"regions/00000/{IDS}", "codec/vocabulary.json", "frontier/manifests/00000001.json"])
def test_other_bytes_on_the_way_are_refused_and_not_kept(place: Place, cache: Path, name: str) -> None:
    raw = place.read(name) or b""
    at = "" if not place.server else place.latest().manifest.revision
    changed = raw[:-1] + bytes([raw[-1] ^ 1])
    if place.server:
        commit = place.server.hub.repos[REPO].at(at) or pytest.fail("no commit")
        commit.tree[name] = place.server.hub.large(changed)
    else:
        place.write(name, changed)
    with pytest.raises(Refused, match=r"^(FILE|MANIFEST)_HASH "):
        open_frontier(place.url, cache=cache).region(0)
    assert [path for path in cache.rglob("*.u16le") if path.read_bytes() == changed] == []


def test_a_file_that_nobody_listed_and_one_that_is_gone(place: Place, cache: Path) -> None:
    revision = place.latest().manifest.revision
    extra, gone = "regions/00000/notes.txt", f"regions/00001/{DOCUMENTS}"
    if place.server:
        commit = place.server.hub.repos[REPO].at(revision) or pytest.fail("no commit")
        commit.tree[extra] = place.server.hub.large(b"hello")
        del commit.tree[gone]
    elif place.store:
        place.store.put_new(extra, b"hello")
        pytest.importorskip("obstore").delete(place.store._writes, [gone])  # type: ignore[attr-defined]
    frontier = open_frontier(place.url, cache=cache)
    with pytest.raises(Refused, match=f"FILE_EXTRA {extra}: is not in the manifest"):
        frontier.region(0)
    with pytest.raises(Refused, match=f"FILE_MISSING {gone}"):
        frontier.region(1)


def test_what_was_seen_is_remembered_beside_the_cache(place: Place, cache: Path) -> None:
    seen = open_frontier(place.url, cache=cache).manifest
    trust = next(cache.glob("*.trust.json"))
    trust.write_bytes(trust.read_bytes().replace(b'"version":1', b'"version":2'))
    with pytest.raises(Refused, match=r"ROLLBACK LATEST.json: version: expected version 2 or later, read 1"):
        open_frontier(place.url, cache=cache)
    assert open_frontier(place.url, cache=cache, trust=cache / "other.json").manifest == seen


def test_latest_names_no_branch(place: Place, cache: Path) -> None:
    latest = place.latest()
    pointer = dataclasses.replace(latest.manifest, revision="main")
    place.write(LATEST, dataclasses.replace(latest, manifest=pointer).to_bytes())
    with pytest.raises(Refused, match=r"REVISION_NOT_PINNED LATEST.json: manifest.revision: expected .*, read main"):
        open_frontier(place.url, cache=cache)


def test_a_latest_that_is_too_large_is_not_fetched(place: Place, cache: Path) -> None:
    place.write(LATEST, b" " * 70_000)
    with pytest.raises(Refused, match=rf"LATEST_TOO_LARGE {place.url}/LATEST.json: expected at most 65536, read 70000"):
        open_frontier(place.url, cache=cache)


def test_where_nothing_is_published(place: Place, cache: Path) -> None:
    elsewhere = "hf://datasets/nobody/nothing" if place.server else f"{place.url}/nothing"
    with pytest.raises(Refused, match=rf"LATEST_MISSING {elsewhere}/LATEST.json: nothing is published here"):
        open_frontier(elsewhere, cache=cache)


def test_a_mix_is_fetched_and_verified(place: Place, gated: Home, generation: Generation, cache: Path) -> None:
    url = f"{place.url}-mix"
    publish_mix("sample_aligned", [generation], gated, url, now=NOW, say=lambda _: None)
    mix, built = open_mix(url, cache=cache), open_mix(gated.root, "sample_aligned")
    assert (mix.files, mix.report) == (built.files, built.report)
    name = "val_000000.ids.u16le"
    assert mix.file(name).read_bytes() == built.file(name).read_bytes()
    mix.verify_all()


def test_a_stranger_needs_ten_lines(place: Place, gated: Home, tmp_path: Path) -> None:
    """In a process of its own, with nothing but the package and the location."""
    script = f"""\
from casebits_dagster import open_frontier

frontier = open_frontier({place.url!r})
documents = frontier.documents("train")
print(len(documents), "documents;", frontier.gates.coverage.why)
print(documents[-1].text)
"""
    assert len(script.splitlines()) <= 10
    environment = {"CASEBITS_CACHE": str(tmp_path / "cache"), "PATH": "", "HOME": str(tmp_path)}
    environment |= {name: value for name, value in _environment().items() if name.startswith(("AWS_", "HF_"))}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False)
    text = open_frontier(gated.root, "sample").documents("train")[-1].text
    assert (done.stdout, done.returncode) == (
        f"898 documents; 14 of the 14 planned regions are admitted\n{text}\n",
        0,
    ), done.stderr


def _environment() -> dict[str, str]:
    import os

    return dict(os.environ)


def test_a_location_is_one_of_three(tmp_path: Path) -> None:
    for url in ("http://example.org/a", "hf://datasets/only-one", "hf://models/a/b", "memory://"):
        with pytest.raises(RecordError, match=r"PATH_UNSAFE location: expected a folder, s3://bucket/prefix or hf://"):
            open_place(url)
    assert open_place(tmp_path).store is None


def test_the_cache_is_where_the_environment_says(s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CASEBITS_CACHE", str(tmp_path / "here"))
    assert open_place(s3_url).folder.parent == tmp_path / "here"
    monkeypatch.delenv("CASEBITS_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_place(s3_url).folder.parent == tmp_path / ".cache" / "casebits"
    assert Latest.SCHEMA == "casebits/latest/1"
