"""Producer and verifier, written apart, agree: on the tiny world, and on rows as messy as a seed can make them."""

from __future__ import annotations

import gzip
import hashlib
import itertools
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from casebits_dagster.admission import admit_region
from casebits_dagster.filters.region import filter_region
from casebits_dagster.records.digests import sha256_file
from casebits_dagster.records.layout import DOCUMENTS, Home
from casebits_dagster.records.pins import Generation, SourceFile, load_generation
from casebits_dagster.records.plan import RegionSpec
from casebits_dagster.records.policy import FilterPolicy
from casebits_dagster.regions.encode import encode_region
from casebits_dagster.sources import FORMATS
from casebits_dagster.sources.columns import PROBLEMS, Reading
from tests.admission import test_flat, test_lines, test_parquet
from tests.admission.reading import Found, MemoryStore, ids_bytes, read, source
from tests.faults.world import SEPARATOR, SOURCE, Format, Row, generation_over, gpt2_tokens, make_world, write_source

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


At = Literal["start", "end"] | None
CLUSTERS = st.sampled_from([None, 1, 20, -1, 2**31 - 1])
TOKENS = st.lists(st.sampled_from([64, 65, 447, 94, None, SEPARATOR, 50257, 2**31 - 1]), max_size=4)


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
    cuts = sorted({0, 1, min(95, len(rows)), len(rows)})
    plan = tuple(RegionSpec(number, SOURCE, "rows", *pair) for number, pair in enumerate(itertools.pairwise(cuts)))
    policy = load_generation(pins, "sample").policy
    return replace(generation, source=generation.source.at(path.parent, file), policy=policy, plan=plan), home


def test_a_negative_count_is_a_mismatch(tmp_path: Path, pins: Path) -> None:
    produce_and_admit(*messy_world(tmp_path, pins, [Row([64], -1, 2)]))


def world_of(
    root: Path, pins: Path, kind: Format, name: str, content: bytes, cuts: tuple[int, ...], at: At = None
) -> Generation:
    """Return a generation over one file, under the policy of the sample without a threshold."""
    policy = load_generation(pins, "sample").policy
    policy = replace(policy, rules=policy.rules[-1:])
    (root / name).write_bytes(content)
    rows = cuts[-1] if name.endswith((".parquet", ".gz", ".zst")) else None
    made = generation_over(root / name, kind, cuts, pins, policy, rows=rows)
    return replace(made, source=replace(made.source, pin=replace(made.source.pin, separator_at=at)))


TEXTS = ["To be, or NOT to be.", "caf\u00e9", "", "To be, or NOT to be.", "The LAST one: \u4e2d\u6587"]
IDS = [gpt2_tokens(text.encode()) for text in TEXTS]


def file_of(kind: Format) -> bytes:
    """Return the texts, and one more row that is not sound, as a file."""
    if kind == "climbmix_jsonl":
        return b"".join(test_lines.line(ids) + b"\n" for ids in [*IDS[:2], [447], *IDS[2:]])
    if kind == "jsonl_text":
        return b"".join(json.dumps({"text": text}).encode() + b"\n" for text in [*TEXTS[:2], None, *TEXTS[2:]])
    if kind == "parquet_text":
        return test_parquet.written({"text": [*TEXTS[:2], None, *TEXTS[2:]]}, row_group_size=2)
    return ids_bytes([number for ids in [*IDS[:2], [447], *IDS[2:]] for number in [*ids, SEPARATOR]])


