"""Audit one training window of a mix: where does every one of its tokens come from?

Follows window -> segments -> documents -> region -> receipt -> admission -> manifest -> source row, from the files
below the home alone; no database is asked. Re-reads the window's tokens, compares each segment with its source slice in
every stream, decodes each document and hashes its text. Cost: the mix's tables hashed, the records on the way, and the
memory-mapped slices of the window.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.lineage.chain import SOURCE_RANGE, Chain
from casebits_dagster.lineage.ledger import Ledger
from casebits_dagster.lineage.records import AuditedDocument, AuditedSegment, WindowAudit
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.errors import Absent, RecordError, Refused
from casebits_dagster.records.layout import Home
from casebits_dagster.records.mix import (
    KINDS,
    MANIFEST,
    REPORT,
    SEGMENTS,
    SHARD_SUFFIXES,
    STREAMS,
    TABLE,
    TRAIN,
    MixReport,
    shard_name,
)
from casebits_dagster.records.pins import Generation

Row: TypeAlias = "dict[str, Any]"
Streams: TypeAlias = "dict[str, NDArray[np.uint16]]"

LIMITS = (
    "Run records, Dagster's event log and the times in LATEST.json are outside identity: listed, not proven.",
    "The quality scores are those that the admitted region records; the filter was not run again.",
)
_UNREAD = "The source was not read again: its range hash is the one that the verifier recomputed at admission."
_SLICES = "Arrays, shards and source files were read where the window needs them; their own hashes were not recomputed."


@dataclass(frozen=True, slots=True)
class _Mix:
    """An opened mix: its report, the hash of its MANIFEST.txt, what that lists, and its tables as memory maps."""

    folder: Path
    report: MixReport
    manifest_sha256: str
    files: dict[str, str]
    segments: NDArray[Any]
    documents: NDArray[Any]


def audit_window(
    home: Home,
    mix: str,
    window: int,
    *,
    generations: Mapping[str, Generation] | None = None,
    recompute: Literal["slices", "all"] = "slices",
) -> WindowAudit:
    """Return where training window `window` of the mix comes from, and whether every link of the chain holds.

    `generations` (by name, where their pins are at hand) let it read the source itself again. `recompute="all"` hashes
    every file on the way. Raises Absent when the mix or the window is not there, Refused when the mix cannot be read.
    """
    ledger, everything = Ledger(), recompute == "all"
    opened = _open_mix(home.mix(mix), ledger)
    recipe, windows = opened.report.recipe, opened.report.train.windows
    if not 0 <= window < windows:
        raise Absent("NO_SUCH_WINDOW", f"{mix}: window {window}", f"the mix has windows 0 to {windows - 1}")
    rows = _rows_of(opened, window, ledger)
    shard, inside = divmod(window, recipe.windows_per_shard)
    first_token = inside * recipe.sequence_length
    tokens = _window_tokens(opened, shard, first_token, ledger, everything)
    chain = Chain(home, ledger, generations or {}, everything)
    documents: dict[int, AuditedDocument] = {}
    segments = tuple(_segment(opened, row, tokens, chain, documents) for row in rows)
    unread = any(one.link == SOURCE_RANGE and one.state == "not_recomputed" for one in ledger.evidence)
    return WindowAudit(
        mix=mix,
        strategy=recipe.strategy,
        window=window,
        windows=windows,
        sequence_length=recipe.sequence_length,
        shard=shard,
        first_token=first_token,
        mix_manifest_sha256=opened.manifest_sha256,
        segments=segments,
        documents=tuple(documents[row] for row in sorted(documents)),
        regions=chain.regions,
        evidence=tuple(ledger.evidence),
        limits=(*LIMITS, *[_UNREAD] * unread, *[_SLICES] * (not everything)),
        proven=ledger.proven,
    )


def _open_mix(folder: Path, ledger: Ledger) -> _Mix:
    path = folder / MANIFEST
    if not path.exists():
        raise Absent("FILE_MISSING", str(path), "no mix is published here", remedy="see `casebits status`")
    raw = path.read_bytes()
    try:
        files = {name: digest for digest, _, name in (line.split("  ", 2) for line in raw.decode().splitlines()[1:-1])}
    except ValueError as error:
        raise Refused("MANIFEST_HASH", f"{folder.name}/{MANIFEST}", f"the manifest cannot be read: {error}") from error
    for name in (REPORT, SEGMENTS, TABLE):
        _hash_file(folder, files, name, ledger)
    try:
        report = MixReport.parse((folder / REPORT).read_bytes(), f"{folder.name}/{REPORT}")
        tables = [np.load(folder / name, mmap_mode="r") for name in (SEGMENTS, TABLE)]
    except (RecordError, ValueError, EOFError) as error:
        raise Refused("FILE_HASH", folder.name, f"the mix cannot be read: {error}") from error
    return _Mix(folder, report, sha256(raw), files, *tables)


def _hash_file(folder: Path, files: dict[str, str], name: str, ledger: Ledger, now: bool = True) -> None:
    where = f"{folder.name}/{name}"
    if not (folder / name).is_file():
        raise Refused("FILE_MISSING", where, "a file of the mix is not there")
    ledger.file("file of the mix", where, files.get(name, ""), folder / name, now)


def _rows_of(mix: _Mix, window: int, ledger: Ledger) -> list[Row]:
    """Return the segments of a window that can be followed, after checking that they fill it without a gap."""
    first, last = np.searchsorted(mix.segments["window"], [window, window + 1])
    rows = _as_dicts(mix.segments[first:last])
    ends = list(itertools.accumulate(row["length"] for row in rows))
    tiled = [row["position"] for row in rows] + [mix.report.recipe.sequence_length] == [0, *ends]
    where = f"{mix.folder.name}/{SEGMENTS}"
    ledger.holds("segments fill the window", where, tiled, "segments overlap or leave a gap")
    known = [row for row in rows if _is_known(mix, row)]
    missing = len(rows) - len(known)
    if missing:
        problem = f"{missing} of its segments name a document, generation or kind that is not there"
        ledger.holds("segments name what is there", where, False, problem)
    return known


def _is_known(mix: _Mix, row: Row) -> bool:
    listed = row["document"] < len(mix.documents) and row["kind"] < len(KINDS)
    return listed and int(mix.documents["generation"][row["document"]]) < len(mix.report.sources)


def _as_dicts(rows: NDArray[Any]) -> list[Row]:
    return [dict(zip(rows.dtype.names or (), row, strict=True)) for row in rows.tolist()]


def _window_tokens(mix: _Mix, shard: int, first: int, ledger: Ledger, everything: bool) -> Streams:
    tokens, length = {}, mix.report.recipe.sequence_length
    for stream in SHARD_SUFFIXES[mix.report.codec]:
        name = shard_name(TRAIN, shard, stream, mix.report.codec)
        with ledger.following("shard", f"{mix.folder.name}/{name}"):
            _hash_file(mix.folder, mix.files, name, ledger, everything)
            tokens[stream] = np.memmap(mix.folder / name, "<u2", "r")[first : first + length]
    return tokens


def _segment(
    mix: _Mix, row: Row, tokens: Streams, chain: Chain, documents: dict[int, AuditedDocument]
) -> AuditedSegment:
    """Return a segment after following it; a document that is met for the first time goes into `documents`."""
    number, ledger, where = row["document"], chain.ledger, f"{mix.folder.name}: segment at {row['position']}"
    (used,) = _as_dicts(mix.documents[[number]])
    source, index, identity = mix.report.sources[used["generation"]], used["index"], used["id"].hex()
    with ledger.following("region of the segment", where):
        opened = chain.region(source, used["region"])
        if number not in documents:
            documents[number] = chain.document(opened, index, identity)
            split = documents[number].split
            ledger.holds("document is of the train side", where, split == TRAIN, f"it is of {split}")
        document = dict(zip(STREAMS, opened.region.tokens(index), strict=True))
        _compare(row, tokens, document, mix, ledger)
    return AuditedSegment(
        kind=KINDS[row["kind"]],
        document=identity,
        **{name: row[name] for name in ("position", "length", "inserted", "document_start")},
    )


def _compare(row: Row, tokens: Streams, document: Streams, mix: _Mix, ledger: Ledger) -> None:
    """Compare a segment with its slice of the document in every stream; inserted separators have an empty mask."""
    begin, inserted, start = row["position"], row["inserted"], row["document_start"]
    own = row["length"] - inserted
    separator = {"ids": mix.report.separator.id, "cases": 0}
    for stream, found in tokens.items():
        segment = found[begin : begin + row["length"]]
        expected = document[stream][start : start + own]
        same = np.array_equal(segment[inserted:], expected) and bool((segment[:inserted] == separator[stream]).all())
        where = f"{mix.folder.name}: segment at {begin}, {stream}"
        ledger.holds("tokens of the segment", where, same, "the window holds other tokens than the region")
