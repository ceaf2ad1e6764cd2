"""Is a stream of token ids text, or were its tokens shuffled?

Every window of 8 tokens is compared with a seeded shuffle of itself. Each of the two gets the sum of the scores of its
pairs of neighbours, where a score is the log of how much more often the two ids stand side by side than their
frequencies explain. The scores are learned from *other* windows: 64 tokens of windows score the 64 next to them, and
the other way round. So when the order inside windows is random, the difference D of stream and shuffle has a
distribution symmetric about 0, whatever the ids are and however good the scores, and z = sum D / sqrt(sum D^2) over the
windows of a chunk is close to a standard normal variable (P(z >= t) <= exp(-t^2 / 2) in any case). A chunk with
z >= 2.33 shows order: of shuffled ones 1 % do. The block that was shuffled may be of any size from 8 tokens up: as the
shuffle to compare with is that of a window, no topic that all of a block shares is mistaken for order.

That text shows order is not a theorem, but measured: of 129,000 chunks of 1,024 tokens (prose, code, chess, mail and
tables, three vocabularies) 1 in 10,000 does not, such as passwords, or proofs cut into letters. The verdict allows ten
times that: it takes so many chunks without order that such text would reach them in 1 of 10,000 files, or 8 in a row.

The scores are smoothed twice: the pairs around (16,384 tokens) over those of the whole stream so far, over chance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.mixing.entropy import ID_BITS, ReferencePoints, reference_points
from casebits_dagster.mixing.seeds import I64, counter_keys, shuffled
from casebits_dagster.mixing.token_file import TokenFile
from casebits_dagster.records.errors import RecordError

F32: TypeAlias = NDArray[np.float32]
F64: TypeAlias = NDArray[np.float64]
Verdict: TypeAlias = Literal["coherent", "scrambled", "undecided"]

LEAST_CHUNK = 1024
ORDER, FILE_ORDER = 2.33, 4.0
"""The z from which on a chunk, and a file, shows order: chances of 1 in 100 and 1 in 30,000 for shuffled tokens."""
WINDOW, _HALF, _NEIGHBOURHOOD, _BLOCK = 8, 64, 1 << 14, 1 << 17
_PAIR_BITS, _LOCAL_BITS = 22, 16
# Tokens a half; then the counts are halved, lest the table of pairs fill up.
_REMEMBERED = 1 << 24
# Weights of what a score falls back to, chosen for the least chunks of text without order.
_BY_CHANCE, _BY_STREAM, _ID_PRIOR = 0.2, 0.02, 8.0
LEAST_WINDOWS, _CHUNK_WINDOWS = 256, 64
_TEXT_WITHOUT_ORDER, _FALSE_ALARM, _LONG_RUN = 1e-3, 1e-4, 8
_SAMPLE = 1 << 22
_REPORT_EVERY = 1 << 26


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Coherence:
    """The answer for one file. Of chunk i: tokens begin at `starts[i]`, `excess[i]` is the sum of D and `noise[i]` the
    root of the sum of its squares, both in nats, `windows[i]` counts the windows in which order can show."""

    file: TokenFile
    chunk_tokens: int
    seed: int
    separator: int | None
    separators: int
    largest_id: int
    starts: I64
    excess: F64
    noise: F64
    windows: I64
    points: ReferencePoints

    @property
    def z(self) -> F64:
        """Return z of each chunk; NaN where too few windows can show order, as in padding."""
        judged = self.windows >= _CHUNK_WINDOWS
        z: F64 = np.divide(self.excess, self.noise, out=np.full(len(self.excess), np.nan), where=judged)
        return z

    @property
    def total_z(self) -> float:
        """Return z of the whole file; 0 when no window can show order."""
        noise = float(np.sqrt((self.noise**2).sum()))
        return float(self.excess.sum()) / noise if noise else 0.0

    @property
    def without_order(self) -> NDArray[np.bool_]:
        """Return which chunks show no order. One between two such has to show it as clearly as a file has to."""
        without = self.z < ORDER
        between = np.zeros_like(without)
        between[1:-1] = without[:-2] & without[2:] & (self.z[1:-1] < FILE_ORDER)
        return without | between

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Return the runs of chunks without order, as (first, after last)."""
        edges = np.flatnonzero(np.diff(np.concatenate([[False], self.without_order, [False]])))
        return [(int(first), int(end)) for first, end in edges.reshape(-1, 2)]

    @property
    def needed(self) -> int:
        """Return how many chunks without order make a false alarm on text rarer than 1 in 10,000 files."""
        return _poisson_bound(_TEXT_WITHOUT_ORDER * len(self.starts), _FALSE_ALARM)

    @property
    def verdict(self) -> Verdict:
        """Return the verdict."""
        if self.windows.sum() < LEAST_WINDOWS:
            return "coherent" if self.total_z >= FILE_ORDER else "undecided"
        if self.total_z < FILE_ORDER:
            return "scrambled"
        lengths = [end - first for first, end in self.spans]
        return "scrambled" if sum(lengths) >= self.needed or max(lengths, default=0) >= _LONG_RUN else "coherent"


