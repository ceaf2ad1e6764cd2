"""What the tables and numbers of a mix must satisfy, whatever made them. Each rule has a code and says where it fails.

Pure over arrays and records; shares nothing with the planner and writer but the record formats.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.mixing.verify_sources import AdmittedRegion, Split, Table
from casebits_dagster.records.errors import CasebitsError
from casebits_dagster.records.mix import DOCUMENT_FIELDS, KINDS, SEGMENTS, TABLE, TRAIN, MixReport
from casebits_dagster.records.recipe import Slice

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


def check_domains(split: Split, slices: Sequence[Slice], edges: Sequence[int]) -> None:
    """Domain and bucket of every row follow from its cluster, length, case class and scores (MIX_DOMAIN)."""
    table = split.documents
    fits = np.empty((len(slices), len(table)), bool)
    for region, places in split.by_region(table):
        for k, part in enumerate(slices):
            fits[k, places] = region.inside(part)[table["index"][places]]
    said = table["domain"].astype(np.int64)
    for at in first(said >= len(slices)):
        fail("MIX_DOMAIN", f"{TABLE}[{at}]", "domain", expected=f"below {len(slices)}", read=int(said[at]))
    wrong = ~fits[said, np.arange(len(table))] | (fits.sum(axis=0) != 1)
    buckets = np.searchsorted(np.array(edges, np.int64), table["tokens"], side="right")
    for at in first(wrong | (buckets != table["bucket"])):
        expected = np.flatnonzero(fits[:, at]).tolist(), int(buckets[at])
        read = [int(said[at])], int(table["bucket"][at])
        fail("MIX_DOMAIN", f"{TABLE}[{at}]", "domain and bucket", expected=expected, read=read)


def check_uses(table: Table, caps: NDArray[np.int64]) -> None:
    """A text is used at most as often as `caps` of its domain (row) and length bucket (column) allow (MIX_EPOCHS)."""
    _, text, counts = np.unique(table["id"], return_inverse=True, return_counts=True)
    uses = counts[text]
    allowed = caps[table["domain"], table["bucket"]]
    for at in first(uses > allowed):
        fail("MIX_EPOCHS", f"{TABLE}[{at}]", expected=f"at most {allowed[at]} uses", read=int(uses[at]))


def eligible(split: Split, slices: Sequence[Slice], edges: Sequence[int]) -> tuple[Table, NDArray[np.bool_]]:
    """Return every document of the sources that is in a slice, as rows of DOCUMENT_FIELDS in their order, and which of
    them are validation documents. Reads documents.jsonl of every region."""
    tables, sides = [np.empty(0, DOCUMENT_FIELDS)], [np.empty(0, bool)]
    for number, frontier in enumerate(split.frontiers):
        for index in range(len(frontier.manifest.regions)):
            region = frontier.documents_of(index)
            fits = np.array([region.inside(part) for part in slices])
            rows = np.flatnonzero(fits.any(axis=0))
            found = np.zeros(len(rows), DOCUMENT_FIELDS)
            found["id"], found["tokens"] = region.document_ids[rows], np.diff(region.offsets)[rows]
            found["generation"], found["region"], found["index"] = number, index, rows
            found["domain"] = fits[:, rows].argmax(axis=0)
            found["bucket"] = np.searchsorted(np.array(edges, np.int64), found["tokens"], side="right")
            tables.append(found)
            sides.append(region.validation(rows))
    return np.concatenate(tables), np.concatenate(sides)


def check_withdrawn(report: MixReport, *splits: Split) -> None:
    """No document is one that was withdrawn when the mix was built (MIX_WITHDRAWN)."""
    for split in splits:
        for at in first(np.isin(split.documents["id"], _withdrawn(report))):
            fail("MIX_WITHDRAWN", f"{split.file(TABLE)}[{at}]", "was withdrawn when the mix was built")


def not_withdrawn(
    report: MixReport, candidates: Table, validation: NDArray[np.bool_]
) -> tuple[Table, NDArray[np.bool_]]:
    """Return the candidates that are not withdrawn; the report counts those that are, and names no other
    (MIX_WITHDRAWN)."""
    out = np.isin(candidates["id"], _withdrawn(report))
    read = (report.withdrawn.documents, len(report.withdrawn.ids)) if report.withdrawn else (0, 0)
    expected = int(out.sum()), len(np.unique(candidates["id"][out]))
    if read != expected:
        fail("MIX_WITHDRAWN", "withdrawn", "documents, ids", expected=expected, read=read)
    return candidates[~out], validation[~out]


def _withdrawn(report: MixReport) -> NDArray[np.void]:
    ids = report.withdrawn.ids if report.withdrawn else ()
    return np.frombuffer(bytes.fromhex("".join(ids)), "V16")


def check_complete(split: Split, wanted: Table) -> None:
    """A merge holds every train document of its sources, each once (MIX_COMPLETE)."""
    read, expected = (_places(rows) for rows in (split.documents, wanted))
    for place in np.setxor1d(read, expected)[:1].tolist():
        times = int(np.isin(place, expected)), int((read == place).sum())
        fail("MIX_COMPLETE", f"{TABLE}: {_named(place)}", "times", expected=times[0], read=times[1])
    places, counts = np.unique(read, return_counts=True)
    for at in first(counts != 1):
        fail("MIX_COMPLETE", f"{TABLE}: {_named(int(places[at]))}", "times", expected=1, read=int(counts[at]))


def _places(rows: Table) -> NDArray[np.int64]:
    """Return generation, region and index of documents in one number."""
    region, index = rows["region"].astype(np.int64), rows["index"].astype(np.int64)
    return np.asarray(rows["generation"].astype(np.int64) << 54 | region << 32 | index)


def _named(place: int) -> str:
    return f"source {place >> 54} region {place >> 32 & 0x3FFFFF:05d} document {place & 0xFFFFFFFF}"


def check_supply(
    report: MixReport,
    candidates: Table,
    validation: NDArray[np.bool_],
    caps: NDArray[np.int64],
    excluded: NDArray[np.void],
) -> None:
    """What there was to choose from is recounted from the regions: excluded, repeated and unfit documents left out,
    every epoch counted (MIX_SUPPLY). A merge takes repeats as they are."""
    recipe, said = report.recipe, report.selection
    out, again, unfit = np.isin(candidates["id"], excluded), np.zeros(len(candidates), bool), 0
    if recipe.selection:
        again[:] = True
        again[np.unique(candidates["id"], return_index=True)[1]] = False
        again &= ~out
    left = candidates[~out & ~again & ~validation]
    if recipe.aligned:
        closed = _closable(left["tokens"].astype(np.int64), recipe.sequence_length)
        left, unfit = left[closed], int((~closed).sum())
    expected = int(out.sum()), int(again.sum()), unfit
    read = said.excluded_documents, said.duplicate_documents, said.unfit_documents
    if read != expected:
        fail("MIX_SUPPLY", "selection", "excluded, repeated, unfit documents", expected=expected, read=read)
    held = np.zeros((2, *caps.shape), np.int64)
    np.add.at(held[0], (left["domain"], left["bucket"]), 1)
    np.add.at(held[1], (left["domain"], left["bucket"]), left["tokens"].astype(np.int64))
    held *= caps
    shape = len(said.domains), len(said.lengths)
    if shape != caps.shape or len(said.cells) != caps.size:
        fail("MIX_SUPPLY", "selection", "domains, lengths", expected=caps.shape, read=shape)
    cells = list(zip(held[0].ravel().tolist(), held[1].ravel().tolist(), strict=True))
    for number, (cell, counted) in enumerate(zip(said.cells, cells, strict=True)):
        told = cell.supply_documents, cell.supply_tokens
        if told != counted:
            fail("MIX_SUPPLY", f"selection.cells[{number}]", "documents, tokens", expected=counted, read=told)
    for margins, axis in ((said.domains, 1), (said.lengths, 0)):
        for margin, total in zip(margins, held[1].sum(axis=axis).tolist(), strict=True):
            if margin.supply_tokens != total:
                fail("MIX_SUPPLY", f"selection: {margin.name}", "tokens", expected=total, read=margin.supply_tokens)


def _closable(lengths: NDArray[np.int64], window: int) -> NDArray[np.bool_]:
    """Return which documents leave at the end of their last window no room, or room for the shortest of all; where
    that one is longer than a 16th of a window, none is left out."""
    room, shortest = -lengths % window, int(lengths.min(initial=window))
    return np.asarray((room == 0) | (room >= shortest) | (16 * shortest > window))


def check_interleaved(split: Split) -> None:
    """The documents of each source stand in the order of its frontier (MIX_ORDER)."""
    opened = split.rows[split.rows["document_start"] == 0]
    source = split.documents["domain"][opened["document"]]
    order = np.argsort(source, kind="stable")
    rows, same = opened["document"][order].astype(np.int64), np.diff(source[order]) == 0
    for at in first(same & (np.diff(rows) <= 0)):
        read = int(rows[at + 1])
        fail("MIX_ORDER", f"{SEGMENTS}: document {read}", expected=f"a document after {rows[at]}", read=read)


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
    chosen = sum(cell.selected_tokens for cell in report.selection.cells)
    if report.recipe.documents_of is None and chosen != said.selected_tokens:
        where = "selection.cells: selected_tokens"
        fail("MIX_CONSERVATION", where, "sum", expected=said.selected_tokens, read=chosen)


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
    windows, total = train.files.windows * length, int(train.documents["tokens"].sum(dtype=np.int64))
    for row in report.context:
        # Of a concatenation: a position sees its own document `distance` back in T - distance of T windows around it.
        sees = int(np.maximum(0, train.documents["tokens"].astype(np.int64) - row.distance).sum())
        plain = None if report.recipe.aligned is None else sees * (length - row.distance) // length
        seen, most = (int(np.maximum(0, found - row.distance).sum()) for found in (runs, best))
        expected: tuple[object, ...] = (seen, _share(seen, windows), most, _share(most, windows))
        read: tuple[object, ...] = (row.tokens, row.share, row.bound_tokens, row.bound_share)
        if plain is not None or row.concatenated_tokens is not None:
            expected += (plain, None if plain is None else _share(plain, total))
            read += (row.concatenated_tokens, row.concatenated_share)
        if read != expected:
            where, what = f"context at {row.distance}", "tokens and shares: its own, the most, of a concatenation"
            fail("MIX_CONTEXT", where, what, expected=expected, read=read)


def check_orders(report: MixReport, train: Split) -> None:
    """The deviations of the mix's own order, which is reported first, are what its windows give (MIX_ORDER)."""
    recipe, windows, per_step = report.recipe, train.files.windows, report.recipe.windows_per_step
    if per_step is None or recipe.aligned is None:
        if report.orders is not None:
            fail("MIX_ORDER", "orders", "of a recipe without steps", expected=None, read=report.orders)
        return
    rows = train.rows[train.rows["window"] < windows]
    upto, step, prefix = np.arange(windows + 1), 0, 0
    for domain in np.unique(train.documents["domain"]):
        inside = rows[train.documents["domain"][rows["document"]] == domain]
        held = np.bincount(inside["window"], inside["length"], windows).astype(np.int64)
        # In tokens times windows, so that nothing is rounded.
        off = np.concatenate([[0], np.cumsum(held)]) * windows - upto * held.sum()
        step = max(step, abs(np.diff(off[::per_step])).max(initial=0))
        prefix = max(prefix, abs(off).max())
    expected = (recipe.order or "shuffled", int(step) // windows, int(prefix) // windows)
    said = report.orders[0] if report.orders else None
    read = (said.order, said.step_tokens, said.prefix_tokens) if said else None
    if read != expected:
        fail("MIX_ORDER", "orders[0]", "order, step, prefix", expected=expected, read=read)


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
            sums = total, total - margin.target_tokens, _share(total, int(sizes.sum()))
            told = margin.achieved_tokens, margin.error_tokens, margin.achieved_share
            if told != sums:
                where, what = f"selection: {margin.name}", "tokens, error, share"
                fail("MIX_TARGETS", where, what, expected=sums, read=told)


def check_window_domains(report: MixReport, train: Split) -> None:
    """How many domains stand in a window, and how many windows are mixed or of one domain, is recounted
    (MIX_WINDOWS)."""
    rows = train.rows[train.rows["window"] < train.files.windows]
    domain = train.documents["domain"][rows["document"]]
    pairs, inverse = np.unique(rows["window"].astype(np.int64) << 16 | domain, return_inverse=True)
    held = np.bincount(inverse, rows["length"])
    window, runs = pairs >> 16, np.bincount(rows["window"])
    values, counts = np.unique(np.bincount(window), return_counts=True)
    nearly = window[(20 * held > 19 * train.length) & (runs[window] > 1)]
    said = report.window_domains
    read = {row.domains: row.windows for row in said.domains}, said.mixed_windows, said.one_sided_windows
    expected = dict(zip(values.tolist(), counts.tolist(), strict=True)), int((runs > 1).sum()), len(nearly)
    if read != expected:
        fail("MIX_WINDOWS", "window_domains", "domains, mixed, one-sided", expected=expected, read=read)


def _share(part: int, whole: int) -> Decimal:
    """Return part / whole, cut to 6 digits."""
    return Decimal(part * 1_000_000 // whole if whole else 0).scaleb(-6)
