"""A mix as an audit reads it: its report and tables by the hashes of MANIFEST.txt, and windows followed to documents.

Costs: one hash of each table, and the memory-mapped slices of the windows that are followed.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.lineage.chain import Chain, Pinned
from casebits_dagster.lineage.ledger import Ledger
from casebits_dagster.lineage.records import AuditedSegment, FollowedWindow, SplitName
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.errors import Absent, CasebitsError, RecordError, Refused
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
    val_name,
)
from casebits_dagster.records.mix_manifest import parse_manifest

Row: TypeAlias = "dict[str, Any]"
Streams: TypeAlias = "dict[str, NDArray[np.uint16]]"


@dataclass(frozen=True, slots=True)
class MixFiles:
    """The files of a mix by the hashes of its MANIFEST.txt, each hashed once."""

    folder: Path
    ledger: Ledger
    manifest_sha256: str
    files: dict[str, str]
    _hashed: set[str] = field(default_factory=set)

    def hash_file(self, name: str, now: bool = True) -> None:
        """Hash a file of the mix, once. Raises Refused when it is not there."""
        if name in self._hashed:
            return
        where, path = f"{self.folder.name}/{name}", self.folder / name
        if not path.is_file():
            raise Refused("FILE_MISSING", where, "a file of the mix is not there")
        self._hashed.add(name)
        self.ledger.file("file of the mix", where, self.files.get(name, ""), path, now)

    def table(self, name: str) -> NDArray[Any]:
        """Return a table as a memory map, hashed. Raises Refused when it cannot be read."""
        self.hash_file(name)
        try:
            found: NDArray[Any] = np.load(self.folder / name, mmap_mode="r")
        except (ValueError, EOFError) as error:
            raise Refused("FILE_HASH", self.folder.name, f"the mix cannot be read: {error}") from error
        return found


@dataclass(frozen=True, slots=True)
class AuditedMix:
    """An opened mix: its files, its report, and its train tables as memory maps."""

    files: MixFiles
    report: MixReport
    segments: NDArray[Any]
    documents: NDArray[Any]

    @property
    def name(self) -> str:
        return self.files.folder.name

    @property
    def ledger(self) -> Ledger:
        return self.files.ledger

    def pinned(self, source: int) -> Pinned:
        """Return the frontier version that a source of the mix was."""
        used = self.report.sources[source]
        return Pinned(used.generation, used.manifest_version, used.manifest_sha256)

    def tables(self, split: SplitName) -> tuple[NDArray[Any], NDArray[Any], int]:
        """Return segments, documents and the number of windows of a split; hashes them when they are first read."""
        if split == "train":
            return self.segments, self.documents, self.report.train.windows
        segments, documents = (self.files.table(val_name(name)) for name in (SEGMENTS, TABLE))
        return segments, documents, self.report.validation.windows

    def follow(self, window: int, chain: Chain, only: Collection[str] | None = None) -> FollowedWindow:
        """Return a training window with its segments, whose documents the chain follows; `only` those with these ids.

        Raises Absent beyond the last window.
        """
        recipe, windows = self.report.recipe, self.report.train.windows
        if not 0 <= window < windows:
            where = f"{self.name}: window {window}"
            raise Absent("NO_SUCH_WINDOW", where, f"the mix has windows 0 to {windows - 1}")
        rows = self._rows(window)
        if only is not None:
            rows = [row for row in rows if self.documents["id"][row["document"]].tobytes().hex() in only]
        shard, inside = divmod(window, recipe.windows_per_shard)
        first = inside * recipe.sequence_length
        tokens = self._tokens(shard, first)
        segments = tuple(self._segment(window, row, tokens, chain) for row in rows)
        return FollowedWindow(mix=self.name, window=window, shard=shard, first_token=first, segments=segments)

    def _rows(self, window: int) -> list[Row]:
        """Return the segments of a window that can be followed, after checking that they fill it without a gap."""
        first, last = np.searchsorted(self.segments["window"], [window, window + 1])
        rows = _as_dicts(self.segments[first:last])
        ends = list(itertools.accumulate(row["length"] for row in rows))
        tiled = [row["position"] for row in rows] + [self.report.recipe.sequence_length] == [0, *ends]
        where = f"{self.name}/{SEGMENTS}: window {window}"
        self.ledger.holds("segments fill the window", where, tiled, "segments overlap or leave a gap")
        known = [row for row in rows if self._is_known(row)]
        if missing := len(rows) - len(known):
            problem = f"{missing} of its segments name a document, generation or kind that is not there"
            self.ledger.holds("segments name what is there", where, False, problem)
        return known

    def _is_known(self, row: Row) -> bool:
        listed = row["document"] < len(self.documents) and row["kind"] < len(KINDS)
        return listed and int(self.documents["generation"][row["document"]]) < len(self.report.sources)

    def _tokens(self, shard: int, first: int) -> Streams:
        tokens, length = {}, self.report.recipe.sequence_length
        for stream in SHARD_SUFFIXES[self.report.codec] if self.ledger.looks else ():
            name = shard_name(TRAIN, shard, stream, self.report.codec)
            with self.ledger.following("shard", f"{self.name}/{name}"):
                self.files.hash_file(name, self.ledger.everything)
                tokens[stream] = np.memmap(self.files.folder / name, "<u2", "r")[first : first + length]
        return tokens

    def _segment(self, window: int, row: Row, tokens: Streams, chain: Chain) -> AuditedSegment:
        where = f"{self.name}: window {window}, segment at {row['position']}"
        (used,) = _as_dicts(self.documents[[row["document"]]])
        index, identity = used["index"], used["id"].hex()
        with self.ledger.following("region of the segment", where):
            opened = chain.region(self.pinned(used["generation"]), used["region"])
            split = chain.document(opened, index, identity).split
            self.ledger.holds("document is of the train side", where, split == TRAIN, f"it is of {split}")
            self._compare(where, row, tokens, dict(zip(STREAMS, opened.region.tokens(index), strict=True)))
        return AuditedSegment(
            kind=KINDS[row["kind"]],
            document=identity,
            **{name: row[name] for name in ("position", "length", "inserted", "document_start")},
        )

    def _compare(self, where: str, row: Row, tokens: Streams, document: Streams) -> None:
        """Compare a segment with its slice of the document in every stream; inserted separators have an empty mask."""
        begin, inserted, start = row["position"], row["inserted"], row["document_start"]
        own = row["length"] - inserted
        separator = {"ids": self.report.separator.id, "cases": 0}
        for stream, found in tokens.items():
            segment = found[begin : begin + row["length"]]
            expected = document[stream][start : start + own]
            same = np.array_equal(segment[inserted:], expected) and bool(
                (segment[:inserted] == separator[stream]).all()
            )
            problem = "the window holds other tokens than the region"
            self.ledger.holds("tokens of the segment", f"{where}, {stream}", same, problem)


def open_mix(folder: Path, ledger: Ledger) -> AuditedMix:
    """Return the mix of a folder, its report and train tables hashed. Raises Absent, or Refused when it is unread."""
    path = folder / MANIFEST
    if not path.exists():
        raise Absent("FILE_MISSING", str(path), "no mix is published here", remedy="see `casebits status`")
    raw = path.read_bytes()
    try:
        files = {name: file.sha256 for name, file in parse_manifest(raw, f"{folder.name}/{MANIFEST}").items()}
    except CasebitsError as error:
        raise Refused("MANIFEST_HASH", f"{folder.name}/{MANIFEST}", f"the manifest cannot be read: {error}") from error
    held = MixFiles(folder, ledger, sha256(raw), files)
    held.hash_file(REPORT)
    try:
        report = MixReport.parse((folder / REPORT).read_bytes(), f"{folder.name}/{REPORT}")
    except RecordError as error:
        raise Refused("FILE_HASH", folder.name, f"the mix cannot be read: {error}") from error
    return AuditedMix(held, report, held.table(SEGMENTS), held.table(TABLE))


def _as_dicts(rows: NDArray[Any]) -> list[Row]:
    return [dict(zip(rows.dtype.names or (), row, strict=True)) for row in rows.tolist()]
