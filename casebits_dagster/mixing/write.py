"""Copy token slices into shards. The plan decides every position; nothing here decides an order.

Guarantees: a token file depends on its `TokenRuns` and the slices these name, so any process can write any file, with
the same bytes. Costs one copy a segment and stream, and a buffer of BLOCK tokens whatever the size of the file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.mixing.packing.layout import WindowPlan
from casebits_dagster.mixing.seeds import I64
from casebits_dagster.mixing.sources import MixSource, RegionArrays
from casebits_dagster.mixing.supply import Table
from casebits_dagster.records.digests import sha256_file
from casebits_dagster.records.errors import CasebitsError
from casebits_dagster.records.mix import NEXT_NAMES, SHARD_SUFFIXES, SplitFiles, shard_name

BLOCK = 1 << 18
Stream: TypeAlias = "NDArray[np.uint16] | Path"


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenRuns:
    """One token file and all it depends on: `tokens` times `fill`, and over them, in rising order and without an
    overlap, from each of `places` on a slice of a region's stream. The first `counted` ids are counted."""

    name: str
    tokens: int
    fill: int
    counted: int
    places: I64
    lengths: I64
    starts: I64
    regions: I64
    streams: dict[int, Stream]


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A line of `MANIFEST.txt`, and how often each id stands in what was counted."""

    line: str
    counts: I64

    @property
    def name(self) -> str:
        return self.line.split("  ")[2]


class SourceTokens:
    """Where the tokens of the rows of a document table lie: `starts` in which of the `regions`."""

    def __init__(self, table: Table, sources: list[MixSource]) -> None:
        self.table, self.separator, self.codec = table, sources[0].separator_id, sources[0].format
        self.starts = np.zeros(len(table), np.int64)
        self.number = np.zeros(len(table), np.int64)
        self.regions: list[RegionArrays] = []
        order = np.lexsort((table["region"], table["generation"]))
        steps = np.diff(table["generation"][order]) | np.diff(table["region"][order])
        for rows in np.split(order, np.flatnonzero(steps) + 1) if len(order) else []:
            source, region = sources[int(table["generation"][rows[0]])], int(table["region"][rows[0]])
            arrays = source.region(region)
            offsets, index = arrays.offsets.astype(np.int64), table["index"][rows]
            self.starts[rows], self.number[rows] = offsets[index], len(self.regions)
            self.regions.append(arrays)
            if not np.array_equal(np.diff(offsets)[index], table["tokens"][rows]):
                where = f"{source.generation} region {region:05d}"
                raise CasebitsError("MIX_DOCUMENT", where, "documents have other lengths than in the index")

    def runs(
        self, names: dict[str, str], tokens: int, counted: int, documents: I64, begins: I64, places: I64, lengths: I64
    ) -> Iterator[TokenRuns]:
        """Yield each stream's file: separators, and over them, from `places` on, slices of documents."""
        kept = lengths > 0
        documents, begins, places, lengths = (each[kept] for each in (documents, begins, places, lengths))
        regions = self.number[documents]
        for stream, name in names.items():
            yield TokenRuns(
                name=name,
                tokens=tokens,
                fill=self.separator if stream == "ids" else 0,
                counted=counted if stream == "ids" else 0,
                places=places,
                lengths=lengths,
                starts=self.starts[documents] + begins,
                regions=regions,
                streams={k: _by_name(getattr(self.regions[k], stream)) for k in np.unique(regions).tolist()},
            )


def split_runs(split: str, plan: WindowPlan, tokens: SourceTokens, windows_per_shard: int) -> Iterator[TokenRuns]:
    """Yield the token files of a split, shard by shard."""
    length = plan.sequence_length
    own, windows_end = windows_per_shard * length, plan.windows * length
    rows = plan.segments
    starts = rows["window"].astype(np.int64) * length + rows["position"] + rows["inserted"]
    ends = starts + rows["length"] - rows["inserted"]
    shards = shards_of(plan, windows_per_shard)
    for shard in range(shards):
        begin = shard * own
        end = plan.file_tokens if shard == shards - 1 else begin + own + 1
        here = slice(np.searchsorted(ends, begin, side="right"), np.searchsorted(starts, end))
        low, high = np.maximum(starts[here], begin), np.minimum(ends[here], end)
        begins = rows["document_start"][here] + (low - starts[here])
        names = {stream: shard_name(split, shard, stream, tokens.codec) for stream in SHARD_SUFFIXES[tokens.codec]}
        counted = min(own, windows_end - begin)
        yield from tokens.runs(names, end - begin, counted, rows["document"][here], begins, low - begin, high - low)


