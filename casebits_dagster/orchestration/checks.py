"""The proofs as asset checks: what was examined when they hold; which file, document and position when they do not."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import dagster as dg

from casebits_dagster.admission.checks import CHECKS
from casebits_dagster.mixing.verify import verify_mix
from casebits_dagster.orchestration.metadata import Metadata, table
from casebits_dagster.publication.consume import open_frontier
from casebits_dagster.publication.frontier import Advanced
from casebits_dagster.publication.open_gates import keep_verdict
from casebits_dagster.publication.send import Sent, sampled
from casebits_dagster.records.errors import CasebitsError, Rejected
from casebits_dagster.records.gates import Gates
from casebits_dagster.records.layout import Home, region_id
from casebits_dagster.records.pins import Generation
from casebits_dagster.records.region import Admission, CheckResult

LAYERS = {
    "L1_shape": "The files are those of the receipt: names, sizes, hashes, lengths that agree.",
    "L2_structure": "The arrays obey the format: ends of documents, masks on letters only, cuts, vocabulary.",
    "L3_declared_ids": "The decoded text of every document hashes to the id that it declares.",
    "L4_source": "Text, order, selection and split follow from the **source** rows, read again by the verifier.",
    "L5_segmentation": "Where ids are made from text, the reference tokenizer makes the same ones (a seeded sample).",
}
FRONTIER_CHECKS = {
    "gapless": "Region k of the manifest is region k of the plan, and nothing is listed twice or left out.",
    "verified": "The verifying consumer opens the frontier from LATEST.json, and re-hashes the files of the regions "
    "that are new in it, or of all when none is.",
}
MIX_CHECKS = {
    "verified": "A verifier apart from the writer compares every token with its source and recounts the report.",
}
GATE_CHECKS = {
    "coverage": "Every region of the plan is admitted.",
    "stratification": "The admitted prefix is a fair picture, within the pinned tolerances.",
    "packing": "A mix was built on just this version, and the verifier passed it.",
    "production": "A person signed this version and its mixes, in a pin.",
}
PUBLICATION_CHECKS = {
    "consumable": "The verifying consumer opens what is published, as a stranger does: all that LATEST.json names is "
    "there, and a seeded sample of regions hashes as listed.",
}
_MAKE_AGAIN = "materialise the three stages of this partition: what was refused is made again, and proven again"


def admitted_layers(admission: Admission) -> list[dg.AssetCheckResult]:
    """Return one passed check a layer, with what each of its checks examined."""
    results = []
    for name in LAYERS:
        evidence = evidence_table([check for check in admission.checks if check.id.startswith(name[:2])])
        results.append(dg.AssetCheckResult(check_name=name, passed=True, metadata={"evidence": evidence}))
    return results


def evidence_table(checks: Sequence[CheckResult]) -> dg.TableMetadataValue | str:
    """Return what each check proves, and how many members it looked at, of how many."""
    rows = []
    for check in checks:
        sampled = ", a seeded sample" if check.mode == "sample" else ""
        examined = f"{check.examined:,} of {check.population:,}{sampled}"
        rows.append({"check": check.id, "examined": examined, "proves": CHECKS[check.id].proves})
    return table(rows)


def rejected_layers(rejected: Rejected) -> Iterator[dg.AssetCheckResult]:
    """Yield the failed check with its place; layers before it passed, layers after it were not reached."""
    code = rejected.code
    for name in LAYERS:
        if name[:2] == code[:2]:
            yield _refused(name, rejected, next=_MAKE_AGAIN)
        elif name[:2] < code[:2]:
            yield dg.AssetCheckResult(check_name=name, passed=True, description=f"passed before {code} failed")
        else:
            text = f"not reached: {code} failed before"
            warn = dg.AssetCheckSeverity.WARN
            yield dg.AssetCheckResult(check_name=name, passed=False, severity=warn, description=text)


def refusal(error: CasebitsError) -> Metadata:
    """Return why something was refused: code or check id, place, expected and read, what to do."""
    known = CHECKS.get(error.code)
    facts: Metadata = {"check": error.code, "proves": known.proves if known else None}
    for name in ("where", "problem", "document", "position", "expected", "read", "remedy"):
        facts[name] = getattr(error, name, None)
    shown = {name: value for name, value in facts.items() if value not in (None, "")}
    return {name: value if isinstance(value, int) else str(value) for name, value in shown.items()}


def failure_facts(error: Exception) -> Metadata:
    """Return what is known of any failure: by its fields where it is one of ours."""
    return (
        refusal(error) if isinstance(error, CasebitsError) else {"check": type(error).__name__, "problem": str(error)}
    )


def frontier_results(generation: Generation, done: Advanced, home: Home) -> list[dg.AssetCheckResult]:
    """Return the two checks of a frontier: its order beside the plan, and a verification by the consumer.

    The consumer re-hashes the regions that are new, and all of them when none is: a frontier of thousands of regions
    that grows by one is not read as a whole again.
    """
    manifest = done.manifest
    listed = [entry.index for entry in manifest.regions]
    gapless = listed == list(range(manifest.count)) and manifest.plan.sha256 == generation.plan_sha256
    order: Metadata = {"listed": len(listed), "plan": manifest.plan.total, "plan_sha256": manifest.plan.sha256}
    return [
        dg.AssetCheckResult(check_name="gapless", passed=gapless, metadata=order),
        _verified(lambda: _open_again(generation, home, done.first_new)),
    ]


def mix_results(folder: Path, home: Home) -> list[dg.AssetCheckResult]:
    """Return the check of a mix: the verdict of the verifier that stands apart from its writer."""
    return [_verified(lambda: _verify_again(folder, home))]


def gate_results(gates: Gates) -> list[dg.AssetCheckResult]:
    """Return a check a gate. A gate that is not open warns: it says what may not be said yet."""
    results = []
    for name, gate in gates.named.items():
        facts: Metadata = {"state": gate.state, **gate.numbers}
        facts["evidence"] = table([{"file": file.path, "sha256": file.sha256} for file in gate.evidence])
        passed, warn = gate.state == "open", dg.AssetCheckSeverity.WARN
        results.append(
            dg.AssetCheckResult(check_name=name, passed=passed, severity=warn, description=gate.why, metadata=facts)
        )
    return results


def publication_results(done: Sent) -> list[dg.AssetCheckResult]:
    """Return the check of a publication: what a stranger finds who has nothing of ours."""
    return [_verified(lambda: _as_a_stranger(done), "consumable")]


def _as_a_stranger(done: Sent) -> Metadata:
    with tempfile.TemporaryDirectory(prefix="casebits-") as cache:
        found = open_frontier(done.destination, cache=Path(cache))
        regions = sampled(found, done.manifest_sha256)
        for index in regions:
            found.region(index)
    names = ", ".join(map(region_id, regions))
    return {"version": found.manifest.version, "regions_hashed": names, "manifest_sha256": found.manifest_sha256}


def _open_again(generation: Generation, home: Home, first: int) -> Metadata:
    found = open_frontier(home.root, generation.name)
    found.verify_all(first)
    files = [file for entry in found.manifest.regions[first:] for file in entry.files]
    return {
        "regions_hashed": found.manifest.count - first,
        "files_hashed": len(files),
        "bytes_hashed": sum(file.bytes for file in files),
        "manifest_sha256": found.manifest_sha256,
        "tree_root": found.manifest.tree_root,
    }


def _verify_again(folder: Path, home: Home) -> Metadata:
    verified = verify_mix(folder, home)
    keep_verdict(verified, home)
    evidence = table([{"check": check.id, "examined": check.examined} for check in verified.checks])
    return {"manifest_sha256": verified.manifest_sha256, "evidence": evidence}


def _verified(evidence: Callable[[], Metadata], name: str = "verified") -> dg.AssetCheckResult:
    try:
        return dg.AssetCheckResult(check_name=name, passed=True, metadata=evidence())
    except CasebitsError as error:
        return _refused(name, error)


def _refused(name: str, error: CasebitsError, **more: str) -> dg.AssetCheckResult:
    why = {**refusal(error), **more}
    return dg.AssetCheckResult(check_name=name, passed=False, description=str(error), metadata=why)
