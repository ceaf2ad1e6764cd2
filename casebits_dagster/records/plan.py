"""The region plan of a generation: which range of which file is region 0, 1, 2 ...

Either spelled out (`[[regions]]`: cuts of each file) or computed from the file sizes (`[plan]`: equal byte ranges of
every file, in the order of a salted hash, of which the first ones are selected).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal, TypeAlias

from casebits_dagster.records.record import Count, Positive, Record, RelativePath, Text

Unit: TypeAlias = Literal["bytes", "rows"]


@dataclass(frozen=True, slots=True)
class RegionSpec:
    """One region of the plan: a half-open range of one source file."""

    index: int
    path: str
    unit: Unit
    begin: int
    end: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RegionCuts(Record):
    """Regions of one file: region k holds rows, or bytes, [cuts[k], cuts[k+1])."""

    path: RelativePath
    cuts: tuple[Count, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanPin(Record):
    """A computed plan, with the figures that it must have: `regions` in all, `selected` of them, of `selected_bytes`.

    Every file is cut into ranges of `region_bytes` (the last one is shorter); all ranges are sorted by the SHA-256 of
    `order_salt` + NUL + `revision:path:begin:end`, so that any prefix of the plan is a fair sample of the source.
    """

    region_bytes: Positive
    order_salt: Text
    regions: Positive
    selected: Positive
    selected_bytes: Positive

    def ranges(self, revision: str, sizes: dict[str, int]) -> list[RegionSpec]:
        """Return all ranges of all files in work-plan order; `sizes` are bytes by path."""
        found = [
            (path, begin, min(begin + self.region_bytes, size))
            for path, size in sizes.items()
            for begin in range(0, size, self.region_bytes)
        ]
        found.sort(key=lambda region: self._rank(revision, *region))
        return [RegionSpec(index, path, "bytes", begin, end) for index, (path, begin, end) in enumerate(found)]

    def _rank(self, revision: str, path: str, begin: int, end: int) -> bytes:
        return hashlib.sha256(f"{self.order_salt}\0{revision}:{path}:{begin}:{end}".encode()).digest()
