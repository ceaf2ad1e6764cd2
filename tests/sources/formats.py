"""Every format with a writer, so that one suite can run on all: the same rows in, the same rows out."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from casebits_dagster.records.plan import Unit
from casebits_dagster.sources import FORMATS
from casebits_dagster.sources.columns import Reading, RowReader
from tests.sources.reading import GPT2, READING, SEPARATOR, spell

Written = Sequence[tuple[int, list[int]]]
_ROW_GROUP = 5


@dataclass(frozen=True, slots=True)
class Format:
    """A format and how (cluster, tokens) rows are written in it.

    `write` returns the position of each row. `tokens`: ids are stored; `clusters`: so are clusters.
    """

    name: str
    file: str
    write: Callable[[Path, Written], list[int]]
    unit: Unit = "bytes"
    tokens: bool = True
    clusters: bool = True
    reading: Reading = READING

    @property
    def reader(self) -> RowReader:
        return FORMATS[self.name]

    def end(self, path: Path, rows: Written) -> int:
        """Return where the file ends, in the format's unit."""
        return len(rows) if self.unit == "rows" else path.stat().st_size


def climbmix_line(cluster: int, tokens: list[int]) -> bytes:
    """Return a line as ClimbMix has it."""
    return json.dumps({"cluster_id": cluster, "tokens": tokens, "token_count": len(tokens)}).encode() + b"\n"


def _text_line(cluster: int, tokens: list[int]) -> bytes:
    return json.dumps({"id": 7, "text": spell(tokens).decode(), "cluster_id": cluster}).encode() + b"\n"


def _lines(line: Callable[[int, list[int]], bytes], end: bytes = b"\n") -> Callable[[Path, Written], list[int]]:
    def write(path: Path, rows: Written) -> list[int]:
        lines = [line(*row)[:-1] + end for row in rows]
        path.write_bytes(b"".join(lines))
        return [0, *np.cumsum([len(line) for line in lines]).tolist()][: len(rows)]

    return write


def _gzip(path: Path, rows: Written) -> list[int]:
    # Two members, which is one file all the same.
    half = len(rows) // 2
    parts = [b"".join(_text_line(*row) for row in part) for part in (rows[:half], rows[half:])]
    path.write_bytes(b"".join(gzip.compress(part) for part in parts))
    return list(range(len(rows)))


def _zstd(path: Path, rows: Written) -> list[int]:
    half = len(rows) // 2
    parts = [b"".join(_text_line(*row) for row in part) for part in (rows[:half], rows[half:])]
    path.write_bytes(b"".join(pa.compress(part, codec="zstd", asbytes=True) for part in parts))
    return list(range(len(rows)))


def _parquet_tokens(kind: pa.DataType) -> Callable[[Path, Written], list[int]]:
    def write(path: Path, rows: Written) -> list[int]:
        lists = [tokens for _, tokens in rows]
        columns = {
            "token_count": pa.array([len(tokens) for tokens in lists], pa.int32()),
            "tokens": pa.array(lists, pa.list_(kind) if kind != pa.int64() else pa.large_list(kind)),
            "cluster_id": pa.array([cluster for cluster, _ in rows], pa.int8()),
        }
        pq.write_table(pa.table(columns), path, row_group_size=_ROW_GROUP)
        return list(range(len(rows)))

    return write


def _parquet_text(kind: pa.DataType) -> Callable[[Path, Written], list[int]]:
    def write(path: Path, rows: Written) -> list[int]:
        texts = [spell(tokens) for _, tokens in rows]
        columns = {
            "cluster_id": pa.array([cluster for cluster, _ in rows], pa.uint16()),
            "text": pa.array(texts, pa.binary()).cast(kind),
        }
        pq.write_table(pa.table(columns), path, row_group_size=_ROW_GROUP)
        return list(range(len(rows)))

    return write


def _flat(leads: bool) -> Callable[[Path, Written], list[int]]:
    def write(path: Path, rows: Written) -> list[int]:
        stored = [[SEPARATOR, *tokens] if leads else [*tokens, SEPARATOR] for _, tokens in rows]
        path.write_bytes(np.concatenate([np.array(row, "<u2") for row in stored]).tobytes())
        return [0, *(2 * np.cumsum([len(row) for row in stored])).tolist()][: len(rows)]

    return write


FORMAT_TABLE = (
    Format("climbmix_jsonl", "a.jsonl", _lines(climbmix_line)),
    Format("climbmix_jsonl", "crlf.jsonl", _lines(climbmix_line, b"\r\n")),
    Format("jsonl_text", "text.jsonl", _lines(_text_line), tokens=False),
    Format("jsonl_text", "a.jsonl.gz", _gzip, "rows", tokens=False),
    Format("jsonl_text", "a.jsonl.zst", _zstd, "rows", tokens=False),
    Format("parquet_tokens", "u16.parquet", _parquet_tokens(pa.uint16()), "rows"),
    Format("parquet_tokens", "large_i64.parquet", _parquet_tokens(pa.int64()), "rows"),
    Format("parquet_text", "string.parquet", _parquet_text(pa.string()), "rows", tokens=False),
    Format("parquet_text", "large_string.parquet", _parquet_text(pa.large_string()), "rows", tokens=False),
    Format("parquet_text", "binary.parquet", _parquet_text(pa.binary()), "rows", tokens=False),
    Format("parquet_text", "large_binary.parquet", _parquet_text(pa.large_binary()), "rows", tokens=False),
    Format("flat_u16", "start.bin", _flat(True), clusters=False, reading=Reading(GPT2, "start")),
    Format("flat_u16", "end.bin", _flat(False), clusters=False, reading=Reading(GPT2, "end")),
)
