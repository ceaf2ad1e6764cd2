"""What every audit test asks: generation `sample`, its aligned mix, and a window with several segments."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from casebits_dagster.records.layout import Home
from casebits_dagster.records.mix import SEGMENTS
from casebits_dagster.records.pins import Generation, load_generation


@pytest.fixture(scope="session")
def generations(pins: Path) -> dict[str, Generation]:
    return {"sample": load_generation(pins, "sample")}


@pytest.fixture(scope="session")
def mix() -> str:
    return "sample_aligned"


@pytest.fixture(scope="session")
def window(sample_home: Home, mix: str) -> int:
    """A window with several segments."""
    segments = np.load(sample_home.mix(mix) / SEGMENTS)
    windows, counts = np.unique(segments["window"], return_counts=True)
    return int(windows[counts > 2][0])


@pytest.fixture
def tampered(sample_home: Home, home: Home) -> Home:
    """A copy of the sample home, to be tampered with."""
    shutil.copytree(sample_home.root, home.root)
    return home
