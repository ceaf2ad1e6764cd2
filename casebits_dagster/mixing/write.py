"""Copy token slices into shards. The plan decides every position; nothing here decides an order.

Guarantees: the bytes of a shard depend on the plan and its source slices only. Costs one buffer a shard and stream,
and one slice copy a segment.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.mixing.manifest import FolderWriter
from casebits_dagster.mixing.packing.layout import WindowPlan
from casebits_dagster.mixing.seeds import I64
from casebits_dagster.mixing.sources import MixSource, RegionArrays
from casebits_dagster.mixing.supply import Table
from casebits_dagster.records.errors import CasebitsError
from casebits_dagster.records.mix import NEXT, STREAMS, SplitFiles, shard_name

Tokens = NDArray[np.uint16]


class SourceTokens:
    """The tokens of the rows of a document table, wherever they lie."""

    def __init__(self, table: Table, sources: list[MixSource]) -> None:
        self.table, self.separator = table, sources[0].separator_id
        self.open: Callable[[int, int], RegionArrays] = cache(
            lambda generation, region: sources[generation].region(region)
        )
        self.starts = np.zeros(len(table), np.int64)
        for generation, region, rows in self._by_region(np.arange(len(table))):
            offsets = self.open(generation, region).offsets.astype(np.int64)
            index = table["index"][rows].astype(np.int64)
            self.starts[rows] = offsets[index]
            lengths = offsets[index + 1] - offsets[index]
            if not np.array_equal(lengths, table["tokens"][rows]):
                where = f"{sources[generation].generation} region {region:05d}"
                raise CasebitsError("MIX_DOCUMENT", where, "documents have other lengths than in the index")

    def arrays(self, document: int) -> RegionArrays:
        row = self.table[document]
        return self.open(int(row["generation"]), int(row["region"]))

    def at(self, documents: I64, positions: I64) -> dict[str, Tokens]:
        """Return the token at each document's position, the separator where the document ends before it."""
        found = self.blank(len(documents))
        inside = np.flatnonzero(positions < self.table["tokens"][documents])
        for generation, region, rows in self._by_region(documents[inside]):
            at = inside[rows]
            places = self.starts[documents[at]] + positions[at]
            region_arrays = self.open(generation, region)
            found["ids"][at], found["cases"][at] = region_arrays.ids[places], region_arrays.cases[places]
        return found

    def blank(self, count: int) -> dict[str, Tokens]:
        """Return `count` separators in each stream."""
        return {"ids": np.full(count, self.separator, "<u2"), "cases": np.zeros(count, "<u2")}

    def _by_region(self, documents: I64) -> list[tuple[int, int, I64]]:
        rows = self.table[documents]
        keys = rows["generation"].astype(np.int64) << 32 | rows["region"]
        order = np.argsort(keys, kind="stable")
        groups = np.split(order, np.flatnonzero(np.diff(keys[order])) + 1) if len(order) else []
        return [(int(keys[group[0]]) >> 32, int(keys[group[0]]) & 0xFFFFFFFF, group) for group in groups]


def write_split(
    writer: FolderWriter, split: str, plan: WindowPlan, tokens: SourceTokens, windows_per_shard: int
) -> tuple[SplitFiles, I64]:
    """Write the shards of a split; return what was written and how often each id stands in its windows."""
    shards = -(-plan.windows // windows_per_shard)
    counts = np.zeros(1 << 16, np.int64)
    windows_end = plan.windows * plan.sequence_length
    for shard in range(shards):
        begin = shard * windows_per_shard * plan.sequence_length
        end = begin + windows_per_shard * plan.sequence_length + 1
        end = plan.file_tokens if shard == shards - 1 else end
        for stream, content in copy_range(plan, tokens, begin, end).items():
            writer.put_array(shard_name(split, shard, stream), content)
            if stream == "ids":
                own = min(windows_end, begin + windows_per_shard * plan.sequence_length) - begin
                counts += np.bincount(content[:own], minlength=1 << 16)
    files = SplitFiles(
        windows=plan.windows,
        shards=shards,
        documents=len(tokens.table),
        segments=len(plan.segments),
        file_tokens=plan.file_tokens if shards else 0,
    )
    return files, counts


def copy_range(plan: WindowPlan, tokens: SourceTokens, begin: int, end: int) -> dict[str, Tokens]:
    """Return the streams of file positions [begin, end); positions that no segment covers hold the separator."""
    out = tokens.blank(end - begin)
    rows = plan.segments
    starts = rows["window"].astype(np.int64) * plan.sequence_length + rows["position"] + rows["inserted"]
    ends = starts + rows["length"] - rows["inserted"]
    first, last = np.searchsorted(ends, begin, side="right"), np.searchsorted(starts, end)
    low, high = np.maximum(starts[first:last], begin), np.minimum(ends[first:last], end)
    documents = rows["document"][first:last]
    sources = tokens.starts[documents] + rows["document_start"][first:last] + (low - starts[first:last])
    slices = zip(documents.tolist(), sources.tolist(), (low - begin).tolist(), (high - low).tolist(), strict=True)
    for document, source, place, length in slices:
        region = tokens.arrays(document)
        out["ids"][place : place + length] = region.ids[source : source + length]
        out["cases"][place : place + length] = region.cases[source : source + length]
    return out


def write_next(writer: FolderWriter, plan: WindowPlan, tokens: SourceTokens) -> None:
    """Write, for each window, the token that truly follows its last one in the document, else the separator."""
    rows: NDArray[Any] = plan.segments[plan.segments["window"] < plan.windows]
    last = rows[np.flatnonzero(np.diff(rows["window"].astype(np.int64), append=plan.windows))]
    ends = last["document_start"].astype(np.int64) + last["length"] - last["inserted"]
    for stream, content in tokens.at(last["document"].astype(np.int64), ends).items():
        writer.put_array(f"{NEXT}.{STREAMS[stream]}", content)
