"""Sources of lines: which line belongs to a range, and ClimbMix's and text's own layout of one.

A line belongs to the range that holds its first byte, whatever its end. Lines are ended by LF, a CR before it is not
part of them, the last one may go without. Memory: a block of bytes, or one line of `LONGEST`.
"""

from __future__ import annotations

import collections
import io
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from casebits_dagster.admission.checks import Array
from casebits_dagster.admission.rows import (
    BLOCK,
    COUNT_MISMATCH,
    MALFORMED,
    NOT_UTF8,
    NULL_ROW,
    SOUND,
    TOO_LONG,
    Block,
    Digest,
    cuts_of,
    fetch,
    text_block,
    token_block,
)
from casebits_dagster.admission.tables import source_tokens
from casebits_dagster.records.errors import RecordError
from casebits_dagster.records.pins import Source
from casebits_dagster.records.plan import RegionSpec
from casebits_dagster.stores.base import Store

LONGEST = 1 << 26
_NONE = memoryview(b"")
# Bytes of lines that are parsed at once: few enough for a processor's cache.
PARSED = 1 << 18

_NUMBER = rb"(?:0|[1-9][0-9]{0,8})"
_HEAD = re.compile(rb'\{"cluster_id": (%s), "tokens": \[' % _NUMBER)
_TAIL = re.compile(rb'\], "token_count": (%s)\}' % _NUMBER)
# Possessive: a long list is matched without keeping places to go back to.
_LIST = re.compile(rb"(?:%s(?:, %s)*+)?" % (_NUMBER, _NUMBER))


def read_climbmix(store: Store, spec: RegionSpec, source: Source, digest: Digest) -> Iterator[Block]:
    """Yield rows of lines `{"cluster_id": C, "tokens": [T], "token_count": N}`, spelled exactly so."""
    table = source_tokens(source.vocabulary())
    for positions, data, spans in _batches(store, spec, digest):
        *outer, lists = zip(*(_outer(data, *span) for span in spans), strict=True)
        reasons, clusters, counts = map(np.array, outer, ("u1", "<i4", "<i4"))
        ids, lengths = _numbers(lists) or _numbers_one_by_one(lists, reasons)
        miscounted = (reasons == SOUND) & (counts != lengths)
        reasons[miscounted] = COUNT_MISMATCH
        clusters[reasons == MALFORMED] = -1
        yield token_block(table, positions, clusters, reasons, np.where(miscounted, lengths, -1), ids, cuts_of(lengths))


def _outer(data: bytes, begin: int, end: int) -> tuple[int, int, int, memoryview]:
    """Return reason, cluster, token_count and the list of tokens as it is spelled, of which nothing is known yet."""
    if end - begin > LONGEST:
        return TOO_LONG, -1, 0, _NONE
    head = _HEAD.match(data, begin, end)
    close = data.rfind(b"]", begin, end)
    tail = _TAIL.fullmatch(data, close, end)
    if head is None or close < 0 or tail is None:
        return MALFORMED, -1, 0, _NONE
    return SOUND, int(head[1]), int(tail[1]), memoryview(data)[head.end() : close]


def _numbers(lists: Sequence[memoryview]) -> tuple[Array, Array] | None:
    """Return the numbers of all lists, "<u2", and how many each has, or None when one may not be decimal numbers below
    60,000, parted by comma and space.

    All bytes at once: every comma has a space behind it, every other byte is a digit, no number is empty, and all
    together are as long as their values need: as a number of six digits is read as its last four, none is longer.
    """
    text = np.frombuffer(b", ".join([b"", *filter(len, lists), b""]), "u1")
    comma = text == 0x2C
    commas = np.flatnonzero(comma)
    ends, gaps = commas[1:], np.diff(commas)
    # Room in front, so that what stands up to five bytes before a comma is found at the comma's own place.
    digits = np.zeros(len(text) + 5, "u1")
    np.subtract(text, 0x30, out=digits[5:])
    is_digit = digits < 10
    known = np.count_nonzero(is_digit) - 5 + 2 * len(commas)
    if known != len(text) or not np.array_equal(comma[:-1], text[1:] == 0x20) or (gaps < 3).any():
        return None
    # Two digits that end at each byte, 0 where there is none: a number is two of them and its fifth digit.
    digits *= is_digit
    pairs = digits[:-1] * np.uint8(10)
    pairs += digits[1:]
    pairs *= is_digit[1:]
    fifths = digits.take(ends) * (gaps == 7)
    ids = fifths * np.uint16(10_000)
    ids += pairs[1:].take(ends) * np.uint16(100)
    ids += pairs[3:].take(ends)
    needed = 3 * len(ids) + sum(np.count_nonzero(ids >= power) for power in (10, 100, 1_000, 10_000))
    if needed != commas[-1] - commas[0] or (fifths > 5).any():
        return None
    behind = 2 + cuts_of(np.array([len(one) + 2 * bool(one) for one in lists]))
    return ids, np.diff(np.searchsorted(ends, behind))


def _numbers_one_by_one(lists: Sequence[memoryview], reasons: Array) -> tuple[Array, Array]:
    """Return the numbers of all lists and how many each has; a list that is not of numbers makes its row malformed."""
    found = []
    for row, spelled in enumerate(map(bytes, lists)):
        sound = _LIST.fullmatch(spelled) is not None
        if not sound:
            reasons[row] = MALFORMED
        found.append(np.array(spelled.split(b", ") if sound and spelled else [], "S9").astype("<i8"))
    return np.concatenate(found), np.array([len(ids) for ids in found])


