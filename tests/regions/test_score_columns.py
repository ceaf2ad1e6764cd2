"""Columns of scores beside the index: read one by one, remade when they rotted."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from casebits_dagster.records.errors import RecordError
from casebits_dagster.records.layout import Home
from casebits_dagster.records.record import micro
from casebits_dagster.regions.index import cached_scores, recorded_metrics
from casebits_dagster.regions.read import Region


@pytest.fixture
def copied(sample_home: Home, tmp_path: Path) -> Home:
    """The generation without any cache, to change."""
    home = Home(tmp_path / "copy")
    source, target = sample_home.generation("sample"), home.generation("sample")
    for number in (8, 10):
        shutil.copytree(source.region(number), target.region(number))
    return home


def test_scores_are_those_of_the_lines_and_only_what_is_asked_for_is_kept(copied: Home) -> None:
    folder = copied.generation("sample")
    region = Region.open(folder.region(10))
    lines = region.documents()
    assert recorded_metrics(region) == tuple(sorted(lines[0]["scores"]))
    asked = ["symbol_share", "characters"]
    scores = cached_scores(region, asked)
    assert scores.tolist() == [[micro(line["scores"][name]) for line in lines] for name in asked]
    names = {f"00010.{name}.{kind}" for name in asked for kind in ("npy", "stamp")}
    assert {path.name for path in folder.index(10).parent.iterdir()} == {".staging", *names}


def test_a_column_that_rotted_or_is_of_another_region_or_metric_is_remade(copied: Home) -> None:
    folder = copied.generation("sample")
    region = Region.open(folder.region(10))
    first = cached_scores(region, ["symbol_share", "digit_share"])
    path = folder.index(10).with_suffix(".symbol_share.npy")
    stamp = path.with_suffix(".stamp")
    column, mark = path.read_bytes(), stamp.read_bytes()
    other = [folder.index(10).with_suffix(f".digit_share.{kind}").read_bytes() for kind in ("npy", "stamp")]
    flipped = bytes([*column[:-1], column[-1] ^ 1])
    for broken, beside in ((flipped, mark), (column[:-8], mark), (b"", mark), (column, b"\xff"), tuple(other)):
        path.write_bytes(broken)
        stamp.write_bytes(beside)
        assert np.array_equal(cached_scores(region, ["symbol_share"]), first[:1])
        assert (path.read_bytes(), stamp.read_bytes()) == (column, mark)


def test_a_region_without_documents_has_recorded_nothing(copied: Home) -> None:
    region = Region.open(copied.generation("sample").region(8))
    assert recorded_metrics(region) == ()
    assert cached_scores(region, ["whatever"]).shape == (1, 0)


def test_a_metric_that_was_not_recorded_is_refused(copied: Home) -> None:
    region = Region.open(copied.generation("sample").region(10))
    with pytest.raises(RecordError, match=r"documents.jsonl: scores.whatever: expected one of .*, read whatever"):
        cached_scores(region, ["characters", "whatever"])
