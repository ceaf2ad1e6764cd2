"""JSON lines in the exact layout of Nemotron-ClimbMix; a region is a byte range.

`{"cluster_id": C, "tokens": [T, T, ...], "token_count": N}`, as Python's `json.dumps` writes it. Quick lines are parsed
together, a cache-sized chunk of bytes at a time: about 12 ns a token. A line that is not exactly so, or has a number of
more than 16 bits, goes through an exact parser alone, which decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.codec.bytetable import Bytes, Cuts, Ids
from casebits_dagster.records.plan import RegionSpec
from casebits_dagster.sources.columns import PROBLEMS, RangeHash, Reading, SourceRows
from casebits_dagster.sources.detokenise import TokenRows, detokenise
from casebits_dagster.sources.ranges import BLOCK, LINE_FEED, LINE_LIMIT, Records, line_ends, owned_records
from casebits_dagster.stores.base import Store

_CLUSTER, _TOKENS, _COUNT, _END = b'{"cluster_id": ', b', "tokens": [', b'], "token_count": ', b"}"
_SHORTEST = len(_CLUSTER + _TOKENS + _COUNT + _END) + 2
# Possessive repeats: a long line is matched without keeping places to go back to.
_NUMBER = rb"(?:0|[1-9][0-9]{0,8}+)"
_LINE = re.compile(
    rb"%b(%b)%b((?:%b(?:, %b)*+)?)%b(%b)%b"
    % (re.escape(_CLUSTER), _NUMBER, re.escape(_TOKENS), _NUMBER, _NUMBER, re.escape(_COUNT), _NUMBER, _END)
)
_DIGITS = 9
# Bytes at a time: what is made for one stays in the cache, and the calls are few enough to cost little.
_CHUNK = 1 << 17
# Bytes seen at both ends of a chunk: a number is looked at 5 bytes back and 1 ahead, and no list is nearer to an end.
_AROUND = 8
# Columns of scratch begin at different places of a page: at equal ones they would push each other out of the cache.
_APART = 448
_FEW = 8
_ZERO, _TEN, _COMMA, _SPACE = np.array([0x30, 10, 0x2C, 0x20], np.uint8)
_BOUNDS = np.array([9, 99, 999, 9_999], np.uint16)
_NONE: Ids = np.empty(0, "<u2")


def read_rows(
    store: Store, region: RegionSpec, reading: Reading, digest: RangeHash, block: int = BLOCK, limit: int = LINE_LIMIT
) -> Iterator[SourceRows]:
    """Yield the rows of the region in blocks."""
    for lines in owned_records(store, region, LINE_FEED, digest, block, limit):
        yield detokenise(_parse(lines, limit), reading.vocabulary)


def _parse(lines: Records, limit: int) -> TokenRows:
    begins, ends = lines.cuts[:-1], line_ends(lines)
    frames = _frames(lines.items, begins, ends, limit)
    tokens, cuts, sound = _lists(lines.items, frames.begins[frames.quick], frames.ends[frames.quick])
    lengths = np.zeros(len(begins), "<i8")
    lengths[frames.quick] = np.diff(cuts)
    frames.quick[frames.quick] = sound
    problems = np.zeros(len(begins), np.uint8)
    places = np.concatenate([[0], np.cumsum(lengths)])
    parts, last = [], 0
    for row in np.flatnonzero(~frames.quick).tolist():
        line = lines.items[begins[row] : ends[row]]
        parsed = _exactly(line.tobytes()) if len(line) <= limit else None
        if parsed is None:
            problems[row] = PROBLEMS.index("malformed_line" if len(line) <= limit else "line_too_long")
        frames.clusters[row], found, frames.counts[row] = parsed or (-1, _NONE, 0)
        parts += [tokens[places[last] : places[row]], found]
        lengths[row], last = len(found), row + 1
    if parts:
        tokens = np.concatenate([*parts, tokens[places[last] :]])
        places = np.concatenate([[0], np.cumsum(lengths)])
    return TokenRows(lines.positions, frames.clusters.astype("<i4"), problems, frames.counts, tokens, places)


def _exactly(line: bytes) -> tuple[int, NDArray[Any], int] | None:
    """Return cluster, tokens and count of a line, or None when it has another layout."""
    found = _LINE.fullmatch(line)
    if found is None:
        return None
    tokens = np.fromstring(found[2], "<i8", sep=",") if found[2] else _NONE
    small = int(tokens.max(initial=0)) < 1 << 16
    return int(found[1]), tokens.astype("<u2") if small else tokens, int(found[3])


@dataclass(frozen=True, slots=True)
class _Frames:
    """What stands around the list of each line, and where the list lies in the block; `quick`: it has the layout."""

    clusters: NDArray[np.int64]
    counts: NDArray[np.int64]
    begins: Cuts
    ends: Cuts
    quick: NDArray[np.bool_]


def _frames(items: Bytes, begins: Cuts, ends: Cuts, limit: int) -> _Frames:
    """Read the frames of all lines, as columns; the list itself is not looked at but for its first and last byte."""
    at = begins + len(_CLUSTER)
    at += np.argmin(_values(_window(items, at, _DIGITS + 1)) < 10, axis=1)
    clusters, quick = _numbers_before(items, at)
    last = ends - len(_END)
    counts, sound = _numbers_before(items, last)
    digits = np.argmin(_values(_window(items, last - 1, -_DIGITS - 1)) < 10, axis=1)
    first, last = at + len(_TOKENS), last - digits - len(_COUNT)
    for literal, place in ((_CLUSTER, begins), (_TOKENS, at), (_COUNT, last), (_END, ends - len(_END))):
        sound &= (_window(items, place, len(literal)) == np.frombuffer(literal, np.uint8)).all(axis=1)
    quick &= sound & (ends - begins >= _SHORTEST) & (ends - begins <= limit)
    edges = [_values(_window(items, place, 1))[:, 0] < 10 for place in (first, last - 1)]
    quick &= (first == last) | ((first < last) & edges[0] & edges[1])
    return _Frames(clusters, counts, first, last, quick)


def _window(items: Bytes, begins: Cuts, size: int) -> Bytes:
    """Return `size` bytes from each place on, or backwards, uint8 (n, |size|); beyond the block, its last byte."""
    places = begins[:, None] + np.arange(abs(size)) * (1 if size > 0 else -1)
    found: Bytes = np.take(items, places, mode="clip")
    return found


def _values(characters: Bytes) -> Bytes:
    values: Bytes = characters - _ZERO
    return values


def _numbers_before(items: Bytes, ends: Cuts) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the decimal number that ends before each place, and whether there is one, well written."""
    digits = _values(_window(items, ends - 1, -_DIGITS - 1))
    count = np.argmin(digits < 10, axis=1)
    leading = digits[np.arange(len(ends)), count - 1]
    values = np.where(np.arange(_DIGITS + 1) < count[:, None], digits, 0) @ 10 ** np.arange(_DIGITS + 1)
    return values, (count == 1) | ((count > 1) & (leading > 0))


