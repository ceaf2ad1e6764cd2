"""What a rerun does to a region that is published already: adopt, mend, replace or refuse."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from casebits_dagster.admission import admit, admit_region, verify_region
from casebits_dagster.filters.region import filter_region
from casebits_dagster.records.digests import sha256_file
from casebits_dagster.records.errors import CasebitsError, Rejected
from casebits_dagster.records.layout import ADMISSION, CASES, DOCUMENTS, IDS, RECEIPT, Home
from casebits_dagster.records.pins import Generation, load_generation
from casebits_dagster.records.region import Admission, Receipt, Rejection
from casebits_dagster.regions.encode import encode_region

REGION = 13


@pytest.fixture
def generation(pins: Path) -> Generation:
    return load_generation(pins, "sample")


@pytest.fixture
def made(sample_home: Home, home: Home) -> Home:
    """A home with one region of the sample, admitted."""
    theirs, ours = sample_home.generation("sample"), home.generation("sample")
    for folder in ("verdicts", "regions"):
        (ours.root / folder).mkdir(parents=True)
    shutil.copytree(theirs.region(REGION), ours.region(REGION))
    for path in (theirs.verdicts(REGION), theirs.kept_text(REGION)):
        shutil.copy(path, ours.verdicts(REGION).parent)
    return home


def tree(folder: Path) -> dict[str, str]:
    return {path.name: sha256_file(path) for path in folder.iterdir()}


def flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[100] ^= 1
    path.unlink()
    path.write_bytes(raw)


def linked(folder: Path) -> None:
    (folder / IDS).rename(folder.parent / "elsewhere")
    (folder / IDS).symlink_to("../elsewhere")


DAMAGE: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "rot": (lambda folder: flip(folder / IDS), [IDS]),
    "truncation": (lambda folder: (folder / CASES).write_bytes((folder / CASES).read_bytes()[:-2]), [CASES]),
    "missing": (lambda folder: (folder / IDS).unlink(), []),
    "foreign file": (lambda folder: (folder / "note.txt").write_text("hello"), ["note.txt"]),
    "foreign folder": (lambda folder: (folder / "more").mkdir(), ["more"]),
    "swapped": (
        lambda folder: [(folder / a).rename(folder / b) for a, b in ((IDS, "x"), (CASES, IDS), ("x", CASES))],
        [CASES, IDS],
    ),
    "link": (linked, [IDS]),
    "receipt gone": (lambda folder: (folder / RECEIPT).unlink(), []),
    "receipt rotten": (lambda folder: flip(folder / RECEIPT), [RECEIPT]),
}


@pytest.mark.parametrize("name", DAMAGE)
@pytest.mark.parametrize("admitted", [True, False])
def test_a_damaged_region_is_refused_and_a_rerun_mends_it(
    made: Home, generation: Generation, name: str, admitted: bool
) -> None:
    folder, (damage, moved) = made.generation("sample").region(REGION), DAMAGE[name]
    sound = tree(folder)
    if not admitted:
        (folder / ADMISSION).unlink()
    damage(folder)
    with pytest.raises(Rejected, match=r"^L1_"):
        admit_region(generation, REGION, made, run_id="run-1")
    filter_region(generation, REGION, made)
    assert encode_region(generation, REGION, made).published is True
    assert admit_region(generation, REGION, made, run_id="run-2").published is not admitted
    assert tree(folder) == sound
    aside = made.generation("sample").set_aside(REGION)
    inside = aside / folder.name if (aside / folder.name).exists() else aside
    assert sorted(path.name for path in inside.iterdir() if path.name in moved) == moved


def test_a_region_that_nobody_refused_is_not_replaced(made: Home, generation: Generation) -> None:
    folder = made.generation("sample").region(REGION)
    (folder / ADMISSION).unlink()
    claim_otherwise(folder)
    before = tree(folder)
    with pytest.raises(CasebitsError) as caught:
        encode_region(generation, REGION, made)
    assert str(caught.value) == (
        f"NONDETERMINISTIC_REGION generations/sample/regions/00013/{DOCUMENTS}: "
        "a rerun made other bytes than the published ones"
    )
    assert tree(folder) == before


def test_a_refused_claim_gives_way_to_another(made: Home, sample_home: Home, generation: Generation) -> None:
    folder = made.generation("sample").region(REGION)
    (folder / ADMISSION).unlink()
    claim_otherwise(folder)
    refused = tree(folder)
    with pytest.raises(Rejected, match=r"^L2_DOCUMENTS"):
        admit_region(generation, REGION, made, run_id="run-1")
    filter_region(generation, REGION, made)
    assert encode_region(generation, REGION, made).published is True
    assert admit_region(generation, REGION, made, run_id="run-1").published is True
    assert tree(folder) == tree(sample_home.generation("sample").region(REGION))
    assert tree(made.generation("sample").set_aside(REGION) / "00013") == refused


def test_refusals_under_one_run_id_are_all_recorded(made: Home, generation: Generation) -> None:
    folder = made.generation("sample").region(REGION)
    for damage in (lambda: (folder / "note.txt").write_text("x"), lambda: flip(folder / IDS), lambda: None):
        damage()
        with pytest.raises(Rejected):
            admit_region(generation, REGION, made, run_id="run-1")
        (folder / "note.txt").unlink(missing_ok=True)
    found = made.generation("sample").rejections(REGION)
    checks = {path.name: Rejection.parse(path.read_bytes(), path.name).check for path in found.iterdir()}
    assert checks == {"run-1.json": "L1_FILES", "run-1.2.json": "L1_HASH"}


def claim_otherwise(folder: Path) -> None:
    """Change a document's line and seal the receipt over it: every hash agrees."""
    lines = (folder / DOCUMENTS).read_bytes().replace(b'"index":0,', b'"index":7,', 1)
    (folder / DOCUMENTS).write_bytes(lines)
    receipt = Receipt.parse((folder / RECEIPT).read_bytes(), RECEIPT).to_dict()
    for file in receipt["files"]:  # type: ignore[union-attr]
        if file["name"] == DOCUMENTS:  # type: ignore[index,call-overload]
            file["sha256"] = sha256_file(folder / DOCUMENTS)  # type: ignore[index,call-overload]
    (folder / RECEIPT).write_bytes(Receipt.from_dict(receipt, RECEIPT).sealed().to_bytes())


