"""Admission as a commit, and the proof as a whole."""

from __future__ import annotations

import shutil
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from casebits_dagster.admission import admit_region, structure, verify_region
from casebits_dagster.admission.checks import blocks
from casebits_dagster.records.digests import sha256, sha256_file
from casebits_dagster.records.errors import Absent, CasebitsError, Rejected
from casebits_dagster.records.layout import ADMISSION, IDS, RECEIPT, Home
from casebits_dagster.records.pins import Generation
from casebits_dagster.records.policy import FilterPolicy, Rule
from casebits_dagster.records.region import Admission, Rejection
from tests.faults.build import Made, encode, judge, make_region, scores
from tests.faults.world import POLICY, Row, document_id, make_world, side

World = tuple[Generation, Home, list[Row]]


@pytest.fixture
def world(tmp_path: Path, pins: Path) -> World:
    return make_world(tmp_path, pins)


def tree(root: Path) -> dict[str, str]:
    return {path.relative_to(root).as_posix(): sha256_file(path) for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("index", "documents"), [(0, 10), (1, 0), (2, 70), (3, 0)])
def test_a_sound_region_is_admitted_once(world: World, index: int, documents: int) -> None:
    generation, home, rows = world
    made = make_region(generation, home, rows, index)
    first = admit_region(generation, index, home, run_id="run-1")
    before = tree(home.root)
    again = admit_region(generation, index, home, run_id="run-2")
    assert (first.published, again.published, again.admission) == (True, False, first.admission)
    assert tree(home.root) == before
    assert first.admission_sha256 == sha256_file(made.folder / ADMISSION)
    assert Admission.parse((made.folder / ADMISSION).read_bytes(), ADMISSION) == first.admission
    read = {check.id: (check.population, check.examined, check.mode, check.seed) for check in first.admission.checks}
    assert read["L4_TEXT"] == (documents, documents, "full", "")
    sampled = (70, 32, "sample", first.admission.receipt_sha256)
    assert read["L5_SEGMENTATION"] == (sampled if documents == 70 else (documents, documents, "full", ""))


def test_what_an_admission_says(world: World) -> None:
    generation, home, rows = world
    made = make_region(generation, home, rows, 0)
    admission = verify_region(made.folder, generation)
    kept = [document.position for document in made.documents]
    sides = bytes(document.split == "validation" for document in made.documents)
    assert [file.name for file in admission.files] == sorted([*made.files, RECEIPT])
    assert {file.name: file.sha256 for file in admission.files} == tree(made.folder)
    assert admission.digests.text == sha256(b"".join(document.text for document in made.documents))
    assert admission.digests.selection == sha256(np.array(kept, "<i8").tobytes())
    assert admission.digests.split == sha256(sides)
    assert admission.digests.document_ids == sha256(b"".join(document.document_id for document in made.documents))
    assert admission.source_recheck.range_sha256 == made.source["range_sha256"]
    assert admission.attribution.licence_spdx == generation.source.pin.licence_spdx


def test_a_full_proof_leaves_a_sampled_admission_as_it_is(world: World) -> None:
    generation, home, rows = world
    make_region(generation, home, rows, 2)
    sampled = admit_region(generation, 2, home, run_id="run-1")
    full = admit_region(generation, 2, home, run_id="run-2", full=True)
    assert (full.admission, full.admission_sha256, full.published) == (
        sampled.admission,
        sampled.admission_sha256,
        False,
    )
    seen = {check.mode for check in verify_region(home.generation("tiny").region(2), generation, full=True).checks}
    assert seen == {"full"}


