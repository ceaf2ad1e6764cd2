"""Documents of an opened frontier, by number: text, ids and masks, exactly as they were admitted.

Whoever hands out regions verifies them first; what is read here is what was proven. How many documents of a split a
region holds stands in its receipt, so document number k is found without reading what comes before it. Costs: a pass
holds the index of one region; documents drawn at random hold the last `_HELD` (about 45 bytes a document), and the
first one drawn from a region costs a verification of it.
"""

from __future__ import annotations

import operator
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal, Protocol, SupportsIndex, TypeAlias

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.codec.bytetable import Ids
from casebits_dagster.codec.decode import Codec
from casebits_dagster.codec.encode import Masks
from casebits_dagster.publication.verify_region import verify_region_files
from casebits_dagster.records.errors import Absent, Refused
from casebits_dagster.records.frontier import Manifest
from casebits_dagster.records.layout import RECEIPT
from casebits_dagster.records.region import Receipt
from casebits_dagster.regions.read import Region

Split: TypeAlias = Literal["train", "validation"]
SPLITS: tuple[Split, ...] = ("train", "validation")  # as the index numbers them
_HELD = 16


class OutOfRange(Absent, IndexError):
    """There is no document of this number; as an IndexError, it also ends what walks a sequence by numbers."""


class VerifiedFrontier(Protocol):
    """What documents are read from: a region, and all that is said of it, is verified when it is first asked for."""

    @property
    def manifest(self) -> Manifest: ...
    @property
    def codec(self) -> Codec: ...
    def receipt(self, index: int) -> Receipt: ...
    def rows(self, index: int) -> NDArray[np.void]: ...
    def region(self, index: int) -> Region: ...


@dataclass(frozen=True, slots=True, eq=False)
class Document:
    """One document: `ids` "<u2" (tokens,) and `cases` "<u2" (tokens,), its separator included; masks of a plain codec
    are zeros. `id` is the first half of the SHA-256 of its text, `cluster` None where the source has none."""

    generation: str
    region: int
    index: int
    id: str
    split: Split
    cluster: int | None
    ids: Ids = field(repr=False)
    cases: Masks = field(repr=False)
    _text: Callable[[], str] = field(repr=False)

    @property
    def tokens(self) -> int:
        """How many ids it has, its separator included."""
        return len(self.ids)

    @property
    def text(self) -> str:
        """Its exact text, decoded anew each time."""
        return self._text()


