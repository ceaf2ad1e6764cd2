"""What the tables and numbers of a mix must satisfy, whatever made them. Each rule has a code and says where it fails.

Pure over arrays and records; shares nothing with the planner and writer but the record formats.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.mixing.verify_sources import AdmittedRegion, Split, Table
from casebits_dagster.records.errors import CasebitsError
from casebits_dagster.records.mix import KINDS, SEGMENTS, TABLE, TRAIN, MixReport
from casebits_dagster.records.recipe import Selection

_WHOLE, _CHUNK, _TAIL, _FLOATED, _CUT = range(len(KINDS))


def fail(code: str, where: str, problem: str = "", *, expected: object = None, read: object = None) -> NoReturn:
    raise CasebitsError(code, where, problem, expected=expected, read=read)


def first(wrong: NDArray[np.bool_]) -> list[int]:
    """Return the first place that is wrong, alone in a list, or nothing: `for at in first(...): fail(...)`."""
    found: list[int] = np.flatnonzero(wrong)[:1].tolist()
    return found


def check_documents(split: Split) -> None:
    """Every row names an admitted document by id, length and side of the split (MIX_DOCUMENT, MIX_SPLIT)."""
    name, table, sources = split.file(TABLE), split.documents, len(split.frontiers)
    for at in first(table["generation"] >= sources):
        read = int(table["generation"][at])
        fail("MIX_DOCUMENT", f"{name}[{at}]", "no such source", expected=f"below {sources}", read=read)
    for region, places in split.by_region(table):
        _check_documents_of(region, table[places], [f"{name}[{place}]" for place in places], split.name != TRAIN)


def _check_documents_of(region: AdmittedRegion, rows: Table, where: list[str], validation: bool) -> None:
    index, count = rows["index"].astype(np.int64), len(region.document_ids)
    for at in first(index >= count):
        fail("MIX_DOCUMENT", where[at], expected=f"one of {count} documents", read=int(index[at]))
    ids, tokens = region.document_ids[index], np.diff(region.offsets)[index]
    for at in first(rows["id"] != ids):
        fail("MIX_DOCUMENT", where[at], "id", expected=bytes(ids[at]).hex(), read=bytes(rows["id"][at]).hex())
    for at in first(rows["tokens"] != tokens):
        fail("MIX_DOCUMENT", where[at], "tokens", expected=int(tokens[at]), read=int(rows["tokens"][at]))
    for at in first(region.validation(index) != validation):
        sides = ("train", "validation")
        fail("MIX_SPLIT", where[at], expected=f"a {sides[validation]} document", read=sides[not validation])


def check_domains(split: Split, selection: Selection) -> None:
    """Domain and bucket of every row follow from its cluster and length (MIX_DOMAIN)."""
    table = split.documents
    clusters = np.empty(len(table), np.int64)
    for region, places in split.by_region(table):
        clusters[places] = region.clusters[table["index"][places]]
    fits = np.empty((len(selection.domains), len(table)), bool)
    names = np.array([frontier.name for frontier in split.frontiers])[table["generation"]]
    for k, domain in enumerate(selection.domains):
        fits[k] = (names == domain.generation) & (not domain.clusters or np.isin(clusters, domain.clusters))
    buckets = np.searchsorted(np.array(selection.lengths.edges, np.int64), table["tokens"], side="right")
    wrong = (fits.sum(axis=0) != 1) | (fits.argmax(axis=0) != table["domain"]) | (buckets != table["bucket"])
    for at in first(wrong):
        expected = np.flatnonzero(fits[:, at]).tolist(), int(buckets[at])
        read = [int(table["domain"][at])], int(table["bucket"][at])
        fail("MIX_DOMAIN", f"{TABLE}[{at}]", "domain and bucket", expected=expected, read=read)


def check_uses(table: Table, selection: Selection) -> None:
    """A text is used at most as often as its domain's epochs allow (MIX_EPOCHS)."""
    _, text, counts = np.unique(table["id"], return_inverse=True, return_counts=True)
    uses = counts[text]
    allowed = np.array([domain.epochs for domain in selection.domains])[table["domain"]]
    for at in first(uses > allowed):
        fail("MIX_EPOCHS", f"{TABLE}[{at}]", expected=f"at most {allowed[at]} uses", read=int(uses[at]))


def check_segments(split: Split) -> None:
    """Runs are sorted and disjoint, and fill every window exactly (MIX_SEGMENTS)."""
    name, rows, windows, length = split.file(SEGMENTS), split.rows, split.files.windows, split.length
    lengths = rows["length"].astype(np.int64)
    begins = np.cumsum(lengths) - lengths
    for at in first(rows["window"].astype(np.int64) * length + rows["position"] != begins):
        read = int(rows["window"][at]), int(rows["position"][at])
        expected = divmod(int(begins[at]), length)
        fail("MIX_SEGMENTS", f"{name}[{at}]", "window and position", expected=expected, read=read)
    inside = rows["window"] < windows
    over = rows["position"] + lengths > length
    if lengths[inside].sum() != windows * length or (lengths == 0).any() or over[inside].any():
        fail("MIX_SEGMENTS", name, "runs must fill each window exactly")
    known = len(split.documents)
    if (rows["document"] >= known).any() or (rows["kind"] >= len(KINDS)).any() or (rows["inserted"] > 1).any():
        fail("MIX_SEGMENTS", name, "document, kind or inserted out of range")