def read_text(store: Store, spec: RegionSpec, source: Source, digest: Digest) -> Iterator[Block]:
    """Yield rows of lines that are JSON objects with a `text`."""
    for positions, data, spans in _batches(store, spec, digest):
        rows = [_object(data, *span) for span in spans]
        reasons, clusters, places = np.array([row[:3] for row in rows]).T
        text, cuts = b"".join(row[3] for row in rows), cuts_of(np.array([len(row[3]) for row in rows]))
        columns = clusters.astype("<i4"), reasons.astype("u1"), places.copy()
        yield text_block(positions, *columns, np.frombuffer(text, "u1"), cuts)


def _object(data: bytes, begin: int, end: int) -> tuple[int, int, int, bytes]:
    """Return reason, cluster, place of the problem and text of a line."""
    if end - begin > LONGEST:
        return TOO_LONG, -1, -1, b""
    try:
        found = json.loads(data[begin:end].decode(), object_pairs_hook=_unique, parse_constant=_refuse)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        return MALFORMED, -1, -1, b""
    cluster, text = found.get("cluster_id"), found.get("text")
    cluster = -1 if cluster is None else cluster
    if type(cluster) is not int or not -(2**31) <= cluster < 2**31 or not isinstance(text, str | None):
        return MALFORMED, -1, -1, b""
    if text is None:
        return NULL_ROW, cluster, -1, b""
    try:
        return SOUND, cluster, -1, text.encode()
    except UnicodeEncodeError as error:
        return NOT_UTF8, cluster, len(text[: error.start].encode()), b""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("key stands twice")
    return found


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _batches(store: Store, spec: RegionSpec, digest: Digest) -> Iterator[tuple[Array, bytes, list[tuple[int, int]]]]:
    """Yield the range's lines a few at a time: positions, and the bytes that hold them, where each begins and ends."""
    if spec.unit == "bytes":
        before = int(spec.begin > 0)
        pieces = fetch(store, spec, digest, spec.begin - before)
        yield from _split(whole_lines(pieces, spec.begin - before, spec.end, inside=before == 1))
        return
    pieces = fetch(store, RegionSpec(spec.index, spec.path, "bytes", 0, store.size(spec.path)), digest, 0)
    row = 0
    for _, data, spans in _split(whole_lines(_unpacked(pieces, spec.path), 0, None)):
        begin, end = max(spec.begin, row), min(spec.end, row + len(spans))
        if begin < end:
            yield np.arange(begin, end), data, spans[begin - row : end - row]
        row += len(spans)
        if row >= spec.end:
            break
    else:
        raise RecordError("SOURCE_INVALID", spec.path, expected=f"{spec.end} rows", read=row)
    # The hash is of the whole file.
    collections.deque(pieces, maxlen=0)


def whole_lines(
    pieces: Iterator[bytes], at: int, end: int | None, *, inside: bool = False
) -> Iterator[tuple[int, bytes, int, int]]:
    """Yield (position of the first byte, data, begin, end): data[begin:end] are whole lines, or one that is too long.

    The stream's first byte is at position `at`, and with `inside` may stand inside a line. Lines that begin at `end` or
    later are left out; no piece crosses `end`. Only lines across two pieces are copied.
    """
    rest, skipping = b"", inside
    for piece in pieces:
        begin = (piece.find(b"\n") + 1 or len(piece)) if rest or skipping else 0
        ended = piece[begin - 1 : begin] == b"\n"
        if skipping:
            at, skipping = at + begin, not ended
        else:
            rest += piece[:begin]
            if ended:
                yield at, rest, 0, len(rest)
                at, rest = at + len(rest), b""
        if end is not None and at >= end:
            return
        if not rest and not skipping:
            cut = piece.rfind(b"\n", begin) + 1 or begin
            yield at, piece, begin, cut
            at, rest = at + cut - begin, piece[cut:]
        if len(rest) > LONGEST + 1:
            yield at, rest, 0, len(rest)
            at, rest, skipping = at + len(rest), b"", True
    if rest:
        yield at, rest, 0, len(rest)


def _split(blocks: Iterator[tuple[int, bytes, int, int]]) -> Iterator[tuple[Array, bytes, list[tuple[int, int]]]]:
    for at, data, begin, end in blocks:
        position = at - begin
        while begin < end:
            stop = data.find(b"\n", min(begin + PARSED, end) - 1, end) + 1 or end
            spans, positions = [], []
            while begin < stop:
                feed = data.find(b"\n", begin, stop)
                close = stop if feed < 0 else feed - data.startswith(b"\r", max(feed - 1, begin), feed)
                spans.append((begin, close))
                positions.append(position + begin)
                begin = stop if feed < 0 else feed + 1
            yield np.array(positions), data, spans


class _Pieces(io.RawIOBase):
    """Pieces of bytes as the file that pyarrow reads."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._left = pieces, memoryview(b"")

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        if not len(self._left):
            self._left = memoryview(next(self._pieces, b""))
        found, self._left = self._left[:size], self._left[size:]
        return bytes(found)


def _unpacked(pieces: Iterator[bytes], path: str) -> Iterator[bytes]:
    kind = "gzip" if path.endswith(".gz") else "zstd"
    with pa.CompressedInputStream(pa.PythonFile(_Pieces(pieces), mode="r"), kind) as stream:
        yield from iter(lambda: stream.read(BLOCK), b"")