class Documents:
    """The documents of a frontier, or of one of its regions, in order; of one split, or (None) of both.

    `len`, `documents[k]` (negative from the end) and iteration. Raises as the frontier does where a region is not
    what its manifest lists, and Refused COUNT_MISMATCH where there are more or fewer documents than records say.
    """

    def __init__(self, frontier: VerifiedFrontier, *, split: Split | None = None, region: int | None = None) -> None:
        if split is not None and split not in SPLITS:
            raise Absent("NO_SUCH_SPLIT", "documents: split", expected="train, validation or None", read=split)
        count = frontier.manifest.count
        if region is not None and not 0 <= region < count:
            raise Absent("REGION_MISSING", f"regions/{region:05d}", f"the frontier holds regions 0 to {count - 1}")
        self.frontier, self.split, self.region = frontier, split, region
        self.regions = range(count) if region is None else range(region, region + 1)
        self._ends: list[int] = []  # documents up to and with each region; of as many regions as were asked about
        self._rows = lru_cache(_HELD)(self._selected)

    def __repr__(self) -> str:
        where = "all regions" if self.region is None else f"region {self.region}"
        return f"<{len(self)} {self.split or 'train and validation'} documents of {self._generation}, {where}>"

    def __len__(self) -> int:
        if self.region is not None:
            return self._count(self.region)
        splits = self.frontier.manifest.splits
        return sum(getattr(splits, name).documents for name in SPLITS if self.split in (None, name))

    def __getitem__(self, number: SupportsIndex) -> Document:
        """Return document `number` of these. Raises OutOfRange (an IndexError) beyond the last one."""
        place = operator.index(number)
        place += len(self) if place < 0 else 0
        if not 0 <= place < len(self):
            raise OutOfRange("NO_SUCH_DOCUMENT", f"{self._generation}: document {number}", f"there are {len(self)}")
        while self._start(len(self._ends)) <= place and len(self._ends) < len(self.regions):
            self._ends.append(self._start(len(self._ends)) + self._count(self.regions[len(self._ends)]))
        if len(self._ends) == len(self.regions):
            self._require_total(self._ends[-1])
        at = bisect_right(self._ends, place)
        first = place - self._start(at)
        return next(self._documents(self.regions[at], self._rows(self.regions[at])[first : first + 1]))

    def __iter__(self) -> Iterator[Document]:
        total = 0
        for region in self.regions:
            yield from self._documents(region, self._selected(region))
            total += self._count(region)
        self._require_total(total)

    def arrays(self, region: int) -> Region:
        """Return the memory maps of a whole region: ids, cases, offsets, raw_bytes, of both splits."""
        return self.frontier.region(region)

    @property
    def _generation(self) -> str:
        return self.frontier.manifest.generation

    def _start(self, at: int) -> int:
        return self._ends[at - 1] if at else 0

    def _count(self, region: int) -> int:
        """Return how many of these documents a region holds: of both splits as the manifest says, of one the receipt.

        So a remote region is asked for no sooner than it is needed.
        """
        if self.split is None:
            return self.frontier.manifest.regions[region].documents
        counts = self.frontier.receipt(region).counts
        return counts.train_documents if self.split == "train" else counts.validation_documents

    def _require_total(self, expected: int) -> None:
        """Check what `len` took from the manifest's totals, as soon as every region has said what it holds."""
        if expected != len(self):
            where = f"manifest {self.frontier.manifest.version}: splits"
            raise Refused("COUNT_MISMATCH", where, expected=f"{expected} documents", read=len(self))

    def _selected(self, region: int) -> NDArray[np.void]:
        """Return the index rows of these documents in a region, INDEX_DTYPE."""
        rows = self.frontier.rows(region)
        if self.split:
            rows = rows[rows["split"] == SPLITS.index(self.split)]
        expected = self._count(region)
        if expected != len(rows):
            where = f"{self.frontier.manifest.regions[region].path}/{RECEIPT}: counts"
            raise Refused(
                "COUNT_MISMATCH", where, f"{self.split or 'all'} documents", expected=expected, read=len(rows)
            )
        return rows

    def _documents(self, number: int, rows: NDArray[np.void]) -> Iterator[Document]:
        """Yield the documents of a region that these rows of its index name."""
        region, codec, generation = self.frontier.region(number), self.frontier.codec, self._generation
        ids, cases = np.asarray(region.ids), np.asarray(region.cases)  # a memory map is slow to slice
        begins, ends = (region.offsets[rows["index"] + after].tolist() for after in (0, 1))
        names = rows["id"].tobytes().hex()
        columns = (rows[name].tolist() for name in ("index", "split", "cluster"))
        for at, (index, split, cluster) in enumerate(zip(*columns, strict=True)):
            yield Document(
                generation=generation,
                region=number,
                index=index,
                id=names[32 * at : 32 * at + 32],
                split=SPLITS[split],
                cluster=None if cluster < 0 else cluster,
                ids=ids[begins[at] : ends[at]],
                cases=cases[begins[at] : ends[at]],
                _text=partial(region.document, index, codec),
            )


class UnverifiedRegion(Region):
    """A region that nothing proves: its lengths fit each other, and that is all that was looked at."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<UNVERIFIED region {self.folder}: nothing proves these bytes>"


def open_region(folder: Path, *, unverified: bool = False) -> Region:
    """Return the memory maps of a region's folder, every byte hashed against its receipt and admission.

    That proves the folder whole and admitted, not that a frontier lists it: for that, open the frontier. Raises
    Refused. Only with `unverified=True` is a region returned that nothing proves, and says so of itself.
    """
    if unverified:
        return UnverifiedRegion.open(folder)
    verify_region_files(folder, folder.name)
    return Region.open(folder)
