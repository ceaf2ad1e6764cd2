"""What every audit test asks: generation `sample`, its aligned mix, and a window with several segments."""

from __future__ import annotations

import shutil
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from casebits_dagster.mixing.build import build_mix
from casebits_dagster.publication.mix_sources import mix_sources
from casebits_dagster.records.layout import Home
from casebits_dagster.records.mix import SEGMENTS
from casebits_dagster.records.pins import Generation, load_generation
from casebits_dagster.records.recipe import Aligned, Domain, Lengths, Recipe, Selection
from tests.admission.test_plain import declare, published
from tests.mixing.corpus import control

WHOLE = Decimal(1)
PLAIN = Recipe(
    mix="plain",
    description="Ids of the source, every tail where it fits.",
    strategy="aligned",
    sequence_length=512,
    windows_per_shard=16,
    seed="plain",
    selection=Selection(
        windows=44,
        domains=(Domain(name="all", generation="kept", share=WHOLE),),
        lengths=Lengths(edges=(), profile=(WHOLE,)),
    ),
    aligned=Aligned(tails="float"),
)


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


@pytest.fixture(scope="session")
def plain(pins: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Generation, Home]:
    """A generation that keeps GPT-2's ids, end-of-text first in every document, its aligned mix and the control."""
    folder = tmp_path_factory.mktemp("plain")
    own, home = shutil.copytree(pins, folder / "pins"), Home(folder / "home")
    codec = own / "codecs/gpt2-start"
    codec.mkdir()
    told = (own / "codecs/gpt2/codec.toml").read_text()
    (codec / "codec.toml").write_text(told.replace('"gpt2"', '"gpt2-start"').replace('at = "end"', 'at = "start"'))
    file = load_generation(own, "sample").source.files[0]
    generation = declare(own, "kept", codec.name, "parquet_tokens", own / "sample", file, [900, 930, 960])
    published(generation, home)
    for made in (PLAIN, replace(control(PLAIN), sequence_length=512)):
        build_mix(made, mix_sources(["kept"], home), home)
    return generation, home