def test_an_admitted_claim_is_never_replaced(made: Home, generation: Generation) -> None:
    folder = made.generation("sample").region(REGION)
    admission = Admission.parse((folder / ADMISSION).read_bytes(), ADMISSION)
    (folder / ADMISSION).write_bytes(replace(admission, content_id="0" * 64).to_bytes())
    flip(folder / IDS)
    with pytest.raises(Rejected, match=r"^L1_HASH"):
        admit_region(generation, REGION, made, run_id="run-1")
    with pytest.raises(CasebitsError, match=r"^NONDETERMINISTIC_REGION"):
        encode_region(generation, REGION, made)


def test_an_admission_that_is_no_record_is_made_again(made: Home, generation: Generation) -> None:
    folder = made.generation("sample").region(REGION)
    sound = tree(folder)
    (folder / ADMISSION).write_bytes(b"{}\n")
    assert admit_region(generation, REGION, made, run_id="run-1").published is True
    assert tree(folder) == sound
    assert (made.generation("sample").set_aside(REGION) / ADMISSION).read_bytes() == b"{}\n"


def test_a_claim_that_changes_under_the_proof_is_not_admitted(
    made: Home, generation: Generation, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made.generation("sample").region(REGION)
    (folder / ADMISSION).unlink()

    def slowly(*args: object, **names: object) -> object:
        found = verify_region(*args, **names)  # type: ignore[arg-type]
        claim_otherwise(folder)
        return found

    monkeypatch.setattr(admit, "verify_region", slowly)
    with pytest.raises(CasebitsError, match=r"^REGION_CHANGED generations/sample/regions/00013/receipt.json: while"):
        admit_region(generation, REGION, made, run_id="run-1")
    assert (folder / ADMISSION).exists() is False


def test_an_admission_of_another_region_is_moved_away(made: Home, sample_home: Home, generation: Generation) -> None:
    folder = made.generation("sample").region(REGION)
    sound = tree(folder)
    shutil.copy(sample_home.generation("sample").region(8) / ADMISSION, folder / ADMISSION)
    assert admit_region(generation, REGION, made, run_id="run-1").published is True
    assert tree(folder) == sound
    (folder / ADMISSION).unlink()
    (folder / ADMISSION).mkdir()
    assert admit_region(generation, REGION, made, run_id="run-1").published is True
    assert tree(folder) == sound


def test_a_link_in_the_place_of_a_region_gives_way(made: Home, generation: Generation) -> None:
    folder = made.generation("sample").region(REGION)
    sound = tree(folder)
    folder.rename(made.root / "elsewhere")
    folder.symlink_to(made.root / "elsewhere")
    with pytest.raises(Rejected, match=r"^L1_FILES 00013/\.: is not a folder of its own$"):
        admit_region(generation, REGION, made, run_id="run-0")
    assert encode_region(generation, REGION, made).published is True
    assert admit_region(generation, REGION, made, run_id="run-1").published is True
    assert (folder.is_symlink(), tree(folder)) == (False, sound)


def test_a_foreign_file_whose_name_is_no_text_is_refused_by_name(made: Home, generation: Generation) -> None:
    (made.generation("sample").region(REGION) / "a\udcff").touch()
    with pytest.raises(Rejected, match=r"^L1_FILES"):
        admit_region(generation, REGION, made, run_id="run-1")
    path = made.generation("sample").rejections(REGION) / "run-1.json"
    assert Rejection.parse(path.read_bytes(), path.name).where == "00013/a\\udcff"


def test_a_claim_that_vanished_under_the_proof_is_not_admitted(
    made: Home, generation: Generation, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made.generation("sample").region(REGION)

    def slowly(*args: object, **names: object) -> object:
        found = verify_region(*args, **names)  # type: ignore[arg-type]
        (folder / RECEIPT).unlink()
        return found

    monkeypatch.setattr(admit, "verify_region", slowly)
    with pytest.raises(CasebitsError, match=r"^REGION_CHANGED .* read nothing \(prove it again\)$"):
        admit_region(generation, REGION, made, run_id="run-1")
