"""The computed plan: the real source's figures, and that any sizes are covered exactly once."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from casebits_dagster.records.pins import load_generation
from casebits_dagster.records.plan import PlanPin, RegionSpec

REGION_BYTES = 268_435_456


@pytest.mark.parametrize("name", ["casebits-nvidia5eaa64-v1", "climbmix-lower32k-v1"])
def test_the_plan_of_climbmix_is_the_published_one(pins: Path, name: str) -> None:
    generation = load_generation(pins, name)
    sizes = {file.path: file.bytes for file in generation.source.files}
    plan = generation.pin.plan
    assert plan is not None
    assert (len(sizes), sum(sizes.values())) == (100, 1_987_970_304_099)
    assert len(plan.ranges(generation.source.pin.revision, sizes)) == 7_457
    taken = [region.end - region.begin for region in generation.plan]
    assert (len(taken), sum(taken), sum(size < REGION_BYTES for size in taken)) == (2_100, 560_351_531_447, 22)
    assert f"{100 * sum(taken) / sum(sizes.values()):.2f}" == "28.19"
    assert generation.plan[:3] == (
        RegionSpec(0, "part_31.tokenized.jsonl", "bytes", 20_401_094_656, 20_669_530_112),
        RegionSpec(1, "part_70.tokenized.jsonl", "bytes", 10_200_547_328, 10_468_982_784),
        RegionSpec(2, "part_62.tokenized.jsonl", "bytes", 11_811_160_064, 12_079_595_520),
    )
    assert generation.plan_sha256 == "0226c5e172a5d8e97390ff231ffad66a9599350b4477a60af80b60b3e09c28a2"


@given(st.dictionaries(st.sampled_from("abcd"), st.integers(1, 50)), st.integers(1, 60), st.text(min_size=1))
def test_every_byte_of_every_file_is_in_one_range(sizes: dict[str, int], region_bytes: int, salt: str) -> None:
    plan = PlanPin(region_bytes=region_bytes, order_salt=salt, regions=1, selected=1, selected_bytes=1)
    ranges = plan.ranges("0" * 40, sizes)
    assert [region.index for region in ranges] == list(range(len(ranges)))
    held = sorted((region.path, at) for region in ranges for at in range(region.begin, region.end))
    assert held == sorted((path, at) for path, size in sizes.items() for at in range(size))
    again = plan.ranges("0" * 40, dict(reversed(sizes.items())))
    assert again == ranges
