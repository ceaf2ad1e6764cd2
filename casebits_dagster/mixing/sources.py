"""What a mix is made from: a verified frontier, seen as index rows and token arrays a region."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.records.errors import Refused
from casebits_dagster.records.layout import EOD_ID
from casebits_dagster.records.withdrawal import WithdrawalUsed
from casebits_dagster.regions.index import cached_scores, recorded_metrics
from casebits_dagster.regions.read import Region


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """What is withdrawn when a mix is built: the `ids` of the texts, "V16", sorted, and the pins that name them."""

    ids: NDArray[np.void]
    pins: tuple[WithdrawalUsed, ...]


NONE_WITHDRAWN = Withdrawn(np.empty(0, "V16"), ())


class RegionArrays(Protocol):
    """A region's memory maps: document i is `ids[offsets[i]:offsets[i + 1]]`, with its separator. The `cases` of a
    plain codec are zeros."""

    @property
    def ids(self) -> NDArray[np.uint16]: ...
    @property
    def cases(self) -> NDArray[np.uint16]: ...
    @property
    def offsets(self) -> NDArray[np.uint64]: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class MixSource:
    """One frontier, adapted: `documents` in `regions` regions, of which `region(k)` is verified.

    `rows(k)` is a structured array of the region's documents in their order, with at least the fields id (16 bytes),
    index, tokens (separator included), cluster, split (0 train, 1 validation) and case_class; one is held at a time.
    No document whose text is `withdrawn` is used.
    """

    generation: str
    manifest_version: int
    manifest_sha256: str
    vocabulary_sha256: str
    vocabulary_size: int
    licences: tuple[str, ...]
    documents: int
    regions: int
    rows: Callable[[int], NDArray[Any]]
    region: Callable[[int], RegionArrays]
    format: Literal["casebits-1", "plain-1"] = "casebits-1"
    separator_id: int = EOD_ID
    separator_position: Literal["end", "start"] = "end"
    withdrawn: Withdrawn = NONE_WITHDRAWN

    def scores(self, region: int, metrics: Sequence[str]) -> NDArray[np.int64]:
        """Return the recorded scores of a region's documents in millionths, "<i8" (len(metrics), D)."""
        return cached_scores(self._recorded(region), metrics)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that the first region with a document recorded: one filter policy holds for all."""
        return next(filter(None, (recorded_metrics(self._recorded(k)) for k in range(self.regions))), ())

    def _recorded(self, region: int) -> Region:
        found = self.region(region)
        if not isinstance(found, Region):
            where = f"generation {self.generation}: scores"
            raise Refused("REGION_MISSING", where, expected="published regions", read=type(found).__name__)
        return found
