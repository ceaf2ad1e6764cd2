"""What the tables and numbers of a mix must satisfy, whatever made them. Each rule has a code and says where it fails.

Pure over arrays and records; shares nothing with the planner and writer but the record formats.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.mixing.verify_sources import PinnedFrontier
from casebits_dagster.records.errors import CasebitsError
from casebits_dagster.records.mix import KINDS, SEGMENTS, TABLE, MixReport
from casebits_dagster.records.recipe import Selection

Table = NDArray[Any]
_WHOLE, _CHUNK, _TAIL, _FLOATED, _CUT = range(len(KINDS))


def fail(code: str, where: str, problem: str = "", *, expected: object = None, read: object = None) -> NoReturn:
    raise CasebitsError(code, where, problem, expected=expected, read=read)


def check_documents(name: str, table: Table, frontiers: list[PinnedFrontier], *, validation: bool) -> None:
    """Every row names an admitted document by id, length and side of the split (MIX_DOCUMENT, MIX_SPLIT)."""
    for number, row in enumerate(table):
        where = f"{name}[{number}]"
        if row["generation"] >= len(frontiers):
            fail(
                "MIX_DOCUMENT", where, "no such source", expected=f"below {len(frontiers)}", read=int(row["generation"])
            )
        region = frontiers[int(row["generation"])].region(int(row["region"]))
        index = int(row["index"])
        if index >= len(region.document_ids):
            fail("MIX_DOCUMENT", where, expected=f"one of {len(region.document_ids)} documents", read=index)
        if bytes(row["id"]) != region.document_ids[index]:
            fail("MIX_DOCUMENT", where, "id", expected=region.document_ids[index].hex(), read=bytes(row["id"]).hex())
        tokens = int(region.offsets[index + 1] - region.offsets[index])
        if row["tokens"] != tokens:
            fail("MIX_DOCUMENT", where, "tokens", expected=tokens, read=int(row["tokens"]))
        if region.is_validation(index) != validation:
            sides = ("train", "validation")
            fail("MIX_SPLIT", where, expected=f"a {sides[validation]} document", read=sides[not validation])


def check_domains(name: str, table: Table, frontiers: list[PinnedFrontier], selection: Selection) -> None:
    """Domain and bucket of every row follow from its cluster and length (MIX_DOMAIN)."""
    for number, row in enumerate(table):
        frontier = frontiers[int(row["generation"])]
        cluster = frontier.region(int(row["region"])).clusters[int(row["index"])]
        domains = [
            k
            for k, domain in enumerate(selection.domains)
            if domain.generation == frontier.name and (not domain.clusters or cluster in domain.clusters)
        ]
        bucket = sum(edge <= row["tokens"] for edge in selection.lengths.edges)
        if [int(row["domain"])] != domains or row["bucket"] != bucket:
            read = [int(row["domain"])], int(row["bucket"])
            fail("MIX_DOMAIN", f"{name}[{number}]", "domain and bucket", expected=(domains, bucket), read=read)


def check_uses(table: Table, selection: Selection | None) -> None:
    """A text is used at most as often as its domain's epochs allow (MIX_EPOCHS)."""
    rows = list(zip(map(bytes, table["id"]), table["domain"].tolist(), strict=True))
    uses = Counter(name for name, _ in rows)
    for number, (name, domain) in enumerate(rows):
        allowed = selection.domains[domain].epochs if selection else uses[name]
        if uses[name] > allowed:
            fail("MIX_EPOCHS", f"{TABLE}[{number}]", expected=f"at most {allowed} uses", read=uses[name])


