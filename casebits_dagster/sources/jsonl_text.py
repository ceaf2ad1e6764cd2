"""JSON lines with `text` (a string) and perhaps `cluster_id` (a 32-bit integer or null); other keys are ignored.

A region is a byte range of a plain file, or a row range of one compressed by gzip or zstandard (`.gz`, `.zst`), which
is read from its beginning. Each line is one call of the standard JSON parser; a key that stands twice is malformed.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from casebits_dagster.records.errors import RecordError
from casebits_dagster.records.plan import RegionSpec
from casebits_dagster.sources.columns import PROBLEMS, RangeHash, Reading, SourceRows, damaged
from casebits_dagster.sources.ranges import (
    BLOCK,
    LINE_FEED,
    LINE_LIMIT,
    Records,
    line_ends,
    owned_records,
    split,
)
from casebits_dagster.stores.base import Store

_CODECS = {".gz": "gzip", ".zst": "zstd"}
_EVERYTHING = 1 << 62


def read_rows(
    store: Store, region: RegionSpec, reading: Reading, digest: RangeHash, block: int = BLOCK, limit: int = LINE_LIMIT
) -> Iterator[SourceRows]:
    """Yield the rows of the region in blocks. Raises RecordError on a compressed file that is broken or too short."""
    if region.unit == "bytes":
        for lines in owned_records(store, region, LINE_FEED, digest, block, limit):
            yield _parse(lines, limit)
        return
    raw, row = _HashedFile(store, region.path, digest), 0
    for lines in split(_decompressed(raw, region.path, block), LINE_FEED, 0, _EVERYTHING, limit):
        begin, end = (min(max(bound - row, 0), len(lines.positions)) for bound in (region.begin, region.end))
        numbers = np.arange(row, row + len(lines.positions))
        row += len(numbers)
        if begin < end:
            yield _parse(Records(lines.items, lines.cuts[begin : end + 1], numbers[begin:end]), limit)
        if row >= region.end:
            break
    raw.read_rest()
    if row < region.end:
        raise RecordError("SOURCE_FORMAT", region.path, expected=f"{region.end} rows or more", read=row)


class _HashedFile(io.RawIOBase):
    """A file of a store, read once from beginning to end; the hash sees all that was read."""

    def __init__(self, store: Store, path: str, digest: RangeHash) -> None:
        self._store, self._path, self._digest, self._at = store, path, digest, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = self._store.read_range(self._path, self._at, self._at + len(buffer))
        buffer[: len(content)] = content
        self._digest.update(content)
        self._at += len(content)
        return len(content)

    def read_rest(self) -> None:
        """Show the hash what is left."""
        while self.readinto(bytearray(BLOCK)):
            pass


def _decompressed(raw: _HashedFile, path: str, block: int) -> Iterator[tuple[int, bytes]]:
    codec, at = _CODECS[path[path.rindex(".") :]], 0
    try:
        # The decompressor asks for little at a time; a store is asked for whole blocks.
        file = pa.PythonFile(io.BufferedReader(raw, BLOCK), "r")
        with pa.CompressedInputStream(file, codec) as stream:
            while content := stream.read(block):
                yield at, content
                at += len(content)
    except (pa.ArrowException, OSError) as error:
        raise damaged(error, path, codec) from error


def _parse(lines: Records, limit: int) -> SourceRows:
    count = len(lines.positions)
    clusters, problems = np.full(count, -1, "<i4"), np.zeros(count, np.uint8)
    problem_at, cuts = np.full(count, -1, "<i8"), np.zeros(count + 1, "<i8")
    texts, view = [], memoryview(lines.items)  # type: ignore[arg-type]  # an array is a buffer
    for row, (begin, end) in enumerate(zip(lines.cuts[:-1].tolist(), line_ends(lines).tolist(), strict=True)):
        text, problem = b"", "line_too_long"
        if end - begin <= limit:
            text, clusters[row], problem, problem_at[row] = _row(view[begin:end])
        problems[row] = PROBLEMS.index(problem)
        texts.append(text)
        cuts[row + 1] = cuts[row] + len(text)
    nothing = np.zeros(count, "<i8")
    content = np.frombuffer(b"".join(texts), np.uint8)
    return SourceRows(lines.positions, clusters, nothing, problems, problem_at, content, cuts)


def _row(line: memoryview) -> tuple[bytes, int, str, int]:
    """Return text, cluster, problem and its place."""
    try:
        found = json.loads(str(line, "utf-8"), object_pairs_hook=_unique, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return b"", -1, "malformed_line", -1
    text, cluster = (found.get("text"), found.get("cluster_id")) if isinstance(found, dict) else (0, 0)
    cluster = -1 if cluster is None else cluster
    if not isinstance(text, str | None) or type(cluster) is not int or not -(2**31) <= cluster < 2**31:
        return b"", -1, "malformed_line", -1
    if text is None:
        return b"", cluster, "null_row", -1
    try:
        return text.encode(), cluster, "", -1
    except UnicodeEncodeError as error:
        return b"", cluster, "not_utf8", len(text[: error.start].encode())


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice")
    return found


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)
