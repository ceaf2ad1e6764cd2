"""Plots draw whatever a region or a frontier may hold, nothing included, and stay small enough for an event log."""

from __future__ import annotations

import base64
import struct

import dagster as dg
import pytest

from casebits_dagster.orchestration import plots


def size(plot: dg.MarkdownMetadataValue) -> tuple[int, int]:
    """Return width and height of the picture inside the Markdown."""
    assert plot.value is not None
    head, _, encoded = plot.value.partition(",")
    assert head == "![plot](data:image/png;base64"
    picture = base64.b64decode(encoded[:-1], validate=True)
    assert len(picture) < 40_000
    width, height = struct.unpack(">II", picture[16:24])
    return width, height


def test_bars() -> None:
    assert size(plots.bars({"target": [1, 2], "achieved": [2, 1]}, ["a", "b"], "%")) == (700, 300)


@pytest.mark.parametrize("series", [0, 1, 9, 20])
def test_stacked(series: int) -> None:
    values = {str(number): [1.0, 2.0] for number in range(series)}
    assert size(plots.stacked(values, ["00000", "00001"], "region", "%")) == (800, 300)


@pytest.mark.parametrize(("tokens", "waiting"), [([], []), ([0], []), ([5, 0, 3], [4, 5])])
def test_prefix(tokens: list[int], waiting: list[int]) -> None:
    assert size(plots.prefix(tokens, waiting, 14)) == (800, 300)


def test_pictures_are_deterministic() -> None:
    assert plots.prefix([5, 0, 3], [4, 5], 14) == plots.prefix([5, 0, 3], [4, 5], 14)
