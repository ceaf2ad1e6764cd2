"""An audit proves an untouched corpus, and names the link where one was tampered with."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from casebits_dagster.lineage.audit import audit_window
from casebits_dagster.lineage.records import WindowAudit
from casebits_dagster.lineage.render import audit_markdown, audit_text
from casebits_dagster.records.digests import proven_root, sha256
from casebits_dagster.records.errors import Absent, Refused
from casebits_dagster.records.frontier import Manifest
from casebits_dagster.records.layout import ADMISSION, CASES, DOCUMENTS, IDS, OFFSETS, RECEIPT, Home
from casebits_dagster.records.mix import MANIFEST, REPORT, SEGMENTS, TABLE
from casebits_dagster.records.pins import Generation, load_generation
from casebits_dagster.records.region import Receipt
from tests.sample import mix_reports


@pytest.fixture(scope="session")
def generations(pins: Path) -> dict[str, Generation]:
    return {"sample": load_generation(pins, "sample")}


@pytest.fixture(scope="session")
def mix(sample_home: Home) -> str:
    return next(name for name, report in mix_reports(sample_home).items() if report.recipe.strategy == "aligned")


@pytest.fixture(scope="session")
def window(sample_home: Home, mix: str) -> int:
    """A window with several segments."""
    segments = np.load(sample_home.mix(mix) / SEGMENTS)
    windows, counts = np.unique(segments["window"], return_counts=True)
    return int(windows[counts > 2][0])


@pytest.fixture
def tampered(sample_home: Home, home: Home) -> Home:
    """A copy of the sample home, to be tampered with."""
    shutil.copytree(sample_home.root, home.root)
    return home


def test_every_window_of_every_mix_is_proven(sample_home: Home, generations: dict[str, Generation]) -> None:
    for name, report in mix_reports(sample_home).items():
        for number in range(0, report.train.windows, 11):
            audit = audit_window(sample_home, name, number, generations=generations)
            assert (audit.failures, audit.proven) == ((), True)
            assert sum(segment.length for segment in audit.segments) == report.recipe.sequence_length
            assert {s.document for s in audit.segments} == {d.id for d in audit.documents}


def test_the_chain_ends_at_the_source_row(
    sample_home: Home, mix: str, window: int, generations: dict[str, Generation]
) -> None:
    """Document, row and text hash are those that the sample's own notices give for that row."""
    audit = audit_window(sample_home, mix, window, generations=generations)
    notices = (generations["sample"].source.folder / "documents.jsonl").read_bytes().splitlines()
    for document in audit.documents:
        assert json.loads(notices[document.source_position])["sha256"] == document.text_sha256
        assert document.id == document.text_sha256[:32]
    assert [region.source.repo for region in audit.regions] == ["sample/pd-mix"] * len(audit.regions)


def test_the_inclusion_proof_leads_to_the_tree_root(sample_home: Home, mix: str, window: int) -> None:
    audit = audit_window(sample_home, mix, window)
    manifest = Manifest.parse(sample_home.generation("sample").manifest(1).read_bytes(), "m")
    for region in audit.regions:
        entry = manifest.regions[region.entry].to_bytes()
        assert proven_root(region.entry, region.entries, entry, region.inclusion_proof) == manifest.tree_root


def test_an_audit_is_deterministic_and_one_canonical_record(sample_home: Home, mix: str, window: int) -> None:
    audit = audit_window(sample_home, mix, window)
    assert WindowAudit.parse(audit.to_bytes(), "audit") == audit
    assert audit_window(sample_home, mix, window).to_bytes() == audit.to_bytes()


def test_what_was_recomputed_and_what_was_not(
    sample_home: Home, mix: str, window: int, generations: dict[str, Generation]
) -> None:
    def trusted(audit: WindowAudit) -> set[str]:
        return {one.link for one in audit.evidence if one.state == "not_recomputed"}

    alone = audit_window(sample_home, mix, window)
    slices = audit_window(sample_home, mix, window, generations=generations)
    everything = audit_window(sample_home, mix, window, generations=generations, recompute="all")
    files = {"file of the mix", "file of the region", "source file, as its source publishes it"}
    assert (trusted(alone), trusted(slices), trusted(everything)) == (files | {"source range"}, files, set())
    assert [len(audit.limits) for audit in (alone, slices, everything)] == [4, 3, 2]


