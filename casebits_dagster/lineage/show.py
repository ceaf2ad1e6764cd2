"""A window of a mix as a person reads it: its text, where documents begin, end and are cut, and where each comes from.

Shards, tables, regions and vocabulary are hashed before they are read. The text is that of the window's own tokens;
`casebits audit` proves that they are the source's.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.codec.decode import Codec
from casebits_dagster.publication.open_mix import OpenedMix, open_mix
from casebits_dagster.publication.verify_region import verify_region_files
from casebits_dagster.records.digests import sha256_file
from casebits_dagster.records.errors import Absent, CasebitsError, Refused
from casebits_dagster.records.layout import Home, region_id
from casebits_dagster.records.mix import (
    KINDS,
    MANIFEST,
    SEGMENTS,
    SHARD_SUFFIXES,
    TABLE,
    TRAIN,
    MixReport,
    shard_name,
    val_name,
)
from casebits_dagster.records.record import Count, Name, Positive, Record, Sha256, Text
from casebits_dagster.regions.read import Region

Split: TypeAlias = Literal["train", "val"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownSegment(Record):
    """A run of one document in the window: `number` is its segment id there, `text` what its tokens spell, without
    separators; a byte of a character that the window cuts is written `\\xe2`."""

    number: Count
    position: Count
    length: Positive
    kind: Text
    inserted: Count
    domain: Text
    document: Text
    document_start: Count
    document_tokens: Positive
    generation: Name
    region: Text
    index: Count
    source_path: Text
    source_position: Count
    cluster: int | None
    text: str

    @property
    def after(self) -> int:
        """How many tokens of the document come after this run."""
        return self.document_tokens - self.document_start - (self.length - self.inserted)


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownWindow(Record):
    """One window, segment by segment."""

    SCHEMA: ClassVar[str] = "casebits/window-text/1"

    mix: Name
    split: Split
    strategy: Text
    window: Count
    windows: Positive
    sequence_length: Positive
    mix_manifest_sha256: Sha256
    separator_id: Count
    separator_position: Literal["end", "start"]
    segments: tuple[ShownSegment, ...]


@dataclass(frozen=True, slots=True)
class _Opened:
    """A region whose files were hashed, with the lines of its documents and its codec."""

    region: Region
    lines: list[dict[str, Any]]
    codec: Codec


def show_window(home: Home, mix: str, window: int, split: Split = "train") -> ShownWindow:
    """Return a window of a mix below the home.

    Raises Absent when the mix, the window or a region is not there, Refused when what is there does not hash.
    """
    if not (home.mix(mix) / MANIFEST).exists():
        raise Absent("FILE_MISSING", str(home.mix(mix)), "no mix is published here", remedy="see `casebits status`")
    opened = open_mix(home.root, mix)
    report, windows = opened.report, (opened.report.train if split == TRAIN else opened.report.validation).windows
    if not 0 <= window < windows:
        there = f"it has windows 0 to {windows - 1}" if windows else "it has no window"
        raise Absent("NO_SUCH_WINDOW", f"{mix}: {split} window {window}", there)
    return ShownWindow(
        mix=mix,
        split=split,
        strategy=report.recipe.strategy,
        window=window,
        windows=windows,
        sequence_length=report.recipe.sequence_length,
        mix_manifest_sha256=opened.manifest_sha256,
        separator_id=report.separator.id,
        separator_position=report.separator.position,
        segments=_segments(home, opened, split, window),
    )


def _segments(home: Home, mix: OpenedMix, split: Split, window: int) -> tuple[ShownSegment, ...]:
    report, regions = mix.report, dict[tuple[str, int], _Opened]()
    names = [name if split == TRAIN else val_name(name) for name in (SEGMENTS, TABLE)]
    table, documents = (np.load(mix.file(name), mmap_mode="r") for name in names)
    rows = table[slice(*np.searchsorted(table["window"], [window, window + 1]))]
    filled, length = int(rows["length"].sum()), report.recipe.sequence_length
    if filled != length:
        raise CasebitsError("MIX_SEGMENTS", f"{names[0]}: window {window}", expected=length, read=filled)
    tokens, opens = _tokens(mix, split, window), _opens_window(report, rows[0])
    shown = []
    for number, row in enumerate(rows, opens):
        used = documents[row["document"]]
        key = report.sources[used["generation"]].generation, int(used["region"])
        if key not in regions:
            regions[key] = _region(home, *key)
        run = slice(int(row["position"]), int(row["position"]) + int(row["length"]))
        shown.append(_segment(number, row, used, report, regions[key], [stream[run] for stream in tokens]))
    return tuple(shown)


def _opens_window(report: MixReport, first: Any) -> int:
    """Return the segment id of a window's first segment: separators at the start are counted up to a token, so that a
    window that begins with one begins with 1."""
    return int(report.separator.position == "start" and (first["document_start"] == 0 or first["inserted"] == 1))


def _segment(
    number: int, row: Any, used: Any, report: MixReport, opened: _Opened, tokens: list[NDArray[np.uint16]]
) -> ShownSegment:
    ids, cases = tokens if len(tokens) > 1 else (tokens[0], np.zeros(len(tokens[0]), "<u2"))
    receipt, line = opened.region.receipt, opened.lines[used["index"]]
    return ShownSegment(
        number=number,
        kind=KINDS[row["kind"]],
        domain=report.selection.domains[used["domain"]].name,
        document=used["id"].tobytes().hex(),
        document_tokens=int(used["tokens"]),
        generation=receipt.generation,
        region=receipt.region.id,
        index=int(used["index"]),
        source_path=receipt.source.path,
        source_position=line["source_position"],
        cluster=line["cluster"],
        text=opened.codec.decode(ids, cases).decode("utf-8", "backslashreplace"),
        **{name: int(row[name]) for name in ("position", "length", "inserted", "document_start")},
    )


def _tokens(mix: OpenedMix, split: Split, window: int) -> list[NDArray[np.uint16]]:
    """Return the window's tokens, ids first, then the masks where the codec has them."""
    shard, inside = divmod(window, mix.report.recipe.windows_per_shard)
    length, codec = mix.report.recipe.sequence_length, mix.report.codec
    files = [mix.file(shard_name(split, shard, stream, codec)) for stream in SHARD_SUFFIXES[codec]]
    return [np.memmap(file, "<u2", "r")[inside * length : (inside + 1) * length] for file in files]


