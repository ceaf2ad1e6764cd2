"""The gates of a frontier version as a pure function of their evidence: no file is read, no clock asked.

Whoever reads a publication evaluates the same function over the evidence that is published, so a gate cannot be said to
be open: it is, or the publication is refused.

Rules:
 1. coverage is open when every region of the plan is admitted
 2. stratification is what its policy says of the report of just this manifest
 3. packing is open when a mix was built on just this manifest, and the verifier passed it
 4. production is open when a person signed this manifest and its mixes, and each of these is among those of rule 3
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from casebits_dagster.records.frontier import Manifest
from casebits_dagster.records.gates import CheckedMix, Evidence, Gate, Gates
from casebits_dagster.records.mix import MixReport
from casebits_dagster.records.signed import SignOff
from casebits_dagster.records.stratification import StratificationReport
from casebits_dagster.records.tolerances import Tolerances
from casebits_dagster.stratify import stratification_gate


@dataclass(frozen=True, slots=True)
class PackedEvidence:
    """A mix that the verifier passed: its verdict, the mix's report, and the files that hold the two."""

    checked: CheckedMix
    report: MixReport
    report_sha256: str
    files: tuple[Evidence, ...]

    def is_of(self, manifest: Manifest, manifest_sha256: str) -> bool:
        """Return whether the mix was built on this manifest, and the report is the one that was verified."""
        pinned = (manifest.generation, manifest.version, manifest_sha256)
        sources = [(used.generation, used.manifest_version, used.manifest_sha256) for used in self.report.sources]
        same = (self.report_sha256, self.report.recipe.mix) == (self.checked.report_sha256, self.checked.mix)
        return same and bool(self.checked.checks) and pinned in sources


def stratification(
    manifest: Manifest,
    manifest_sha256: str,
    report: StratificationReport | None,
    tolerances: Tolerances | None,
    evidence: Sequence[Evidence],
) -> Gate:
    """Return the gate of rule 2; a report or tolerances of anything else are as none."""
    about = (manifest.generation, manifest.version, manifest_sha256)
    if report is None or (report.generation, report.version, report.manifest_sha256) != about:
        return Gate(state="closed", why="no report was made of this version", evidence=(), numbers={})
    if tolerances and tolerances.generation != manifest.generation:
        tolerances = None
    return stratification_gate(report, tolerances, evidence)


def evaluate(
    manifest: Manifest,
    manifest_file: Evidence,
    fair: Gate,
    packed: Sequence[PackedEvidence],
    signed: tuple[SignOff, Evidence] | None,
) -> Gates:
    """Return the four gates of a manifest, whose own file is evidence too; `fair` is that of `stratification`."""
    passed = [mix for mix in packed if mix.is_of(manifest, manifest_file.sha256)]
    return Gates(
        generation=manifest.generation,
        version=manifest.version,
        manifest_sha256=manifest_file.sha256,
        coverage=_coverage(manifest, manifest_file),
        stratification=fair,
        packing=_packing(passed),
        production=_production(manifest, manifest_file.sha256, passed, signed),
    )


def _coverage(manifest: Manifest, file: Evidence) -> Gate:
    whole = manifest.count == manifest.plan.total
    return Gate(
        state="open" if whole else "closed",
        why=f"{manifest.count} of the {manifest.plan.total} planned regions are admitted",
        evidence=(file,),
        numbers={"regions": manifest.count, "planned": manifest.plan.total},
    )


def _packing(passed: Sequence[PackedEvidence]) -> Gate:
    names = ", ".join(mix.checked.mix for mix in passed)
    return Gate(
        state="open" if passed else "closed",
        why=f"built on this version and verified: {names}" if passed else "no verified mix was built on this version",
        evidence=tuple(file for mix in passed for file in mix.files),
        numbers={"mixes": len(passed)},
    )


def _production(
    manifest: Manifest, digest: str, passed: Sequence[PackedEvidence], signed: tuple[SignOff, Evidence] | None
) -> Gate:
    if signed is None:
        return Gate(state="closed", why="no person has signed this version", evidence=(), numbers={})
    pin, file = signed
    verified = {mix.checked.mix: mix.checked.manifest_sha256 for mix in passed}
    unproven = [signed.mix for signed in pin.mixes if verified.get(signed.mix) != signed.manifest_sha256]
    if (pin.generation, pin.version, pin.manifest_sha256) != (manifest.generation, manifest.version, digest):
        why, state = f"{pin.signed_by} signed another manifest", False
    elif unproven or not pin.mixes:
        what = f"the mix {unproven[0]} by a hash that is not verified" if unproven else "no mix"
        why, state = f"{pin.signed_by} signed {what}", False
    else:
        why, state = f"signed by {pin.signed_by} on {pin.signed_on}: {pin.statement}", True
    return Gate(state="open" if state else "closed", why=why, evidence=(file,), numbers={"mixes": len(pin.mixes)})