def check_segments(name: str, rows: Table, documents: Table, windows: int, length: int) -> None:
    """Runs are sorted and disjoint, and fill every window exactly (MIX_SEGMENTS)."""
    lengths = rows["length"].astype(np.int64)
    begins = rows["window"].astype(np.int64) * length + rows["position"]
    off = np.flatnonzero(begins != np.cumsum(lengths) - lengths)
    if len(off):
        at = int(off[0])
        expected = divmod(int((np.cumsum(lengths) - lengths)[at]), length)
        read = int(rows["window"][at]), int(rows["position"][at])
        fail("MIX_SEGMENTS", f"{name}[{at}]", "window and position", expected=expected, read=read)
    inside = rows["window"] < windows
    if (
        lengths[inside].sum() != windows * length
        or (lengths == 0).any()
        or (rows["position"] + lengths > length)[inside].any()
    ):
        fail("MIX_SEGMENTS", name, "runs must fill each window exactly")
    if (rows["document"] >= len(documents)).any() or (rows["kind"] >= len(KINDS)).any() or (rows["inserted"] > 1).any():
        fail("MIX_SEGMENTS", name, "document, kind or inserted out of range")


def lost_of_documents(name: str, rows: Table, documents: Table) -> NDArray[np.int64]:
    """Return how many tokens at its end each document lacks; its runs must follow one another from 0 (MIX_SEGMENTS)."""
    order = np.lexsort((rows["document_start"], rows["document"]))
    owner = rows["document"][order].astype(np.int64)
    starts = rows["document_start"][order].astype(np.int64)
    ends = starts + rows["length"][order] - rows["inserted"][order]
    first = np.diff(owner, prepend=-1) > 0
    expected = np.where(first, 0, np.roll(ends, 1))
    off = np.flatnonzero(starts != expected)
    if len(off):
        at = int(off[0])
        where = f"{name}[{int(order[at])}]: document {int(owner[at])}"
        fail("MIX_SEGMENTS", where, "document_start", expected=int(expected[at]), read=int(starts[at]))
    lost = documents["tokens"].astype(np.int64)
    last = np.diff(owner, append=len(documents)) > 0
    lost[owner[last]] -= ends[last]
    if (lost < 0).any():
        fail("MIX_SEGMENTS", f"{name}: document {int(np.argmin(lost))}", "a run goes beyond its document")
    return lost