def _region(home: Home, generation: str, index: int) -> _Opened:
    folder = home.generation(generation)
    where = f"{generation}/{region_id(index)}"
    pinned = verify_region_files(folder.region(index), where).receipt.pins.codec.vocab_sha256
    if (found := sha256_file(folder.codec / "vocabulary.json")) != pinned:
        raise Refused("VOCAB_MISMATCH", f"{generation}/codec/vocabulary.json", expected=pinned, read=found)
    region = Region.open(folder.region(index))
    return _Opened(region, region.documents(), Codec.load(folder.codec))


def show_text(shown: ShownWindow) -> str:
    """Return the window for the terminal. Lines of text begin with `| `, and control and format characters are spelled
    out: a text can hide nothing, steer no terminal, and not pass for one of the marks."""
    lines = [
        f"window {shown.window} of mix {shown.mix} ({shown.split}, {shown.strategy}): {shown.sequence_length:,} tokens",
        f"mix manifest {shown.mix_manifest_sha256}",
    ]
    for segment in shown.segments:
        lines += ["", *_heading(segment), *_body(segment, shown.separator_position)]
    return "\n".join(lines) + "\n"


def show_markdown(shown: ShownWindow) -> str:
    """Return the same for a page: one block in which nothing is markup."""
    text = show_text(shown)
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 3)
    return f"{fence}text\n{text}{fence}\n"


def _heading(segment: ShownSegment) -> list[str]:
    end = segment.position + segment.length
    cluster = "no cluster" if segment.cluster is None else f"cluster {segment.cluster}"
    kind = segment.kind.replace("_", " ")
    return [
        f"=== document {segment.number}: tokens {segment.position:,} to {end:,}, {segment.domain}, {kind}",
        f"    {segment.generation}/{segment.region} document {segment.index} ({segment.document}), row "
        f"{segment.source_position} of {segment.source_path}, {cluster}",
    ]


def _body(segment: ShownSegment, separator: Literal["end", "start"]) -> Iterator[str]:
    whole = f"of {segment.document_tokens:,}"
    yield from ["[inserted separator]"] * segment.inserted
    if segment.document_start:
        yield f"[goes on at its token {segment.document_start:,} {whole}]"
    elif separator == "start":
        yield "[separator]"
    yield from (f"| {line}" for line in visible(segment.text).split("\n"))
    if segment.after:
        fate = "are in no window" if segment.kind == "cut" else "are not in this window"
        yield f"[cut here: its last {segment.after:,} {whole} tokens {fate}]"
    elif separator == "end":
        yield "[separator]"


def visible(text: str) -> str:
    """Return a text whose control and format characters can be seen. Line breaks are left as they are.

    >>> visible("a\\tb\\x1b[2J\\r\\u202ec")
    'a␉\\tb␛[2J␍<U+202E>c'
    """
    marks = {ord(character): _mark(character) for character in set(text) if not character.isprintable()}
    return text.translate({code: mark for code, mark in marks.items() if mark})


def _mark(character: str) -> str:
    """Return what stands for a character: Unicode's picture of it, or its number; nothing when it can be seen."""
    code = ord(character)
    if character == "\n" or unicodedata.category(character) == "Zs":
        return ""
    if character == "\t":
        return "\u2409\t"
    return chr(0x2400 + code) if code < 0x20 else "\u2421" if code == 0x7F else f"<U+{code:04X}>"