def test_what_is_not_there_is_absent(sample_home: Home, mix: str) -> None:
    windows = mix_reports(sample_home)[mix].train.windows
    for number in (-1, windows):
        with pytest.raises(Absent) as caught:
            audit_window(sample_home, mix, number)
        assert str(caught.value) == (f"NO_SUCH_WINDOW {mix}: window {number}: the mix has windows 0 to {windows - 1}")
    with pytest.raises(Absent) as caught:
        audit_window(sample_home, "none", 0)
    assert str(caught.value) == (
        f"FILE_MISSING {sample_home.mix('none') / MANIFEST}: no mix is published here (see `casebits status`)"
    )


@dataclasses.dataclass(frozen=True)
class Scene:
    """What a fault may touch: the home, the mix, and the first segment of the window with its document."""

    home: Home
    mix: str
    window: int
    length: int
    segment: Any
    document: Any

    @property
    def region(self) -> Path:
        return self.home.generation("sample").region(int(self.document["region"]))

    def flip(self, path: Path, at: int) -> None:
        content = bytearray(path.read_bytes())
        content[at] ^= 1
        path.write_bytes(content)

    def token(self) -> int:
        """Return the place of the segment's first token in its region."""
        offsets = np.fromfile(self.region / OFFSETS, "<u8")
        return int(offsets[self.document["index"]]) + int(self.segment["document_start"])


