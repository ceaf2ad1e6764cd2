"""Opening a frontier: whatever is missing, inconsistent or unproven is refused, each with its code."""

from __future__ import annotations

import dataclasses
import io
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from casebits_dagster.admission import admit_region
from casebits_dagster.frontier import NOTHING, root_of
from casebits_dagster.publication.consume import Frontier, open_frontier
from casebits_dagster.publication.frontier import advance_frontier
from casebits_dagster.publication.mix_sources import mix_source
from casebits_dagster.publication.stratification import write_stratification
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.errors import REFUSAL_CODES, Absent, Refused
from casebits_dagster.records.frontier import Latest, Manifest, PreviousManifest
from casebits_dagster.records.layout import ADMISSION, CASES, DOCUMENTS, IDS, RECEIPT, GenerationFolder, Home
from casebits_dagster.records.pins import Generation, load_generation
from casebits_dagster.records.region import Admission, CheckResult, Receipt
from casebits_dagster.regions.index import _keep_stamped as keep_stamped
from casebits_dagster.regions.index import _made_from

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def folder(sample_home: Home, tmp_path: Path) -> GenerationFolder:
    """A copy of the published sample generation, to be tampered with."""
    home = Home(tmp_path / "copy")
    shutil.copytree(sample_home.generation("sample").root, home.generation("sample").root)
    return home.generation("sample")


def rewrite_latest(folder: GenerationFolder, **changes: object) -> None:
    latest = Latest.parse(folder.latest.read_bytes(), "LATEST.json")
    folder.latest.write_bytes(dataclasses.replace(latest, **changes).to_bytes())  # type: ignore[arg-type]


def rewrite_manifest(folder: GenerationFolder, **changes: object) -> None:
    """Replace the manifest and make LATEST name it, as a producer that lies consistently would."""
    latest = Latest.parse(folder.latest.read_bytes(), "LATEST.json")
    path = folder.root / latest.manifest.path
    manifest = dataclasses.replace(Manifest.parse(path.read_bytes(), "m"), **changes)  # type: ignore[arg-type]
    raw = manifest.to_bytes()
    path.write_bytes(raw)
    digest = sha256(raw)
    pointer = dataclasses.replace(latest.manifest, sha256=digest, revision=f"sha256:{digest}", bytes=len(raw))
    rewrite_latest(folder, manifest=pointer)


def flip(path: Path, place: int = 0) -> None:
    raw = bytearray(path.read_bytes())
    raw[place] ^= 1
    path.write_bytes(bytes(raw))


def resign(folder: GenerationFolder, change: Callable[[Receipt], Receipt]) -> None:
    """Change region 0's receipt, reseal it, and forge an admission that agrees."""
    region = folder.region(0)
    receipt = change(Receipt.parse((region / RECEIPT).read_bytes(), "r")).sealed()
    (region / RECEIPT).write_bytes(receipt.to_bytes())
    admission = Admission.parse((region / ADMISSION).read_bytes(), "a")
    forged = dataclasses.replace(admission, receipt_sha256=sha256(receipt.to_bytes()), content_id=receipt.content_id)
    (region / ADMISSION).write_bytes(forged.to_bytes())


def manifest_of(folder: GenerationFolder) -> Manifest:
    return Manifest.parse(folder.manifest(1).read_bytes(), "m")


def cut_history(folder: GenerationFolder) -> None:
    previous = PreviousManifest(version=1, sha256="0" * 64, bytes=9)
    raw = dataclasses.replace(manifest_of(folder), version=2, previous=previous).to_bytes()
    folder.manifest(2).write_bytes(raw)
    latest = Latest.parse(folder.latest.read_bytes(), "LATEST.json")
    pointer = dataclasses.replace(
        latest.manifest,
        path="frontier/manifests/00000002.json",
        sha256=sha256(raw),
        revision=f"sha256:{sha256(raw)}",
        bytes=len(raw),
    )
    rewrite_latest(folder, manifest=pointer, version=2)


