"""One page that tells of a mix: shares, lengths, context, sources, licences, and audits of windows picked at random."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from casebits_dagster.lineage.ask import Question, answer
from casebits_dagster.lineage.audit import audit_window
from casebits_dagster.lineage.mix_summary import layout, left_out, percent, read_report
from casebits_dagster.lineage.pages import Bar, Page, Part, html_page
from casebits_dagster.lineage.records import Audit, WindowAudit
from casebits_dagster.lineage.render import audit_page, segments_part, share_parts, verdict
from casebits_dagster.mixing.seeds import shuffled
from casebits_dagster.records.errors import Absent
from casebits_dagster.records.layout import Home
from casebits_dagster.records.mix import REPORT, MixReport
from casebits_dagster.records.pins import Generation

WINDOWS = 10


def write_mix_page(home: Home, mix: str, out: Path, *, generations: Mapping[str, Generation], seed: str = "") -> bool:
    """Write the page of a mix to `out`; return whether the mix and the windows that were picked are proven.

    `seed` picks them (empty: the mix's own). Raises as `audit` does.
    """
    if not (home.mix(mix) / REPORT).is_file():
        raise Absent("FILE_MISSING", str(home.mix(mix)), "no mix is published here", remedy="see `casebits status`")
    whole = answer(home, Question(mix=mix), generations)
    report = read_report(home.mix(mix))
    windows = report.train.windows
    picked = sorted(shuffled(windows, seed or report.recipe.seed)[:WINDOWS].tolist())
    audits = [audit_window(home, mix, window, generations=generations) for window in picked]
    proven = [whole.proven, *(one.proven for one in audits)]
    said = f"{sum(proven[1:])} of {len(audits)} windows, picked at random, are proven back to their source rows"
    page = Page(f"Mix {mix}", f"{report.recipe.description} {said}.", not all(proven))
    page.parts.extend([*_report_parts(report), *_source_parts(whole), *_audit_parts(audits)])
    out.write_text(html_page(page), encoding="utf-8")
    return all(proven)


def _report_parts(report: MixReport) -> Iterator[Part]:
    recipe, train, chosen, used = report.recipe, report.train, report.selection, report.conservation
    facts = [
        ("layout", layout(recipe)),
        ("windows", f"{train.windows:,} of {recipe.sequence_length:,} tokens for training, "
         f"{report.validation.windows:,} for validation"),
        ("documents", train.documents),
        ("shards", train.shards),
        ("selection", chosen.outcome),
        ("left out", left_out(chosen) or "nothing"),
        ("withdrawn", report.withdrawn.documents if report.withdrawn else 0),
        ("tokens lost", f"{used.cut_tokens:,} cut, {used.returned_tokens:,} returned, {used.rest_tokens:,} rest"),
        ("recipe SHA-256", report.recipe_sha256),
    ]  # fmt: skip
    yield Part("What it is", "", ["what", "value"], facts)
    for title, margins in (("Shares", chosen.domains), ("Lengths", chosen.lengths)):
        head = [title.lower(), "asked", "tokens", "of the mix"]
        rows = [(m.name, percent(m.asked_share), m.achieved_tokens, Bar(m.achieved_share)) for m in margins]
        yield Part(title, "", head, rows)
    text = "The share of positions that see a token of their own document so many tokens back."
    context = [(row.distance, Bar(row.share), percent(row.bound_share)) for row in report.context]
    yield Part("Context", text, ["distance", "share", "best possible"], context)


def _source_parts(whole: Audit) -> Iterator[Part]:
    yield Part(
        "Sources and licences", f"{verdict(whole)} {whole.tokens_asked:,} tokens in {whole.windows_asked:,} windows."
    )
    yield from (part for part in share_parts(whole) if part.title != "By region")
    seen = {(one.source.repo, one.source.revision, one.source.path): one for one in whole.regions}
    rows = [
        (one.attribution.title, one.source.repo, one.source.revision, one.source.licence_spdx, one.attribution.url,
         one.attribution.changes)
        for _, one in sorted(seen.items())
    ]  # fmt: skip
    yield Part("Attribution", "", ["title", "repository", "revision", "licence", "where", "changes"], rows, 3)


def _audit_parts(audits: list[WindowAudit]) -> Iterator[Part]:
    text = "`casebits audit --mix NAME --window K --format html` tells the whole chain of a window."
    rows = [
        (one.window, "proven" if one.proven else "UNPROVEN", len(one.evidence), len(one.failures)) for one in audits
    ]
    yield Part("Audits", text, ["window", "verdict", "links", "that failed"], rows)
    for one in audits:
        yield segments_part(f"Window {one.window}", one.segments, verdict(one), 3)
        (documents,) = (part for part in audit_page(one).parts if part.title == "Documents")
        yield Part(f"Documents of window {one.window}", "", documents.head, documents.rows, 3)
        failed = [(link.link, link.where, link.problem) for link in one.failures]
        yield from [Part("Links that failed", "", ["link", "where", "problem"], failed, 3)] * bool(failed)
        places = [
            (f"{r.generation}/{r.region}", r.source.path, f"{r.source.unit} {r.source.begin} to {r.source.end}",
             r.source.licence_spdx, r.source.range_sha256)
            for r in one.regions
        ]  # fmt: skip
        head = ["region", "file", "range", "licence", "range SHA-256"]
        yield Part(f"Sources of window {one.window}", "", head, places, 3)
