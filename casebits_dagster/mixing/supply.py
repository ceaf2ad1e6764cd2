"""What a recipe may take: the rows of `documents.npy` for every eligible document, each text once an epoch.

Guarantees: train rows come from train documents, validation rows from validation documents, no id stands in both (the
split is a function of the id); a text that lies in several regions counts once, in the first.
Costs: 36 bytes a document and one sort by id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.mixing.sources import MixSource
from casebits_dagster.records.mix import DOCUMENT_FIELDS
from casebits_dagster.records.recipe import Domain, Selection

DOCUMENT_DTYPE = np.dtype(DOCUMENT_FIELDS)
Table = NDArray[Any]
LONG = 16


@dataclass(frozen=True, slots=True)
class Supply:
    """Eligible documents in order of generation, region, index, copy. `train` has one row for each allowed epoch."""

    train: Table
    validation: Table
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
    parts = [_eligible(selection, number, source) for number, source in enumerate(sources.values())]
    splits = np.concatenate([split for _, split in parts])
    table = np.concatenate([rows for rows, _ in parts])
    fresh = ~np.isin(table["id"], excluded_ids)
    first = np.zeros(len(table), bool)
    first[np.unique(table["id"], return_index=True)[1]] = True
    train = table[fresh & first & (splits == 0)]
    fits = _closable(train["tokens"].astype("<i8"), whole_windows)
    return Supply(
        train=_copies(train[fits], selection.domains),
        validation=table[fresh & first & (splits == 1)],
        excluded=int((~fresh).sum()),
        duplicates=int((fresh & ~first).sum()),
        unfit=int((~fits).sum()),
    )


def _closable(lengths: NDArray[np.int64], window: int) -> NDArray[np.bool_]:
    """Return which documents end at a window's end, or leave room for the shortest one.

    By hand, T = 100 and lengths 6, 40, 95, 194, 196, 200: only 95 and 196 leave less than 6. Where the shortest is
    long against a window the rule would leave out most documents, and tails close each other's windows: it rests.
    """
    if not len(lengths) or int(lengths.min()) * LONG > window:
        return np.ones(len(lengths), bool)
    room = -lengths % window
    fits: NDArray[np.bool_] = (room == 0) | (room >= lengths.min())
    return fits


def _eligible(selection: Selection, number: int, source: MixSource) -> tuple[Table, NDArray[Any]]:
    index = source.index
    domains = np.full(len(index), -1, np.int32)
    for domain_number, domain in enumerate(selection.domains):
        if domain.generation == source.generation:
            inside = np.isin(index["cluster"], domain.clusters) if domain.clusters else np.ones(len(index), bool)
            domains[inside] = domain_number
    index, domains = index[domains >= 0], domains[domains >= 0]
    rows = np.zeros(len(index), DOCUMENT_DTYPE)
    for name in ("id", "region", "index", "tokens"):
        rows[name] = index[name]
    rows["generation"], rows["domain"] = number, domains
    rows["bucket"] = np.searchsorted(np.array(selection.lengths.edges, np.int64), index["tokens"], side="right")
    order = np.lexsort((rows["index"], rows["region"]))
    return rows[order], index["split"][order]


def _copies(rows: Table, domains: tuple[Domain, ...]) -> Table:
    epochs = np.array([domain.epochs for domain in domains])[rows["domain"]]
    starts = np.cumsum(epochs) - epochs
    expanded = np.repeat(rows, epochs)
    expanded["copy"] = np.arange(len(expanded)) - np.repeat(starts, epochs)
    return expanded
