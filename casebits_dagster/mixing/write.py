"""Copy token slices into shards. The plan decides every position; nothing here decides an order.

Guarantees: the bytes of a shard depend on the plan and its source slices only. Costs one buffer a shard and stream,
and one slice copy a segment.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.mixing.manifest import FolderWriter
from casebits_dagster.mixing.packing.layout import WindowPlan
from casebits_dagster.mixing.seeds import I64
from casebits_dagster.mixing.sources import MixSource, RegionArrays
from casebits_dagster.mixing.supply import Table
from casebits_dagster.records.errors import CasebitsError
from casebits_dagster.records.mix import NEXT, SplitFiles, shard_name

Tokens = NDArray[np.uint16]


class SourceTokens:
    """The tokens of the rows of a document table, wherever they lie."""

    def __init__(self, table: Table, sources: list[MixSource]) -> None:
        self.table, self.separator = table, sources[0].separator_id
        self.region: Callable[[int, int], RegionArrays] = cache(
            lambda generation, region: sources[generation].region(region)
        )
        self.starts = np.zeros(len(table), np.int64)
        order = np.lexsort((table["region"], table["generation"]))
        steps = np.diff(table["generation"][order]) | np.diff(table["region"][order])
        for rows in np.split(order, np.flatnonzero(steps) + 1) if len(order) else []:
            generation, region = int(table["generation"][rows[0]]), int(table["region"][rows[0]])
            offsets, index = self.region(generation, region).offsets.astype(np.int64), table["index"][rows]
            self.starts[rows] = offsets[index]
            if not np.array_equal(np.diff(offsets)[index], table["tokens"][rows]):
                where = f"{sources[generation].generation} region {region:05d}"
                raise CasebitsError("MIX_DOCUMENT", where, "documents have other lengths than in the index")

    def lay(self, count: int, documents: I64, begins: I64, places: I64, lengths: I64) -> dict[str, Tokens]:
        """Return `count` separators in each stream, and over them, from `places` on, slices of documents."""
        out = {"ids": np.full(count, self.separator, "<u2"), "cases": np.zeros(count, "<u2")}
        starts = self.starts[documents] + begins
        slices = zip(self.table[documents], starts.tolist(), places.tolist(), lengths.tolist(), strict=True)
        for row, start, place, length in slices:
            region = self.region(int(row["generation"]), int(row["region"]))
            out["ids"][place : place + length] = region.ids[start : start + length]
            out["cases"][place : place + length] = region.cases[start : start + length]
        return out


def write_split(
    writer: FolderWriter, split: str, plan: WindowPlan, tokens: SourceTokens, windows_per_shard: int
) -> tuple[SplitFiles, I64]:
    """Write the shards of a split; return what was written and how often each id stands in its windows."""
    own, windows_end = windows_per_shard * plan.sequence_length, plan.windows * plan.sequence_length
    shards = -(-plan.windows // windows_per_shard)
    counts = np.zeros(1 << 16, np.int64)
    for shard in range(shards):
        begin, last = shard * own, shard == shards - 1
        content = copy_range(plan, tokens, begin, plan.file_tokens if last else begin + own + 1)
        for stream, array in content.items():
            writer.put_array(shard_name(split, shard, stream), array)
        counts += np.bincount(content["ids"][: min(own, windows_end - begin)], minlength=1 << 16)
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
    rows = plan.segments
    starts = rows["window"].astype(np.int64) * plan.sequence_length + rows["position"] + rows["inserted"]
    ends = starts + rows["length"] - rows["inserted"]
    here = slice(np.searchsorted(ends, begin, side="right"), np.searchsorted(starts, end))
    low, high = np.maximum(starts[here], begin), np.minimum(ends[here], end)
    begins = rows["document_start"][here] + (low - starts[here])
    return tokens.lay(end - begin, rows["document"][here], begins, low - begin, high - low)


def write_next(writer: FolderWriter, plan: WindowPlan, tokens: SourceTokens) -> None:
    """Write, for each window, the token that truly follows its last one in the document, else the separator."""
    rows = plan.segments[plan.segments["window"] < plan.windows]
    last = rows[np.flatnonzero(np.diff(rows["window"].astype(np.int64), append=plan.windows))]
    ends = last["document_start"].astype(np.int64) + last["length"] - last["inserted"]
    follows = (ends < tokens.table["tokens"][last["document"]]).astype(np.int64)
    content = tokens.lay(plan.windows, last["document"], ends, np.arange(plan.windows), follows)
    for stream, array in content.items():
        writer.put_array(NEXT[stream], array)
