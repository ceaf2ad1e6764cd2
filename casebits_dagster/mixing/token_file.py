"""A flat file of token ids, from anywhere: raw little-endian u2 or u4, or a one-dimensional .npy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.records.errors import Absent, RecordError

_LOW_HALVES = 16


@dataclass(frozen=True, slots=True)
class TokenFile:
    """`tokens` ids of `dtype`, which begin `offset` bytes into the file."""

    path: Path
    dtype: np.dtype[Any]
    tokens: int
    offset: int = 0

    def read(self, begin: int, end: int) -> NDArray[Any]:
        """Return the ids of positions begin to end."""
        return np.fromfile(self.path, self.dtype, end - begin, offset=self.offset + begin * self.dtype.itemsize)


def open_token_file(path: Path, dtype: str | None) -> TokenFile:
    """Return the file at `path`; `dtype` is u2 or u4, and may be None for .npy alone, which says it itself.

    Raises Absent when there is no file, RecordError when its size or type does not fit.
    """
    if not path.exists():
        raise Absent("FILE_MISSING", str(path), "there is no such file")
    if path.suffix == ".npy":
        return _open_array(path, dtype)
    if dtype is None:
        raise _invalid(path, "its bytes do not say what they are", "give --dtype u2 or --dtype u4")
    kind, size = np.dtype(f"<{dtype}"), path.stat().st_size
    if size % kind.itemsize:
        why = "the file was cut, or has another dtype"
        raise RecordError(
            "TOKENS_INVALID", str(path), expected=f"a multiple of {kind.itemsize} bytes", read=size, remedy=why
        )
    found = TokenFile(path, kind, size // kind.itemsize)
    if kind.itemsize == 2 and _holds_halves(found.read(0, min(found.tokens, 1 << 16))):
        raise _invalid(
            path, "every second id is below 16, and most of those are 0: 4-byte ids read as u2", "--dtype u4"
        )
    return found


def _open_array(path: Path, dtype: str | None) -> TokenFile:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise _invalid(path, str(error), "") from error
    if array.ndim != 1 or array.dtype.kind not in "iu":
        read = f"{array.ndim} of {array.dtype}"
        raise RecordError("TOKENS_INVALID", str(path), expected="1 dimension of integers", read=read)
    if dtype is not None and array.dtype != np.dtype(f"<{dtype}"):
        raise RecordError("TOKENS_INVALID", str(path), expected=f"--dtype {dtype}", read=array.dtype)
    return TokenFile(path, array.dtype, len(array), array.offset)


def _holds_halves(ids: NDArray[Any]) -> bool:
    """Of 4-byte ids every second half is a high one: small, and mostly 0. Low ones are spread."""
    low, high = ids[::2], ids[1::2]
    spread = 2 * np.count_nonzero(low >= _LOW_HALVES) > len(low) > _LOW_HALVES
    return bool(spread and int(high.max()) < _LOW_HALVES and 2 * np.count_nonzero(high == 0) > len(high))


def _invalid(path: Path, problem: str, remedy: str) -> RecordError:
    return RecordError("TOKENS_INVALID", str(path), problem, remedy=remedy)
