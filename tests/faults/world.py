"""A tiny source of a hundred rows, good and broken ones, and a generation of four regions over it."""

from __future__ import annotations

import functools
import hashlib
import io
import itertools
import json
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq

from casebits_dagster.records.layout import Home
from casebits_dagster.records.pins import Generation, Source, SourceFile, load_generation
from casebits_dagster.records.plan import RegionCuts, RegionSpec
from casebits_dagster.records.policy import FilterPolicy, Rule
from casebits_dagster.records.region import SplitPin
from casebits_dagster.records.vocabulary import gpt2_file

Format = Literal["parquet_tokens", "parquet_text", "climbmix_jsonl", "jsonl_text", "flat_u16"]
SEPARATOR = 50256
SOURCE = "tiny.parquet"
TEXTS = (
    "The Quick Brown Fox jumps over THE lazy dog.",
    "Carriage returns\r\nstay\r\nas THEY are.",
    "\ufeffA byte order mark opens this one.",
    "Cafe\u0301 and \u00c5ngstro\u0308m are NOT normalised.",
    "\u0130stanbul, STRA\u1e9eE, 3 \u212aelvin: only ASCII is lower-cased.",
    "The End Of <|endoftext|> is text, not structure.",
    "12345678901234567890 7",
    "Too Small",
    "ten chars.",
    "Programming IS left out by cluster.",
    "The Quick Brown Fox jumps over THE lazy dog.",
    "Family \U0001f468\u200d\U0001f469\u200d\U0001f467 and a NUL \0 inside.",
    "to be or NOT to be, that is the question of it",
    "",
    "A trailing line feed stays.\n",
)
BROKEN: tuple[tuple[list[int] | None, int | None, str, int], ...] = (
    (None, 3, "null_row", -1),
    ([10, 11], None, "null_row", -1),
    ([10, 11, 12], 2, "count_mismatch", 3),
    ([10, 50257], 2, "id_out_of_range", 1),
    ([10, SEPARATOR, 11], 3, "inner_separator", 1),
    ([64, 447], 2, "truncated_utf8", 1),
    ([64, 447, 64], 3, "not_utf8", 1),
    ([64, 64, 94], 3, "not_utf8", 2),
)
POLICY = FilterPolicy(
    policy_id="tiny-1",
    description="Three rules and a duplicate rule, on three metrics.",
    metrics=("characters", "digit_share", "stop_word_share"),
    rules=(
        Rule(reason="too_short", kind="threshold", metric="characters", at_least=Decimal(10)),
        Rule(reason="too_many_digits", kind="threshold", metric="digit_share", at_most=Decimal("0.5")),
        Rule(reason="repeated", kind="duplicate"),
        Rule(reason="cluster", kind="clusters", accept=(-1, 1, 2, 3)),
    ),
)
SPLIT = SplitPin(rule="sha256-salt-id", salt="tiny-split", share=Decimal("0.3"))


@dataclass
class Row:
    """A source row: the tokens and count as stored, and what a careful reader finds; its place in the file."""

    tokens: list[int] | None
    count: int | None
    cluster: int | None
    text: bytes = b""
    reason: str = ""
    problem_at: int = -1
    position: int = -1


def make_world(root: Path, pins: Path, policy: FilterPolicy = POLICY) -> tuple[Generation, Home, list[Row]]:
    """Write the tiny source and return a generation of four regions over it: mixed, empty, many, one broken row."""
    rows = source_rows()
    folder = root / "source"
    folder.mkdir(parents=True)
    write_source(folder / SOURCE, rows)
    first = len(TEXTS) + len(BROKEN)
    cuts = (0, first, first + 3, len(rows) - 1, len(rows))
    generation = generation_over(folder / SOURCE, "parquet_tokens", cuts, pins, policy, rows=len(rows))
    return generation, Home(root / "home"), rows