@pytest.mark.parametrize(
    ("kind", "name", "at"),
    [
        ("climbmix_jsonl", "lines.jsonl", None),
        ("jsonl_text", "lines.jsonl", None),
        ("jsonl_text", "lines.jsonl.gz", None),
        ("parquet_text", "text.parquet", None),
        ("flat_u16", "ids.bin", "end"),
    ],
)
def test_regions_of_every_format(tmp_path: Path, pins: Path, kind: Format, name: str, at: At) -> None:
    content = file_of(kind)
    whole = len(content)
    if name.endswith(".gz"):
        content = gzip.compress(content)
    cuts = (0, 2, 6) if name.endswith((".parquet", ".gz")) else (0, whole // 4 * 2, whole)
    generation = world_of(tmp_path, pins, kind, name, content, cuts, at)
    home = Home(tmp_path / "home")
    quarantined = produce_and_admit(generation, home)
    assert sum(count for reasons in quarantined for count in reasons.values()) == 1
    kept = [
        document["id"]
        for index in range(2)
        for document in map(json.loads, (home.generation("tiny").region(index) / DOCUMENTS).read_text().splitlines())
    ]
    assert set(kept) == {hashlib.sha256(text.encode()).hexdigest()[:32] for text in TEXTS}


@pytest.mark.parametrize("name", ["climbmix-reconstruction-1", "web-quality-1"])
def test_the_pinned_policies(tmp_path: Path, pins: Path, name: str) -> None:
    texts = [f"The {number} of {chr(10).join(PIECES[number % 9 :])} " * 9 for number in range(9)]
    content = b"".join(test_lines.line([*gpt2_tokens(text.encode()), SEPARATOR]) + b"\n" for text in texts)
    made = world_of(tmp_path, pins, "climbmix_jsonl", "lines.jsonl", content, (0, len(content)))
    policy = FilterPolicy.from_toml(pins / "filters" / f"{name}.toml")
    assert produce_and_admit(replace(made, policy=policy), Home(tmp_path / "home")) == [{}]


def produced(kind: Format, content: bytes, spec: RegionSpec, at: At = None) -> tuple[list[Found], str]:
    """Return the rows that the producer reads, and the hash it takes."""
    rows, digest = [], hashlib.sha256()
    reading = Reading(source(kind, at).vocabulary(), at)
    for block in FORMATS[kind](MemoryStore(content), spec, reading, digest):
        columns = (block.positions, block.source_tokens, block.clusters, block.problems, block.problem_at)
        found = zip(*(column.tolist() for column in columns), strict=True)
        for row, (position, tokens, cluster, problem, place) in enumerate(found):
            text = block.text[block.cuts[row] : block.cuts[row + 1]].tobytes()
            rows.append(Found(position, tokens, cluster, PROBLEMS[problem], place, text))
    return rows, digest.hexdigest()


def require_agreement(kind: Format, content: bytes, edges: list[int], path: str = "file", at: At = None) -> None:
    unit = source(kind, at).pin.unit(path)
    for begin, end in itertools.pairwise(edges):
        read_here = read(kind, content, begin, end, path=path, unit=unit, separator_at=at)
        assert produced(kind, content, RegionSpec(0, path, unit, begin, end), at) == read_here


@given(content=test_lines.FILE, cuts=st.lists(st.integers(1, 600), max_size=3))
@settings(max_examples=80, deadline=None)
def test_lines_of_climbmix(content: bytes, cuts: list[int]) -> None:
    require_agreement("climbmix_jsonl", content, edges_of(cuts, len(content)))


OBJECT = st.one_of(
    st.sampled_from([raw for raw, _ in test_lines.OBJECTS if len(raw) < 9999]),
    st.builds(
        lambda text, more: json.dumps({"text": text, **more}, ensure_ascii=False).encode("utf-8", "surrogatepass"),
        st.text(st.characters(exclude_categories=[]), max_size=8),
        st.dictionaries(st.sampled_from(["cluster_id", "x"]), st.integers(-(2**33), 2**33)),
    ),
    st.binary(max_size=9).map(lambda raw: raw.replace(b"\n", b"")),
)


@given(
    lines=st.lists(st.tuples(OBJECT, st.sampled_from([b"\n", b"\r\n"])), min_size=1, max_size=12),
    cuts=st.lists(st.integers(1, 600), max_size=3),
)
@settings(max_examples=80, deadline=None)
def test_lines_of_text(lines: list[tuple[bytes, bytes]], cuts: list[int]) -> None:
    content = b"".join(itertools.chain.from_iterable(lines))
    require_agreement("jsonl_text", content, edges_of(cuts, len(content)))
    rows = edges_of(cuts, len(lines))
    require_agreement("jsonl_text", gzip.compress(content, 1), rows, "file.gz")
    require_agreement("jsonl_text", test_lines.packed("zst", content), rows, "file.zst")


@given(ids=test_flat.IDS, cuts=st.lists(st.integers(1, 40), max_size=3), at=test_flat.AT)
@settings(max_examples=80, deadline=None)
def test_flat_documents(ids: list[int], cuts: list[int], at: At) -> None:
    edges = [2 * edge for edge in edges_of(cuts, len(ids))]
    require_agreement("flat_u16", ids_bytes(ids), edges, at=at)


@given(
    rows=st.lists(st.tuples(st.none() | st.binary(max_size=6) | st.text(max_size=6).map(str.encode), CLUSTERS)),
    kind=st.sampled_from([pa.binary(), pa.large_binary()]),
    size=st.integers(1, 9),
    cuts=st.lists(st.integers(1, 9), max_size=3),
)
@settings(max_examples=60, deadline=None)
def test_parquet_of_text(
    rows: list[tuple[bytes | None, int | None]], kind: pa.DataType, size: int, cuts: list[int]
) -> None:
    columns = {
        "text": pa.array([row[0] for row in rows], kind),
        "cluster_id": pa.array([row[1] for row in rows], pa.int64()),
    }
    require_agreement("parquet_text", test_parquet.written(columns, row_group_size=size), edges_of(cuts, len(rows)))


@given(
    rows=st.lists(st.tuples(st.none() | TOKENS, st.none() | st.integers(0, 3), CLUSTERS)),
    kind=st.sampled_from([pa.list_(pa.int32()), pa.large_list(pa.uint64()), pa.list_(pa.int64(), 2)]),
    size=st.integers(1, 9),
    cuts=st.lists(st.integers(1, 9), max_size=3),
)
@settings(max_examples=60, deadline=None)
def test_parquet_of_tokens(
    rows: list[tuple[list[int] | None, int | None, int | None]], kind: pa.DataType, size: int, cuts: list[int]
) -> None:
    if pa.types.is_fixed_size_list(kind):
        rows = [(ids and (ids * 2)[:2], count, cluster) for ids, count, cluster in rows if ids != []]
    columns = {
        "tokens": pa.array([row[0] for row in rows], kind),
        "token_count": pa.array([row[1] for row in rows], pa.int64()),
        "cluster_id": pa.array([row[2] for row in rows], pa.int64()),
    }
    require_agreement("parquet_tokens", test_parquet.written(columns, row_group_size=size), edges_of(cuts, len(rows)))


def edges_of(cuts: list[int], size: int) -> list[int]:
    return sorted({0, size, *(cut for cut in cuts if cut < size)})


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