def test_a_refusal_is_a_record_and_no_admission(world: World) -> None:
    generation, home, rows = world
    made = make_region(generation, home, rows, 0, after=encode, mutate=lambda made: made.cases.__setitem__(43, 1 << 15))
    for _ in range(2):
        with pytest.raises(Rejected):
            admit_region(generation, 0, home, run_id="run-1")
    path = home.generation("tiny").rejections(0) / "run-1.json"
    read = Rejection.parse(path.read_bytes(), path.name)
    assert (read.check, read.where) == ("L2_MASK_LENGTH", "00000/casebits_mixture.case.u16le")
    assert (read.problem, read.document, read.position) == (
        "expected no bit beyond its token, read 32768",
        int(np.searchsorted(made.offsets, 43, "right")) - 1,
        43,
    )
    assert not (made.folder / ADMISSION).exists()
    assert [path.name for path in path.parent.iterdir()] == ["run-1.json"]


def test_a_refusal_without_a_reading(world: World) -> None:
    generation, home, rows = world
    made = make_region(generation, home, rows, 1)
    (made.folder / IDS).unlink()
    with pytest.raises(Rejected):
        admit_region(generation, 1, home, run_id="run-1")
    read = Rejection.parse((home.generation("tiny").rejections(1) / "run-1.json").read_bytes(), "run-1.json")
    assert (read.problem, read.document, read.position) == ("file is missing", None, None)


def test_a_rejected_region_is_admitted_when_it_is_made_again(world: World) -> None:
    generation, home, rows = world
    made = make_region(generation, home, rows, 0, after=encode, mutate=lambda made: made.cases.__setitem__(0, 1 << 15))
    with pytest.raises(Rejected):
        admit_region(generation, 0, home, run_id="run-1")
    shutil.rmtree(made.folder)
    make_region(generation, home, rows, 0)
    assert admit_region(generation, 0, home, run_id="run-2").published


def test_another_admission_is_never_overwritten(world: World) -> None:
    generation, home, rows = world
    made = make_region(generation, home, rows, 0)
    admission = verify_region(made.folder, generation)
    forged = replace(admission, content_id="0" * 64).to_bytes()
    (made.folder / ADMISSION).write_bytes(forged)
    with pytest.raises(CasebitsError, match=r"^STORE_CONFLICT generations/tiny/regions/00000/admission.json"):
        admit_region(generation, 0, home, run_id="run-1")
    assert (made.folder / ADMISSION).read_bytes() == forged


def test_no_region_is_absent_not_rejected(world: World) -> None:
    generation, home, _ = world
    with pytest.raises(Absent, match=r"^REGION_MISSING"):
        admit_region(generation, 0, home, run_id="run-1")
    assert not home.root.exists()


def test_a_region_under_another_number(world: World) -> None:
    generation, home, rows = world
    made = make_region(generation, home, rows, 1)
    other = home.generation("tiny").region(0)
    shutil.copytree(made.folder, other)
    expected = r"^L4_PINS 00000/receipt.json: region.index: expected 0, read 1$"
    with pytest.raises(Rejected, match=expected):
        admit_region(generation, 0, home, run_id="run-1")
    with pytest.raises(Rejected, match=expected):
        verify_region(other, generation)


def test_a_region_anywhere(world: World, tmp_path: Path) -> None:
    generation, home, rows = world
    made = make_region(generation, home, rows, 2)
    elsewhere = shutil.copytree(made.folder, tmp_path / "received")
    found = verify_region(elsewhere, generation, verdicts=made.verdict_file)
    assert found == verify_region(made.folder, generation)


def test_a_region_that_the_plan_does_not_have(world: World) -> None:
    generation, home, rows = world
    made = make_region(generation, home, rows, 1)
    short = replace(generation, plan=generation.plan[:1])
    with pytest.raises(Rejected, match=r"^L4_PINS 00001/receipt.json: region.index: the plan has 1 regions$"):
        verify_region(made.folder, short)


def test_blocks_hold_whole_documents_and_all_of_them() -> None:
    offsets = np.array([0, 1, 3, 9, 10, 11], "<u8")
    assert list(blocks(offsets, 3)) == [(0, 2), (2, 3), (3, 5)]
    assert list(blocks(offsets, 1)) == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]
    assert list(blocks(offsets, 100)) == [(0, 5)]
    assert list(blocks(offsets[:1], 3)) == []