def _lists(items: Bytes, begins: Cuts, ends: Cuts) -> tuple[Ids, Cuts, NDArray[np.bool_]]:
    """Return the numbers of all lists (bytes [begin, end), each in a frame), their cuts, and which lists were read.

    Lists are checked together, by halves where something is wrong; of the last few none is read.
    """
    numbers, cuts, well = _read_lists(items, begins, ends)
    if well:
        return numbers, cuts, np.ones(len(begins), np.bool_)
    if len(begins) <= _FEW:
        return _NONE, np.zeros(len(begins) + 1, "<i8"), np.zeros(len(begins), np.bool_)
    half = len(begins) // 2
    left, right = _lists(items, begins[:half], ends[:half]), _lists(items, begins[half:], ends[half:])
    cuts = np.concatenate([left[1], left[1][-1] + right[1][1:]])
    return np.concatenate([left[0], right[0]]), cuts, np.concatenate([left[2], right[2]])


def _read_lists(items: Bytes, begins: Cuts, ends: Cuts) -> tuple[Ids, Cuts, bool]:
    """Return the numbers of all lists, their cuts, and whether all lists are as they must be.

    A list begins and ends with a digit or is empty. So when the bytes that are no digits are as many as those in pairs
    of comma and space, and the numbers as many as the pairs and the lists that have any, then all is single pairs
    between numbers. When the numbers, well written, have as many digits as there are, none has a leading zero, and
    none is cut.
    """
    cuts, parts, tally = np.zeros(len(begins) + 1, "<i8"), [_NONE], np.zeros(len(_Tally._fields), "<i8")
    scratch, gaps = np.empty((7, _CHUNK + 2 * _AROUND + _APART), np.uint8), _between(ends[:-1], begins[1:])
    for first in range(begins[0], ends[-1], _CHUNK) if len(begins) else ():
        last = min(first + _CHUNK, int(ends[-1]))
        outside = gaps[slice(*np.searchsorted(gaps, (first, last)))] - first
        numbers, places, found = _chunk(items[first - _AROUND : last + _AROUND], outside, scratch)
        done = slice(*np.searchsorted(ends, (first, last), "right"))
        cuts[1:][done] = tally[0] + np.searchsorted(places, ends[done] - first)
        parts.append(numbers)
        tally += found
    everything, between = _Tally(*tally.tolist()), np.take(items, gaps)
    digits = everything.digits - int(np.count_nonzero(_values(between) < 10))
    pairs = everything.pairs - int(np.count_nonzero((between == _COMMA) & (np.take(items, gaps + 1) == _SPACE)))
    others, lists = int((ends - begins).sum()) - digits, int(np.count_nonzero(ends > begins))
    counted = (others, everything.numbers, everything.written, everything.wide)
    return np.concatenate(parts), cuts, counted == (2 * pairs, pairs + lists, digits, 0)


