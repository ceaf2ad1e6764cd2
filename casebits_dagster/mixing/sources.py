"""What a mix is made from: a verified frontier, seen as an index of documents and token arrays a region."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.records.layout import EOD_ID


class RegionArrays(Protocol):
    """A region's memory maps: document i is `ids[offsets[i]:offsets[i + 1]]`, with its separator."""

    @property
    def ids(self) -> NDArray[np.uint16]: ...
    @property
    def cases(self) -> NDArray[np.uint16]: ...
    @property
    def offsets(self) -> NDArray[np.uint64]: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class MixSource:
    """One frontier, adapted. `index` is a structured array, one row a document, with at least the fields id (16 bytes),
    region, index, tokens (separator included), cluster, split (0 train, 1 validation); `region(i)` is verified."""

    generation: str
    manifest_version: int
    manifest_sha256: str
    vocabulary_sha256: str
    vocabulary_size: int
    licences: tuple[str, ...]
    index: NDArray[Any]
    region: Callable[[int], RegionArrays]
    separator_id: int = EOD_ID
    separator_position: Literal["end", "start"] = "end"
