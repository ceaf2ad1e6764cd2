"""Producer and verifier, written apart, agree: on the tiny world, and on rows as messy as a seed can make them."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from pathlib import Path

import pytest

from casebits_dagster.admission import admit_region
from casebits_dagster.filters.region import filter_region
from casebits_dagster.records.digests import sha256_file
from casebits_dagster.records.layout import Home
from casebits_dagster.records.pins import Generation, SourceFile, load_generation
from casebits_dagster.records.plan import RegionSpec
from casebits_dagster.regions.encode import encode_region
from tests.faults.world import SEPARATOR, SOURCE, Row, gpt2_tokens, make_world, write_source

PIECES = [
    *("The", "the", "OF", "have", "With", "to", "be", "and"),
    *(" ", "\n", "\r\n", "\t", "\x0b", "\x0c", "\x1c", "\x85", "\u00a0", "\u2003", "\ufeff", "\0"),
    *(
        "1",
        "42",
        "\u0661",
        "\u00bd",
        "!",
        "~",
        "\u201c",
        "caf\u00e9",
        "e\u0301",
        "\u0130",
        "\u00df",
        "\u1e9e",
        "\u212a",
    ),
    *("\u01c5", "\U0001d400", "\U0001f468\u200d\U0001f469", "\u4e2d\u6587", "<|endoftext|>", "CamelCase", "SHOUTING"),
]


def produce_and_admit(generation: Generation, home: Home) -> list[dict[str, int]]:
    quarantined = []
    for region in generation.plan:
        quarantined.append(filter_region(generation, region.index, home).quarantined)
        encode_region(generation, region.index, home)
        assert admit_region(generation, region.index, home, run_id="run", full=True).published
    return quarantined


def test_the_tiny_world(tmp_path: Path, pins: Path) -> None:
    generation, home, _ = make_world(tmp_path, pins)
    once = ("count_mismatch", "id_out_of_range", "inner_separator", "truncated_utf8")
    reasons = dict.fromkeys(once, 1) | dict.fromkeys(("null_row", "not_utf8"), 2)
    assert produce_and_admit(generation, home) == [reasons, {}, {}, {"truncated_utf8": 1}]


@pytest.mark.parametrize("seed", range(3))
def test_messy_rows(tmp_path: Path, pins: Path, seed: int) -> None:
    chance = random.Random(seed)
    produce_and_admit(*messy_world(tmp_path, pins, [messy_row(chance) for _ in range(300)]))


def messy_world(root: Path, pins: Path, rows: list[Row]) -> tuple[Generation, Home]:
    """Return a generation over these rows, under the policy of the sample, in regions of 1, 94 and the other rows."""
    generation, home, _ = make_world(root, pins)
    path = generation.source.folder / SOURCE
    write_source(path, rows)
    file = SourceFile(path=SOURCE, bytes=path.stat().st_size, sha256=sha256_file(path), rows=len(rows))
    pin = replace(generation.pin, source=replace(generation.source.pin, files=(file,)))
    cuts = sorted({0, 1, min(95, len(rows)), len(rows)})
    plan = tuple(RegionSpec(number, SOURCE, "rows", *pair) for number, pair in enumerate(itertools.pairwise(cuts)))
    return replace(generation, pin=pin, policy=load_generation(pins, "sample").policy, plan=plan), home


def test_a_negative_count_is_a_mismatch(tmp_path: Path, pins: Path) -> None:
    produce_and_admit(*messy_world(tmp_path, pins, [Row([64], -1, 2)]))


def messy_row(chance: random.Random) -> Row:
    """Return a row that is sound as often as not: 0 to 400 pieces, cut, mixed with foreign ids, miscounted."""
    text = "".join(chance.choices(PIECES, k=chance.choice((0, 3, 30, 400))))
    tokens: list[int] | None = gpt2_tokens(text.encode())
    kind = chance.randrange(12)
    if kind == 0:
        tokens = None
    elif kind == 1 and tokens:
        del tokens[chance.randrange(len(tokens)) :]
    elif kind == 2:
        tokens = [*(tokens or []), *([SEPARATOR] * chance.randrange(1, 3))]
    elif kind == 3 and tokens:
        tokens[chance.randrange(len(tokens))] = chance.choice((-1, SEPARATOR, 50257, 65536, 447, 2**40))
    count = None if kind == 4 else max(0, len(tokens or []) + chance.choice((0, 0, 0, 0, 0, 0, 1, -1)))
    return Row(tokens, count, chance.choice((None, 2, 5, 11, 12, 20, -1, -7)))
