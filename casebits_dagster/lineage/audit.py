"""Audit one training window of a mix: where does every one of its tokens come from?

Follows window -> segments -> documents -> region -> receipt -> admission -> manifest -> source row, from the files
below the home alone; no database is asked. Re-reads the window's tokens, compares each segment with its source slice in
every stream, decodes each document and hashes its text. Cost: the mix's tables hashed, the records on the way, and the
memory-mapped slices of the window.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.lineage.chain import Chain, OpenedRegion
from casebits_dagster.lineage.ledger import Ledger
from casebits_dagster.lineage.records import AuditedDocument, AuditedSegment, WindowAudit
from casebits_dagster.records.digests import sha256, sha256_file
from casebits_dagster.records.errors import Absent, RecordError, Refused
from casebits_dagster.records.layout import Home
from casebits_dagster.records.mix import (
    KINDS,
    MANIFEST,
    REPORT,
    SEGMENTS,
    STREAMS,
    TABLE,
    TRAIN,
    MixReport,
    SourceUsed,
    shard_name,
)
from casebits_dagster.records.pins import Generation

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
        raise Absent("FILE_MISSING", f"{mix}: window {window}", f"the mix has windows 0 to {windows - 1}")
    chain = Chain(home, ledger, generations or {}, everything)
    first, last = np.searchsorted(opened.segments["window"], [window, window + 1])
    rows = opened.segments[first:last]
    ends = np.cumsum(rows["length"], dtype="<i8")
    tiled = bool(len(rows)) and (rows["position"] == ends - rows["length"]).all() and ends[-1] == recipe.sequence_length
    ledger.holds("segments fill the window", f"{mix}/{SEGMENTS}", bool(tiled), "segments overlap or leave a gap")
    shard, first_token = _place(opened, window)
    tokens = _window_tokens(opened, shard, first_token, ledger, everything)
    documents: dict[int, AuditedDocument] = {}
    segments = tuple(_segments(opened, rows, tokens, chain, documents))
    unread = any(one.link == "source range" and one.state == "not_recomputed" for one in ledger.evidence)
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
    files = {name: digest for digest, _, name in (line.split("  ", 2) for line in raw.decode().splitlines()[1:-1])}
    for name in (REPORT, SEGMENTS, TABLE):
        _hash_file(folder, files, name, ledger, True)
    try:
        report = MixReport.parse((folder / REPORT).read_bytes(), f"{folder.name}/{REPORT}")
        tables = [np.load(folder / name, mmap_mode="r") for name in (SEGMENTS, TABLE)]
    except (RecordError, ValueError) as error:
        raise Refused("FILE_HASH", folder.name, f"the mix cannot be read: {error}") from error
    return _Mix(folder, report, sha256(raw), files, *tables)


def _hash_file(folder: Path, files: dict[str, str], name: str, ledger: Ledger, now: bool) -> None:
    where, claimed = f"{folder.name}/{name}", files.get(name, "")
    if not (folder / name).is_file():
        raise Refused("FILE_MISSING", where, "a file of the mix is not there")
    if now:
        ledger.hashes("file of the mix", where, claimed, sha256_file(folder / name))
    else:
        ledger.trusts("file of the mix", where, claimed)


def _place(mix: _Mix, window: int) -> tuple[int, int]:
    """Return the shard of a window and the first token of the window in it."""
    recipe = mix.report.recipe
    shard, inside = divmod(window, recipe.windows_per_shard)
    return shard, inside * recipe.sequence_length


def _window_tokens(
    mix: _Mix, shard: int, first: int, ledger: Ledger, everything: bool
) -> dict[str, NDArray[np.uint16]]:
    tokens, length = {}, mix.report.recipe.sequence_length
    for stream in STREAMS:
        name = shard_name(TRAIN, shard, stream)
        with ledger.following("shard", f"{mix.folder.name}/{name}"):
            _hash_file(mix.folder, mix.files, name, ledger, everything)
            tokens[stream] = np.memmap(mix.folder / name, "<u2", "r")[first : first + length]
    return tokens


def _segments(
    mix: _Mix,
    rows: NDArray[Any],
    tokens: dict[str, NDArray[np.uint16]],
    chain: Chain,
    documents: dict[int, AuditedDocument],
) -> Iterator[AuditedSegment]:
    """Yield the segments of the window in order; fill `documents` with each document when it is first met."""
    for row in rows:
        used = mix.documents[row["document"]]
        source = mix.report.sources[used["generation"]]
        identity, where = used["id"].tobytes().hex(), f"{mix.folder.name}: segment at {row['position']}"
        with chain.ledger.following("region of the segment", where):
            opened = chain.region(source, int(used["region"]))
            if int(row["document"]) not in documents:
                documents[int(row["document"])] = chain.document(opened, int(used["index"]), identity)
                _require_train(documents[int(row["document"])], source, chain.ledger, where)
            _compare(row, int(used["index"]), tokens, opened, mix, chain.ledger)
        yield AuditedSegment(
            position=int(row["position"]),
            length=int(row["length"]),
            kind=KINDS[row["kind"]],
            inserted=int(row["inserted"]),
            document=identity,
            document_start=int(row["document_start"]),
        )


def _require_train(document: AuditedDocument, source: SourceUsed, ledger: Ledger, where: str) -> None:
    ledger.holds("document is of the train side", where, document.split == TRAIN, f"it is of {document.split}")


def _compare(
    row: Any, index: int, tokens: dict[str, NDArray[np.uint16]], opened: OpenedRegion, mix: _Mix, ledger: Ledger
) -> None:
    """Compare a segment with its slice of the region in every stream; inserted separators have an empty mask."""
    begin, inserted, length = int(row["position"]), int(row["inserted"]), int(row["length"])
    start = int(row["document_start"])
    whole = dict(zip(STREAMS, opened.region.tokens(index), strict=True))
    separator = {"ids": mix.report.separator.id, "cases": 0}
    for stream, found in tokens.items():
        segment = found[begin : begin + length]
        expected = whole[stream][start : start + length - inserted]
        same = np.array_equal(segment[inserted:], expected) and bool((segment[:inserted] == separator[stream]).all())
        where = f"{mix.folder.name}: segment at {begin}, {stream}"
        ledger.holds("tokens of the segment", where, same, "the window holds other tokens than the region")