AT_ONCE: list[tuple[str, Callable[[GenerationFolder], object], str]] = [
    ("LATEST_MISSING", lambda f: f.latest.unlink(), "nothing is published here"),
    ("LATEST_TOO_LARGE", lambda f: f.latest.write_bytes(b" " * 70_000), "expected at most 65536, read 70000"),
    ("JSON_INVALID", lambda f: f.latest.write_bytes(b"{"), "LATEST.json"),
    ("JSON_NOT_CANONICAL", lambda f: f.latest.write_bytes(f.latest.read_bytes() + b"\n"), "bytes differ from"),
    ("JSON_DUPLICATE_KEY", lambda f: f.latest.write_bytes(b'{"a":1,"a":2}\n'), "LATEST.json: a"),
    ("SCHEMA_UNKNOWN", lambda f: f.latest.write_bytes(b'{"schema":"other"}\n'), "read other"),
    ("GENERATION_MISMATCH", lambda f: rewrite_latest(f, generation="other"), "expected sample, read other"),
    ("LATEST_BEHIND", lambda f: rewrite_latest(f, version=7), "expected 1, read 7"),
    ("COUNT_MISMATCH", lambda f: rewrite_latest(f, count=3), "expected 14, read 3"),
    ("TREE_ROOT", lambda f: rewrite_latest(f, tree_root="0" * 64), "LATEST.json: tree_root"),
    ("MANIFEST_MISSING", lambda f: f.manifest(1).unlink(), "names a manifest that is not there"),
    ("MANIFEST_SIZE", lambda f: f.manifest(1).write_bytes(f.manifest(1).read_bytes()[:-1]), "bytes, read"),
    ("MANIFEST_HASH", lambda f: flip(f.manifest(1), 50), "frontier/manifests/00000001.json"),
    ("GAP", lambda f: rewrite_manifest(f, regions=manifest_of(f).regions[1:]), "regions[0].index: expected 0, read 1"),
    ("COUNT_MISMATCH", lambda f: rewrite_manifest(f, count=13), "count: expected 14, read 13"),
    ("TREE_ROOT", lambda f: rewrite_manifest(f, tree_root="0" * 64), "frontier/manifests/00000001.json: tree_root"),
    ("GENERATION_MISMATCH", lambda f: rewrite_manifest(f, generation="other"), "expected other, read sample"),
    ("LATEST_BEHIND", lambda f: rewrite_manifest(f, version=2), "expected 2, read 1"),
    ("CHAIN_BROKEN", cut_history, "manifest 2: previous"),
    ("FILE_MISSING", lambda f: (f.codec / "vocabulary.json").unlink(), "codec/vocabulary.json"),
    ("COUNT_MISMATCH", lambda f: rewrite_latest(f, status="building"), "status: expected complete, read building"),
    ("CODEC_PIN", lambda f: rewrite_manifest(f, codec=manifest_of(f).codec[:1]), "read ['mixture.npz']"),
    ("FILE_HASH", lambda f: flip(f.codec / "mixture.npz", 300), "codec/mixture.npz"),
]


@pytest.mark.parametrize(("code", "tamper", "message"), AT_ONCE)
def test_a_frontier_is_refused_at_once(
    folder: GenerationFolder, code: str, tamper: Callable[[GenerationFolder], object], message: str
) -> None:
    open_frontier(folder.root)
    tamper(folder)
    with pytest.raises(Refused) as caught:
        open_frontier(folder.root, None)
    assert caught.value.code == code
    assert code in REFUSAL_CODES
    assert message in str(caught.value)


def test_a_root_with_another_generation_is_refused(folder: GenerationFolder) -> None:
    rewrite_latest(folder, generation="other")
    with pytest.raises(Refused, match=r"GENERATION_MISMATCH LATEST.json: generation: expected sample, read other"):
        open_frontier(folder.root.parents[1], "sample")


def test_a_revision_that_is_not_a_hash_is_refused(folder: GenerationFolder) -> None:
    pointer = Latest.parse(folder.latest.read_bytes(), "LATEST.json").manifest
    rewrite_latest(folder, manifest=dataclasses.replace(pointer, revision="main"))
    with pytest.raises(Refused, match="REVISION_NOT_PINNED"):
        open_frontier(folder.root)


def drop_extra(folder: GenerationFolder) -> None:
    (folder.region(0) / "notes.txt").write_text("hello")