def generation_over(
    path: Path,
    kind: Format,
    cuts: tuple[int, ...],
    pins: Path,
    policy: FilterPolicy = POLICY,
    *,
    rows: int | None = None,
) -> Generation:
    """Return a generation whose regions are cut out of one file."""
    sample = load_generation(pins, "sample")
    raw = path.read_bytes()
    file = SourceFile(path=path.name, bytes=len(raw), sha256=hashlib.sha256(raw).hexdigest(), rows=rows)
    source = replace(sample.pin.source, location=str(path.parent), format=kind, files=(file,))
    source = replace(source, revision=source.expected_revision())
    policy_sha256 = hashlib.sha256(policy.to_bytes()).hexdigest()
    filter_pin = replace(sample.pins.filter, policy_id=policy.policy_id, sha256=policy_sha256)
    pin = replace(
        sample.pin,
        generation="tiny",
        filter=filter_pin,
        source=source,
        split=SPLIT,
        regions=(RegionCuts(path=path.name, cuts=cuts),),
    )
    pins_of_all = replace(sample.pins, split=SPLIT, filter=filter_pin)
    unit = source.unit(path.name)
    plan = tuple(RegionSpec(number, path.name, unit, *pair) for number, pair in enumerate(itertools.pairwise(cuts)))
    return Generation(pin, policy, pins_of_all, sample.codec_folder, Source(source, path.parent, source.files), plan)


@functools.cache
def source_rows() -> list[Row]:
    """Return the rows of the tiny source, good and broken ones mixed."""
    mixed = [good(text, cluster) for text, cluster in zip(TEXTS, [1, 2, 3] * 5, strict=True)]
    mixed[9].cluster, mixed[4].cluster, mixed[3].tokens = 11, None, [*(mixed[3].tokens or []), SEPARATOR]
    mixed[3].count = len(mixed[3].tokens or [])
    for number, (tokens, count, reason, problem_at) in enumerate(BROKEN):
        mixed.insert(2 * number + 1, Row(tokens, count, 1, b"", reason, problem_at))
    dropped = [good(text, 1) for text in ("a", "b", "c")]
    many = [good(f"Document number {number} of MANY, with the same words.", 1 + number % 3) for number in range(70)]
    rows = [*mixed, *dropped, *many, Row([64, 447], 2, 1, b"", "truncated_utf8", 1)]
    return [replace(row, position=number) for number, row in enumerate(rows)]


def good(text: str, cluster: int | None) -> Row:
    raw = text.encode()
    tokens = gpt2_tokens(raw)
    return Row(tokens, len(tokens), cluster, raw)


def gpt2_tokens(text: bytes) -> list[int]:
    """Return GPT-2 ids that spell the text: greedy, not BPE; any spelling will do for a source."""
    table, tokens, at = gpt2_ids(), [], 0
    while at < len(text):
        size = next(size for size in range(12, 0, -1) if text[at : at + size] in table and at + size <= len(text))
        tokens.append(table[text[at : at + size]])
        at += size
    return tokens


@functools.cache
def gpt2_ids() -> dict[bytes, int]:
    spelled = json.loads(gpt2_file("encoder.json").read_text())
    return {unspell(text): number for text, number in spelled.items() if number != SEPARATOR}


def unspell(text: str) -> bytes:
    """Return the bytes of a token as byte-level vocabularies write it."""
    return bytes(_spelling()[character] for character in text)


@functools.cache
def _spelling() -> dict[str, int]:
    shown = [byte for byte in range(256) if 33 <= byte <= 126 or 161 <= byte <= 172 or byte >= 174]
    shifted = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(256 + rank): byte for rank, byte in enumerate(shifted)}


def write_source(path: Path, rows: list[Row]) -> None:
    """Write rows in ClimbMix's columns, ten a row group."""
    pq.write_table(table_of(rows), path, row_group_size=10)


def table_of(rows: list[Row]) -> pa.Table:
    """Return rows in ClimbMix's columns."""
    return pa.table(
        {
            "tokens": pa.array([row.tokens for row in rows], pa.list_(pa.int64())),
            "token_count": pa.array([row.count for row in rows], pa.int64()),
            "cluster_id": pa.array([row.cluster for row in rows], pa.int64()),
        }
    )


def side(document_id: bytes, split: SplitPin = SPLIT) -> str:
    """Return the side of the split."""
    drawn = hashlib.sha256(split.salt.encode() + b"\0" + document_id).digest()
    return "validation" if int.from_bytes(drawn[:8], "big") < split.threshold else "train"


def document_id(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()[:16]


def range_sha256(content: bytes, begin: int, end: int) -> str:
    """Return the hash of the row groups of ten rows that hold the range."""
    metadata = pq.ParquetFile(io.BytesIO(content)).metadata
    chunks = [
        metadata.row_group(group).column(number)
        for group in range(begin // 10, (end - 1) // 10 + 1)
        for number in range(3)
    ]
    starts = [chunk.dictionary_page_offset or chunk.data_page_offset for chunk in chunks]
    ends = [start + chunk.total_compressed_size for start, chunk in zip(starts, chunks, strict=True)]
    return hashlib.sha256(content[min(starts) : max(ends)]).hexdigest()
