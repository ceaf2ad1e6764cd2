"""An audit for people: a short text for the terminal, and the whole report as a page."""

from __future__ import annotations

from collections.abc import Iterator

from casebits_dagster.lineage.decision import rule_rows
from casebits_dagster.lineage.pages import Bar, Page, Part, html_page, markdown
from casebits_dagster.lineage.records import (
    STATES,
    Audit,
    AuditedDocument,
    AuditedRegion,
    AuditedRow,
    AuditedSegment,
    Holding,
    Use,
    WindowAudit,
)

AnyAudit = Audit | WindowAudit
RULES = ["rule", "metric", "value", "bounds", "state"]
_SOURCE_LINES = 8


def audit_markdown(audit: AnyAudit) -> str:
    """Return the whole audit: every segment, document, region and link."""
    return markdown(audit_page(audit))


def audit_html(audit: AnyAudit) -> str:
    """Return the whole audit as one HTML file."""
    return html_page(audit_page(audit))


def audit_text(audit: AnyAudit) -> str:
    """Return the verdict, what was asked with its source rows, what failed, and what was not checked."""
    lines = [verdict(audit)]
    lines += _window_lines(audit) if isinstance(audit, WindowAudit) else _answer_lines(audit)
    lines += ["regions", *(line for region in audit.regions for line in _region_lines(region))] * bool(audit.regions)
    lines += ["links", f"  {_tally(audit)}"]
    lines += [f"  FAILED {one.link}, {one.where}: {one.problem}" for one in audit.failures]
    lines += ["limits", *(f"  {limit}" for limit in audit.limits)]
    return "\n".join(lines) + "\n"


def verdict(audit: AnyAudit) -> str:
    """Return what was asked and whether it is proven, in one sentence."""
    layout = f" ({audit.strategy})" if isinstance(audit, WindowAudit) else ""
    found = "proven" if audit.proven else f"UNPROVEN, {len(audit.failures)} of its links failed"
    if not audit.proven and not audit.failures:
        found = "not proven, as nothing was recomputed"
    return f"{audit.question}{layout}: {found}."


def audit_page(audit: AnyAudit) -> Page:
    """Return the whole audit as a page."""
    title = audit.question[:1].upper() + audit.question[1:]
    parts = list(_window_parts(audit) if isinstance(audit, WindowAudit) else _answer_parts(audit))
    parts += document_parts(audit)
    parts += [Part("Regions")] * bool(audit.regions)
    parts += [part for region in audit.regions for part in _region_parts(region)]
    links = [
        (one.link, one.where, one.sha256 or "bytes compared", f"{STATES[one.state]}{one.problem and ': '}{one.problem}")
        for one in sorted(audit.evidence, key=lambda one: one.state != "different")
    ]
    parts.append(Part("Links", f"{_tally(audit)}.", ["link", "where", "SHA-256", "state"], links))
    parts.append(Part("Limits", "\n".join(f"- {limit}" for limit in audit.limits)))
    return Page(title, verdict(audit), not audit.proven, parts)


def _window_parts(audit: WindowAudit) -> Iterator[Part]:
    text = (
        f"{audit.sequence_length:,} tokens of shard {audit.shard}, from its token {audit.first_token:,} on. "
        f"Mix manifest {audit.mix_manifest_sha256}."
    )
    yield segments_part("Segments", audit.segments, text)


def segments_part(title: str, segments: tuple[AuditedSegment, ...], text: str = "", level: int = 2) -> Part:
    """Return a table of the segments of a window."""
    rows = [(s.position, s.length, s.kind, s.inserted, s.document, s.document_start) for s in segments]
    head = ["at", "tokens", "kind", "inserted separators", "document", "from its token"]
    return Part(title, text, head, rows, level)


def _answer_parts(audit: Audit) -> Iterator[Part]:
    yield from (_decision_part(audit, row) for row in audit.rows)
    if audit.held:
        head = ["document", "region", "index", "frontier versions"]
        yield Part("Frontiers that hold it", "", head, [(one.document or "all", *_held_at(one)) for one in audit.held])
    if audit.searched or audit.uses:
        head = ["mix", "split", "documents", "tokens", "windows", "window numbers"]
        uses = [(u.mix, u.split, u.documents, u.tokens, u.windows, _numbers(u)) for u in audit.uses]
        yield Part("Mixes that hold it", "" if uses else "none", head, uses)
    if audit.shares:
        text = f"{audit.tokens_asked:,} tokens in {audit.windows_asked:,} windows" * bool(audit.tokens_asked)
        yield Part("Shares", text)
        yield from share_parts(audit)
    if audit.searched:
        head = ["generation", "regions", "by their index", "documents"]
        yield Part("Searched", "", head, [(s.generation, s.regions, s.indexed, s.documents) for s in audit.searched])
    for window in audit.windows:
        text = f"Shard {window.shard}, from its token {window.first_token:,} on."
        yield segments_part(f"Window {window.window} of {window.mix}", window.segments, text)


def _decision_part(audit: Audit, row: AuditedRow) -> Part:
    text = f"{row.verdict}: row {row.position} of {row.path}, {row.generation}/{row.region}"
    text += f", text {row.document}" if row.document else ""
    policies = (one.policy for one in audit.regions if (one.generation, one.region) == (row.generation, row.region))
    if policy := next(policies, None):
        return Part("Filter decision", text, RULES, rule_rows(policy, row.scores, row.cluster, row.verdict))
    return Part("Filter decision", text, ["metric", "value"], list(row.scores.items()))