def other_content_id(folder: GenerationFolder) -> None:
    region = folder.region(0)
    receipt = Receipt.parse((region / RECEIPT).read_bytes(), "r")
    (region / RECEIPT).write_bytes(dataclasses.replace(receipt, content_id="0" * 64).to_bytes())


def other_admission(folder: GenerationFolder, **changes: object) -> None:
    path = folder.region(0) / ADMISSION
    admission = Admission.parse(path.read_bytes(), "a")
    path.write_bytes(dataclasses.replace(admission, **changes).to_bytes())  # type: ignore[arg-type]


def half_done(folder: GenerationFolder) -> tuple[CheckResult, ...]:
    """The checks of region 0, one of which looked at nothing."""
    checks = Admission.parse((folder.region(0) / ADMISSION).read_bytes(), "a").checks
    return tuple(dataclasses.replace(check, examined=0) if check.id == "L2_EOD" else check for check in checks)


def fold(path: Path) -> None:
    """Put a folder in place of a file."""
    path.unlink()
    path.mkdir()


def link(path: Path) -> None:
    """Move what lies there aside and leave a link to it."""
    aside = path.parent.parent / "aside"
    path.rename(aside)
    path.symlink_to(aside)


ON_FIRST_USE: list[tuple[str, Callable[[GenerationFolder], object], str]] = [
    ("REGION_MISSING", lambda f: shutil.rmtree(f.region(0)), "there is no folder"),
    ("ADMISSION_MISSING", lambda f: (f.region(0) / ADMISSION).unlink(), "the region is not admitted"),
    ("FILE_MISSING", lambda f: (f.region(0) / DOCUMENTS).unlink(), "regions/00000/documents.jsonl"),
    ("FILE_EXTRA", drop_extra, "regions/00000/notes.txt"),
    ("FILE_SIZE", lambda f: (f.region(0) / IDS).write_bytes((f.region(0) / IDS).read_bytes()[:-2]), "bytes, read"),
    ("FILE_HASH", lambda f: flip(f.region(0) / CASES, 40), "regions/00000/casebits_mixture.case.u16le"),
    ("CONTENT_ID", other_content_id, "receipt.json: content_id"),
    (
        "CONTENT_ID",
        lambda f: resign(f, lambda r: dataclasses.replace(r, counts=dataclasses.replace(r.counts, rows_read=7))),
        "regions/00000",
    ),
    ("RECEIPT_HASH", lambda f: other_admission(f, receipt_sha256="0" * 64), "receipt_sha256"),
    ("ADMISSION_HASH", lambda f: other_admission(f, generation="other"), "expected sample, read other"),
    ("ADMISSION_HASH", lambda f: other_admission(f, files=()), "files casebits_mixture.case.u16le"),
    ("ADMISSION_NOT_ADMITTED", lambda f: other_admission(f, checks=()), "no check was made"),
    ("ADMISSION_NOT_ADMITTED", lambda f: other_admission(f, checks=half_done(f)), "L2_EOD was not done in full"),
    ("FILE_HASH", lambda f: other_admission(f, checks=half_done(f)[:3]), "regions/00000/admission.json"),
    ("JSON_INVALID", lambda f: (f.region(0) / RECEIPT).write_bytes(b"{"), "regions/00000/receipt.json"),
    ("JSON_INVALID", lambda f: (f.region(0) / ADMISSION).write_bytes(b"[]\n"), "regions/00000/admission.json"),
    ("FILE_MISSING", lambda f: fold(f.region(0) / RECEIPT), "regions/00000/receipt.json"),
    ("PATH_UNSAFE", lambda f: link(f.region(0) / DOCUMENTS), "regions/00000/documents.jsonl"),
    ("PATH_UNSAFE", lambda f: link(f.region(0)), "a published region is never a link"),
]


@pytest.mark.parametrize(("code", "tamper", "message"), ON_FIRST_USE)
def test_a_region_is_refused_on_first_use(
    folder: GenerationFolder, code: str, tamper: Callable[[GenerationFolder], object], message: str
) -> None:
    tamper(folder)
    frontier = open_frontier(folder.root)
    assert len(frontier.region(1)) > 0
    with pytest.raises(Refused) as caught:
        frontier.region(0)
    assert caught.value.code == code
    assert message in str(caught.value)


