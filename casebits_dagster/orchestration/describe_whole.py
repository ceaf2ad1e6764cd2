"""What a frontier shows on its page."""

from __future__ import annotations

from collections.abc import Sequence

from casebits_dagster.orchestration import plots
from casebits_dagster.orchestration.metadata import Metadata, Row, table, upstream
from casebits_dagster.orchestration.partitions import asset_key
from casebits_dagster.orchestration.stages import ADMITTED
from casebits_dagster.publication.frontier import Advanced
from casebits_dagster.records.canonical import Json
from casebits_dagster.records.frontier import SplitTotal
from casebits_dagster.records.layout import ADMISSION, Home, region_id
from casebits_dagster.records.pins import Generation

_LISTED = 20


def frontier(generation: Generation, done: Advanced, home: Home) -> Metadata:
    """Return the page of a frontier version."""
    manifest, folder = done.manifest, home.generation(generation.name)
    tokens = [entry.tokens for entry in manifest.regions]
    waits = f"region {region_id(done.first_missing)}" if done.first_missing is not None else "nothing: it is complete"
    return {
        "dagster/row_count": sum(entry.documents for entry in manifest.regions),
        "version": manifest.version,
        "regions": f"{manifest.count} of {manifest.plan.total}",
        "documents": sum(entry.documents for entry in manifest.regions),
        "tokens": sum(tokens),
        "status": done.latest.status,
        "waits_for": waits,
        "beyond_the_gap": _listed(done.waiting),
        "prefix_plot": plots.prefix(tokens, done.waiting, manifest.plan.total),
        "splits": table([_split(name, getattr(manifest.splits, name)) for name in ("train", "validation")]),
        "newest_regions": table(
            [
                {
                    "region": region_id(entry.index),
                    "documents": f"{entry.documents:,}",
                    "tokens": f"{entry.tokens:,}",
                    "content_id begins": entry.content_id[:16],
                }
                for entry in manifest.regions[-_LISTED:]
            ]
        ),
        "manifest": folder.manifest(manifest.version),
        "latest": folder.latest,
        "manifest_sha256": done.manifest_sha256,
        "tree_root": manifest.tree_root,
        "written": "a new version" if done.changed else "nothing new was admitted: no byte changed",
        "made_from": _admissions(generation, done),
        "audit": f"casebits audit --region {generation.name}/REGION --format json has the proof that a region is in it",
        "next": "stratification_report says whether the prefix is a fair picture; the mixes draw on it.",
    }


def _split(name: str, total: SplitTotal) -> Row:
    counts = {"documents": total.documents, "tokens": total.tokens, "text bytes": total.raw_bytes}
    return {"split": name, **{key: f"{count:,}" for key, count in counts.items()}}


def _listed(regions: Sequence[int]) -> str:
    """Return the first regions of a list by name, and how many there are."""
    names = ", ".join(map(region_id, regions[:_LISTED]))
    return f"{len(regions)}: {names}{', ...' if len(regions) > _LISTED else ''}" if regions else "none"


def _admissions(generation: Generation, done: Advanced) -> list[dict[str, Json]]:
    asset = asset_key(generation.name, ADMITTED)
    return [
        upstream(asset, file.sha256, region_id(entry.index))
        for entry in done.manifest.regions
        for file in entry.files
        if file.name == ADMISSION
    ]
