"""Frontiers as sources of a mix: opened and verified first, then handed to the mixing room."""

from __future__ import annotations

from collections.abc import Sequence

from casebits_dagster.mixing.sources import MixSource
from casebits_dagster.publication.consume import Frontier, open_frontier
from casebits_dagster.records.codec import CodecFiles
from casebits_dagster.records.layout import EOD_ID, Home
from casebits_dagster.records.region import Separator


def mix_sources(generations: Sequence[str], home: Home) -> dict[str, MixSource]:
    """Return each generation's newest frontier, verified, as a source for a mix."""
    return {name: mix_source(open_frontier(home.root, name)) for name in generations}


def mix_source(frontier: Frontier) -> MixSource:
    """Return a frontier as the mixing room sees it."""
    licences = {frontier.region(k).receipt.source.licence_spdx for k in range(frontier.manifest.count)}
    vocabulary = next(file for file in frontier.manifest.codec if file.name == CodecFiles.VOCABULARY)
    separators = {frontier.region(k).receipt.pins.codec.separator for k in range(frontier.manifest.count)}
    separator = separators.pop() or Separator(id=EOD_ID, at="end")
    return MixSource(
        generation=frontier.generation,
        manifest_version=frontier.manifest.version,
        manifest_sha256=frontier.manifest_sha256,
        vocabulary_sha256=vocabulary.sha256,
        vocabulary_size=len(frontier.codec.table.lengths),
        licences=tuple(sorted(licences)),
        index=frontier.index,
        region=frontier.region,
        separator_id=separator.id,
        separator_position=separator.at,
    )
