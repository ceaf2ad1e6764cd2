"""`casebits export-mixture`, and the asset that shows where a codec comes from."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import dagster as dg
import numpy as np
import pytest

from assets import codec_assets
from assets.trained_codec import trained_codec
from casebits_dagster.cli import ABSENT, BAD_INPUT, OK, main
from casebits_dagster.codec.mixture import ONE
from casebits_dagster.records.codec import CodecFiles
from casebits_dagster.records.pins import load_codec, load_generation
from casebits_dagster.sources.training import train_from_source


@pytest.mark.parametrize("published", [False, True])
def test_a_codec_is_exported_from_the_pins_or_from_where_it_was_published(
    pins: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], published: bool
) -> None:
    codec, file = pins / "codecs" / "sample-lower-8192", tmp_path / "head.npz"
    folder = tmp_path / "generations" / "sample" / "codec"
    folder.mkdir(parents=True)
    for name in (CodecFiles.VOCABULARY, CodecFiles.MIXTURE):
        shutil.copy(codec / name, folder)
    assert main(["export-mixture", str(folder) if published else codec.name, str(file)]) == OK
    pin = load_codec(codec)
    assert capsys.readouterr().out.splitlines() == [
        f"mixture of {'codec' if published else codec.name}: 8,192 ids, components lower, capitalised, upper, mixed",
        f"  vocabulary {pin.vocabulary_sha256}",
        f"  in {file}",
    ]
    with np.load(file) as got, np.load(codec / CodecFiles.MIXTURE) as want:
        assert str(got["vocabulary_sha256"]) == pin.vocabulary_sha256
        assert np.abs(got["theta"] - want["theta"] / ONE).max() <= 1e-7
        assert np.abs(got["pi"] - want["pi"] / want["pi"].sum(axis=1, keepdims=True)).max() <= 1e-7
        assert np.abs(got["pi"].sum(axis=1) - 1).max() <= 1e-6


def test_an_export_overwrites_nothing(pins: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "head.npz"
    file.write_bytes(b"mine")
    assert main(["export-mixture", "sample-lower-8192", str(file)]) == BAD_INPUT
    assert capsys.readouterr().err == f"casebits: UNREADABLE {file}: File exists\n"
    assert file.read_bytes() == b"mine"


def test_a_codec_that_is_not_there_or_has_no_mixture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export-mixture", "nowhere", str(tmp_path / "head.npz")]) == ABSENT
    assert "FILE_MISSING nowhere: there is no folder" in capsys.readouterr().err
    assert main(["export-mixture", str(tmp_path), str(tmp_path / "head.npz")]) == ABSENT
    want = f"casebits: FILE_MISSING {tmp_path}/mixture.npz: the codec has no mixture to export\n"
    assert capsys.readouterr().err == want
    assert list(tmp_path.iterdir()) == []


def test_every_codec_that_says_what_it_was_trained_on_has_an_asset(pins: Path) -> None:
    assets = codec_assets(pins, [load_generation(pins, "sample")])
    assert [asset.key.path for asset in assets] == [["codecs", "climbmix-lower-32768"]]
    assert {spec.name for asset in assets for spec in asset.check_specs} == {"vocabulary", "mixture"}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory, pins: Path) -> Path:
    """A pins folder with one small codec that was trained on the sample."""
    folder = tmp_path_factory.mktemp("small") / "pins"
    shutil.copytree(pins, folder, ignore=shutil.ignore_patterns("climbmix*", "nvidia*"))
    train_from_source(folder, "sample", folder / "codecs" / "small", 600, progress=lambda _: None)
    return folder


def checks(pins: Path, codec: CodecFiles) -> dict[str, tuple[bool, str]]:
    """Materialise the asset of a codec and return its checks: name, verdict and severity."""
    done = dg.materialize([trained_codec(codec, load_generation(pins, "sample"))], raise_on_error=False)
    return {one.check_name: (one.passed, one.severity.value) for one in done.get_asset_check_evaluations()}


def test_training_again_makes_the_pinned_bytes(small: Path) -> None:
    assert checks(small, load_codec(small / "codecs" / "small")) == {
        "vocabulary": (True, "ERROR"),
        "mixture": (True, "WARN"),
    }


def test_another_vocabulary_is_an_error_and_another_mixture_a_warning(small: Path) -> None:
    codec = load_codec(small / "codecs" / "small")
    other = dataclasses.replace(codec, vocabulary_sha256="0" * 64, mixture_sha256="1" * 64)
    assert checks(small, other) == {"vocabulary": (False, "ERROR"), "mixture": (False, "WARN")}