def next_runs(plan: WindowPlan, tokens: SourceTokens) -> Iterator[TokenRuns]:
    """Yield the files that hold, for each window, the token that truly follows its last one in the document, else the
    separator."""
    rows = plan.segments[plan.segments["window"] < plan.windows]
    last = rows[np.flatnonzero(np.diff(rows["window"].astype(np.int64), append=plan.windows))]
    ends = last["document_start"].astype(np.int64) + last["length"] - last["inserted"]
    follows = (ends < tokens.table["tokens"][last["document"]]).astype(np.int64)
    names, places = NEXT_NAMES[tokens.codec], np.arange(plan.windows)
    yield from tokens.runs(names, plan.windows, 0, last["document"], ends, places, follows)


def shards_of(plan: WindowPlan, windows_per_shard: int) -> int:
    return -(-plan.windows // windows_per_shard)


def split_files(plan: WindowPlan, documents: int, windows_per_shard: int) -> SplitFiles:
    return SplitFiles(
        windows=plan.windows,
        shards=shards_of(plan, windows_per_shard),
        documents=documents,
        segments=len(plan.segments),
        file_tokens=plan.file_tokens if plan.windows else 0,
    )


def write_tokens(folder: Path, done: Path, runs: TokenRuns) -> WrittenFile:
    """Write a token file into `folder`, unless `done` says that it was written and it still has that hash."""
    path, finished = folder / runs.name, done / runs.name
    if finished.is_file() and path.is_file() and finished.read_text() == _line(path, sha256_file(path)):
        ids = np.memmap(path, "<u2", "r")
        parts = (count_ids(ids[begin : begin + BLOCK], runs.counted - begin) for begin in range(0, len(ids), BLOCK))
        return WrittenFile(finished.read_text(), sum(parts, np.zeros(1 << 16, np.int64)))
    digest, counts, hashed = hashlib.sha256(), np.zeros(1 << 16, np.int64), Future[None]()
    hashed.set_result(None)
    # Neither hashing nor writing holds the interpreter's lock: while one block is hashed, it is written and counted,
    # and the next one is made.
    with path.open("wb") as stream, ThreadPoolExecutor(1) as hashing:
        for begin, block in token_blocks(runs):
            before, hashed = hashed, hashing.submit(digest.update, block.data)
            stream.write(block.data)
            counts += count_ids(block, runs.counted - begin)
            before.result()
    line = _line(path, digest.hexdigest())
    finished.write_text(line)
    return WrittenFile(line, counts)


def token_blocks(runs: TokenRuns) -> Iterator[tuple[int, NDArray[np.uint16]]]:
    """Yield where each block begins, and its tokens, in one of two buffers: the next but one overwrites them."""
    buffers = [np.empty(min(BLOCK, runs.tokens), "<u2") for _ in range(2)]
    # Slices of memory views: half the cost of an array's, and below that of `take` from 100 tokens on.
    views = {k: _open(stream).data for k, stream in runs.streams.items()}
    ends = runs.places + runs.lengths
    for begin in range(0, runs.tokens, BLOCK):
        end, buffer = min(begin + BLOCK, runs.tokens), buffers[begin // BLOCK % 2]
        buffer.fill(runs.fill)
        here = slice(np.searchsorted(ends, begin, side="right"), np.searchsorted(runs.places, end))
        low, high = np.maximum(runs.places[here], begin), np.minimum(ends[here], end)
        starts = runs.starts[here] + (low - runs.places[here])
        columns = (runs.regions[here], low - begin, high - begin, starts, starts + (high - low))
        target = buffer.data
        for region, first, last, source, stop in zip(*(column.tolist() for column in columns), strict=True):
            target[first:last] = views[region][source:stop]
        yield begin, buffer[: end - begin]


def count_ids(ids: NDArray[np.uint16], counted: int) -> I64:
    """Return how often each id stands among the first `counted` (none, when that is below 0)."""
    return np.bincount(ids[: max(0, counted)], minlength=1 << 16)


def _line(path: Path, digest: str) -> str:
    return f"{digest}  {path.stat().st_size}  {path.name}"


def _by_name(array: Any) -> Stream:
    """Return the file of a memory map of a whole file (another process maps it again), else the array itself."""
    path = Path(array.filename) if isinstance(array, np.memmap) and array.filename else None
    return path if path and array.offset == 0 and array.nbytes == path.stat().st_size else array


def _open(stream: Stream) -> NDArray[np.uint16]:
    return np.memmap(stream, "<u2", "r") if isinstance(stream, Path) else np.ascontiguousarray(stream)