def _between(begins: Cuts, ends: Cuts) -> Cuts:
    """Return all places in the ranges [begin, end), in order."""
    lengths = ends - begins
    return np.repeat(ends - np.cumsum(lengths), lengths) + np.arange(lengths.sum())


class _Tally(NamedTuple):
    """Counts over a chunk: `numbers` that end in it, digits they have when well `written`, those too `wide` for 16
    bits; and over all its bytes, `digits` and `pairs` of comma and space."""

    numbers: int
    written: int
    wide: int
    digits: int
    pairs: int


def _chunk(window: Bytes, gaps: Cuts, scratch: NDArray[np.uint8]) -> tuple[Ids, Cuts, _Tally]:
    """Return the numbers that end in the window (8 bytes at both its ends and the gaps left out), where, and counts.

    A number is read from its last digit backwards, two digits at a time: pair[i] is the value of those at i - 1 and i.
    """
    size = len(window) - 2 * _AROUND
    digits, digit, pair, two, comma, end, spare = scratch[:, : len(window)]

    def at(column: Bytes, shift: int = 0) -> Bytes:
        return column[_AROUND + shift : _AROUND + shift + size]

    np.subtract(window, _ZERO, out=digits)
    np.less(digits, _TEN, out=digit.view(np.bool_))
    np.multiply(digits, digit, out=digits)
    np.multiply(digits, _TEN, out=spare)
    np.add(digits[1:], spare[:-1], out=pair[1:])
    np.bitwise_and(digit[1:], digit[:-1], out=two[1:])
    np.greater(digit[:-1], digit[1:], out=end[:-1].view(np.bool_))
    np.equal(window, _COMMA, out=comma.view(np.bool_))
    np.equal(window, _SPACE, out=spare.view(np.bool_))
    pairs = np.bitwise_and(at(comma), at(spare, 1), out=at(comma))
    at(end)[gaps] = 0
    places = np.flatnonzero(at(end).view(np.bool_))
    low = np.take(at(pair), places, mode="wrap")
    middle = np.take(np.multiply(at(pair, -2), at(digit, -2), out=at(spare)), places, mode="wrap")
    high = np.take(np.multiply(at(digits, -4), at(two, -2), out=at(spare)), places, mode="wrap")
    top = np.multiply(high, np.uint16(10_000), dtype=np.uint16)
    numbers = np.multiply(middle, np.uint16(100), dtype=np.uint16)
    numbers += low
    numbers += top
    written = len(numbers) + sum(int(np.count_nonzero(numbers > bound)) for bound in _BOUNDS)
    wide = int(np.count_nonzero((high > 6) | (numbers < top)))
    there = (int(np.count_nonzero(column.view(np.bool_))) for column in (at(digit), pairs))
    return numbers, places, _Tally(len(numbers), written, wide, *there)
