"""Reading a file of any format as the verifier does, from memory, and what each row must be by plain Python."""

from __future__ import annotations

import functools
import hashlib
import json
import re
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np

from casebits_dagster.admission.rows import REASONS
from casebits_dagster.admission.source import READERS
from casebits_dagster.records.pins import Source, default_pins_folder, load_generation
from casebits_dagster.records.plan import RegionSpec, Unit
from casebits_dagster.records.vocabulary import gpt2_file
from tests.faults.world import SEPARATOR, Format, unspell


class Found(NamedTuple):
    """A row as it was read."""

    position: int
    tokens: int
    cluster: int
    reason: str = ""
    problem_at: int = -1
    text: bytes = b""


class MemoryStore:
    """One file; `fetched` says which ranges of it were asked for."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.fetched: list[tuple[int, int]] = []

    def read_range(self, path: str, begin: int, end: int) -> bytes:
        self.fetched.append((begin, end))
        return self.content[begin:end]

    def size(self, path: str) -> int:
        return len(self.content)

    def get(self, path: str) -> bytes:
        return self.content


@functools.cache
def source(kind: Format, separator_at: Literal["start", "end"] | None = None) -> Source:
    """Return a source of GPT-2 ids or text in this format; its files are nobody's business here."""
    made = load_generation(default_pins_folder(), "sample").source
    return replace(made, pin=replace(made.pin, format=kind, separator_at=separator_at))


def read(
    kind: Format,
    content: bytes | MemoryStore,
    begin: int = 0,
    end: int | None = None,
    *,
    path: str = "file",
    unit: Unit = "bytes",
    separator_at: Literal["start", "end"] | None = None,
) -> tuple[list[Found], str]:
    """Return the rows of a range (of the whole file) and the hash of what it covers."""
    store = content if isinstance(content, MemoryStore) else MemoryStore(content)
    spec, digest = RegionSpec(0, path, unit, begin, len(store.content) if end is None else end), hashlib.sha256()
    found = []
    for block in READERS[kind](store, spec, source(kind, separator_at), digest):
        block.judge()
        columns = (block.positions, block.lengths, block.clusters, block.reasons, block.problem_at)
        assert [column.dtype.str for column in columns] == ["<i8", "<i8", "<i4", "|u1", "<i8"]
        rows = zip(*(column.tolist() for column in columns), strict=True)
        for row, (position, tokens, cluster, reason, problem_at) in enumerate(rows):
            text = b"" if reason else block.text_of(row)
            found.append(Found(position, tokens, cluster, REASONS[reason], problem_at, text))
    return found, digest.hexdigest()


@functools.cache
def spelling() -> list[bytes]:
    """Return the bytes of GPT-2's ids."""
    table = json.loads(gpt2_file("encoder.json").read_text())
    return [b"" if table[text] == SEPARATOR else unspell(text) for text in sorted(table, key=table.__getitem__)]


def detokenised(position: int, cluster: int, ids: list[int], count: int | None = None, *, inner: bool = True) -> Found:
    """Return what a row of ids is, one id after the other."""
    row = Found(position, len(ids), cluster)
    if count is not None and count != len(ids):
        return row._replace(reason="count_mismatch", problem_at=len(ids))
    for at, number in enumerate(ids):
        if not 0 <= number <= SEPARATOR:
            return row._replace(reason="id_out_of_range", problem_at=at)
    if inner and SEPARATOR in ids[:-1]:
        return row._replace(reason="inner_separator", problem_at=ids.index(SEPARATOR))
    return judged(row, b"".join(spelling()[number] for number in ids))


def judged(row: Found, text: bytes) -> Found:
    """Return the row with its text, or with what is wrong with it."""
    try:
        text.decode()
    except UnicodeDecodeError as error:
        reason = "truncated_utf8" if error.reason == "unexpected end of data" else "not_utf8"
        return row._replace(reason=reason, problem_at=error.start)
    return row._replace(text=text)


def lines_of(content: bytes, begin: int, end: int) -> list[tuple[int, bytes]]:
    """Return the lines that begin in a range, without their ends, and where each begins."""
    found, at = [], 0
    for line in re.findall(rb"[^\n]*\n|[^\n]+", content):
        if begin <= at < end:
            found.append((at, re.sub(rb"\r?\n$", b"", line)))
        at += len(line)
    return found


def climbmix_row(position: int, line: bytes, longest: int) -> Found:
    """Return what a line of ClimbMix is."""
    if len(line) > longest:
        return Found(position, 0, -1, "line_too_long")
    number = "(?:0|[1-9][0-9]{0,8})"
    layout = rf'\{{"cluster_id": ({number}), "tokens": \[((?:{number}(?:, {number})*)?)\], "token_count": ({number})\}}'
    found = re.fullmatch(layout.encode(), line)
    if found is None:
        return Found(position, 0, -1, "malformed_line")
    ids = [int(text) for text in found[2].split(b", ")] if found[2] else []
    return detokenised(position, int(found[1]), ids, int(found[3]))


def flat_rows(ids: list[int], begin: int, end: int, separator_at: str) -> list[Found]:
    """Return the documents of a flat file whose first id lies in a range of bytes."""
    documents: list[tuple[int, list[int]]] = []
    for at, number in enumerate(ids):
        fresh = not documents or (number if separator_at == "start" else ids[at - 1]) == SEPARATOR
        if fresh:
            documents.append((2 * at, []))
        documents[-1][1].append(number)
    mine = [(at, document) for at, document in documents if begin <= at < end]
    return [detokenised(at, -1, document, inner=False) for at, document in mine]


def covered(content: bytes, begin: int, end: int) -> str:
    """Return the hash of a range of bytes."""
    return hashlib.sha256(content[begin:end]).hexdigest()


def ids_bytes(ids: list[int]) -> bytes:
    return np.array(ids, "<u2").tobytes()
