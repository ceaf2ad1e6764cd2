"""Frontiers as sources of a mix: opened first, then handed to the mixing room, which reads verified regions only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from casebits_dagster.mixing.sources import NONE_WITHDRAWN, MixSource, Withdrawn
from casebits_dagster.publication.consume import Frontier, open_frontier
from casebits_dagster.publication.frontier import pull_frontier
from casebits_dagster.records.codec import CodecFiles
from casebits_dagster.records.layout import EOD_ID, Home
from casebits_dagster.records.region import Separator


def mix_sources(generations: Sequence[str], home: Home, withdrawn: Withdrawn = NONE_WITHDRAWN) -> dict[str, MixSource]:
    """Return each generation's newest frontier as a source for a mix; a region is verified when a document is used."""
    for name in generations:
        pull_frontier(home, name)
    return {name: replace(mix_source(open_frontier(home.root, name)), withdrawn=withdrawn) for name in generations}


def mix_source(frontier: Frontier) -> MixSource:
    """Return a frontier as the mixing room sees it."""
    receipts = [frontier.receipt(k) for k in range(frontier.manifest.count)]
    vocabulary = next(file for file in frontier.manifest.codec if file.name == CodecFiles.VOCABULARY)
    codec = receipts[0].pins.codec
    separator = codec.separator or Separator(id=EOD_ID, at="end")
    return MixSource(
        generation=frontier.generation,
        manifest_version=frontier.manifest.version,
        manifest_sha256=frontier.manifest_sha256,
        vocabulary_sha256=vocabulary.sha256,
        vocabulary_size=len(frontier.codec.table.lengths),
        licences=tuple(sorted({receipt.source.licence_spdx for receipt in receipts})),
        documents=sum(entry.documents for entry in frontier.manifest.regions),
        regions=frontier.manifest.count,
        rows=frontier.rows,
        region=frontier.region,
        format=codec.format,
        separator_id=separator.id,
        separator_position=separator.at,
    )