def _replace(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert content.count(old) >= 1
    path.write_bytes(content.replace(old, new, 1))


def _shard(scene: Scene, stream: str) -> Path:
    return scene.home.mix(scene.mix) / f"train_000000.{stream}.u16le"


def _table(name: str, field: str, bits: int = 1) -> Callable[[Scene], None]:
    def tamper(scene: Scene) -> None:
        path = scene.home.mix(scene.mix) / name
        rows = np.load(path)
        rows[field][
            scene.segment["document"] if name == TABLE else np.flatnonzero(rows["window"] == scene.window)[0]
        ] ^= bits
        np.save(path, rows)

    return tamper


def _other_region(scene: Scene) -> None:
    """Receipt and admission are those of another region, whole and well-formed."""
    other = scene.region.parent / ("00001" if scene.region.name != "00001" else "00002")
    for name in (RECEIPT, ADMISSION):
        shutil.copy(other / name, scene.region / name)


def _resealed_receipt(scene: Scene) -> None:
    """A receipt that claims another licence, with its content id made good again."""
    path = scene.region / RECEIPT
    receipt = Receipt.parse(path.read_bytes(), "receipt")
    source = dataclasses.replace(receipt.source, licence_spdx="MIT")
    path.write_bytes(dataclasses.replace(receipt, source=source, content_id="").sealed().to_bytes())


FAULTS: dict[str, tuple[Callable[[Scene], None], str]] = {
    "token of the shard": (
        lambda s: s.flip(_shard(s, "ids"), 2 * s.window * s.length),
        "tokens of the segment",
    ),
    "mask of the shard": (
        lambda s: s.flip(_shard(s, "case"), 2 * s.window * s.length),
        "tokens of the segment",
    ),
    "segment table": (_table(SEGMENTS, "document_start"), "file of the mix"),
    "segment length": (_table(SEGMENTS, "length"), "segments fill the window"),
    "document table": (_table(TABLE, "index"), "file of the mix"),
    "segment of no document": (_table(SEGMENTS, "document", 1 << 20), "segments name what is there"),
    "segment of no kind": (_table(SEGMENTS, "kind", 64), "segments name what is there"),
    "document of no generation": (_table(TABLE, "generation", 64), "segments name what is there"),
    "document of no region": (_table(TABLE, "region", 1 << 20), "region of the segment"),
    "document beyond its region": (_table(TABLE, "index", 1 << 20), "region of the segment"),
    "report of the mix": (
        lambda s: _replace(s.home.mix(s.mix) / REPORT, b'"generation":"sample"', b'"generation":"simple"'),
        "file of the mix",
    ),
    "token of the region": (lambda s: s.flip(s.region / IDS, 2 * s.token()), "text of the document"),
    "mask of the region": (lambda s: s.flip(s.region / CASES, 2 * s.token()), "text of the document"),
    "line of the document": (
        lambda s: _replace(s.region / DOCUMENTS, b'"split":"train"', b'"split":"trail"'),
        "file of the region",
    ),
    "receipt": (_resealed_receipt, "receipt"),
    "receipt of another region": (_other_region, "region that the receipt names"),
    "admission": (lambda s: _replace(s.region / ADMISSION, b'"result":"passed"', b'"result":"passes"'), "admission"),
    "admission is gone": (lambda s: (s.region / ADMISSION).unlink(), "region of the segment"),
    "manifest": (
        lambda s: _replace(s.home.generation("sample").manifest(1), b'"documents":', b'"documants":'),
        "manifest",
    ),
    "vocabulary": (
        lambda s: s.flip(s.home.generation("sample").codec / "vocabulary.json", -3),
        "codec",
    ),
    "mask model": (lambda s: s.flip(s.home.generation("sample").codec / "mixture.npz", -1), "codec"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_tampering_fails_at_its_link(tampered: Home, mix: str, window: int, name: str) -> None:
    rows = np.load(tampered.mix(mix) / SEGMENTS)
    segment = rows[np.flatnonzero(rows["window"] == window)[0]]
    document = np.load(tampered.mix(mix) / TABLE)[segment["document"]]
    length = mix_reports(tampered)[mix].recipe.sequence_length
    fault, link = FAULTS[name]
    fault(Scene(tampered, mix, window, length, segment, document))
    audit = audit_window(tampered, mix, window)
    assert audit.proven is False
    assert link in {failure.link for failure in audit.failures}
    assert f"window {window} of mix {mix} (aligned): UNPROVEN" in audit_text(audit)


def test_a_source_row_that_changed_is_found(
    sample_home: Home, mix: str, window: int, generations: dict[str, Generation], tmp_path: Path
) -> None:
    generation = generations["sample"]
    shutil.copytree(generation.source.folder, tmp_path / "source")
    path = tmp_path / "source/pd_mix.parquet"
    content = bytearray(path.read_bytes())
    content[len(content) // 8] ^= 1
    path.write_bytes(content)
    moved = dataclasses.replace(generation, source=generation.source.at(tmp_path / "source"))
    audit = audit_window(sample_home, mix, window, generations={"sample": moved}, recompute="all")
    assert {"source file"} <= {failure.link for failure in audit.failures}


@pytest.mark.parametrize("content", [b"\x80", b"# head\njunk\n# end\n"])
def test_a_manifest_that_cannot_be_read_is_refused(tampered: Home, mix: str, content: bytes) -> None:
    (tampered.mix(mix) / MANIFEST).write_bytes(content)
    with pytest.raises(Refused, match=r"MANIFEST_HASH .*the manifest cannot be read"):
        audit_window(tampered, mix, 0)


@pytest.mark.parametrize("content", ["[]", "null", '{"model":{"vocab":[1]}}', '{"model":{"vocab":{"a":7}}}', "{"])
def test_a_vocabulary_of_another_structure_fails_at_its_link(tampered: Home, mix: str, content: str) -> None:
    (tampered.generation("sample").codec / "vocabulary.json").write_text(content)
    assert "codec" in {failure.link for failure in audit_window(tampered, mix, 0).failures}


def test_a_mix_that_cannot_be_read_is_refused(tampered: Home, mix: str) -> None:
    path = tampered.mix(mix) / SEGMENTS
    path.write_bytes(b"x")
    with pytest.raises(Refused, match=r"^FILE_HASH .*the mix cannot be read"):
        audit_window(tampered, mix, 0)
    path.unlink()
    with pytest.raises(Refused, match=r"^FILE_MISSING .*a file of the mix is not there"):
        audit_window(tampered, mix, 0)


def test_the_text_names_segments_rows_and_limits(
    sample_home: Home, mix: str, window: int, generations: dict[str, Generation]
) -> None:
    audit = audit_window(sample_home, mix, window, generations=generations)
    text, first = audit_text(audit), audit.documents[0]
    assert text.splitlines()[0] == f"window {window} of mix {mix} (aligned): proven."
    assert f"= row {first.source_position} of pd_mix.parquet, {first.text_bytes:,} bytes of text" in text
    assert f"document {first.id}: sample/{first.region} document {first.index}" in text
    for region in audit.regions:
        assert f"checks, entry {int(region.region) + 1} of 14 in manifest version 1\n" in text
    assert [limit for limit in audit.limits if f"  {limit}\n" not in text] == []


def test_the_markdown_has_every_link(
    sample_home: Home, mix: str, window: int, generations: dict[str, Generation]
) -> None:
    audit = audit_window(sample_home, mix, window, generations=generations)
    page = audit_markdown(audit)
    rows = [line for line in page.split("## Links")[1].splitlines() if line.startswith("| ")]
    assert len(rows) - 2 == len(audit.evidence)
    assert page.count("### sample/") == len(audit.regions)
    assert sha256(page.encode()) == sha256(audit_markdown(audit).encode())
