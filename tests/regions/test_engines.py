"""What encodes, and how its figures come out: the fallback writes the same region, costs are those of the tokens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from casebits_dagster.codec.decode import Codec
from casebits_dagster.codec.mixture import COST_UNIT, Mixture, PairCounter
from casebits_dagster.filters.region import filter_region
from casebits_dagster.records.layout import Home
from casebits_dagster.records.pins import Generation, load_generation
from casebits_dagster.records.record import micro_text
from casebits_dagster.regions import write
from casebits_dagster.regions.encode import encode_region
from casebits_dagster.regions.read import Region


@pytest.fixture
def generation(pins: Path) -> Generation:
    return load_generation(pins, "sample")


@pytest.fixture
def filtered(generation: Generation, home: Home) -> Home:
    """A home with region 10 filtered."""
    filter_region(generation, 10, home)
    return home


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_fallback_writes_the_same_region_receipt_included(generation: Generation, filtered: Home) -> None:
    want = encode_region(generation, 10, filtered, engine="fastokens")
    files = contents(want.folder)
    want.folder.rename(filtered.root / "aside")
    got = encode_region(generation, 10, filtered, engine="tokenizers")
    assert contents(got.folder) == files
    assert (got.encoder.split()[0], want.encoder.split()[0]) == ("tokenizers", "fastokens")


def test_the_masks_cost_what_their_tokens_cost(generation: Generation, filtered: Home) -> None:
    done = encode_region(generation, 10, filtered)
    region = Region.open(done.folder)
    mixture = Mixture.load(generation.codec_folder / "mixture.npz", Codec.load(generation.codec_folder).table)
    total = int(mixture.costs(region.ids, region.cases).sum())
    assert done.mask_bits_per_token == total / COST_UNIT / len(region.ids)
    counter = PairCounter()
    counter.add(np.array(region.ids), np.array(region.cases))
    spent = mixture.independent_bits(counter.pairs())
    assert done.independent_bits_per_token == pytest.approx(spent / len(region.ids), rel=1e-9)


def test_millionths_are_spelled_as_the_records_spell_them() -> None:
    values = [0, 1, -1, 999_999, 1_000_000, -1_000_001, 123_456_789_012, -(10**15) - 7]
    assert write._micro_texts(np.array(values)).to_pylist() == [micro_text(value) for value in values]


def test_lines_do_not_depend_on_how_many_are_spelled_at_once(
    generation: Generation, filtered: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    want = contents(encode_region(generation, 10, filtered).folder)
    monkeypatch.setattr(write, "_LINES", 7)
    # The region is published: other bytes would be refused.
    assert not encode_region(generation, 10, filtered).published
    assert contents(filtered.generation("sample").region(10)) == want
