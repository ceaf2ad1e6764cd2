"""Opening a mix: by the rules and codes of a frontier."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

import casebits_dagster
from casebits_dagster.publication.open_mix import OpenedMix, open_mix
from casebits_dagster.publication.send import publish_mix
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.errors import Absent, CasebitsError, Refused
from casebits_dagster.records.layout import LATEST, Home
from casebits_dagster.records.mix import MANIFEST, REPORT, MixReport
from casebits_dagster.records.mix_latest import MixLatest
from casebits_dagster.records.mix_manifest import manifest_bytes, parse_manifest
from casebits_dagster.records.pins import load_generation
from casebits_dagster.records.region import StoredFile
from tests.publication.test_consume import NOW

MIX = "sample_aligned"
SHARD = "train_000001.ids.u16le"


@pytest.fixture
def home(sample_home: Home, tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    shutil.copytree(sample_home.mix(MIX), home.mix(MIX))
    return home


@pytest.fixture
def published(home: Home, pins: Path, tmp_path: Path) -> Path:
    publish(home, pins, tmp_path / "published")
    return tmp_path / "published"


def publish(home: Home, pins: Path, folder: Path, valid: timedelta | None = None) -> int:
    generations = [load_generation(pins, "sample")]
    sent = publish_mix(MIX, generations, home, str(folder), now=NOW, valid=valid, say=lambda _: None)
    return sent.version


def place(published: Path) -> Path:
    """The folder of the mix that LATEST names."""
    return (published / MixLatest.parse((published / LATEST).read_bytes(), LATEST).manifest.path).parent


def seal(folder: Path, published: Path | None = None) -> None:
    """Write MANIFEST.txt anew over the files as they are, and make LATEST name it."""
    files = [
        StoredFile(name=path.name, bytes=path.stat().st_size, sha256=sha256(path.read_bytes()))
        for path in folder.iterdir()
        if path.name != MANIFEST
    ]
    raw = manifest_bytes(files)
    (folder / MANIFEST).write_bytes(raw)
    if published:
        latest = MixLatest.parse((published / LATEST).read_bytes(), LATEST)
        digest = sha256(raw)
        pointer = dataclasses.replace(latest.manifest, sha256=digest, revision=f"sha256:{digest}", bytes=len(raw))
        (published / LATEST).write_bytes(dataclasses.replace(latest, manifest=pointer).to_bytes())


def test_a_mix_opens_where_it_was_built_and_where_it_is_published(home: Home, published: Path) -> None:
    built, found = open_mix(home.mix(MIX)), casebits_dagster.open_mix(published)
    assert (built.latest, found.latest and found.latest.version) == (None, 1)
    assert (built.manifest_sha256, built.report) == (found.manifest_sha256, found.report)
    assert open_mix(home.root, MIX).files == found.files
    for mix in (built, found):
        assert np.fromfile(mix.file(SHARD), "<u2").tolist() == np.fromfile(home.mix(MIX) / SHARD, "<u2").tolist()
        mix.verify_all()


def test_a_mix_that_is_built_anew_is_the_next_version(home: Home, pins: Path, published: Path) -> None:
    assert publish(home, pins, published) == 1
    first = open_mix(published).manifest_sha256
    readme = home.mix(MIX) / "README.md"
    readme.write_text(readme.read_text() + "\nAgain.\n")
    seal(home.mix(MIX))
    assert publish(home, pins, published) == 2
    found = open_mix(published)
    assert (found.latest and found.latest.version, found.manifest_sha256 == first) == (2, False)
    assert sorted(path.name for path in (published / MIX).iterdir()) == sorted(
        digest[:16] for digest in (first, found.manifest_sha256)
    )


def _other_report(folder: Path, **changes: object) -> None:
    report = MixReport.parse((folder / REPORT).read_bytes(), REPORT)
    (folder / REPORT).write_bytes(dataclasses.replace(report, **changes).to_bytes())  # type: ignore[arg-type]


def _more_shards(folder: Path) -> None:
    report = MixReport.parse((folder / REPORT).read_bytes(), REPORT)
    _other_report(folder, train=dataclasses.replace(report.train, shards=report.train.shards + 1))


def _flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[40] ^= 1
    path.write_bytes(bytes(raw))


AT_ONCE: list[tuple[str, Callable[[Path], object], bool]] = [
    ("MANIFEST_MISSING", lambda f: (f / MANIFEST).unlink(), False),
    ("MANIFEST_SIZE", lambda f: (f / MANIFEST).write_bytes((f / MANIFEST).read_bytes()[:-1]), False),
    ("MANIFEST_HASH", lambda f: _flip(f / MANIFEST), False),
    ("FILE_MISSING", lambda f: (f / REPORT).unlink(), False),
    ("FILE_HASH", lambda f: _flip(f / REPORT), False),
    ("FILE_MISSING", lambda f: (f / REPORT).unlink(), True),
    ("FILE_MISSING", lambda f: (f / SHARD).unlink(), True),
    ("FILE_MISSING", lambda f: (f / "next.case.u16le").unlink(), True),
    ("FILE_MISSING", _more_shards, True),
    ("FILE_EXTRA", lambda f: (f / "train_000009.ids.u16le").write_bytes(b""), True),
    ("FILE_EXTRA", lambda f: (f / "val_000001.case.u16le").write_bytes(b""), True),
    ("JSON_INVALID", lambda f: (f / REPORT).write_bytes(b"{"), True),
]


@pytest.mark.parametrize(("code", "tamper", "sealed"), AT_ONCE)
def test_a_published_mix_is_refused_at_once(
    published: Path, code: str, tamper: Callable[[Path], object], sealed: bool
) -> None:
    """`sealed`: MANIFEST.txt and LATEST.json were written anew over the changed files, so every hash agrees."""
    tamper(place(published))
    if sealed:
        seal(place(published), published)
    with pytest.raises(Refused) as caught:
        open_mix(published)
    assert caught.value.code == code


def test_a_file_is_refused_on_its_first_use(published: Path) -> None:
    _flip(place(published) / SHARD)
    mix = open_mix(published)
    mix.file("train_000000.ids.u16le")
    for use in (lambda: mix.file(SHARD), mix.verify_all):
        with pytest.raises(Refused, match=f"FILE_HASH {MIX}/[0-9a-f]{{16}}/{SHARD}"):
            use()
    with pytest.raises(Absent, match=r"FILE_MISSING nothing.txt: MANIFEST.txt does not list it"):
        mix.file("nothing.txt")


def test_a_file_that_nobody_listed_is_refused(published: Path) -> None:
    (place(published) / "notes.txt").write_text("hello")
    with pytest.raises(Refused, match=r"FILE_EXTRA .*/notes.txt: is not in MANIFEST.txt"):
        open_mix(published).verify_all()


def test_the_trust_of_a_mix(home: Home, pins: Path, published: Path, tmp_path: Path) -> None:
    trust, old = tmp_path / "trust.json", (published / LATEST).read_bytes()
    _touch(home)
    publish(home, pins, published)
    open_mix(published, trust=trust)
    (published / LATEST).write_bytes(old)
    with pytest.raises(Refused, match=r"ROLLBACK LATEST.json: version: expected version 2 or later, read 1"):
        open_mix(published, trust=trust)
    latest = MixLatest.parse(old, LATEST)
    (published / LATEST).write_bytes(dataclasses.replace(latest, version=2).to_bytes())
    with pytest.raises(Refused, match=r"EQUIVOCATION LATEST.json: manifest.sha256: version 2 was seen"):
        open_mix(published, trust=trust)
    (published / LATEST).write_bytes(dataclasses.replace(latest, mix="other", version=3).to_bytes())
    with pytest.raises(Refused, match=r"GENERATION_MISMATCH LATEST.json: generation: of the trust state"):
        open_mix(published, trust=trust)
    with pytest.raises(Refused, match=r"GENERATION_MISMATCH .*recipe.mix: expected other, read sample_aligned"):
        open_mix(published)


def test_a_mix_expires(home: Home, pins: Path, tmp_path: Path) -> None:
    publish(home, pins, tmp_path / "p", valid=timedelta(days=2))
    assert open_mix(tmp_path / "p", now=NOW + timedelta(days=1)).report.recipe.mix == MIX
    with pytest.raises(Refused, match="STALE_FRONTIER"):
        open_mix(tmp_path / "p", now=NOW + timedelta(days=2))


def test_nothing_to_open(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"MANIFEST_MISSING .*: no mix is here"):
        open_mix(tmp_path)


def test_a_mix_is_not_published_over_another_one(home: Home, pins: Path, published: Path) -> None:
    latest = MixLatest.parse((published / LATEST).read_bytes(), LATEST)
    (published / LATEST).write_bytes(dataclasses.replace(latest, mix="other").to_bytes())
    with pytest.raises(Refused, match=r"GENERATION_MISMATCH LATEST.json: mix: expected sample_aligned, read other"):
        publish(home, pins, published)


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: raw[:-1],
        lambda raw: raw + b"\n",
        lambda raw: raw.replace(b"# end 2 3", b"# end 2 4"),
        lambda raw: raw.replace(b"b.txt", b"A.txt"),
        lambda raw: raw.replace(b"b.txt", b"../b"),
        lambda raw: raw.replace(b"  2  ", b"  02  "),
    ],
)
def test_a_manifest_has_one_form(change: Callable[[bytes], bytes]) -> None:
    files = [StoredFile(name="a.txt", bytes=1, sha256="0" * 64), StoredFile(name="b.txt", bytes=2, sha256="1" * 64)]
    raw = manifest_bytes(files)
    assert parse_manifest(raw, "m") == {file.name: file for file in files}
    with pytest.raises(CasebitsError, match="MIX_MANIFEST m: is not a complete, sorted list of safe names"):
        parse_manifest(change(raw), "m")


def _touch(home: Home) -> OpenedMix:
    readme = home.mix(MIX) / "README.md"
    readme.write_text(readme.read_text() + "\nAgain.\n")
    seal(home.mix(MIX))
    return open_mix(home.mix(MIX))
