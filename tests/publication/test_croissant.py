"""croissant.json: valid to the reference implementation, true to the files, and silent on what is beyond the prefix."""

from __future__ import annotations

import fnmatch
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from casebits_dagster.publication.card import frontier_cover, mix_cover
from casebits_dagster.publication.consume import open_frontier
from casebits_dagster.publication.croissant import prefix_globs
from casebits_dagster.records.digests import sha256, sha256_file
from casebits_dagster.records.frontier import GatesPointer, ManifestPointer
from casebits_dagster.records.layout import DOCUMENTS, Home, region_id
from casebits_dagster.records.mix import MANIFEST, MixReport
from casebits_dagster.records.mix_latest import MixLatest
from casebits_dagster.records.pins import load_generation
from tests.publication.test_card import clearance_of
from tests.sample import mix_reports

# Of the validator's own libraries.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
COUNT = 10


@pytest.fixture(scope="module")
def frontier(sample_home: Home, pins: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A published frontier of 10 regions, in a folder where all 14 lie."""
    folder, sample = tmp_path_factory.mktemp("frontier") / "published", load_generation(pins, "sample")
    shutil.copytree(sample_home.generation("sample").root, folder)
    opened = open_frontier(sample_home.root, "sample")
    manifest = replace(opened.manifest, count=COUNT, regions=opened.manifest.regions[:COUNT])
    (folder / "gates.json").write_bytes(b"{}\n")
    pointer = GatesPointer(path="gates.json", sha256=sha256(b"{}\n"))
    latest = replace(opened.latest, count=COUNT, status="building", gates=pointer)
    for name, raw in frontier_cover(sample, manifest, None, latest, clearance_of(sample)).items():
        (folder / name).write_bytes(raw)
    return folder


@pytest.fixture(scope="module", params=["sample_aligned", "sample_concatenated"])
def mix(
    request: pytest.FixtureRequest, sample_home: Home, pins: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, MixReport]:
    """A published mix."""
    folder, sample = tmp_path_factory.mktemp("mix"), load_generation(pins, "sample")
    name, report = request.param, mix_reports(sample_home)[request.param]
    raw = (sample_home.mix(name) / MANIFEST).read_bytes()
    digest = sha256(raw)
    path = f"{name}/{digest[:16]}/{MANIFEST}"
    shutil.copytree(sample_home.mix(name), (folder / path).parent)
    pointer = ManifestPointer(path=path, revision=f"sha256:{digest}", sha256=digest, bytes=len(raw))
    latest = MixLatest(mix=name, version=2, manifest=pointer, published_at="2026-01-02T03:04:05Z", expires_at=None)
    for told, content in mix_cover(report, [sample], latest, [clearance_of(sample)]).items():
        (folder / told).write_bytes(content)
    return folder, report


def validated(folder: Path) -> Any:
    """Return the dataset as the reference implementation reads it, with no error and no warning."""
    dataset = pytest.importorskip("mlcroissant").Dataset(jsonld=str(folder / "croissant.json"))
    issues = dataset.metadata.ctx.issues
    assert (list(issues.errors), list(issues.warnings)) == ([], [])
    return dataset


def described(folder: Path) -> dict[str, list[str]]:
    """Return the files that each file set names, and check that each file object is what it says."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    sets = {}
    for item in json.loads((folder / "croissant.json").read_bytes())["distribution"]:
        if item["@type"] == "cr:FileObject":
            assert item["sha256"] == sha256_file(folder / item["contentUrl"])
            size = f"{(folder / item['contentUrl']).stat().st_size} B"
            assert item.get("contentSize", size) == size
        else:
            sets[item["name"]] = [path for glob in item["includes"] for path in fnmatch.filter(names, glob)]
    return sets


def test_a_frontier_is_valid_and_says_what_it_is(frontier: Path) -> None:
    metadata = validated(frontier).metadata
    assert (metadata.name, metadata.version) == ("sample", "1.0.0")
    assert metadata.license == ["CC0-1.0 AND PSF-2.0 AND LicenseRef-public-domain"]
    assert metadata.date_published.isoformat() == "2026-01-02T03:04:05+00:00"
    assert [file.content_url for file in metadata.file_objects] == [
        "frontier/manifests/00000001.json",
        "gates.json",
        "codec/mixture.npz",
        "codec/vocabulary.json",
    ]


def test_a_frontier_describes_its_regions_and_none_beyond_them(frontier: Path) -> None:
    found = described(frontier)
    names = sorted(path.name for path in (frontier / "regions" / "00000").iterdir())
    assert sorted(found) == names
    want = {name: [f"regions/{region_id(index)}/{name}" for index in range(COUNT)] for name in names}
    assert found == want


def test_the_reference_implementation_reads_the_documents(frontier: Path) -> None:
    records = list(validated(frontier).records("documents"))
    lines = [
        json.loads(line)
        for index in range(COUNT)
        for line in (frontier / "regions" / region_id(index) / DOCUMENTS).read_bytes().splitlines()
    ]
    keys = ("id", "split", "cluster", "index", "source_position", "token_offset", "byte_offset")
    read = [
        {key: value.decode() if isinstance(value, bytes) else value for key, value in record.items()}
        for record in records
    ]
    assert read == [{f"documents/{key}": line[key] for key in keys} for line in lines]


def test_a_mix_is_valid_and_describes_its_files(mix: tuple[Path, MixReport]) -> None:
    folder, report = mix
    metadata = validated(folder).metadata
    manifest = metadata.file_objects[0].content_url
    assert (metadata.name, metadata.version) == (report.recipe.mix, "2.0.0")
    found = described(folder)
    top, inside = manifest.removesuffix(MANIFEST), {path for paths in found.values() for path in paths}
    listed = {line.split("  ")[2] for line in (folder / manifest).read_text().splitlines()[1:-1]}
    apart = {"README.md", "mix_report.json", "recipe.json", "selected.npz"}
    assert {path.removeprefix(top) for path in inside} == {name for name in listed if name not in apart}
    assert [name for name, paths in found.items() if not paths] == []


@given(st.integers(0, 99_999), st.lists(st.integers(0, 99_999), max_size=50))
def test_globs_match_the_prefix_and_nothing_else(count: int, others: list[int]) -> None:
    globs = prefix_globs(count)
    for index in {*others, 0, count - 1, count, count + 1} & set(range(100_000)):
        matched = [glob for glob in globs if fnmatch.fnmatch(region_id(index), glob)]
        assert len(matched) == (index < count)