def share_parts(audit: Audit) -> Iterator[Part]:
    """Yield one table a grouping: names, documents, tokens and the share of the tokens of that grouping."""
    for by in dict.fromkeys(share.by for share in audit.shares):
        group = [share for share in audit.shares if share.by == by]
        whole = sum(share.tokens for share in group)
        rows = [(share.name, share.documents, share.tokens, Bar(share.tokens / whole)) for share in group]
        yield Part(f"By {by}", "", [by, "documents", "tokens", "share"], rows, 3)


def document_parts(audit: AnyAudit) -> Iterator[Part]:
    """Yield the documents, and the filter decision of each whose policy is at hand."""
    head = ["document", "region", "index", "source row", "tokens", "bytes", "cluster", "split", "scores"]
    rows = [
        (d.id, f"{d.generation}/{d.region}", d.index, d.source_position, d.tokens, d.text_bytes,
         "none" if d.cluster is None else d.cluster, d.split, _pairs(d.scores))
        for d in audit.documents
    ]  # fmt: skip
    if rows:
        yield Part("Documents", "", head, rows)
    policies = {(region.generation, region.region): region.policy for region in audit.regions}
    for d in audit.documents:
        if policy := policies.get((d.generation, d.region)):
            rules = rule_rows(policy, d.scores, d.cluster, "keep")
            yield Part(f"Why {d.id} was kept", "", RULES, rules, 3)


def _tally(audit: AnyAudit) -> str:
    states = [evidence.state for evidence in audit.evidence]
    return ", ".join(f"{states.count(state)} {text}" for state, text in STATES.items() if state in states) or "none"


def _window_lines(audit: WindowAudit) -> list[str]:
    documents = {document.id: document for document in audit.documents}
    sources = {(region.generation, region.region): region for region in audit.regions}
    lines = [
        f"  {audit.sequence_length:,} tokens of shard {audit.shard}, from its token {audit.first_token:,} on",
        f"  mix manifest {audit.mix_manifest_sha256}",
        "segments",
    ]
    for segment in audit.segments:
        lines.append(f"  at {segment.position:>6,}  {segment.length:>6,} tokens  {segment.kind}")
        if document := documents.get(segment.document):
            lines += _document_lines(document, sources[document.generation, document.region])
    return lines


def _answer_lines(audit: Audit) -> Iterator[str]:
    for part in _answer_parts(audit):
        yield part.title if part.level == 2 else f"  {part.title.lower()}"
        yield from (f"  {line}" for line in part.text.splitlines())
        yield from ("    " + "  ".join(_short(cell) for cell in row) for row in part.rows[:_SOURCE_LINES])
        if len(part.rows) > _SOURCE_LINES:
            yield f"    and {len(part.rows) - _SOURCE_LINES} more (all of them: --format json, markdown or html)"
    sources = {(region.generation, region.region): region for region in audit.regions}
    if audit.documents:
        yield "documents"
    for document in audit.documents[:_SOURCE_LINES]:
        yield from _document_lines(document, sources[document.generation, document.region])


def _short(cell: object) -> str:
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def _held_at(held: Holding) -> tuple[str, str, str]:
    versions = f"{held.first} to {held.newest}" if held.first else "none yet"
    return f"{held.generation}/{held.region}", "all" if held.index is None else str(held.index), versions


def _numbers(use: Use) -> str:
    more = ", ..." if use.windows > len(use.first_windows) else ""
    return ", ".join(map(str, use.first_windows)) + more


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


def _region_parts(region: AuditedRegion) -> list[Part]:
    source, pins, said = region.source, region.pins, region.attribution
    rows: list[tuple[object, object]] = [
        ("source", f"{source.repo} at {source.revision}"),
        ("file", f"{source.path}, {source.unit} {source.begin} to {source.end}"),
        ("file SHA-256", source.file_sha256),
        ("range SHA-256", source.range_sha256),
        ("licence", source.licence_spdx),
        ("title", said.title),
        ("url", said.url),
        ("changes", said.changes),
        ("filter policy", f"{pins.filter.policy_id} {pins.filter.sha256}"),
        ("vocabulary", pins.codec.vocab_sha256),
        ("mask model", pins.codec.mixture_sha256),
        ("split", f"{pins.split.rule}, salt {pins.split.salt}, share {pins.split.share}"),
        ("content id", region.content_id),
        ("receipt", region.receipt_sha256),
        ("admission", f"{region.admission_sha256}, {region.checks_passed} checks passed"),
        ("manifest", f"version {region.manifest_version} {region.manifest_sha256}"),
        ("tree root", f"{region.tree_root}, entry {region.entry + 1} of {region.entries}"),
        ("inclusion proof", ", ".join(region.inclusion_proof) or "the only entry"),
    ]
    for run in region.run_records or ():
        stages = f"{', '.join(run.stages)}; ended {run.finished_at}"
        rows.append((f"run {run.run_id}", f"{run.package} {run.package_version}, job {run.job}: {stages}"))
    rows += [("runs", "no run record")] * (not region.runs)
    return [Part(f"{region.generation}/{region.region}", "", ["what", "value"], rows, 3)]


def _pairs(scores: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(scores.items()))
