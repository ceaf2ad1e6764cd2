from __future__ import annotations

from pathlib import Path

import pytest

from casebits_dagster.records.layout import Home, home_from_environment, region_id


def test_every_path_of_the_layout() -> None:
    home = Home(Path("/h"))
    folder = home.generation("g")
    paths = [
        folder.codec, folder.verdicts(7), folder.kept_text(7), folder.region(7), folder.index(7), folder.runs(7),
        folder.rejections(7), folder.manifest(3), folder.gates(3, 64 * "a"), folder.stratification(3), folder.latest,
        folder.evidence("e", 64 * "b"), home.mix("m"), home.checked("m"), home.staging, home.dagster,
    ]  # fmt: skip
    assert [str(path) for path in paths] == [
        "/h/generations/g/codec",
        "/h/generations/g/verdicts/00007.parquet",
        "/h/generations/g/verdicts/00007.kept.arrow",
        "/h/generations/g/regions/00007",
        "/h/generations/g/index/00007.npy",
        "/h/generations/g/runs/00007",
        "/h/generations/g/rejections/00007",
        "/h/generations/g/frontier/manifests/00000003.json",
        "/h/generations/g/gates/00000003.aaaaaaaaaaaaaaaa.json",
        "/h/generations/g/stratification/00000003.json",
        "/h/generations/g/LATEST.json",
        "/h/generations/g/gates/evidence/e.bbbbbbbbbbbbbbbb.json",
        "/h/mixes/m",
        "/h/checked/m.json",
        "/h/.staging",
        "/h/dagster",
    ]


def test_region_id_has_five_digits() -> None:
    assert [region_id(0), region_id(17), region_id(123456)] == ["00000", "00017", "123456"]


def test_home_is_named_by_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CASEBITS_HOME", raising=False)
    assert home_from_environment() == tmp_path / ".casebits"
    monkeypatch.setenv("CASEBITS_HOME", "")
    assert home_from_environment() == tmp_path / ".casebits"
    monkeypatch.setenv("CASEBITS_HOME", "elsewhere")
    assert home_from_environment() == tmp_path / "elsewhere"