def examine(
    file: TokenFile,
    *,
    chunk_tokens: int = LEAST_CHUNK,
    seed: int = 0,
    separator: int | None = None,
    vocabulary_size: int | None = None,
    progress: Callable[[str], None] = lambda line: None,
) -> Coherence:
    """Return what can be said of the file. `chunk_tokens` is a multiple of 1,024.

    Memory is some 200 MB, and 24 bytes more for every 1,024 tokens. Raises RecordError when an id is not below
    `vocabulary_size` (2^20 at most).
    """
    if chunk_tokens < LEAST_CHUNK or chunk_tokens % LEAST_CHUNK:
        wanted = f"a multiple of {LEAST_CHUNK:,}"
        raise RecordError("TOKENS_INVALID", "chunk_tokens", expected=wanted, read=chunk_tokens)
    largest = min(vocabulary_size or 1 << ID_BITS, 1 << ID_BITS)
    learned, counts = (_Learned(), _Learned()), np.zeros(1, np.int64)
    parts = []
    for number, (begin, end) in enumerate(_cut(file.tokens, _BLOCK)):
        ids = _ids(file, begin, end, largest)
        counts = _sum(counts, np.bincount(ids))
        found = _differences(ids, learned, f"coherence/{seed}/{number}")
        if separator is not None:
            # What stands on the two sides of a separator is unrelated, and the edge of padding is order of no use.
            found[(ids[: len(found) * WINDOW].reshape(-1, WINDOW) == separator).any(axis=1)] = 0
        parts.append(_sums(found))
        if end // _REPORT_EVERY > begin // _REPORT_EVERY:
            progress(f"{end:,} of {file.tokens:,} tokens")
    excess, squares, windows = np.concatenate(parts, axis=1)
    chunks = np.array([begin for begin, _ in _cut(len(excess), chunk_tokens // LEAST_CHUNK)])
    return Coherence(
        file=file,
        chunk_tokens=chunk_tokens,
        seed=seed,
        separator=separator,
        separators=int(counts[separator]) if separator is not None and separator < len(counts) else 0,
        largest_id=len(counts) - 1,
        starts=chunks * LEAST_CHUNK,
        excess=np.add.reduceat(excess, chunks),
        noise=np.sqrt(np.add.reduceat(squares, chunks)),
        windows=np.add.reduceat(windows, chunks).astype(np.int64),
        points=reference_points(counts, _sample(file, seed), vocabulary_size or len(counts), f"shuffle/{seed}"),
    )


@dataclass(slots=True)
class _Learned:
    """How often each (hashed) pair of neighbours and each (folded) id was seen in one half of the windows so far."""

    pairs: F32 = field(default_factory=lambda: np.zeros(1 << _PAIR_BITS, np.float32))
    ids: F32 = field(default_factory=lambda: np.zeros(1 << _LOCAL_BITS, np.float32))
    tokens: float = 0.0

    def add(self, half: _Half) -> None:
        if self.tokens > _REMEMBERED:
            self.pairs *= np.float32(0.5)
            self.ids *= np.float32(0.5)
            self.tokens *= 0.5
        np.add.at(self.pairs, (half.pairs >> np.uint32(32 - _PAIR_BITS)).ravel(), np.float32(1))
        self.ids += np.bincount(half.ids.ravel(), minlength=len(self.ids))
        self.tokens += half.tokens.size


class _Half:
    """Every second 64 tokens of a block as windows (n, 8), with hashed pairs (n, 7) and folded ids (n, 8)."""

    def __init__(self, tokens: NDArray[np.uint32]) -> None:
        self.tokens = tokens.reshape(-1, WINDOW)
        self.pairs = _pairs(self.tokens)
        self.ids = (self.tokens & np.uint32((1 << _LOCAL_BITS) - 1)).astype(np.int64)


def _pairs(windows: NDArray[np.uint32]) -> NDArray[np.uint32]:
    pairs = windows[:, :-1] * np.uint32(0x9E3779B1)
    pairs += windows[:, 1:]
    pairs *= np.uint32(0x85EBCA6B)
    return pairs


def _differences(ids: NDArray[np.uint32], learned: tuple[_Learned, _Learned], seed: str) -> F32:
    """Return D of every window of a block, in order; what is left after the last 128 tokens has none."""
    units = ids[: len(ids) // (2 * _HALF) * 2 * _HALF].reshape(-1, 2, _HALF)
    order = np.argsort(counter_keys(units.size, seed).reshape(-1, 2, _HALF // WINDOW, WINDOW), axis=3, kind="stable")
    around = np.arange(len(units)) * 2 * _HALF // _NEIGHBOURHOOD
    last = max(1, units.size // _NEIGHBOURHOOD) - 1
    around = np.repeat(np.minimum(around, last), _HALF // WINDOW)[:, None]
    halves = [_Half(units[:, side]) for side in (0, 1)]
    for half, known in zip(halves, learned, strict=True):
        known.add(half)
    found = np.empty((len(units), 2, _HALF // WINDOW), np.float32)
    for side in (0, 1):
        scores = _Scores(halves[1 - side], learned[1 - side], around, halves[side].ids)
        half = halves[side]
        straight = np.arange(half.tokens.size).reshape(-1, WINDOW)
        shuffle = order[:, side].reshape(-1, WINDOW) + straight[:, :1]
        there, shuffled = scores.of(half.pairs, straight), scores.of(_pairs(half.tokens.take(shuffle)), shuffle)
        found[:, side] = (there - shuffled).reshape(-1, _HALF // WINDOW)
    return found.ravel()


class _Scores:
    """What one half of a block, and the stream so far, say of the pairs of windows of the other half."""

    def __init__(self, half: _Half, known: _Learned, around: I64, ids: I64) -> None:
        self._known, self._place = known, around << _LOCAL_BITS
        size = (int(around.max(initial=0)) + 1) << _LOCAL_BITS
        local = np.bincount((self._place | half.pairs >> np.uint32(32 - _LOCAL_BITS)).ravel(), minlength=size)
        self._local = local.astype(np.float32)
        here = np.bincount((self._place | half.ids).ravel(), minlength=size).astype(np.float32)
        tokens = (np.bincount(around.ravel()) * WINDOW).astype(np.float32)[around]
        # The product of two neighbours' values is how often the pair is expected by chance: in the stream, and here.
        self._stream = (known.ids.take(ids) + np.float32(0.5)) / np.float32(np.sqrt(max(1.0, known.tokens)))
        prior = np.float32(_ID_PRIOR / np.sqrt(max(1.0, known.tokens)))
        self._here = (here.take(self._place | ids) + prior * self._stream) * np.sqrt(tokens) / (tokens + _ID_PRIOR)

    def of(self, pairs: NDArray[np.uint32], order: I64) -> F32:
        """Return the sum of the scores of each window (n,), whose ids stand in `order`."""
        stream, here = (values.take(order) for values in (self._stream, self._here))
        ratio = self._known.pairs.take(pairs >> np.uint32(32 - _PAIR_BITS))
        ratio += np.float32(_BY_CHANCE)
        ratio /= stream[:, :-1] * stream[:, 1:] + np.float32(_BY_CHANCE)
        ratio *= np.float32(_BY_STREAM)
        local = self._local.take(self._place | pairs >> np.uint32(32 - _LOCAL_BITS))
        local /= here[:, :-1] * here[:, 1:]
        ratio += local
        return np.asarray(np.log(ratio, out=ratio).sum(axis=1))


def _sums(found: F32) -> F64:
    """Return, of every 1,024 tokens, the sum of D, that of its squares, and the windows where D is not 0: (3, n)."""
    starts = [begin for begin, _ in _cut(len(found), LEAST_CHUNK // WINDOW)]
    wide = np.append(found.astype(np.float64), [0.0] if not len(found) else [])
    return np.stack([np.add.reduceat(values, starts) for values in (wide, wide**2, (np.abs(wide) > 1e-6) * 1.0)])


def _cut(total: int, size: int) -> Iterator[tuple[int, int]]:
    """Cut `total` into pieces of `size`; the last one takes what is left over."""
    count = max(1, total // size)
    for number in range(count):
        yield number * size, total if number == count - 1 else (number + 1) * size


def _sum(first: I64, second: I64) -> I64:
    long, short = (first, second) if len(first) >= len(second) else (second, first)
    long[: len(short)] += short
    return long


def _sample(file: TokenFile, seed: int) -> NDArray[Any]:
    """Return a seeded sample of runs of the stream, (n, length): all of it when it is short."""
    if file.tokens <= _SAMPLE:
        return file.read(0, file.tokens)[None]
    run = LEAST_CHUNK
    chosen = np.sort(shuffled(file.tokens // run, f"sample/{seed}")[: _SAMPLE // run])
    return np.stack([file.read(place * run, (place + 1) * run) for place in chosen.tolist()])


def _ids(file: TokenFile, begin: int, end: int, size: int) -> NDArray[np.uint32]:
    ids = file.read(begin, end)
    wrong = np.flatnonzero((ids < 0) | (ids >= size))
    if len(wrong):
        where, read = f"{file.path}: token {begin + wrong[0]:,}", f"{ids[wrong[0]]:,}"
        remedy = "is --dtype, the byte order or the vocabulary another one?"
        raise RecordError("TOKENS_INVALID", where, expected=f"an id below {size:,}", read=read, remedy=remedy)
    return ids.astype(np.uint32)


def _poisson_bound(mean: float, chance: float) -> int:
    """Return the least m for which a Poisson variable is m or more with at most this chance."""
    counts = np.arange(1, int(mean + 12 * mean**0.5) + 32)
    logs = np.concatenate([[0.0], np.cumsum(np.log(mean / counts))]) - mean
    at_least = np.cumsum(np.exp(logs)[::-1])[::-1]
    return int(np.argmax(at_least <= chance))
