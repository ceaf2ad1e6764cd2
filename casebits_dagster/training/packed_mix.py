"""Read a mix as a trainer does: windows of exactly T tokens with their targets, and masks where documents meet.

    mix = PackedMix.open("mixes/sample_aligned", sequence_length=2048)
    window = mix[7]
    window.ids, window.targets, window.cu_seqlens

Verified once, when opened; then memory-mapped. A window costs one copy of its tokens. What follows from the segment
table (segment and position ids, cu_seqlens, loss mask) is made when it is asked for.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from casebits_dagster.publication.open_mix import open_mix
from casebits_dagster.records.errors import CasebitsError, RecordError
from casebits_dagster.records.mix import (
    NEXT_NAMES,
    REPORT,
    SEGMENTS,
    SHARD_SUFFIXES,
    TABLE,
    TRAIN,
    MixReport,
    Separator,
    SplitFiles,
    shard_name,
    val_name,
)

Split: TypeAlias = Literal["train", "val"]
LastTarget: TypeAlias = Literal["next", "flat"]
Tokens: TypeAlias = NDArray[np.uint16]
I32: TypeAlias = NDArray[np.int32]
I64: TypeAlias = NDArray[np.int64]
_MOST = 2**31 - 1
"""Masks number the tokens of a batch by int32."""


class Runs(NamedTuple):
    """The segments of some windows, end to end: rows of the table, where each begins and ends in the (B * T,) tokens,
    which are the first and the last of their window, and which hold the end of their document."""

    rows: NDArray[Any]
    starts: I64
    ends: I64
    first: NDArray[np.bool_]
    last: NDArray[np.bool_]
    ended: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Windows:
    """One window (`mix[k]`, arrays of shape (T,)) or several (`mix.batch(...)`, shape (B, T)); tokens are read-only.

    `numbers` int64 (B,) are the windows; `tokens` uint16 (..., T + 1) by stream: the window's own tokens and the last
    target. `ids` and `targets` are views of it, so none can be changed in place.
    """

    mix: PackedMix
    numbers: I64
    tokens: dict[str, Tokens]

    def __post_init__(self) -> None:
        for tokens in self.tokens.values():
            tokens.setflags(write=False)

    @property
    def ids(self) -> Tokens:
        """Token ids, uint16."""
        return self.tokens["ids"][..., :-1]

    @property
    def targets(self) -> Tokens:
        """The id that follows each token, uint16."""
        return self.tokens["ids"][..., 1:]

    @property
    def cases(self) -> Tokens | None:
        """Case masks of `ids`, uint16 (bit b: byte b of the token is a capital); None of a plain codec."""
        return self.tokens["cases"][..., :-1] if "cases" in self.tokens else None

    @property
    def target_cases(self) -> Tokens | None:
        """Case masks of `targets`, uint16; None of a plain codec."""
        return self.tokens["cases"][..., 1:] if "cases" in self.tokens else None

    @cached_property
    def segment_ids(self) -> I32:
        """The number of its document in the window, of each token, int32: how many separators end before it (at the
        end of documents) or stand up to it (at their start). So with separators at the start, a window that begins
        with a continuation has document 0, and any other begins with document 1."""
        runs, rows = self.runs, self.runs.rows
        opened = (rows["document_start"] == 0) | (rows["inserted"] == 1)
        before = np.flatnonzero(runs.first) - (opened[runs.first] & self._at_start)
        numbers = np.arange(len(rows)) - before[np.cumsum(runs.first) - 1]
        return np.repeat(numbers.astype(np.int32), runs.ends - runs.starts).reshape(self.ids.shape)

    @cached_property
    def position_ids(self) -> I32:
        """The place of each token in its segment, from 0, int32."""
        runs = self.runs
        places = np.arange(self.ids.size, dtype=np.int32)
        places -= np.repeat(runs.starts.astype(np.int32), runs.ends - runs.starts)
        return places.reshape(self.ids.shape)

    @cached_property
    def cu_seqlens(self) -> I32:
        """Where the segments begin in the tokens of all windows end to end, and their number: int32 (S + 1,), as
        attention over sequences of variable length takes it."""
        return np.append(self.runs.starts, self.ids.size).astype(np.int32)

    @property
    def max_seqlen(self) -> int:
        """The length of the longest segment."""
        return int(np.diff(self.cu_seqlens).max(initial=0))

    @cached_property
    def loss_mask(self) -> NDArray[np.bool_]:
        """Where the target is what truly follows the token: the next token of the same document, or the separator that
        opens the next document once this one has ended. False at a separator that ends a document, at one that was
        inserted, where a document was cut, and at a last target that belongs to another document."""
        runs, mask = self.runs, np.ones(self.ids.size, bool)
        mask[runs.starts[runs.rows["inserted"] == 1]] = False
        mask[runs.ends - 1] = runs.ended & self._at_start
        last = mask[self.mix.sequence_length - 1 :: self.mix.sequence_length]
        last[:] = ~runs.ended[runs.last] | self._at_start
        for stream, follows in self.mix.next_tokens.items():
            last &= np.atleast_1d(self.tokens[stream][..., -1]) == follows[self.numbers]
        return mask.reshape(self.ids.shape)

    @cached_property
    def runs(self) -> Runs:
        """The segments of these windows. Raises CasebitsError (MIX_SEGMENTS) where they do not sum to T."""
        if self.ids.size > _MOST:
            raise RecordError("BATCH_TOO_LARGE", "batch", expected=f"at most {_MOST} tokens", read=self.ids.size)
        return self.mix.runs(self.numbers)

    @property
    def _at_start(self) -> bool:
        return self.mix.separator.position == "start"


class PackedMix:
    """One split of a mix: `len(mix)` windows, `mix[k]`, `mix.batch(indices)`.

    Goes to another process as the names of its files, which are mapped there without being hashed again.
    """

    def __init__(
        self, folder: Path, report: MixReport, manifest_sha256: str, split: Split, last_target: LastTarget
    ) -> None:
        """Map the files of a mix that was verified: use `PackedMix.open`."""
        self.folder, self.report, self.manifest_sha256 = folder, report, manifest_sha256
        self.split, self.last_target = split, last_target
        self.files: SplitFiles = report.train if split == TRAIN else report.validation
        self.sequence_length, self._windows_per_shard = report.recipe.sequence_length, report.recipe.windows_per_shard
        self._shards = {
            stream: [self._mapped(shard_name(split, shard, stream, report.codec)) for shard in range(self.files.shards)]
            for stream in SHARD_SUFFIXES[report.codec]
        }

    @classmethod
    def open(
        cls,
        location: str | Path,
        sequence_length: int | None = None,
        *,
        name: str | None = None,
        split: Split = "train",
        last_target: LastTarget = "next",
        cache: Path | None = None,
    ) -> PackedMix:
        """Verify the files of a split, and map them.

        `location` is the folder a mix was built in or published to, `s3://...`, `hf://datasets/...`, or with `name`
        the home it lies below. Windows have one length: another `sequence_length` than the mix's is refused.
        `last_target` is the last target of a window: `next` is what truly follows in the document (the separator where
        it ended), `flat` the token that stands behind the window in the file. Costs one hash of the split's files.
        """
        opened = open_mix(location, name, cache=cache)
        report, length = opened.report, opened.report.recipe.sequence_length
        if sequence_length not in (None, length):
            where, remedy = f"mix {report.recipe.mix}: sequence_length", "another T loses the alignment"
            raise RecordError("SEQUENCE_LENGTH", where, expected=length, read=sequence_length, remedy=remedy)
        folder = opened.file(REPORT).parent
        for file in _names(report, split):
            opened.file(file)
        return cls(folder, report, opened.manifest_sha256, split, last_target)

    def __reduce__(self) -> tuple[object, ...]:
        return PackedMix, (self.folder, self.report, self.manifest_sha256, self.split, self.last_target)

    def __len__(self) -> int:
        return self.files.windows

    def __iter__(self) -> Iterator[Windows]:
        return (self[window] for window in range(len(self)))

    def __getitem__(self, window: int) -> Windows:
        """Return a window; -1 is the last. Raises IndexError beyond."""
        number, tokens = self._number(operator.index(window)), {}
        for stream in self._shards:
            tokens[stream] = found = self._mapped_window(stream, number).copy()
            if self.last_target == "next":
                found[-1] = self.next_tokens[stream][number]
        return Windows(self, np.array([number]), tokens)

    def batch(self, indices: ArrayLike) -> Windows:
        """Return windows in the order asked for, (B, T). Raises IndexError when one is not there."""
        windows = [self._number(index) for index in np.asarray(indices, np.int64).reshape(-1).tolist()]
        numbers, tokens = np.array(windows, np.int64), {}
        for stream in self._shards:
            tokens[stream] = found = np.empty((len(windows), self.sequence_length + 1), np.uint16)
            for row, window in zip(found, windows, strict=True):
                row[:] = self._mapped_window(stream, window)
            if self.last_target == "next":
                found[:, -1] = self.next_tokens[stream][numbers]
        return Windows(self, numbers, tokens)

    def _number(self, index: int) -> int:
        if not -self.files.windows <= index < self.files.windows:
            there = f"{self.split} has {self.files.windows} windows"
            raise IndexError(f"window {index} of mix {self.report.recipe.mix}: {there}")
        return index % self.files.windows

    @property
    def separator(self) -> Separator:
        return self.report.separator

    def runs(self, windows: I64) -> Runs:
        """Return the segments of windows. Raises CasebitsError (MIX_SEGMENTS) unless they fill each of them."""
        begins, length = self._first_rows[windows], self.sequence_length
        counts = self._first_rows[windows + 1] - begins
        before = counts.cumsum() - counts
        rows = self._segments[np.repeat(begins - before, counts) + np.arange(counts.sum())]
        lengths, places = rows["length"].astype(np.int64), np.repeat(np.arange(len(windows)) * length, counts)
        ends = lengths.cumsum()
        starts = ends - lengths
        wrong = starts - places != rows["position"]
        if wrong.any() or not lengths.all() or int(lengths.sum()) != length * len(windows):
            sums = np.bincount(places // length, lengths, len(windows)).astype(np.int64)
            bad = (sums != length) | np.isin(np.arange(len(windows)), places[wrong | (lengths == 0)] // length)
            self._refuse(int(windows[bad][0]), int(sums[bad][0]))
        return Runs(rows, starts, ends, rows["position"] == 0, ends % length == 0, self._ended(rows))

    def _refuse(self, window: int, total: int) -> NoReturn:
        where, problem = f"{self._table(SEGMENTS)}: window {window}", "its segments do not fill it, in order"
        raise CasebitsError("MIX_SEGMENTS", where, problem, expected=self.sequence_length, read=total)

    @cached_property
    def next_tokens(self) -> dict[str, Tokens]:
        """By stream, the token that truly follows each window in its last document, the separator where that ended:
        uint16 (W,)."""
        if self.split == TRAIN:
            return {stream: self._mapped(name) for stream, name in NEXT_NAMES[self.report.codec].items()}
        # Validation is a concatenation: what stands behind a window goes on with its last document.
        ended, length = self._ended(self._segments[self._first_rows[1:] - 1]), self.sequence_length
        separator, found = {"ids": self.separator.id, "cases": 0}, {}
        for stream, shards in self._shards.items():
            behind = np.concatenate([np.empty(0, np.uint16), *(tokens[length::length] for tokens in shards)])
            found[stream] = np.where(ended, np.uint16(separator[stream]), behind)
        return found

    def _ended(self, rows: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which segments hold the end of their document."""
        ends = rows["document_start"].astype(np.int64) + rows["length"] - rows["inserted"]
        return np.asarray(ends == self._documents["tokens"][rows["document"]])

    def _mapped_window(self, stream: str, window: int) -> Tokens:
        """Return a window's tokens and the one behind it in the file, (T + 1,)."""
        shard, inside = divmod(window, self._windows_per_shard)
        begin = inside * self.sequence_length
        return self._shards[stream][shard][begin : begin + self.sequence_length + 1]

    @cached_property
    def _segments(self) -> NDArray[Any]:
        return self._loaded(SEGMENTS)

    @cached_property
    def _documents(self) -> NDArray[Any]:
        return self._loaded(TABLE)

    @cached_property
    def _first_rows(self) -> I64:
        """The first row of each window and the one behind the last: 8 bytes a window, so that none is searched for."""
        return np.searchsorted(np.ascontiguousarray(self._segments["window"]), np.arange(len(self) + 1))

    def _loaded(self, name: str) -> NDArray[Any]:
        return cast("NDArray[Any]", np.load(self.folder / self._table(name), mmap_mode="r").view(np.ndarray))

    def _table(self, name: str) -> str:
        return name if self.split == TRAIN else val_name(name)

    def _mapped(self, name: str) -> Tokens:
        # A plain view: slices of a memmap are memmaps, which cost as much as the copy of a short window.
        return np.memmap(self.folder / name, "<u2", "r").view(np.ndarray)


def _names(report: MixReport, split: Split) -> list[str]:
    """Return the files that a split is read from."""
    shards = report.train.shards if split == TRAIN else report.validation.shards
    streams = SHARD_SUFFIXES[report.codec]
    tokens = [shard_name(split, shard, stream, report.codec) for shard in range(shards) for stream in streams]
    if split == TRAIN:
        return [*tokens, *NEXT_NAMES[report.codec].values(), SEGMENTS, TABLE]
    return [*tokens, val_name(SEGMENTS), val_name(TABLE)]
