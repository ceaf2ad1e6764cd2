"""The proofs as asset checks: what was examined when they hold; which file, document and position when they do not."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import dagster as dg

from casebits_dagster.admission.checks import CHECKS
from casebits_dagster.mixing.verify import verify_mix
from casebits_dagster.orchestration.metadata import Metadata, table
from casebits_dagster.orchestration.partitions import asset_key, region_partitions
from casebits_dagster.orchestration.stages import ADMITTED
from casebits_dagster.publication.consume import open_frontier
from casebits_dagster.records.errors import CasebitsError, Rejected
from casebits_dagster.records.frontier import Manifest
from casebits_dagster.records.layout import Home
from casebits_dagster.records.pins import Generation
from casebits_dagster.records.region import Admission, CheckResult

LAYERS = {
    "L1_shape": "The files are those of the receipt: names, sizes, hashes, lengths that agree.",
    "L2_structure": "The arrays obey the format: ends of documents, masks on letters only, cuts, vocabulary.",
    "L3_declared_ids": "The decoded text of every document hashes to the id that it declares.",
    "L4_source": "Text, order, selection and split follow from the **source** rows, read again by the verifier.",
    "L5_segmentation": "The reference tokenizer, given the text, makes the same ids (a seeded sample).",
}
FRONTIER_CHECKS = {
    "gapless": "Region k of the manifest is region k of the plan, and nothing is listed twice or left out.",
    "verified": "The verifying consumer opens the frontier from LATEST.json and re-hashes every file it names.",
}
MIX_CHECKS = {
    "verified": "A verifier apart from the writer compares every token with its source and recounts the report.",
}


def admission_specs(generation: Generation) -> list[dg.AssetCheckSpec]:
    """Return one blocking check a layer of the proof, with its own verdict for each region."""
    key, partitions = asset_key(generation.name, ADMITTED), region_partitions(generation)
    with warnings.catch_warnings():
        # Partitioned checks are a preview in Dagster 1.13; the snapshot of the graph would show a change.
        warnings.simplefilter("ignore", dg.PreviewWarning)
        return [
            dg.AssetCheckSpec(name, asset=key, description=text, blocking=True, partitions_def=partitions)
            for name, text in LAYERS.items()
        ]


def specs(asset: dg.AssetKey, described: dict[str, str]) -> list[dg.AssetCheckSpec]:
    """Return blocking checks of an asset without partitions."""
    return [dg.AssetCheckSpec(name, asset=asset, description=text, blocking=True) for name, text in described.items()]


def admitted_layers(admission: Admission) -> list[dg.AssetCheckResult]:
    """Return one passed check a layer, with what each of its checks examined."""
    results = []
    for name in LAYERS:
        checks = [check for check in admission.checks if check.id.startswith(name[:2])]
        rows = [{"check": c.id, "examined": examined(c), "proves": CHECKS[c.id].proves} for c in checks]
        metadata: Metadata = {"evidence": table(rows)}
        results.append(dg.AssetCheckResult(check_name=name, passed=True, metadata=metadata))
    return results


def examined(check: CheckResult) -> str:
    """Return how many members a check looked at, of how many."""
    return f"{check.examined:,} of {check.population:,}" + (", a seeded sample" if check.mode == "sample" else "")


def rejected_layers(rejected: Rejected) -> Iterator[dg.AssetCheckResult]:
    """Yield the failed check with its place; layers before it passed, layers after it were not reached."""
    failed = rejected.code[:2]
    for name in LAYERS:
        if name[:2] < failed:
            yield dg.AssetCheckResult(check_name=name, passed=True, description=f"passed before {rejected.code} failed")
        elif name[:2] == failed:
            yield dg.AssetCheckResult(
                check_name=name, passed=False, description=str(rejected), metadata=refusal(rejected)
            )
        else:
            text = f"not reached: {rejected.code} failed before"
            yield dg.AssetCheckResult(
                check_name=name, passed=False, severity=dg.AssetCheckSeverity.WARN, description=text
            )


def refusal(error: CasebitsError) -> Metadata:
    """Return why something was refused: code or check id, place, expected and read, what to do."""
    known = CHECKS.get(error.code)
    facts = {
        "check": error.code,
        "proves": known.proves if known else None,
        "where": error.where,
        "problem": error.problem,
        "document": getattr(error, "document", None),
        "position": getattr(error, "position", None),
        "expected": error.expected,
        "read": error.read,
        "remedy": error.remedy,
    }
    return {
        name: value if isinstance(value, int) else str(value)
        for name, value in facts.items()
        if value not in (None, "")
    }


def frontier_results(generation: Generation, manifest: Manifest, home: Home) -> list[dg.AssetCheckResult]:
    """Return the two checks of a frontier: its order beside the plan, and a full verification by the consumer."""
    listed = [entry.index for entry in manifest.regions]
    gapless = listed == list(range(manifest.count)) and manifest.plan.sha256 == generation.plan_sha256
    order: Metadata = {"listed": len(listed), "plan": manifest.plan.total, "plan_sha256": manifest.plan.sha256}
    return [dg.AssetCheckResult(check_name="gapless", passed=gapless, metadata=order), _reopened(generation, home)]


def _reopened(generation: Generation, home: Home) -> dg.AssetCheckResult:
    try:
        found = open_frontier(home.root, generation.name)
        found.verify_all()
    except CasebitsError as error:
        return _refused("verified", error)
    files = [file for entry in found.manifest.regions for file in entry.files]
    evidence: Metadata = {
        "files_hashed": len(files),
        "bytes_hashed": sum(file.bytes for file in files),
        "manifest_sha256": found.manifest_sha256,
        "tree_root": found.manifest.tree_root,
    }
    return dg.AssetCheckResult(check_name="verified", passed=True, metadata=evidence)


def mix_results(folder: Path, home: Home) -> list[dg.AssetCheckResult]:
    """Return the check of a mix: the verdict of the verifier that stands apart from its writer."""
    try:
        verified = verify_mix(folder, home)
    except CasebitsError as error:
        return [_refused("verified", error)]
    evidence: Metadata = {
        "manifest_sha256": verified.manifest_sha256,
        "evidence": table([{"check": check.id, "examined": check.examined} for check in verified.checks]),
    }
    return [dg.AssetCheckResult(check_name="verified", passed=True, metadata=evidence)]


def _refused(name: str, error: CasebitsError) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(check_name=name, passed=False, description=str(error), metadata=refusal(error))