def entry_of(folder: GenerationFolder, **changes: object) -> None:
    entries = manifest_of(folder).regions
    regions = (dataclasses.replace(entries[0], **changes), *entries[1:])  # type: ignore[arg-type]
    rewrite_manifest(folder, regions=regions, tree_root=root_of(regions))
    rewrite_latest(folder, tree_root=root_of(regions))


LIES: list[tuple[str, Callable[[GenerationFolder], object], str]] = [
    ("COUNT_MISMATCH", lambda f: entry_of(f, documents=1_065), "counts.documents: expected 1065, read 65"),
    ("COUNT_MISMATCH", lambda f: entry_of(f, tokens=5), "counts.tokens: expected 5, read 75675"),
    ("PLAN_MISMATCH", lambda f: entry_of(f, **twin(f)), "region.index: expected 0, read 4"),
    ("COUNT_MISMATCH", lambda f: rewrite_manifest(f, splits=NOTHING), "manifest 1: splits"),
]


def twin(folder: GenerationFolder) -> dict[str, object]:
    """What the entry of region 4 says, to be listed as region 0."""
    other = manifest_of(folder).regions[4]
    return {name: getattr(other, name) for name in ("path", "content_id", "documents", "tokens", "files")}


@pytest.mark.parametrize(("code", "tamper", "message"), LIES)
def test_a_manifest_that_hashes_well_and_lies_is_refused(
    folder: GenerationFolder, code: str, tamper: Callable[[GenerationFolder], object], message: str
) -> None:
    tamper(folder)
    with pytest.raises(Refused) as caught:
        open_frontier(folder.root).verify_all()
    assert caught.value.code == code
    assert message in str(caught.value)


def test_another_vocabulary_than_the_manifests_is_refused(folder: GenerationFolder) -> None:
    codec = tuple(dataclasses.replace(file, sha256="0" * 64) for file in manifest_of(folder).codec)
    frontier = open_frontier(folder.root)
    frontier.manifest = dataclasses.replace(frontier.manifest, codec=codec)
    with pytest.raises(Refused, match=r"VOCAB_MISMATCH regions/00000/receipt.json"):
        frontier.region(0)


def test_a_manifest_without_the_mixture_of_its_regions_is_refused(folder: GenerationFolder) -> None:
    rewrite_manifest(folder, codec=manifest_of(folder).codec[1:])
    with pytest.raises(Refused, match=r"VOCAB_MISMATCH regions/00000/receipt.json: pins.codec: .*read 9496ead3"):
        open_frontier(folder.root).region(0)


def rows_of(frontier: Frontier) -> NDArray[np.void]:
    """Return the index of the whole prefix, which no product code holds at once."""
    return np.concatenate([frontier.rows(k) for k in range(frontier.manifest.count)])


def test_every_region_reads_as_the_recipe_says(sample_home: Home) -> None:
    frontier = open_frontier(sample_home.root, "sample")
    frontier.verify_all()
    assert frontier.manifest.count == 14
    assert len(frontier.region(8)) == 0
    rows = rows_of(frontier)
    assert len(rows) == frontier.manifest.splits.train.documents + 35
    assert int(rows["tokens"].sum()) == sum(entry.tokens for entry in frontier.manifest.regions)
    with pytest.raises(Absent, match="the frontier holds regions 0 to 13"):
        frontier.region(14)