def lost_of_documents(split: Split) -> NDArray[np.int64]:
    """Return how many tokens at its end each document lacks; its runs must follow one another from 0 (MIX_SEGMENTS)."""
    name, rows = split.file(SEGMENTS), split.rows
    order = np.lexsort((rows["document_start"], rows["document"]))
    owner = rows["document"][order].astype(np.int64)
    starts = rows["document_start"][order].astype(np.int64)
    ends = starts + rows["length"][order] - rows["inserted"][order]
    expected = np.where(np.diff(owner, prepend=-1) > 0, 0, np.roll(ends, 1))
    for at in first(starts != expected):
        where = f"{name}[{order[at]}]: document {owner[at]}"
        fail("MIX_SEGMENTS", where, "document_start", expected=int(expected[at]), read=int(starts[at]))
    lost = split.documents["tokens"].astype(np.int64)
    last = np.diff(owner, append=len(lost)) > 0
    lost[owner[last]] -= ends[last]
    if (lost < 0).any():
        fail("MIX_SEGMENTS", f"{name}: document {int(np.argmin(lost))}", "a run goes beyond its document")
    return lost


def check_alignment(split: Split, tails: str) -> None:
    """Short documents are whole; longer ones are cut at multiples of T, full chunks alone (MIX_ALIGNMENT)."""
    rows, documents, length = split.rows, split.documents, split.length
    tokens = documents["tokens"][rows["document"]].astype(np.int64)
    start, run, kind = rows["document_start"].astype(np.int64), rows["length"].astype(np.int64), rows["kind"]
    part = run - rows["inserted"]
    whole = (kind == _WHOLE) & (tokens <= length) & (start == 0) & (part == tokens)
    chunk = (kind == _CHUNK) & (tokens > length) & (start % length == 0) & (part == length) & (rows["position"] == 0)
    ends_document = (tokens > length) & (start == tokens // length * length) & (start + part == tokens)
    tail = (kind == _TAIL) & ends_document & (rows["position"] == 0)
    floated = (kind == _FLOATED) & ends_document & (tails != "strict")
    cut = (kind == _CUT) & (start % length == 0) & (start + part < tokens) & (part < length)
    for at in first(~(whole | chunk | tail | floated | cut)):
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


def check_conservation(report: MixReport, train: Split, lost: NDArray[np.int64]) -> None:
    """Every term of selected + inserted = windows * T + cut + returned + rest is recounted (MIX_CONSERVATION)."""
    said, rows, windows = report.conservation, train.rows, train.files.windows
    returned = sum(document.tokens for document in report.returned)
    counted = {
        "selected_tokens": int(train.documents["tokens"].sum(dtype=np.int64)) + returned,
        "inserted_separators": int(rows["inserted"].sum(dtype=np.int64)),
        "window_tokens": windows * train.length,
        "cut_tokens": int(lost.sum()),
        "returned_tokens": returned,
        "rest_tokens": int(rows["length"][rows["window"] >= windows].sum(dtype=np.int64)),
    }
    for field, read in counted.items():
        if getattr(said, field) != read:
            fail("MIX_CONSERVATION", f"conservation.{field}", expected=read, read=getattr(said, field))


def check_tails(report: MixReport, train: Split) -> None:
    """Tails are counted as they stand (MIX_TAILS)."""
    said, tokens, kind = report.tails, train.documents["tokens"], train.rows["kind"]
    counted = None
    if report.recipe.aligned is not None:
        total = int(((tokens > train.length) & (tokens % train.length > 0)).sum())
        counted = total, int((kind == _TAIL).sum()), int((kind == _FLOATED).sum())
    read = None if said is None else (said.total, said.at_start, said.floated)
    if read != counted:
        fail("MIX_TAILS", "tails", "total, at start, floated", expected=counted, read=read)


def check_context(report: MixReport, train: Split) -> None:
    """The same-document context statistic and its bound are what the segments and lengths give (MIX_CONTEXT)."""
    length, rows = train.length, train.rows
    runs = rows["length"][rows["window"] < train.files.windows].astype(np.int64)
    chunks, rest = np.divmod(train.documents["tokens"].astype(np.int64), length)
    if report.separator.position == "start":
        rest += (chunks > 0) & (rest > 0)
    best = np.concatenate([np.repeat(length, chunks.sum()), rest])
    distances = (length // 4, length // 2, 3 * length // 4)
    if tuple(row.distance for row in report.context) != distances:
        fail("MIX_CONTEXT", "context.distance", expected=distances, read=[row.distance for row in report.context])
    for row in report.context:
        expected = tuple(int(np.maximum(0, found - row.distance).sum()) for found in (runs, best))
        if (row.tokens, row.bound_tokens) != expected:
            where = f"context at {row.distance}"
            fail("MIX_CONTEXT", where, "tokens and bound", expected=expected, read=(row.tokens, row.bound_tokens))


def check_targets(report: MixReport, documents: Table) -> None:
    """Achieved tokens and documents of every cell, row and column are those of the table (MIX_TARGETS)."""
    said, sizes = report.selection, documents["tokens"].astype(np.int64)
    cells = documents["domain"].astype(np.int64) * len(said.lengths) + documents["bucket"]
    for number, cell in enumerate(said.cells):
        inside = cells == number
        total = int(sizes[inside].sum())
        expected = (total, int(inside.sum()), total - cell.target_tokens)
        read = (cell.achieved_tokens, cell.achieved_documents, cell.error_tokens)
        if read != expected:
            fail("MIX_TARGETS", f"selection.cells[{number}]", "tokens, documents, error", expected=expected, read=read)
    for field, margins in (("domain", said.domains), ("bucket", said.lengths)):
        for number, margin in enumerate(margins):
            total = int(sizes[documents[field] == number].sum())
            if margin.achieved_tokens != total:
                fail("MIX_TARGETS", f"selection: {margin.name}", expected=total, read=margin.achieved_tokens)
