"""Several machines on one shared store: each has a home of its own, and nothing else in common."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from casebits_dagster.admission import admit_region
from casebits_dagster.admission.admit import _record, _rejection
from casebits_dagster.filters.region import filter_region
from casebits_dagster.lineage.locate import in_force
from casebits_dagster.lineage.tree import snapshot
from casebits_dagster.publication.consume import open_frontier
from casebits_dagster.publication.frontier import advance_frontier, pull_frontier
from casebits_dagster.publication.stratification import write_stratification
from casebits_dagster.records.digests import sha256, sha256_file
from casebits_dagster.records.errors import Absent, CasebitsError, Conflict, Refused, Rejected
from casebits_dagster.records.frontier import Latest
from casebits_dagster.records.layout import ADMISSION, IDS, RECEIPT, Home
from casebits_dagster.records.pins import Generation, load_generation
from casebits_dagster.records.region import Receipt
from casebits_dagster.regions.encode import encode_region
from casebits_dagster.stores import regions
from casebits_dagster.stores.object import ObjectStore
from tests.crashes.work import NOW, golden_pins, publish
from tests.stores.test_regions import claim_otherwise, flip

REGION = "generations/golden/regions/00001"


@pytest.fixture
def golden(tmp_path: Path) -> Generation:
    return load_generation(golden_pins(tmp_path), "golden")


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[tuple[Home, Home, Home]]:
    regions._opened.cache_clear()
    yield Home(tmp_path / "a", "memory://"), Home(tmp_path / "b", "memory://"), Home(tmp_path / "c", "memory://")
    regions._opened.cache_clear()


Machines = tuple[Home, Home, Home]


def store_of(home: Home) -> ObjectStore:
    store = regions.shared_store(home)
    if store is None:
        raise LookupError
    return store


def encode(generation: Generation, index: int, home: Home) -> Receipt:
    filter_region(generation, index, home)
    return encode_region(generation, index, home).receipt


def overwrite(store: ObjectStore, path: str, content: bytes) -> None:
    assert store.replace(path, store.get(path), content) is True


def test_machines_that_share_nothing_but_the_store_make_what_one_makes(
    golden: Generation, machines: Machines, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    a, b, c = machines
    encode(golden, 1, b)
    assert admit_region(golden, 1, a, run_id="a").published is True
    encode(golden, 0, a)
    assert admit_region(golden, 0, b, run_id="b").published is True
    assert admit_region(golden, 0, a, run_id="a").published is False
    made = advance_frontier(golden, c, now=NOW)
    assert (made.changed, made.manifest.version, made.manifest.count, made.waiting) == (True, 1, 2, ())
    assert advance_frontier(golden, a, now=NOW).changed is False
    write_stratification("golden", b)
    publish(tmp_path / "pins", tmp_path / "alone")
    alone = open_frontier(tmp_path / "alone", "golden")
    for home in (a, b, c):
        frontier = open_frontier(home.root, "golden")
        frontier.verify_all()
        assert frontier.manifest.regions == alone.manifest.regions
        regions = {path: digest for path, digest in snapshot(home).items() if "/regions/" in path}
        assert regions == {k: v for k, v in snapshot(Home(tmp_path / "alone")).items() if "/regions/" in k}


def test_regions_admitted_beyond_a_gap_wait(golden: Generation, machines: Machines) -> None:
    a, b, c = machines
    encode(golden, 1, a)
    admit_region(golden, 1, a, run_id="a")
    with pytest.raises(Absent, match=r"^ADMISSION_MISSING golden/regions/00000/admission.json"):
        advance_frontier(golden, b, now=NOW)
    encode(golden, 0, b)
    admit_region(golden, 0, c, run_id="c")
    assert advance_frontier(golden, b, now=NOW).manifest.count == 2


def test_a_region_that_nobody_pushed_is_absent(golden: Generation, machines: Machines) -> None:
    a, b, _ = machines
    with pytest.raises(Absent) as caught:
        admit_region(golden, 1, a, run_id="a")
    assert str(caught.value) == f"REGION_MISSING {REGION}: no claim is in memory:// (encode the region first)"
    # A run that died between publishing at home and pushing is finished by the next one.
    encode(golden, 0, replace(b, shared=""))
    with pytest.raises(Absent):
        admit_region(golden, 0, b, run_id="b")
    encode(golden, 0, b)
    assert admit_region(golden, 0, a, run_id="a").published is True


def test_rot_in_the_store_never_comes_home(golden: Generation, machines: Machines) -> None:
    a, b, _ = machines
    receipt = encode(golden, 1, a)
    path = f"{REGION}/{receipt.content_id[:16]}/{IDS}"
    sound = store_of(a).get(path)
    overwrite(store_of(a), path, bytes(len(sound)))
    with pytest.raises(
        Refused, match=rf"^FILE_HASH {path}: expected sha256 [0-9a-f]{{64}}, read [0-9a-f]{{64}} \(delete this object"
    ):
        admit_region(golden, 1, b, run_id="b")
    assert b.generation("golden").region(1).exists() is False
    # Whoever made it has sound files at home, and admits only what the others will find.
    with pytest.raises(Refused, match=rf"^FILE_HASH {path}"):
        admit_region(golden, 1, a, run_id="a")
    assert store_of(a).exists(f"{REGION}/{ADMISSION}") is False
    overwrite(store_of(a), path, sound)
    assert admit_region(golden, 1, b, run_id="b").published is True


def test_two_claims_are_refused_until_one_of_them_is(golden: Generation, machines: Machines) -> None:
    a, b, c = machines
    encode(golden, 1, a)
    encode(golden, 1, replace(b, shared=""))
    claim_otherwise(b.generation("golden").region(1))
    receipt = b.generation("golden").region(1) / RECEIPT
    regions.push_region(b, golden, Receipt.parse(receipt.read_bytes(), RECEIPT))
    with pytest.raises(CasebitsError, match=rf"^NONDETERMINISTIC_REGION {REGION}/\w+/receipt.json and {REGION}/\w+/"):
        admit_region(golden, 1, c, run_id="c")
    rejected = Rejected("L2_DOCUMENTS", "00001/documents.jsonl")
    _record(
        _rejection("golden", 1, rejected, sha256_file(receipt)),
        store_of(c),
        "generations/golden/rejections/00001/by-hand",
    )
    assert admit_region(golden, 1, c, run_id="c").published is True
    # The machine that made the refused claim takes the admitted one.
    assert admit_region(golden, 1, b, run_id="b").published is False
    assert (b.generation("golden").set_aside(1) / "00001" / RECEIPT).exists() is True


def test_a_refusal_is_recorded_for_all(golden: Generation, machines: Machines) -> None:
    a, b, _ = machines
    encode(golden, 1, replace(a, shared=""))
    folder = a.generation("golden").region(1)
    claim_otherwise(folder)
    regions.push_region(a, golden, Receipt.parse((folder / RECEIPT).read_bytes(), RECEIPT))
    with pytest.raises(Rejected, match=r"^L2_DOCUMENTS"):
        admit_region(golden, 1, b, run_id="b")
    assert store_of(a).list("generations/golden/rejections") == ["generations/golden/rejections/00001/b.json"]
    # What another machine refused gives way here as well.
    encode(golden, 1, a)
    assert admit_region(golden, 1, b, run_id="b").published is True


def test_an_admission_that_stands_in_the_store_stays(golden: Generation, machines: Machines) -> None:
    a, b, _ = machines
    encode(golden, 1, a)
    full = admit_region(golden, 1, a, run_id="a", full=True)
    sampled = admit_region(golden, 1, b, run_id="b")
    assert (sampled.published, sampled.admission_sha256) == (False, full.admission_sha256)
    other = replace(full.admission, content_id="0" * 64).to_bytes()
    overwrite(store_of(a), f"{REGION}/{ADMISSION}", other)
    with pytest.raises(Conflict, match=rf"^STORE_CONFLICT {REGION}/{ADMISSION}"):
        admit_region(golden, 1, a, run_id="a")


def test_a_store_that_falls_behind_what_was_seen_is_refused(golden: Generation, machines: Machines) -> None:
    a, _, _ = machines
    for index in range(2):
        encode(golden, index, a)
        admit_region(golden, index, a, run_id="a")
        advance_frontier(golden, a, now=NOW)
        if index == 0:
            first = store_of(a).get("generations/golden/LATEST.json")
    overwrite(store_of(a), "generations/golden/LATEST.json", first)
    with pytest.raises(Refused) as caught:
        pull_frontier(a, "golden")
    assert str(caught.value) == (
        "ROLLBACK memory:///generations/golden/LATEST.json: expected version 2 or later, read 1"
    )
    assert Latest.parse(a.generation("golden").latest.read_bytes(), "LATEST").version == 2


def test_a_damaged_file_at_home_is_refused_and_mended_by_a_rerun(golden: Generation, machines: Machines) -> None:
    a, _, _ = machines
    encode(golden, 1, a)
    flip(a.generation("golden").region(1) / IDS)
    with pytest.raises(Rejected, match=r"^L1_HASH"):
        admit_region(golden, 1, a, run_id="a")
    encode(golden, 1, a)
    assert admit_region(golden, 1, a, run_id="a").published is True


def test_other_pins_have_no_say_in_a_store(golden: Generation, machines: Machines) -> None:
    a, b, _ = machines
    encode(golden, 1, a)
    split = replace(golden.pins.split, salt="other")
    other = replace(golden, pins=replace(golden.pins, split=split))
    for work in (
        lambda: encode(other, 1, b),
        lambda: admit_region(other, 1, b, run_id="b"),
        lambda: advance_frontier(other, b, now=NOW),
    ):
        with pytest.raises(Refused) as caught:
            work()
        assert str(caught.value) == (
            "GENERATION_MISMATCH memory:///generations/golden/pins.json: the store was made from other pins "
            "(use the pins that it was made from, or a new name)"
        )
    assert store_of(a).list("generations/golden/rejections") == []
    assert admit_region(golden, 1, a, run_id="a").published is True


def test_rot_at_one_home_is_no_refusal_for_the_others(golden: Generation, machines: Machines) -> None:
    a, b, _ = machines
    encode(golden, 1, a)
    flip(a.generation("golden").region(1) / IDS)
    with pytest.raises(Rejected, match=r"^L1_HASH"):
        admit_region(golden, 1, a, run_id="a")
    assert store_of(a).list("generations/golden/rejections") == []
    assert admit_region(golden, 1, b, run_id="b").published is True


def test_where_all_claims_were_refused_the_one_made_here_is_looked_at_again(
    golden: Generation, machines: Machines
) -> None:
    a, b, c = machines
    sound = encode(golden, 1, a)
    encode(golden, 1, replace(b, shared=""))
    folder = b.generation("golden").region(1)
    claim_otherwise(folder)
    regions.push_region(b, golden, Receipt.parse((folder / RECEIPT).read_bytes(), RECEIPT))
    for number, digest in enumerate((sha256_file(folder / RECEIPT), sha256(sound.to_bytes()))):
        rejection = _rejection("golden", 1, Rejected("L2_DOCUMENTS", "00001/documents.jsonl"), digest)
        _record(rejection, store_of(c), f"generations/golden/rejections/00001/{number}")
    with pytest.raises(CasebitsError, match=r"^NONDETERMINISTIC_REGION .*\(find out why, and delete one of them"):
        admit_region(golden, 1, c, run_id="c")
    encode(golden, 1, c)
    assert admit_region(golden, 1, c, run_id="c").published is True


def test_a_region_that_goes_bad_holds_the_frontier_only_from_there(golden: Generation, machines: Machines) -> None:
    home = replace(machines[0], shared="")
    for index in range(2):
        encode(golden, index, home)
        admit_region(golden, index, home, run_id="a")
    flip(home.generation("golden").region(1) / IDS)
    assert advance_frontier(golden, home, now=NOW).manifest.count == 1
    with pytest.raises(Refused, match=r"^FILE_HASH regions/00001/"):
        advance_frontier(golden, home, now=NOW)


def test_a_home_with_another_past_is_refused_before_latest_moves(golden: Generation, machines: Machines) -> None:
    a, b, _ = machines
    alone = replace(b, shared="")
    for index in range(2):
        encode(golden, index, alone)
        admit_region(golden, index, alone, run_id="b")
    advance_frontier(golden, alone, now=NOW)
    latest = b.generation("golden").latest.read_bytes()
    for index in range(2):
        encode(golden, index, a)
        admit_region(golden, index, a, run_id="a")
        advance_frontier(golden, a, now=NOW)
    with pytest.raises(Conflict, match=r"^STORE_CONFLICT generations/golden/frontier/manifests/00000001.json"):
        pull_frontier(b, "golden")
    assert b.generation("golden").latest.read_bytes() == latest


def test_a_receipt_of_another_region_stays_where_it_is(golden: Generation, machines: Machines) -> None:
    a, b, _ = machines
    receipt = encode(golden, 0, a)
    store_of(a).put_new(f"{REGION}/{receipt.content_id[:16]}/{RECEIPT}", receipt.to_bytes())
    with pytest.raises(Refused, match=rf"^FILE_HASH {REGION}/receipt.json: expected golden/00001, read golden/00000"):
        admit_region(golden, 1, b, run_id="b")
    assert b.generation("golden").verdicts(1).exists() is False


def test_a_machine_that_only_pulled_has_no_text_to_encode(golden: Generation, machines: Machines) -> None:
    a, b, _ = machines
    encode(golden, 1, a)
    admit_region(golden, 1, b, run_id="b")
    with pytest.raises(Absent, match=r"00001.kept.arrow: not filtered yet \(materialise filtered_documents first\)$"):
        encode_region(golden, 1, b)


def test_a_row_is_withdrawn_on_a_machine_that_has_nothing_yet(
    golden: Generation, machines: Machines, tmp_path: Path
) -> None:
    """What it builds next must leave the row out, though its region lies in the store alone."""
    a, _, c = machines
    for index in (0, 1):
        encode(golden, index, a)
        admit_region(golden, index, a, run_id="a")
    advance_frontier(golden, a, now=NOW)
    line = open_frontier(a.root, "golden").region(1).documents()[0]
    row = f'generation = "golden"\npath = "{golden.plan[1].path}"\nposition = {line["source_position"]}\n'
    (folder := tmp_path / "withdrawn" / "withdrawals").mkdir(parents=True)
    (folder / "letter.toml").write_text(
        f'withdrawn_by = "A Person"\nwithdrawn_on = "2026-03-04"\nreason = "The author asked."\n[[rows]]\n{row}'
    )
    withdrawn = in_force(folder.parent, c, {"golden": golden})
    assert [text.hex() for text in withdrawn.ids.tolist()] == [line["id"]]
    assert len(in_force(folder.parent, Home(tmp_path / "alone"), {"golden": golden}).ids) == 0
