"""An audit as W3C PROV, in PROV-JSON (https://www.w3.org/Submission/prov-json/): entities by their hashes, the runs
that made them as activities, the software and the licensor as agents."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

from casebits_dagster.lineage.records import AuditedRegion, WindowAudit
from casebits_dagster.lineage.render import AnyAudit, verdict

_PREFIXES = {"sha256": "urn:sha256:", "run": "urn:uuid:", "casebits": "urn:casebits:prov:"}


class _Document:
    """PROV-JSON under construction; relations are named by what they join, so that none stands twice."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, Any]] = defaultdict(dict)

    def element(self, kind: str, name: str, what: str, **more: object) -> str:
        said = {"prov:type": {"$": f"casebits:{what}", "type": "prov:QUALIFIED_NAME"}}
        self.found[kind][name] = said | {f"casebits:{key}": value for key, value in more.items() if value is not None}
        return name

    def relate(self, kind: str, **ends: str) -> None:
        name = "_:" + "-".join([kind, *(value.replace(":", ".") for value in ends.values())])
        self.found[kind][name] = {f"prov:{role}": value for role, value in ends.items()}

    def derived(self, new: str, old: str) -> None:
        self.relate("wasDerivedFrom", generatedEntity=new, usedEntity=old)


def audit_prov(audit: AnyAudit) -> str:
    """Return the audit as PROV-JSON. The audit itself is a bundle-less document: what it proved is an attribute."""
    made, regions = _Document(), {}
    for region in audit.regions:
        regions[region.generation, region.region] = _region(made, region)
    documents = {}
    for one in audit.documents:
        name = f"casebits:document-{one.id}"
        documents[one.id] = made.element(
            "entity", name, "Document", sha256=one.text_sha256, region=f"{one.generation}/{one.region}",
            index=one.index, source_position=one.source_position, split=one.split,
        )  # fmt: skip
        made.derived(name, regions[one.generation, one.region])
    windows = _windows(audit)
    for name, (where, ids) in windows.items():
        made.element("entity", name, "Window", **where)
        for identity in ids:
            if identity in documents:
                made.derived(name, documents[identity])
    report = made.element("entity", "casebits:audit", "Audit", verdict=verdict(audit), proven=audit.proven)
    for name in windows or documents.values():
        made.relate("wasInfluencedBy", influencee=report, influencer=name)
    return json.dumps({"prefix": _PREFIXES, **made.found}, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _windows(audit: AnyAudit) -> dict[str, tuple[dict[str, object], list[str]]]:
    """Return what is told of each followed window, and the ids of its documents, by its name."""
    if isinstance(audit, WindowAudit):
        where: dict[str, object] = {"manifest_sha256": audit.mix_manifest_sha256, "shard": audit.shard}
        found = [(audit.mix, audit.window, where, audit.segments)]
    else:
        found = [(one.mix, one.window, {"shard": one.shard}, one.segments) for one in audit.windows]
    return {
        f"casebits:{mix}-window-{number}": (where, [segment.document for segment in segments])
        for mix, number, where, segments in found
    }


def _region(made: _Document, region: AuditedRegion) -> str:
    source, said = region.source, region.attribution
    file = made.element(
        "entity",
        f"casebits:source-{region.generation}-{region.region}",
        "SourceRange",
        **{name: value for name, value in source.to_dict().items() if name != "licence_spdx"},
        licence=source.licence_spdx,
        title=said.title,
        url=said.url,
    )
    policy = made.element(
        "entity", f"sha256:{region.pins.filter.sha256}", "FilterPolicy", policy=region.pins.filter.policy_id
    )
    codec = made.element("entity", f"sha256:{region.pins.codec.vocab_sha256}", "Vocabulary")
    manifest = made.element(
        "entity", f"sha256:{region.manifest_sha256}", "Manifest", version=region.manifest_version, root=region.tree_root
    )
    admission = made.element(
        "entity", f"sha256:{region.admission_sha256}", "Admission", checks_passed=region.checks_passed
    )
    arrays = made.element(
        "entity",
        f"sha256:{region.content_id}",
        "Region",
        region=f"{region.generation}/{region.region}",
        changes=said.changes,
    )
    for old in (file, policy, codec):
        made.derived(arrays, old)
    made.derived(admission, arrays)
    made.relate("hadMember", collection=manifest, entity=arrays)
    for run in region.run_records or ():
        activity = made.element(
            "activity", f"run:{run.run_id}", "Run", job=run.job, stages="; ".join(run.stages), ended=run.finished_at
        )
        agent = made.element("agent", f"casebits:{run.package}-{run.package_version}", "Software")
        made.relate("wasAssociatedWith", activity=activity, agent=agent)
        made.relate("used", activity=activity, entity=file)
        for made_by_run in (arrays, admission):
            made.relate("wasGeneratedBy", entity=made_by_run, activity=activity)
    return arrays
