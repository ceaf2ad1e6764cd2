"""The whole demo through Dagster, in two homes and twice in one: the same bytes, and what a broken region does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from casebits_dagster.definitions import build
from casebits_dagster.orchestration.demo import run_demo
from casebits_dagster.records.layout import ADMISSION, IDS, Home
from casebits_dagster.records.region import Admission

pytestmark = pytest.mark.slow


def test_reruns_and_other_homes_make_the_same_bytes(pins: Path, tmp_path: Path) -> None:
    said: list[str] = []
    first = run_demo(tmp_path / "one", pins, said.append, build)
    assert (first.failures, first.first_run, first.unchanged) == ({}, True, False)
    assert (first.summary.admitted, first.summary.empty, first.summary.counts["documents"]) == (14, 1, 933)
    assert list(first.mixes) == ["sample_aligned", "sample_concatenated", "sample_interleaved", "sample_stratified"]
    assert [line[:8] for line in said[:14]] == [f"[{k + 1:>2}/14] " for k in range(14)]
    # Regions that are worked on beside each other may end in another order.
    assert sorted(line[8:21] for line in said[:14]) == [f"region {k:05d}:" for k in range(14)]

    again = run_demo(tmp_path / "one", pins, said.append, build)
    assert (again.failures, again.first_run, again.unchanged) == ({}, False, True)

    elsewhere = run_demo(tmp_path / "two", pins, said.append, build)
    assert elsewhere.tree_digest == first.tree_digest


def test_a_broken_region_is_named_and_the_others_go_on(pins: Path, tmp_path: Path) -> None:
    run_demo(tmp_path / "home", pins, print, build)
    folder = Home(tmp_path / "home").generation("sample").region(3)
    broken = bytearray((folder / IDS).read_bytes())
    broken[0] ^= 1
    (folder / IDS).write_bytes(broken)
    # Rot is mended by a rerun; an admission of something else is not.
    admission = Admission.parse((folder / ADMISSION).read_bytes(), ADMISSION)
    (folder / ADMISSION).write_bytes(replace(admission, content_id="0" * 64).to_bytes())
    said: list[str] = []
    done = run_demo(tmp_path / "home", pins, said.append, build)
    assert sorted(done.failures) == ["corpus", "region 00003"]
    assert done.failures["region 00003"].startswith("NONDETERMINISTIC_REGION generations/sample/regions/00003/")
    assert done.failures["corpus"].startswith(f"ADMISSION_HASH regions/00003/{ADMISSION}: content_id")
    assert len([line for line in said if line.startswith("[") and "admitted" in line]) == 13
