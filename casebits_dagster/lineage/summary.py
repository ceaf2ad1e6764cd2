"""What there is of a generation: rows, documents, tokens, reasons, frontier. Read from records alone, nothing hashed.

Cost: one receipt a region. What is *proven* is the business of the verifiers; this says what the records claim.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from casebits_dagster.records.errors import CasebitsError
from casebits_dagster.records.frontier import Latest
from casebits_dagster.records.layout import ADMISSION, RECEIPT, Home
from casebits_dagster.records.pins import Generation
from casebits_dagster.records.region import Counts, Receipt


@dataclass(slots=True)
class GenerationSummary:
    """Counts over the published regions; `missing` is what keeps it from running, `broken` why a record is unread."""

    name: str
    planned: int
    filtered: int = 0
    published: int = 0
    admitted: int = 0
    rejected: int = 0
    empty: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    quarantined: Counter[str] = field(default_factory=Counter)
    latest: Latest | None = None
    missing: CasebitsError | None = None
    broken: list[str] = field(default_factory=list)


def summarise(generation: Generation, home: Home) -> GenerationSummary:
    """Return what the records below `home` say of a generation."""
    folder, summary = home.generation(generation.name), GenerationSummary(generation.name, len(generation.plan))
    summary.missing = generation.missing
    for region in generation.plan:
        path = folder.region(region.index)
        admitted = (path / ADMISSION).exists()
        summary.filtered += folder.verdicts(region.index).exists()
        summary.admitted += admitted
        summary.rejected += not admitted and any(folder.rejections(region.index).glob("*.json"))
        with _noting(summary):
            if (path / RECEIPT).exists():
                _add_counts(summary, read_counts(path))
    with _noting(summary):
        if folder.latest.exists():
            summary.latest = Latest.parse(folder.latest.read_bytes(), str(folder.latest))
    return summary


@contextlib.contextmanager
def _noting(summary: GenerationSummary) -> Iterator[None]:
    """Note a record that cannot be read, and go on: it must not hide the rest."""
    try:
        yield
    except (CasebitsError, OSError) as error:
        summary.broken.append(broken_line(error))


def broken_line(error: CasebitsError | OSError) -> str:
    """Return the line of a summary that tells of a record that cannot be read."""
    return f"  BROKEN     {error_line(error)}"


def error_line(error: CasebitsError | OSError) -> str:
    """Return one line: code, place, problem.

    >>> error_line(NotADirectoryError(20, "Not a directory", "/tmp/file"))
    'UNREADABLE /tmp/file: Not a directory'
    """
    if isinstance(error, CasebitsError):
        return str(error)
    return " ".join(f"UNREADABLE {error.filename or 'a file'}: {error.strerror or error}".split())


def read_counts(region: Path) -> Counts:
    """Return the counts in the receipt of a region's folder."""
    path = region / RECEIPT
    return Receipt.parse(path.read_bytes(), str(path)).counts


def generation_lines(summary: GenerationSummary) -> list[str]:
    """Return the summary as lines for people."""
    counts, kept = summary.counts, summary.counts["documents"]
    lines = [
        f"generation {summary.name}",
        f"  regions    {summary.planned} planned, {summary.filtered} filtered, {summary.published} encoded "
        f"({summary.empty} empty), {summary.admitted} admitted, {summary.rejected} refused",
        f"  documents  {counts['rows_read']:,} rows read = {kept:,} kept + {summary.dropped.total():,} dropped "
        f"+ {summary.quarantined.total():,} quarantined",
        *_reasons("dropped", summary.dropped),
        *_reasons("quarantined", summary.quarantined),
        f"  tokens     {counts['tokens']:,} for {counts['raw_bytes']:,} bytes of text; "
        f"{counts['train_documents']:,} documents train, {counts['validation_documents']:,} validation",
    ]
    waiting = [f"  cannot run {summary.missing}"] if summary.missing else []
    return [*lines, _frontier_line(summary), *waiting, *summary.broken]


def _add_counts(summary: GenerationSummary, counts: Counts) -> None:
    summary.published += 1
    summary.empty += counts.documents == 0
    summary.dropped.update(counts.dropped)
    summary.quarantined.update(counts.quarantined)
    for name in ("rows_read", "documents", "tokens", "raw_bytes", "train_documents", "validation_documents"):
        summary.counts[name] += getattr(counts, name)


def _reasons(verdict: str, counts: Counter[str]) -> list[str]:
    order = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [f"             {verdict} {count:>6,}  {reason}" for reason, count in order]


def _frontier_line(summary: GenerationSummary) -> str:
    latest = summary.latest
    if latest is None:
        return "  frontier   none yet: it starts when region 00000 is admitted"
    gap = "" if latest.status == "complete" else f", waiting for region {latest.count:05d}"
    return (
        f"  frontier   version {latest.version}, {latest.count} of {summary.planned} regions, {latest.status}{gap}\n"
        f"             manifest {latest.manifest.sha256}"
    )
