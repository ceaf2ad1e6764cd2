"""Read a file as a source of any format, and see all its rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from casebits_dagster.records.pins import SourceVocabulary
from casebits_dagster.records.plan import RegionSpec, Unit
from casebits_dagster.records.vocabulary import GPT2_FILES, GPT2_SEPARATOR, gpt2_file
from casebits_dagster.sources.columns import PROBLEMS, Reading, RowReader, SourceRows
from casebits_dagster.sources.detokenise import byte_table
from casebits_dagster.stores.local import LocalStore

GPT2 = SourceVocabulary(gpt2_file("encoder.json"), GPT2_SEPARATOR, GPT2_FILES["encoder.json"])
READING = Reading(GPT2)
SEPARATOR = GPT2_SEPARATOR
TABLE = byte_table(GPT2)
SPELLED = TABLE.tokens.to_pylist()

HELLO = [15496, 11, 995]  # "Hello, world"
EURO = [26391]  # the three bytes of U+20AC
LEAD = [158]  # byte 0xE2, which begins a character
BAD = [222]  # a lone continuation byte


@dataclass(frozen=True, slots=True)
class Seen:
    """One row as it was read; `tokens` is None where the format has none."""

    position: int
    text: bytes
    cluster: int = -1
    source_tokens: int = 0
    problem: str = ""
    problem_at: int = -1
    tokens: tuple[int, ...] | None = None


def spell(tokens: Iterable[int]) -> bytes:
    """Return the text of tokens, one after the other."""
    return b"".join(SPELLED[token] for token in tokens)


def read(
    reader: RowReader,
    path: Path,
    begin: int,
    end: int,
    unit: Unit = "bytes",
    reading: Reading = READING,
    **options: Any,
) -> tuple[list[Seen], str]:
    """Return the rows of a range and the hash of the bytes that it covers."""
    digest, region = hashlib.sha256(), RegionSpec(0, path.name, unit, begin, end)
    blocks = reader(LocalStore(path.parent), region, reading, digest, **options)
    return [row for block in blocks for row in rows_of(block)], digest.hexdigest()


def read_all(reader: RowReader, path: Path, **options: Any) -> list[Seen]:
    """Return all rows of a file that is cut in bytes."""
    return read(reader, path, 0, path.stat().st_size, **options)[0]


def rows_of(block: SourceRows) -> list[Seen]:
    """Return a block row by row, after checking that its columns fit together."""
    count = len(block.positions)
    assert (len(block.cuts), int(block.cuts[0]), int(block.cuts[-1])) == (count + 1, 0, len(block.text))
    columns = (block.positions, block.clusters, block.source_tokens, block.problems, block.problem_at)
    assert [(column.dtype.str, len(column)) for column in columns] == [
        (kind, count) for kind in ("<i8", "<i4", "<i8", "|u1", "<i8")
    ]
    found = []
    for row, (position, cluster, tokens, problem, at) in enumerate(
        zip(*(column.tolist() for column in columns), strict=True)
    ):
        text = block.text[block.cuts[row] : block.cuts[row + 1]].tobytes()
        found.append(Seen(position, text, cluster, tokens, PROBLEMS[problem], at, _tokens(block, row)))
    return found


def _tokens(block: SourceRows, row: int) -> tuple[int, ...] | None:
    if block.tokens is None or block.token_cuts is None:
        return None
    assert (block.tokens.dtype.str, block.token_cuts.dtype.str) == ("<u2", "<i8")
    return tuple(block.tokens[block.token_cuts[row] : block.token_cuts[row + 1]].tolist())