class TestAdvance:
    """Advancing: batches, gaps, crashes between manifest and LATEST, regions that must not be admitted."""

    @pytest.fixture
    def generation(self, pins: Path) -> Generation:
        return load_generation(pins, "sample")

    @pytest.fixture
    def partly(self, folder: GenerationFolder) -> Home:
        """The sample without its frontier, and with admissions of regions 0, 1 and 3 only."""
        folder.latest.unlink()
        folder.manifest(1).unlink()
        for index in {*range(14)} - {0, 1, 3}:
            (folder.region(index) / ADMISSION).unlink()
        return Home(folder.root.parents[1])

    def test_a_gap_holds_the_frontier_until_it_is_filled(self, generation: Generation, partly: Home) -> None:
        first = advance_frontier(generation, partly, now=NOW)
        assert (first.manifest.count, first.first_missing, first.waiting, first.changed) == (2, 2, (3,), True)
        assert (first.latest.status, first.latest.published_at) == ("building", "2026-01-01T00:00:00Z")
        again = advance_frontier(generation, partly, now=datetime(2027, 1, 1, tzinfo=UTC))
        assert (again.changed, again.latest) == (False, first.latest)
        admit_region(generation, 2, partly, run_id="r")
        second = advance_frontier(generation, partly, now=NOW)
        assert (second.manifest.version, second.manifest.count, second.waiting) == (2, 4, ())
        opened = open_frontier(partly.root, "sample")
        assert opened.manifest == second.manifest
        write_stratification("sample", partly)

    def test_a_manifest_that_latest_does_not_name_yet_is_adopted(self, generation: Generation, partly: Home) -> None:
        folder = partly.generation("sample")
        done = advance_frontier(generation, partly, now=NOW)
        folder.latest.unlink()  # as after a crash between the two writes
        resumed = advance_frontier(generation, partly, now=NOW)
        assert (resumed.manifest, resumed.changed, resumed.latest) == (done.manifest, False, done.latest)

    def test_nothing_admitted_says_so(self, generation: Generation, partly: Home) -> None:
        (partly.generation("sample").region(0) / ADMISSION).unlink()
        with pytest.raises(Absent, match=r"no region is admitted \(materialise admission_proof first\)"):
            advance_frontier(generation, partly, now=NOW)

    def test_a_region_in_another_ones_place_is_refused(self, generation: Generation, partly: Home) -> None:
        folder = partly.generation("sample")
        shutil.rmtree(folder.region(1))
        shutil.copytree(folder.region(3), folder.region(1))
        # What is sound before it is published; what is new then is the fault.
        assert advance_frontier(generation, partly, now=NOW).manifest.count == 1
        with pytest.raises(Refused, match=r"PLAN_MISMATCH regions/00001: expected region 1, read 3"):
            advance_frontier(generation, partly, now=NOW)

    @pytest.mark.parametrize(
        ("code", "change"),
        [
            ("GENERATION_MISMATCH", lambda r: dataclasses.replace(r, generation="other")),
            ("PLAN_MISMATCH", lambda r: dataclasses.replace(r, source=dataclasses.replace(r.source, end=1))),
            ("SOURCE_PIN", lambda r: dataclasses.replace(r, source=dataclasses.replace(r.source, revision="0" * 40))),
            (
                "CODEC_PIN",
                lambda r: dataclasses.replace(
                    r, pins=dataclasses.replace(r.pins, codec=dataclasses.replace(r.pins.codec, vocab_sha256="0" * 64))
                ),
            ),
        ],
    )
    def test_a_region_of_other_pins_is_refused(
        self, generation: Generation, partly: Home, code: str, change: Callable[[Receipt], Receipt]
    ) -> None:
        folder = partly.generation("sample")
        resign(folder, change)
        if code == "GENERATION_MISMATCH":
            other_admission(folder, generation="other")
        with pytest.raises(Refused) as caught:
            advance_frontier(generation, partly, now=NOW)
        assert caught.value.code == code


