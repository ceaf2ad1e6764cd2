"""An audit for people: a short text for the terminal, and the whole report in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from casebits_dagster.lineage.records import STATES, AuditedDocument, AuditedRegion, WindowAudit


def audit_text(audit: WindowAudit) -> str:
    """Return the verdict, the segments with their source rows, what failed, and what was not checked."""
    documents = {document.id: document for document in audit.documents}
    sources = {(region.generation, region.region): region for region in audit.regions}
    lines = [
        _verdict(audit),
        f"  {audit.sequence_length:,} tokens of shard {audit.shard}, from its token {audit.first_token:,} on",
        f"  mix manifest {audit.mix_manifest_sha256}",
        "segments",
    ]
    for segment in audit.segments:
        lines.append(f"  at {segment.position:>6,}  {segment.length:>6,} tokens  {segment.kind}")
        if document := documents.get(segment.document):
            lines += _document_lines(document, sources[document.generation, document.region])
    lines += ["regions", *(line for region in audit.regions for line in _region_lines(region))]
    lines += ["links", f"  {_tally(audit)}"]
    lines += [f"  FAILED {one.link}, {one.where}: {one.problem}" for one in audit.failures]
    lines += ["limits", *(f"  {limit}" for limit in audit.limits)]
    return "\n".join(lines) + "\n"


def audit_markdown(audit: WindowAudit) -> str:
    """Return the whole audit: every segment, document, region and link."""
    parts = [
        f"# Window {audit.window} of mix {audit.mix}",
        f"**{_verdict(audit)}** {audit.sequence_length:,} tokens of shard {audit.shard}, from its token "
        f"{audit.first_token:,} on. Mix manifest `{audit.mix_manifest_sha256}`.",
        "## Segments",
        _table(
            ["at", "tokens", "kind", "inserted separators", "document", "from its token"],
            [(s.position, s.length, s.kind, s.inserted, f"`{s.document}`", s.document_start) for s in audit.segments],
        ),
        "## Documents",
        _table(
            ["document", "region", "index", "source row", "tokens", "bytes", "cluster", "split", "scores"],
            [
                (f"`{d.id}`", f"{d.generation}/{d.region}", d.index, d.source_position, d.tokens, d.text_bytes,
                 "none" if d.cluster is None else d.cluster, d.split, _pairs(d.scores))
                for d in audit.documents
            ],
        ),
        "## Regions",
        *(part for region in audit.regions for part in _region_parts(region)),
        "## Links",
        _tally(audit) + ".",
        _table(
            ["link", "where", "SHA-256", "state"],
            [(e.link, e.where, f"`{e.sha256}`" if e.sha256 else "bytes compared",
              f"{STATES[e.state]}{f': {e.problem}' if e.problem else ''}") for e in audit.evidence],
        ),
        "## Limits",
        "\n".join(f"- {limit}" for limit in audit.limits),
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def _verdict(audit: WindowAudit) -> str:
    verdict = "proven" if audit.proven else f"UNPROVEN, {len(audit.failures)} of its links failed"
    return f"window {audit.window} of mix {audit.mix} ({audit.strategy}): {verdict}."


def _tally(audit: WindowAudit) -> str:
    states = [evidence.state for evidence in audit.evidence]
    return ", ".join(f"{states.count(state)} {text}" for state, text in STATES.items() if state in states)


def _document_lines(document: AuditedDocument, region: AuditedRegion) -> list[str]:
    cluster = "no cluster" if document.cluster is None else f"cluster {document.cluster}"
    place = f"{document.generation}/{document.region} document {document.index}"
    return [
        f"             document {document.id}: {place}, {cluster}, {document.split}",
        f"             = row {document.source_position} of {region.source.path}, {document.text_bytes:,} bytes of text",
    ]


def _region_lines(region: AuditedRegion) -> list[str]:
    source = region.source
    return [
        f"  {region.generation}/{region.region}  {source.unit} {source.begin} to {source.end} of {source.path}",
        f"             source {source.repo} at {source.revision}",
        f"             licence {source.licence_spdx}",
        f"             admitted by {region.checks_passed} checks, entry {region.entry + 1} of {region.entries} in "
        f"manifest version {region.manifest_version}",
    ]


def _region_parts(region: AuditedRegion) -> list[str]:
    source, pins, said = region.source, region.pins, region.attribution
    rows: list[tuple[object, object]] = [
        ("source", f"{source.repo} at `{source.revision}`"),
        ("file", f"{source.path}, {source.unit} {source.begin} to {source.end}"),
        ("range SHA-256", f"`{source.range_sha256}`"),
        ("licence", source.licence_spdx),
        ("title", said.title),
        ("url", said.url),
        ("changes", said.changes),
        ("filter policy", f"{pins.filter.policy_id} `{pins.filter.sha256}`"),
        ("vocabulary", f"`{pins.codec.vocab_sha256}`"),
        ("mask model", f"`{pins.codec.mixture_sha256}`"),
        ("split", f"{pins.split.rule}, salt {pins.split.salt}, share {pins.split.share}"),
        ("content id", f"`{region.content_id}`"),
        ("receipt", f"`{region.receipt_sha256}`"),
        ("admission", f"`{region.admission_sha256}`, {region.checks_passed} checks passed"),
        ("manifest", f"version {region.manifest_version} `{region.manifest_sha256}`"),
        ("tree root", f"`{region.tree_root}`, entry {region.entry + 1} of {region.entries}"),
        ("inclusion proof", ", ".join(f"`{node}`" for node in region.inclusion_proof) or "the only entry"),
        ("runs", ", ".join(region.runs) or "no run record"),
    ]
    return [f"### {region.generation}/{region.region}", _table(["what", "value"], rows)]


def _pairs(scores: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(scores.items()))


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *([str(cell).replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
