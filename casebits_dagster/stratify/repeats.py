"""Documents whose id stands earlier in the prefix, found one part of the ids at a time.

Ids are uniform: their first bits part them evenly, and equal ones fall into one part. One pass writes 28 bytes a
document into a file a part; each file is then read alone. Memory: about 2^20 documents, up to 2^29 of them in all.
"""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

U64: TypeAlias = NDArray[np.uint64]
Group: TypeAlias = "tuple[int, int, str, str, str]"

_ROW = np.dtype([("high", "<u8"), ("low", "<u8"), ("region", "<u4"), ("index", "<u4"), ("tokens", "<u4")])
_PART_BITS, _MOST_BITS = 20, 9
LARGEST = 20
"""So many groups are listed."""


@dataclass(slots=True)
class Repeated:
    """All repeats: each document but the first of every group of one id. `by_region` (R,) documents; `largest` groups:
    copies and tokens (both but the first's), id, and the places of the first and the last."""

    by_region: NDArray[np.int64]
    tokens: int = 0
    groups: int = 0
    largest: list[Group] = field(default_factory=list)


class Spill(contextlib.ExitStack):
    """The ids of a prefix by their first bits, in files below a folder; leaving the context closes them."""

    def __init__(self, folder: Path, documents: int) -> None:
        super().__init__()
        self.bits = min(_MOST_BITS, documents.bit_length() - min(_PART_BITS, documents.bit_length()))
        self.files = [self.enter_context((folder / f"{part:03d}").open("w+b")) for part in range(1 << self.bits)]

    def add(self, region: int, rows: NDArray[np.void], high: U64, low: U64) -> None:
        """Take the documents of one region; regions come in their order."""
        kept = np.empty(len(rows), _ROW)
        kept["high"], kept["low"], kept["region"] = high, low, region
        kept["index"], kept["tokens"] = rows["index"], rows["tokens"]
        part = (high >> np.uint64(64 - _MOST_BITS) >> np.uint64(_MOST_BITS - self.bits)).astype("<u2")
        ends = np.cumsum(np.bincount(part, minlength=len(self.files)))
        kept = kept[np.argsort(part, kind="stable")]
        for file, begin, end in zip(self.files, (0, *ends), ends, strict=False):
            file.write(kept[begin:end].data)

    def parts(self) -> Iterator[NDArray[Any]]:
        """Yield the documents of each part, in the order of the prefix."""
        for file in self.files:
            file.seek(0)
            yield np.frombuffer(file.read(), _ROW)


def id_words(ids: NDArray[Any]) -> tuple[U64, U64]:
    """Return the first and the last 8 bytes of ids, as numbers that sort as the ids do."""
    words = np.ascontiguousarray(ids).view(">u8").reshape(-1, 2).astype("<u8")
    return np.ascontiguousarray(words[:, 0]), np.ascontiguousarray(words[:, 1])


def find_repeats(spill: Spill, regions: int) -> Repeated:
    """Return what the spilled prefix of so many regions repeats."""
    found = Repeated(np.zeros(regions, "<i8"))
    for part in spill.parts():
        rows = _suspects(part)
        starts = np.ones(len(rows), bool)
        starts[1:] = (np.diff(rows["high"]) != 0) | (np.diff(rows["low"]) != 0)
        firsts = np.flatnonzero(starts)
        again = rows[~starts]
        found.by_region += np.bincount(again["region"], minlength=regions)
        found.tokens += int(again["tokens"].sum())
        copies = np.diff(firsts, append=len(rows)) - 1
        found.groups += int((copies > 0).sum())
        # A stable order keeps the smallest of equal groups, so which are listed does not depend on the parts.
        for begin, more in zip(
            *(of[np.argsort(-copies, kind="stable")[:LARGEST]] for of in (firsts, copies)), strict=True
        ):
            if more:
                found.largest.append(_group(rows[begin : begin + 1 + more]))
        found.largest = heapq.nsmallest(LARGEST, found.largest, key=lambda group: (-group[0], group[2]))
    return found


def _suspects(part: NDArray[Any]) -> NDArray[Any]:
    """Return the rows whose first word stands twice, by id and then in the order of the prefix."""
    words = np.sort(part["high"])
    twice = np.unique(words[1:][words[1:] == words[:-1]])
    rows = part[np.isin(part["high"], twice)] if len(twice) else part[:0]
    return rows[np.lexsort((rows["low"], rows["high"]))]


def _group(rows: NDArray[Any]) -> Group:
    first, last = (f"{row['region']:05d}/{row['index']}" for row in (rows[0], rows[-1]))
    return len(rows) - 1, int(rows["tokens"][1:].sum()), f"{rows['high'][0]:016x}{rows['low'][0]:016x}", first, last
