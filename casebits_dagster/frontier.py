"""The frontier as a pure fold over admissions: no file is read, no clock asked.

Rules of a manifest:
 1. regions[k].index == k: the prefix has no gap and starts at region 0
 2. count == len(regions) <= plan.total
 3. a version extends the one before: it names its hash, keeps its generation, plan and codec, and its regions as prefix
 4. versions count 1, 2, 3, ...; a version is made only when it admits a region more
 5. tree_root is the RFC 6962 root over the canonical bytes of the entries
 6. splits are the sums over the admitted regions
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from casebits_dagster.records.digests import sha256, tree_root
from casebits_dagster.records.errors import Refused
from casebits_dagster.records.frontier import (
    FrontierEntry,
    Manifest,
    PlanPin,
    PreviousManifest,
    SplitTotal,
    SplitTotals,
)
from casebits_dagster.records.region import StoredFile

NOTHING = SplitTotals(
    train=SplitTotal(documents=0, tokens=0, raw_bytes=0), validation=SplitTotal(documents=0, tokens=0, raw_bytes=0)
)


@dataclass(frozen=True, slots=True)
class AdmittedRegion:
    """A region whose admission was verified: its manifest entry and what it adds to the totals."""

    entry: FrontierEntry
    splits: SplitTotals


def extend(
    previous: Manifest | None,
    admitted: Mapping[int, AdmittedRegion],
    *,
    generation: str,
    plan: PlanPin,
    codec: tuple[StoredFile, ...],
) -> Manifest | None:
    """Return the next version over the gapless run of `admitted` that follows `previous`; None when there is none.

    Regions beyond a gap wait. Raises Refused (rules 1 and 3) when `previous` is of another generation, plan or codec.
    """
    regions = list(previous.regions) if previous else []
    splits = previous.splits if previous else NOTHING
    while (region := admitted.get(len(regions))) is not None:
        regions.append(region.entry)
        splits = add_splits(splits, region.splits)
    if len(regions) == (previous.count if previous else 0):
        return None
    manifest = Manifest(
        generation=generation,
        version=previous.version + 1 if previous else 1,
        previous=pointer_to(previous) if previous else None,
        plan=plan,
        count=len(regions),
        regions=tuple(regions),
        codec=codec,
        splits=splits,
        tree_root=root_of(regions),
    )
    require_sound(manifest, f"manifest {manifest.version}")
    if previous:
        require_extends(manifest, previous, f"manifest {manifest.version}")
    return manifest


def pointer_to(manifest: Manifest) -> PreviousManifest:
    """Return how the next version names this one."""
    raw = manifest.to_bytes()
    return PreviousManifest(version=manifest.version, sha256=sha256(raw), bytes=len(raw))


def root_of(regions: list[FrontierEntry] | tuple[FrontierEntry, ...]) -> str:
    """Return the tree root over entries (rule 5)."""
    return tree_root([entry.to_bytes() for entry in regions])


def add_splits(left: SplitTotals, right: SplitTotals) -> SplitTotals:
    """Return the sums of two totals."""

    def add(a: SplitTotal, b: SplitTotal) -> SplitTotal:
        return SplitTotal(
            documents=a.documents + b.documents, tokens=a.tokens + b.tokens, raw_bytes=a.raw_bytes + b.raw_bytes
        )

    return SplitTotals(train=add(left.train, right.train), validation=add(left.validation, right.validation))


def require_sound(manifest: Manifest, where: str) -> None:
    """Check rules 1, 2 and 5 of one manifest. Raises Refused."""
    for position, entry in enumerate(manifest.regions):
        if entry.index != position:
            raise Refused("GAP", f"{where}: regions[{position}].index", expected=position, read=entry.index)
    if manifest.count != len(manifest.regions):
        raise Refused("COUNT_MISMATCH", f"{where}: count", expected=len(manifest.regions), read=manifest.count)
    if manifest.count > manifest.plan.total:
        expected = f"at most {manifest.plan.total}"
        raise Refused("COUNT_MISMATCH", f"{where}: count", expected=expected, read=manifest.count)
    if manifest.tree_root != root_of(manifest.regions):
        read = manifest.tree_root
        raise Refused("TREE_ROOT", f"{where}: tree_root", expected=root_of(manifest.regions), read=read)


def require_extends(manifest: Manifest, previous: Manifest, where: str) -> None:
    """Check rule 3 and 4 of a manifest against the version before it. Raises Refused."""
    named = pointer_to(previous)
    if manifest.previous != named or manifest.version != previous.version + 1:
        read = manifest.previous and f"version {manifest.previous.version}, sha256 {manifest.previous.sha256}"
        expected = f"version {named.version}, sha256 {named.sha256}"
        raise Refused("CHAIN_BROKEN", f"{where}: previous", expected=expected, read=read)
    if manifest.generation != previous.generation:
        expected = previous.generation
        raise Refused("GENERATION_MISMATCH", f"{where}: generation", expected=expected, read=manifest.generation)
    if manifest.plan != previous.plan:
        raise Refused("PLAN_MISMATCH", f"{where}: plan", expected=previous.plan.sha256, read=manifest.plan.sha256)
    if manifest.codec != previous.codec:
        raise Refused("CODEC_PIN", f"{where}: codec", "the codec changed inside a generation")
    for old, new in zip(previous.regions, manifest.regions, strict=False):
        if old != new:
            field = f"{where}: regions[{old.index}].content_id"
            raise Refused("HISTORY_REWRITTEN", field, expected=old.content_id, read=new.content_id)
    if manifest.count <= previous.count:
        expected = f"more than {previous.count}"
        raise Refused("HISTORY_REWRITTEN", f"{where}: count", expected=expected, read=manifest.count)
