"""64-bit hashes of any byte ranges of a block: equal bytes have equal hashes, in one document or in another.

H(bytes) = sum of random(byte k) * B^k modulo 2^64, so a range is a difference of two prefix sums, brought back to power
0 by the inverse of B. A pair of different ranges agrees by chance with about 2^-64; texts made for it can be found
(powers modulo 2^64), and would count as repeats of each other. The constants are
fixed, so values never differ between runs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.codec.bytetable import Bytes
from casebits_dagster.filters.streams import Places

_BASE = 0x9E3779B97F4A7C15
_INVERSE = pow(_BASE, -1, 1 << 64)
_MIX = np.uint64(0xBF58476D1CE4E5B9)


def _spread(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return numbers with their bits spread over all 64 (the finalizer of SplitMix64)."""
    numbers = numbers * np.uint64(_BASE)
    numbers = (numbers ^ (numbers >> np.uint64(30))) * _MIX
    return numbers ^ (numbers >> np.uint64(27))


_OF_BYTE: NDArray[np.uint64] = _spread(np.arange(1, 257, dtype="<u8"))


class RangeHashes:
    """The hashes of ranges of `text`; a byte with a one in `marked` counts as another byte than one without."""

    def __init__(self, text: Bytes, marked: NDArray[np.uint8] | None = None) -> None:
        terms = _OF_BYTE[text]
        if marked is not None:
            terms ^= marked * _MIX
        terms *= _powers(_BASE, len(text))
        self._prefix = np.zeros(len(text) + 1, "<u8")
        np.cumsum(terms, out=self._prefix[1:])
        self._back = _powers(_INVERSE, len(text) + 1)

    def of(self, begins: Places, ends: Places) -> NDArray[np.uint64]:
        """Return the hash of each range [begin, end), "<u8"."""
        return (self._prefix[ends] - self._prefix[begins]) * self._back[begins]


def _powers(base: int, count: int) -> NDArray[np.uint64]:
    powers = np.full(count, base, "<u8")
    powers[:1] = 1
    return np.cumprod(powers, out=powers)


def kinds_of(hashes: NDArray[np.uint64], documents: Places) -> tuple[Places, Places]:
    """Return the first place of each different (document, hash), "<i8" (K,), and the kind of each place, below K."""
    keys = _spread(hashes) + documents.astype("<u8") * np.uint64(_BASE)
    _, first, kinds = np.unique(keys, return_index=True, return_inverse=True)
    return first, kinds
