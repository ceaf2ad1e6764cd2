"""The frontier as a fold: gapless, never shrinking, chained; each rule broken once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from casebits_dagster.frontier import AdmittedRegion, extend, pointer_to, require_extends, require_sound, root_of
from casebits_dagster.records.errors import Refused
from casebits_dagster.records.frontier import FrontierEntry, Manifest, PlanPin, SplitTotal, SplitTotals
from casebits_dagster.records.region import StoredFile

PLAN = PlanPin(total=6, sha256="a" * 64)
CODEC = (StoredFile(name="vocabulary.json", bytes=3, sha256="c" * 64),)


def region(index: int, content_id: str = "") -> AdmittedRegion:
    entry = FrontierEntry(
        index=index,
        path=f"regions/{index:05d}",
        content_id=content_id or f"{index:064x}",
        documents=index,
        tokens=10 * index,
        files=(StoredFile(name="receipt.json", bytes=index, sha256="f" * 64),),
    )
    train = SplitTotal(documents=index, tokens=10 * index, raw_bytes=40 * index)
    return AdmittedRegion(entry, SplitTotals(train=train, validation=SplitTotal(documents=0, tokens=0, raw_bytes=0)))


def advance(previous: Manifest | None, *indices: int, plan: PlanPin = PLAN) -> Manifest | None:
    admitted = {index: region(index) for index in indices}
    return extend(previous, admitted, generation="g", plan=plan, codec=CODEC)


def made(previous: Manifest | None, *indices: int) -> Manifest:
    manifest = advance(previous, *indices)
    assert manifest is not None
    return manifest


def test_the_prefix_stops_at_the_first_gap_and_waits() -> None:
    first = made(None, 0, 1, 3, 5)
    assert [entry.index for entry in first.regions] == [0, 1]
    assert advance(first, 3, 5) is None
    second = made(first, 2, 3, 5)
    assert [entry.index for entry in second.regions] == [0, 1, 2, 3]
    assert (second.version, second.previous, second.count) == (2, pointer_to(first), 4)
    assert second.splits.train == SplitTotal(documents=6, tokens=60, raw_bytes=240)


def test_nothing_admitted_makes_no_version() -> None:
    assert advance(None) is None
    assert advance(None, 1, 2) is None


@given(st.permutations(range(6)), st.lists(st.integers(1, 6), min_size=1, max_size=6))
def test_any_order_of_arrival_ends_in_the_same_prefix(order: list[int], batches: list[int]) -> None:
    arrived: set[int] = set()
    manifest: Manifest | None = None
    queue = list(order)
    while queue:
        size = batches[len(queue) % len(batches)]
        arrived |= set(queue[:size])
        queue = queue[size:]
        newer = advance(manifest, *arrived)
        if newer:
            assert manifest is None or newer.regions[: manifest.count] == manifest.regions
            manifest = newer
    assert manifest is not None
    assert [entry.index for entry in manifest.regions] == list(range(6))
    assert manifest.tree_root == root_of([region(k).entry for k in range(6)])
    assert manifest.splits.train.documents == 15


FIRST = made(None, 0, 1)
SECOND = made(FIRST, 2, 3)


def resealed(manifest: Manifest, **changes: object) -> Manifest:
    changed: Manifest = replace(manifest, **changes)  # type: ignore[arg-type]
    return replace(changed, tree_root=root_of(changed.regions), count=len(changed.regions))


UNSOUND: list[tuple[str, Manifest, str]] = [
    ("GAP", resealed(FIRST, regions=(region(0).entry, region(2).entry)), r"m: regions\[1\].index: expected 1, read 2"),
    ("COUNT_MISMATCH", replace(FIRST, count=3), "m: count: expected 2, read 3"),
    ("COUNT_MISMATCH", replace(FIRST, plan=PlanPin(total=1, sha256="a" * 64)), "expected at most 1, read 2"),
    ("TREE_ROOT", replace(FIRST, tree_root="0" * 64), "m: tree_root: expected .*, read 0000"),
]


@pytest.mark.parametrize(("code", "manifest", "message"), UNSOUND)
def test_an_unsound_manifest_is_refused(code: str, manifest: Manifest, message: str) -> None:
    with pytest.raises(Refused, match=message) as caught:
        require_sound(manifest, "m")
    assert caught.value.code == code


UNCHAINED: list[tuple[str, Callable[[], Manifest], str]] = [
    ("CHAIN_BROKEN", lambda: replace(SECOND, previous=None), "read None"),
    ("CHAIN_BROKEN", lambda: replace(SECOND, previous=replace(pointer_to(FIRST), sha256="0" * 64)), "read version 1"),
    ("CHAIN_BROKEN", lambda: replace(SECOND, version=3), "previous"),
    ("GENERATION_MISMATCH", lambda: replace(SECOND, generation="h"), "expected g, read h"),
    ("PLAN_MISMATCH", lambda: replace(SECOND, plan=PlanPin(total=7, sha256="b" * 64)), "expected aaaa"),
    ("CODEC_PIN", lambda: replace(SECOND, codec=()), "the codec changed"),
    (
        "HISTORY_REWRITTEN",
        lambda: resealed(SECOND, regions=(region(0, "e" * 64).entry, *SECOND.regions[1:])),
        "read ee",
    ),
    ("HISTORY_REWRITTEN", lambda: resealed(SECOND, regions=FIRST.regions), "count: expected more than 2, read 2"),
]


@pytest.mark.parametrize(("code", "make", "message"), UNCHAINED)
def test_a_manifest_that_does_not_extend_is_refused(code: str, make: Callable[[], Manifest], message: str) -> None:
    with pytest.raises(Refused, match=message) as caught:
        require_extends(make(), FIRST, "manifest 2")
    assert caught.value.code == code


def test_extending_with_another_plan_is_refused() -> None:
    with pytest.raises(Refused, match="PLAN_MISMATCH"):
        advance(FIRST, 2, plan=PlanPin(total=9, sha256="b" * 64))