def check_alignment(rows: Table, documents: Table, length: int, tails: str) -> None:
    """Short documents are whole; longer ones are cut at multiples of T, full chunks alone (MIX_ALIGNMENT)."""
    tokens = documents["tokens"][rows["document"]].astype(np.int64)
    start, run, kind = rows["document_start"].astype(np.int64), rows["length"].astype(np.int64), rows["kind"]
    part = run - rows["inserted"]
    whole = (kind == _WHOLE) & (tokens <= length) & (start == 0) & (part == tokens)
    chunk = (kind == _CHUNK) & (tokens > length) & (start % length == 0) & (part == length) & (rows["position"] == 0)
    ends_document = (tokens > length) & (start == tokens // length * length) & (start + part == tokens)
    tail = (kind == _TAIL) & ends_document & (rows["position"] == 0)
    floated = (kind == _FLOATED) & ends_document & (tails != "strict")
    cut = (kind == _CUT) & (start % length == 0) & (start + part < tokens) & (part < length)
    off = np.flatnonzero(~(whole | chunk | tail | floated | cut))
    if len(off):
        at = int(off[0])
        read = f"{KINDS[kind[at]]} [{start[at]}, {start[at] + part[at]}) of {tokens[at]} at {rows['position'][at]}"
        fail("MIX_ALIGNMENT", f"{SEGMENTS}[{at}]", expected=f"a run aligned to windows of {length}", read=read)


def check_cuts(report: MixReport, lost: NDArray[np.int64]) -> None:
    """Documents that lack tokens are exactly those that the report lists (MIX_CUT)."""
    read = {int(row): int(lost[row]) for row in np.flatnonzero(lost)}
    expected = {cut.document: cut.lost_tokens for cut in report.cut}
    for row in sorted(read.keys() | expected.keys()):
        if read.get(row, 0) != expected.get(row, 0):
            problem = "tokens missing at its end"
            fail("MIX_CUT", f"{TABLE}[{row}]", problem, expected=expected.get(row, 0), read=read.get(row, 0))


def check_conservation(report: MixReport, rows: Table, documents: Table, lost: NDArray[np.int64]) -> None:
    """Every term of selected + inserted = windows * T + cut + returned + rest is recounted (MIX_CONSERVATION)."""
    said, windows, length = report.conservation, report.train.windows, report.recipe.sequence_length
    returned = sum(document.tokens for document in report.returned)
    used = int(documents["tokens"].sum(dtype=np.int64))
    rest = int(rows["length"][rows["window"] >= windows].sum(dtype=np.int64))
    counted = {
        "selected_tokens": used + returned,
        "inserted_separators": int(rows["inserted"].sum(dtype=np.int64)),
        "window_tokens": windows * length,
        "cut_tokens": int(lost.sum()),
        "returned_tokens": returned,
        "rest_tokens": rest,
    }
    for field, read in counted.items():
        if getattr(said, field) != read:
            fail("MIX_CONSERVATION", f"conservation.{field}", expected=read, read=getattr(said, field))


def check_tails(report: MixReport, rows: Table, documents: Table) -> None:
    """Tails are counted as they stand (MIX_TAILS)."""
    length, said = report.recipe.sequence_length, report.tails
    counted = None
    if report.recipe.aligned is not None:
        total = int(((documents["tokens"] > length) & (documents["tokens"] % length > 0)).sum())
        counted = total, int((rows["kind"] == _TAIL).sum()), int((rows["kind"] == _FLOATED).sum())
    read = None if said is None else (said.total, said.at_start, said.floated)
    if read != counted:
        fail("MIX_TAILS", "tails", "total, at start, floated", expected=counted, read=read)


def check_context(report: MixReport, rows: Table, documents: Table) -> None:
    """The same-document context statistic and its bound are what the segments and lengths give (MIX_CONTEXT)."""
    length = report.recipe.sequence_length
    runs = Counter(rows["length"][rows["window"] < report.train.windows].tolist())
    extra = int(report.separator.position == "start")
    best: Counter[int] = Counter()
    for tokens, count in Counter(documents["tokens"].tolist()).items():
        best[length] += count * (tokens // length)
        rest = tokens % length
        best[rest + extra if tokens > length and rest else rest] += count
    distances = (length // 4, length // 2, 3 * length // 4)
    if tuple(row.distance for row in report.context) != distances:
        fail("MIX_CONTEXT", "context.distance", expected=distances, read=[row.distance for row in report.context])
    for row in report.context:
        read = tuple(sum(n * max(0, run - row.distance) for run, n in found.items()) for found in (runs, best))
        if (row.tokens, row.bound_tokens) != read:
            where = f"context at {row.distance}"
            fail("MIX_CONTEXT", where, "tokens and bound", expected=read, read=(row.tokens, row.bound_tokens))


def check_targets(report: MixReport, documents: Table) -> None:
    """Achieved tokens and documents of every cell, row and column are those of the table (MIX_TARGETS)."""
    said, columns = report.selection, len(report.selection.lengths)
    tokens: Counter[int] = Counter()
    cells = documents["domain"].astype(int) * columns + documents["bucket"]
    counts = Counter(cells.tolist())
    for cell, size in zip(cells.tolist(), documents["tokens"].tolist(), strict=True):
        tokens[cell] += size
    for number, cell in enumerate(said.cells):
        read = (cell.achieved_tokens, cell.achieved_documents, cell.error_tokens)
        expected = (tokens[number], counts[number], tokens[number] - cell.target_tokens)
        if read != expected:
            fail("MIX_TARGETS", f"selection.cells[{number}]", "tokens, documents, error", expected=expected, read=read)
    for field, margins in (("domain", said.domains), ("bucket", said.lengths)):
        for number, margin in enumerate(margins):
            total = int(documents["tokens"][documents[field] == number].sum(dtype=np.int64))
            if margin.achieved_tokens != total:
                fail("MIX_TARGETS", f"selection: {margin.name}", expected=total, read=margin.achieved_tokens)