def test_block_size_changes_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    generation, home, rows = world
    made = make_region(generation, home, rows, 2)
    whole = verify_region(made.folder, generation)
    monkeypatch.setattr(structure, "BLOCK", 7)
    assert verify_region(made.folder, generation) == whole


def test_a_fault_in_a_later_block_is_named_by_its_place_in_the_region(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    generation, home, rows = world

    def mutate(made: Made) -> None:
        made.cases[made.offsets[51] - 1] = 1
        made.raw_bytes[60] += 1

    made = make_region(generation, home, rows, 2, after=encode, mutate=mutate)
    monkeypatch.setattr(structure, "BLOCK", 7)
    with pytest.raises(Rejected) as caught:
        verify_region(made.folder, generation)
    assert (caught.value.code, caught.value.document) == ("L2_MASK_EOD", 50)
    assert caught.value.position == made.offsets[51] - 1


def test_a_fault_beyond_the_sample_is_found_in_full(world: World) -> None:
    generation, home, rows = world

    def mutate(made: Made) -> None:
        for verdict in made.verdicts:
            if verdict.scores and verdict.position in unseen:
                verdict.scores["characters"] += 1_000_000

    sampled = verify_region(make_region(generation, home, rows, 2).folder, generation)
    assert {check.id for check in sampled.checks if check.mode == "sample"} == {"L4_SCORES", "L5_SEGMENTATION"}
    unseen = {generation.plan[2].begin + 69}
    shutil.rmtree(home.root)
    made = make_region(generation, home, rows, 2, after=judge, mutate=mutate)
    with pytest.raises(Rejected, match=r"^L4_SCORES"):
        verify_region(made.folder, generation, full=True)


def test_a_metric_that_the_verifier_does_not_know(tmp_path: Path, pins: Path) -> None:
    policy = replace(POLICY, metrics=(*POLICY.metrics, "poetry"))
    generation, home, rows = make_world(tmp_path, pins, policy)
    made = make_region(generation, home, rows, 1)
    with pytest.raises(
        Rejected, match=r"^L4_SCORES 00001/verdicts/00001.parquet: score_poetry: this verifier does not"
    ):
        verify_region(made.folder, generation)


def test_a_policy_without_metrics_or_duplicates(tmp_path: Path, pins: Path) -> None:
    policy = FilterPolicy(policy_id="none-1", description="All clusters but 11.", metrics=(), rules=(cluster_rule(),))
    generation, home, rows = make_world(tmp_path, pins, policy)

    def mutate(made: Made) -> None:
        for verdict in made.verdicts:
            verdict.scores = {} if verdict.scores is not None else None
            if not verdict.verdict.startswith("quarantined"):
                verdict.verdict = "keep"

    made = make_region(generation, home, rows, 1, after=judge, mutate=mutate)
    admission = verify_region(made.folder, generation)
    assert [document.position for document in made.documents] == [23, 24, 25]
    assert admission.verdict == "admitted"


def cluster_rule() -> Rule:
    return Rule(reason="cluster", kind="clusters", accept=(1, 2, 3))


def test_rules_compare_with_both_limits(tmp_path: Path, pins: Path) -> None:
    both = Rule(reason="size", kind="threshold", metric="characters", at_least=Decimal(2), at_most=Decimal(3))
    policy = replace(POLICY, policy_id="both-1", rules=(both,))
    generation, home, rows = make_world(tmp_path, pins, policy)

    def mutate(made: Made) -> None:
        for verdict in made.verdicts:
            verdict.verdict = "dropped:size"

    made = make_region(generation, home, rows, 1, after=judge, mutate=mutate)
    assert verify_region(made.folder, generation).verdict == "admitted"


def test_the_builder_agrees_with_itself() -> None:
    assert (side(document_id(b"x")), scores(b"to 9")) == (
        "train",
        {"characters": 4_000_000, "digit_share": 250_000, "stop_word_share": 500_000},
    )
