"""What a recipe may take: every eligible document as a row of a few columns, each text once.

Guarantees: train rows come from train documents, validation rows from validation documents, no id stands in both (the
split is a function of the id); a text that lies in several regions counts once, in the first.
Costs: 26 bytes a document; with what it takes to compare ids (1/64 of them at a time) and to choose, 33. The index rows
of one region are in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.mixing.flow import Cells
from casebits_dagster.mixing.seeds import I64, U64, id_keys
from casebits_dagster.mixing.sources import MixSource
from casebits_dagster.records.errors import Refused
from casebits_dagster.records.mix import DOCUMENT_FIELDS
from casebits_dagster.records.recipe import Selection, Slice
from casebits_dagster.stratify import CASE_CLASSES

DOCUMENT_DTYPE = np.dtype(DOCUMENT_FIELDS)
Table = NDArray[Any]
COLUMNS = {"high": "<u8", "low": "<u8", "tokens": "<u4", "index": "<u4", "cell": "<u2"}
LONG = 16
OUT = 0xFFFF
BLOCK = 1 << 20
NO_IDS = np.empty(0, "V16")
PARTS = 64


@dataclass(frozen=True, slots=True)
class Documents:
    """Eligible documents in order of generation, region, index, as columns.

    `high`, `low` "<u8": the id's halves, big-endian; `tokens`, `index` "<u4"; `cell` "<u2": domain * buckets + bucket,
    for validation documents as many higher as there are `cells`, OUT for one that was left out. `regions` are
    (generation, region) pairs, of which each begins at its row of `begins`. `withdrawn` are the ids of those that would
    be eligible, but for that.
    """

    high: U64
    low: U64
    tokens: NDArray[np.uint32]
    index: NDArray[np.uint32]
    cell: NDArray[np.uint16]
    begins: I64
    regions: NDArray[np.int64]
    cells: int
    buckets: int
    withdrawn: Table = field(default_factory=lambda: NO_IDS)

    @property
    def train(self) -> range:
        """The numbers of the train cells."""
        return range(self.cells)

    @property
    def validation(self) -> range:
        """The numbers of the validation cells."""
        return range(self.cells, 2 * self.cells)

    def blocks(self, cells: range) -> Iterator[I64]:
        """Yield the rows in these cells, in order, a block at a time."""
        for begin in range(0, len(self.cell), BLOCK):
            part = self.cell[begin : begin + BLOCK]
            yield begin + np.flatnonzero((part >= cells.start) & (part < cells.stop))

    def rows(self, cells: range, seed: str = "", copy: int = 0, limit: int = 2**64 - 1) -> I64:
        """Return the rows in these cells, in order, whose key is at most `limit`."""
        blocks = self.blocks(cells)
        if limit < 2**64 - 1:
            blocks = (rows[self.keys(rows, np.array(copy), seed) <= np.uint64(limit)] for rows in blocks)
        return np.concatenate([np.empty(0, np.int64), *blocks])

    def keys(self, rows: I64, copies: NDArray[Any], seed: str) -> U64:
        return id_keys(self.high[rows], copies, seed)

    def order(self, rows: I64, copies: NDArray[Any], seed: str) -> I64:
        """Return the selection order: epoch by epoch, then by key, ties by id."""
        return np.lexsort((self.low[rows], self.keys(rows, copies, seed), copies))

    def table(self, rows: I64, copies: NDArray[Any]) -> Table:
        """Return these rows as those of `documents.npy`."""
        found = np.zeros(len(rows), DOCUMENT_DTYPE)
        halves = np.stack([self.high[rows], self.low[rows]], axis=1).astype(">u8")
        found["id"] = halves.view("V16").ravel()
        found["index"], found["tokens"], found["copy"] = self.index[rows], self.tokens[rows], copies
        found["generation"], found["region"] = self.regions[np.searchsorted(self.begins, rows, side="right") - 1].T
        found["domain"], found["bucket"] = np.divmod(self.cell[rows] % self.cells, self.buckets)
        return found


@dataclass(frozen=True, slots=True)
class Stock:
    """Tokens and documents of each domain and length bucket, every epoch counted; `epochs` of each cell."""

    tokens: Cells
    documents: Cells
    epochs: Cells


@dataclass(frozen=True, slots=True)
class Supply:
    """Eligible documents, what there is of them for train, and how many were left out and why."""

    documents: Documents
    train: Stock
    excluded: int
    duplicates: int
    unfit: int


def supply(
    selection: Selection, sources: Mapping[str, MixSource], excluded_ids: Table, whole_windows: int = 0
) -> Supply:
    """Return the supply of a selection. Sources are numbered in the order of `sources`, which holds them all.

    `whole_windows` is T when documents are laid out whole: then those are left out that no other document could follow
    to the end of their last window, since the room they leave is shorter than the shortest document. Packing them would
    cut something.
    """
    documents = eligible(selection.domains, selection.lengths.edges, sources)
    excluded, duplicates = _leave_out_repeats(documents, excluded_ids)
    unfit = _leave_out_unfit(documents, whole_windows)
    caps = [list(domain.epoch_caps(documents.buckets)) for domain in selection.domains]
    return Supply(documents, stock(documents, caps), excluded, duplicates, unfit)


def eligible(slices: Sequence[Slice], edges: Sequence[int], sources: Mapping[str, MixSource]) -> Documents:
    """Return the documents of these slices of the sources, cut at `edges` into length buckets."""
    most = sum(source.documents for source in sources.values())
    columns = {name: np.empty(most, dtype) for name, dtype in COLUMNS.items()}
    ends, regions, withdrawn, buckets = [0], [], [NO_IDS], len(edges) + 1
    for number, source in enumerate(sources.values()):
        for region in range(source.regions):
            found = _region(slices, edges, source, region)
            withdrawn.append(_leave_out_withdrawn(found, source.withdrawn.ids))
            ends.append(ends[-1] + len(found["cell"]))
            regions.append((number, region))
            for name, column in columns.items():
                column[ends[-2] : ends[-1]] = found[name]
    # Pages beyond the last row were never touched, so they take no memory.
    held = {name: column[: ends[-1]] for name, column in columns.items()}
    begins, cells = np.array(ends[:-1]), len(slices) * buckets
    return Documents(
        **held,
        begins=begins,
        regions=np.array(regions),
        cells=cells,
        buckets=buckets,
        withdrawn=np.concatenate(withdrawn),
    )


def stock(documents: Documents, epochs: Cells) -> Stock:
    """Return what the train cells hold when a document may be used `epochs` times."""
    shape, cells = (-1, documents.buckets), documents.cells
    sums = np.zeros((2, cells), np.int64)
    for rows in documents.blocks(documents.train):
        numbers = documents.cell[rows]
        # Sums of a block are far below 2^53, so floats hold them exactly.
        sums[0] += np.bincount(numbers, documents.tokens[rows], cells).astype(np.int64)
        sums[1] += np.bincount(numbers, minlength=cells)
    tokens, counts = (sums.reshape(2, *shape) * np.array(epochs)).tolist()
    return Stock(tokens, counts, epochs)


def _region(slices: Sequence[Slice], edges: Sequence[int], source: MixSource, region: int) -> dict[str, Table]:
    rows, buckets, domains = source.rows(region), len(edges) + 1, len(slices)
    asked = sorted({metric for part in slices if part.generation == source.generation for metric in part.scores or ()})
    scores = dict(zip(asked, source.scores(region, asked), strict=True)) if asked else {}
    bucket = np.searchsorted(np.array(edges, np.int64), rows["tokens"], side="right")
    cell = np.full(len(rows), OUT, "<u2")
    for number, part in enumerate(slices):
        if part.generation == source.generation:
            inside = _takes(part, source, rows, scores)
            cell[inside] = ((rows["split"].astype(np.int64) * domains + number) * buckets + bucket)[inside]
    kept = cell != OUT
    high, low = _halves(rows["id"][kept])
    return {"high": high, "low": low, "tokens": rows["tokens"][kept], "index": rows["index"][kept], "cell": cell[kept]}


def _leave_out_withdrawn(found: dict[str, Table], ids: Table) -> Table:
    """Leave out of the columns of a region what is withdrawn; return the ids of that."""
    if not len(ids):
        return NO_IDS
    own = np.stack([found["high"], found["low"]], axis=1).astype(">u8").view("V16").ravel()
    gone = np.isin(own, ids)
    for name, column in found.items():
        found[name] = column[~gone]
    return own[gone]


def _takes(part: Slice, source: MixSource, rows: Table, scores: Mapping[str, I64]) -> NDArray[np.bool_]:
    inside = np.isin(rows["cluster"], part.clusters) if part.clusters else np.ones(len(rows), bool)
    if part.case_classes is not None:
        if source.format != "casebits-1":
            where = f"{part.name}: case_classes"
            raise Refused("CODEC_PIN", where, expected="a generation with case masks", read=source.format)
        inside &= np.isin(rows["case_class"], [CASE_CLASSES.index(name) for name in part.case_classes])
    for metric, bounds in part.score_ranges.items():
        inside &= (scores[metric] >= bounds.start) & (scores[metric] < bounds.stop)
    lengths = part.token_range
    within: NDArray[np.bool_] = inside & (rows["tokens"] >= lengths.start) & (rows["tokens"] < lengths.stop)
    return within


def _halves(ids: Table) -> tuple[U64, U64]:
    words = np.ascontiguousarray(ids).view(">u8").reshape(-1, 2).astype("<u8")
    return np.ascontiguousarray(words[:, 0]), np.ascontiguousarray(words[:, 1])


def _leave_out_repeats(documents: Documents, excluded_ids: Table) -> tuple[int, int]:
    """Leave out every row whose id is excluded or stands before it; return how many of each.

    Ids are uniform, so their first byte parts them evenly, and equal ones fall into one part.
    """
    before = _halves(excluded_ids)
    excluded = duplicates = 0
    first_bytes = [high.view("u1")[7::8] // (256 // PARTS) for high in (before[0], documents.high)]
    for part in range(PARTS):
        old, rows = (np.flatnonzero(first == part) for first in first_bytes)
        halves = zip(before, (documents.high, documents.low), strict=True)
        high, low = (np.concatenate([mine[old], others[rows]]) for mine, others in halves)
        again, of = _repeats(high, low)
        again, of = again[again >= len(old)], of[again >= len(old)]
        documents.cell[rows[again - len(old)]] = OUT
        excluded += int((of < len(old)).sum())
        duplicates += int((of >= len(old)).sum())
    return excluded, duplicates


def _repeats(high: U64, low: U64) -> tuple[I64, I64]:
    """Return the places of ids that stand before, and for each the first place of its id."""
    order = np.argsort(high)
    same = np.flatnonzero(np.diff(high[order]) == 0)
    places = np.unique(order[np.concatenate([same, same + 1])])
    places = places[np.lexsort((low[places], high[places]))]
    new = np.ones(len(places), bool)
    new[1:] = (np.diff(high[places]) != 0) | (np.diff(low[places]) != 0)
    firsts = np.maximum.accumulate(np.where(new, np.arange(len(places)), 0))
    return places[~new], places[firsts][~new]


def _leave_out_unfit(documents: Documents, window: int) -> int:
    """Leave out train documents that nothing could follow to the end of their last window; return how many."""
    blocks = documents.blocks(documents.train)
    shortest = min((int(documents.tokens[rows].min()) for rows in blocks if len(rows)), default=0)
    unfit = 0
    for rows in documents.blocks(documents.train):
        closed = _closable(documents.tokens[rows].astype(np.int64), shortest, window)
        documents.cell[rows[~closed]] = OUT
        unfit += int((~closed).sum())
    return unfit


def _closable(lengths: I64, shortest: int, window: int) -> NDArray[np.bool_]:
    """Return which documents end at a window's end, or leave room for the shortest one.

    By hand, T = 100 and lengths 6, 40, 95, 194, 196, 200: only 95 and 196 leave less than 6. Where the shortest is
    long against a window the rule would leave out most documents, and tails close each other's windows: it rests.
    """
    if shortest * LONG > window:
        return np.ones(len(lengths), bool)
    room = -lengths % window
    fits: NDArray[np.bool_] = (room == 0) | (room >= shortest)
    return fits
