"""The golden files come out byte for byte."""

from __future__ import annotations

from pathlib import Path

from tests.golden.rebuild import build, read_expected


def test_every_byte_is_what_it_was(tmp_path: Path) -> None:
    made, want = build(tmp_path), read_expected()
    assert sorted(made) == sorted(want)
    assert [name for name in want if made[name] != want[name]] == []


def test_the_golden_files_hold_an_empty_region_and_a_mix() -> None:
    want = read_expected()
    assert want["generations/golden/regions/00000/casebits_mixture.ids.u16le"] == b""
    assert len(want["generations/golden/regions/00001/casebits_mixture.ids.u16le"]) > 0
    assert "mixes/golden_aligned/MANIFEST.txt" in want
