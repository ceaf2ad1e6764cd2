"""Where the tokens of a part of a mix come from, summed: by source, licence, domain, cluster and region.

Costs: the segments of that part, one receipt a region, and the index rows of each region for its clusters.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.lineage.audited_mix import AuditedMix
from casebits_dagster.lineage.chain import Chain, OpenedRegion
from casebits_dagster.lineage.records import Share
from casebits_dagster.records.layout import GenerationFolder, region_id
from casebits_dagster.records.region import Receipt
from casebits_dagster.regions.index import kept_index
from casebits_dagster.regions.read import Region

Grouping = Literal["source", "licence", "domain", "cluster", "region"]
_ORDER: tuple[Grouping, ...] = ("source", "licence", "domain", "cluster", "region")
Sums = dict[tuple[Grouping, str], tuple[int, int]]


def window_shares(mix: AuditedMix, begin: int, end: int, chain: Chain) -> list[Share]:
    """Return the shares of the tokens [begin, end) of the train stream; separators that packing inserted are left out.

    A region that cannot be followed fails its link, and is counted by region alone.
    """
    used, tokens = _document_tokens(mix, begin, end)
    documents = mix.documents[used]
    keys = documents["generation"].astype(np.int64) << 32 | documents["region"]
    sums: Sums = {}
    names = [margin.name for margin in mix.report.selection.domains]
    for number in np.unique(documents["domain"]).tolist():
        inside = documents["domain"] == number
        name = names[number] if number < len(names) else f"domain {number}"
        _add(sums, "domain", name, int(inside.sum()), int(tokens[inside].sum()))
    for key in np.unique(keys).tolist():
        inside, where = keys == key, f"{mix.name}: source {key >> 32}, region {region_id(key & 0xFFFFFFFF)}"
        with chain.ledger.following("region of the mix", where):
            _add_region(sums, mix, chain, key >> 32, key & 0xFFFFFFFF, documents["index"][inside], tokens[inside])
    return _as_shares(sums)


def _document_tokens(mix: AuditedMix, begin: int, end: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows of the documents that have tokens in [begin, end), and how many each."""
    length = mix.report.recipe.sequence_length
    first, last = np.searchsorted(mix.segments["window"], [begin // length, -(-end // length)])
    rows = mix.segments[first:last]
    starts = rows["window"].astype(np.int64) * length + rows["position"]
    ends = np.minimum(starts + rows["length"], end)
    own = np.maximum(ends - np.maximum(starts + rows["inserted"], begin), 0)
    known = (rows["document"] < len(mix.documents)) & (own > 0)
    numbers = rows["document"][known].astype(np.int64)
    sums = np.bincount(numbers, own[known]).astype(np.int64)
    used = np.flatnonzero(sums)
    return used, sums[used]


def _add_region(
    sums: Sums, mix: AuditedMix, chain: Chain, source: int, region: int, index: NDArray[Any], tokens: NDArray[np.int64]
) -> None:
    pinned, count, total = mix.pinned(source), len(index), int(tokens.sum())
    _add(sums, "region", f"{pinned.generation}/{region_id(region)}", count, total)
    receipt = chain.receipt(pinned, region)
    said = receipt.source
    _add(sums, "source", f"{said.repo} at {said.revision[:12]}: {said.path}", count, total)
    _add(sums, "licence", said.licence_spdx, count, total)
    clusters = _clusters(chain.home.generation(pinned.generation), region, receipt)[index]
    for cluster in np.unique(clusters).tolist():
        inside = clusters == cluster
        _add(sums, "cluster", _cluster_name(pinned.generation, cluster), int(inside.sum()), int(tokens[inside].sum()))
    if chain.ledger.everything:
        chain.region(pinned, region)


def _clusters(folder: GenerationFolder, region: int, receipt: Receipt) -> NDArray[np.int64]:
    """Return the cluster of each document of a region, -1 for none: by its index, else by documents.jsonl."""
    rows = kept_index(folder, region, receipt)
    return (
        rows["cluster"].astype(np.int64) if rows is not None else _listed_clusters(Region.open(folder.region(region)))
    )


def _listed_clusters(region: Region) -> NDArray[np.int64]:
    return np.array([-1 if one["cluster"] is None else one["cluster"] for one in region.documents()], np.int64)


def cluster_shares(opened: OpenedRegion) -> list[Share]:
    """Return the shares of a whole region by cluster."""
    clusters = _listed_clusters(opened.region)
    tokens, sums = np.diff(opened.region.offsets.astype(np.int64)), Sums()
    for cluster in np.unique(clusters).tolist():
        inside = clusters == cluster
        name = _cluster_name(opened.audited.generation, cluster)
        _add(sums, "cluster", name, int(inside.sum()), int(tokens[inside].sum()))
    return _as_shares(sums)


def _cluster_name(generation: str, cluster: int) -> str:
    return f"{generation}: no cluster" if cluster < 0 else f"{generation}: cluster {cluster}"


def _add(sums: Sums, by: Grouping, name: str, documents: int, tokens: int) -> None:
    before = sums.get((by, name), (0, 0))
    sums[by, name] = before[0] + documents, before[1] + tokens


def _as_shares(sums: Sums) -> list[Share]:
    def largest(item: tuple[tuple[Grouping, str], tuple[int, int]]) -> tuple[int, int, str]:
        (by, name), (_, tokens) = item
        return _ORDER.index(by), -tokens, name

    ordered: Iterator[Any] = iter(sorted(sums.items(), key=largest))
    return [Share(by=by, name=name, documents=documents, tokens=tokens) for (by, name), (documents, tokens) in ordered]
