"""The plot of a region's lengths, read back: what the bars, scales and names in the picture say."""

from __future__ import annotations

import base64
import re
from xml.etree import ElementTree

import dagster as dg
import numpy as np
import pytest
from numpy.typing import NDArray

from casebits_dagster.orchestration.lengths_plot import lengths

NONE = np.empty(0, "<i8")
SVG = "{http://www.w3.org/2000/svg}"
FLOOR, ROOF = 246, 42
"""The place of 0 and of the highest line of the scale, in pixels."""


def drawn(plot: dg.MarkdownMetadataValue) -> ElementTree.Element:
    """Return the picture inside the Markdown."""
    assert plot.value is not None
    head, _, encoded = plot.value.partition(",")
    assert head == "![plot](data:image/svg+xml;base64"
    return ElementTree.fromstring(base64.b64decode(encoded[:-1], validate=True))


def texts(picture: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in picture.iter(f"{SVG}text")]


def heights(picture: ElementTree.Element) -> list[list[float]]:
    """Return the height of each bin of each layer, from 0 to 1, the lowest layer first."""
    filled = [path.get("d", "") for path in picture.iter(f"{SVG}path") if path.get("fill", "none") != "none"]
    layers = [[float(y) for y in re.findall(r"V([\d.]+)H", path)] for path in filled]
    return [[(FLOOR - y) / (FLOOR - ROOF) for y in layer] for layer in reversed(layers)]


def test_bars_are_stacked_counts() -> None:
    kept, dropped = np.array([1, 1, 1, 2**32], "<i8"), np.array([1, 2**32], "<i8")
    picture = drawn(lengths({"kept": kept, "dropped": dropped}, "tokens"))
    lower, upper = heights(picture)
    assert (len(lower), len(upper)) == (32, 32)
    assert (lower[0], lower[31]) == pytest.approx((0.75, 0.25), abs=1e-3)
    assert (upper[0], upper[31]) == pytest.approx((1, 0.5), abs=1e-3)
    assert [*lower[1:31], *upper[1:31]] == [0] * 60


def test_scales_and_names() -> None:
    many = np.repeat(np.array([20, 3000], "<i8"), (7000, 1))
    said = texts(drawn(lengths({"kept": many, "quarantined": NONE}, "source tokens")))
    assert said == [
        *("0", "2,000", "4,000", "6,000", "8,000"),
        *("100", "1,000"),
        *("length in source tokens", "documents"),
        *("kept (7,001)", "quarantined (0)"),
    ]


@pytest.mark.parametrize(
    ("groups", "scale"),
    [
        ({"kept": NONE}, ["0"]),
        ({"kept": np.zeros(3, "<i8")}, ["0", "1", "2", "3"]),
        ({"kept": np.array([1, 7, 7, 2_000_000], "<i8"), "dropped": NONE}, ["0", "1", "2"]),
    ],
)
def test_whatever_a_region_holds(groups: dict[str, NDArray[np.int64]], scale: list[str]) -> None:
    picture = drawn(lengths(groups, "tokens"))
    assert (picture.get("width"), picture.get("height")) == ("700", "300")
    assert texts(picture)[: len(scale)] == scale
    assert len(ElementTree.tostring(picture)) < 8_000


def test_pictures_are_deterministic() -> None:
    kept = np.arange(1, 999, dtype="<i8")
    assert lengths({"kept": kept}, "tokens") == lengths({"kept": kept}, "tokens")