def test_the_stratification_report_adds_up(sample_home: Home, tmp_path: Path) -> None:
    home = Home(tmp_path / "copy")
    shutil.copytree(sample_home.generation("sample").root, home.generation("sample").root)
    written = write_stratification("sample", home)
    report, index = written.report, rows_of(open_frontier(home.root, "sample"))
    assert report.documents == len(index) == 933
    for name in ("by_cluster", "by_length", "by_case_class"):
        table = report.tables[name]
        sums = {column: sum(int(row[k]) for row in table.rows) for k, column in enumerate(table.columns) if k}
        for split, number in (("train", 0), ("validation", 1)):
            rows = index[index["split"] == number]
            assert sums[f"{split}_documents"] == len(rows)
            assert sums[f"{split}_tokens"] == int(rows["tokens"].sum())
            assert sums[f"{split}_raw_bytes"] == int(rows["raw_bytes"].sum())
    crossed = report.tables["cluster_by_length"].rows
    assert sum(int(cell) for row in crossed for cell in row[1:]) == report.tokens
    median = {row[0]: row[6] for row in report.tables["scores"].rows if row[1] == "train"}
    lengths = [line["scores"]["characters"] for k in range(14) for line in _train(home, k)]
    assert median["characters"] == sorted(lengths, key=float)[(len(lengths) - 1) // 2]
    assert [row[0] for row in report.tables["by_region"].rows] == [f"{k:05d}" for k in range(14) if k != 8]
    assert report.tables["duplicates"].rows == ()
    assert np.isclose(sum(float(str(v)) for v in report.tables["by_region"].rows[0][3:]), 1e6, atol=20)


def _train(home: Home, index: int) -> list[dict[str, dict[str, str]]]:
    lines = open_frontier(home.root, "sample").region(index).documents()
    return [line for line in lines if line["split"] == "train"]


class TestUnread:
    """What is handed out before a region's tokens are read: nothing that was not proven once, nothing that changed."""

    def test_a_mix_reads_the_regions_alone_whose_documents_it_uses(self, folder: GenerationFolder) -> None:
        flip(folder.region(3) / IDS)
        source = mix_source(open_frontier(folder.root.parents[1], "sample"))
        assert len(source.rows(3)) == manifest_of(folder).regions[3].documents
        assert len(source.region(2).ids) == manifest_of(folder).regions[2].tokens
        with pytest.raises(Refused, match=f"FILE_HASH regions/00003/{IDS}"):
            source.region(3)

    def test_an_index_is_made_of_a_verified_region_only(self, folder: GenerationFolder) -> None:
        kept = open_frontier(folder.root.parents[1], "sample").rows(3)
        flip(folder.index(3), 200)
        assert open_frontier(folder.root.parents[1], "sample").rows(3).tobytes() == kept.tobytes()
        folder.index(3).unlink()
        flip(folder.region(3) / IDS)
        with pytest.raises(Refused, match=f"FILE_HASH regions/00003/{IDS}"):
            open_frontier(folder.root.parents[1], "sample").rows(3)

    def test_an_index_that_a_stranger_brings_is_not_believed(self, folder: GenerationFolder) -> None:
        """One with a stamp as ours: validation documents would be handed out as documents to train on."""
        frontier = open_frontier(folder.root.parents[1], "sample")
        true, region = frontier.rows(0), frontier.region(0)
        forged = true.copy()
        forged["split"] = 1 - forged["split"]
        path, stream = folder.index(0), io.BytesIO()
        np.save(stream, forged)
        keep_stamped(path, _made_from(region.receipt), stream.getvalue())
        assert open_frontier(folder.root.parents[1], "sample").rows(0).tobytes() == forged.tobytes()
        opened = open_frontier(folder.root)
        assert opened.rows(0).tobytes() == true.tobytes()
        assert [len(opened.documents(split, region=0)) for split in ("train", "validation")] == [
            int((true["split"] == number).sum()) for number in (0, 1)
        ]

    def test_nothing_is_written_into_the_folder_of_somebody_else(self, folder: GenerationFolder) -> None:
        shutil.rmtree(folder.root / "index")
        before = sorted(folder.root.rglob("*"))
        open_frontier(folder.root).verify_all()
        assert sorted(folder.root.rglob("*")) == before

    @pytest.mark.parametrize(
        ("code", "tamper"),
        [
            ("FILE_MISSING", lambda f: (f.region(0) / DOCUMENTS).unlink()),
            ("FILE_SIZE", lambda f: (f.region(0) / IDS).write_bytes((f.region(0) / IDS).read_bytes()[:-2])),
            ("FILE_HASH", lambda f: flip(f.region(0) / RECEIPT, 40)),
            ("FILE_SIZE", lambda f: other_admission(f, checks=())),
            ("FILE_HASH", lambda f: flip(f.region(0) / ADMISSION, 40)),
            ("PATH_UNSAFE", lambda f: link(f.region(0) / DOCUMENTS)),
        ],
    )
    def test_a_region_that_is_not_what_the_manifest_lists_has_no_index(
        self, folder: GenerationFolder, code: str, tamper: Callable[[GenerationFolder], object]
    ) -> None:
        tamper(folder)
        frontier = open_frontier(folder.root)
        for asked in (frontier.receipt, frontier.rows):
            with pytest.raises(Refused, match=f"^{code} regions/00000/"):
                asked(0)
        with pytest.raises(Absent, match="the frontier holds regions 0 to 13"):
            frontier.rows(14)
