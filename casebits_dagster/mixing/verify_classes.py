"""The verifier's own reading of case classes: which casing pattern most of a document's tokens with letters have.

Every distinct pair of id and mask is weighed once, by logarithms: log pi_k + the sum over the token's letters, by their
rank, of log theta_k where the letter is a capital and log(1 - theta_k) where it is small.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.records.codec import CodecFiles
from casebits_dagster.records.digests import sha256_file
from casebits_dagster.records.errors import Refused
from casebits_dagster.records.layout import EOD_ID
from casebits_dagster.records.recipe import CaseClass
from casebits_dagster.records.region import CodecPin

CLASSES: tuple[str, ...] = get_args(CaseClass)
NO_LETTERS = len(CLASSES) - 1
_BYTES, _ONE = 16, 65_535


class CasePatterns:
    """The pinned mixture of a codec: letters (V, 16), log pi (V, K), and by state of a letter log theta (2, 16, K)."""

    def __init__(self, vocabulary: bytes, mixture: Path) -> None:
        named: dict[str, int] = json.loads(vocabulary)["model"]["vocab"]
        self._letters = np.zeros((len(named), _BYTES), bool)
        for token, number in named.items():
            # A character of a byte-level vocabulary is a byte, and ASCII letters stand for themselves.
            found = [letter.isascii() and letter.isalpha() for letter in token[:_BYTES]]
            self._letters[number, : len(found)] = found if number != EOD_ID else False
        with np.load(mixture, allow_pickle=False) as parameters:
            self._pi = np.log(parameters["pi"].astype(np.float64))
            theta = parameters["theta"].T / _ONE
        self._theta = np.stack([np.log1p(-theta), np.log(theta)])

    def of_documents(
        self, ids: NDArray[np.uint16], cases: NDArray[np.uint16], offsets: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the class of each document, a number of CLASSES."""
        pairs, inverse = np.unique(ids.astype(np.uint32) << np.uint32(16) | cases, return_inverse=True)
        token, mask = (pairs >> np.uint32(16)).astype(np.int64), pairs & np.uint32(0xFFFF)
        pattern = np.where(self._letters[token].any(axis=1), self._likeliest(token, mask), -1)[inverse]
        documents, patterns = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)), self._pi.shape[1]
        kept = pattern >= 0
        size = (len(offsets) - 1) * patterns
        counts = np.bincount(documents[kept] * patterns + pattern[kept], minlength=size).reshape(-1, patterns)
        return np.where(counts.any(axis=1), counts.argmax(axis=1), NO_LETTERS)

    def _likeliest(self, token: NDArray[np.int64], mask: NDArray[np.uint32]) -> NDArray[np.int64]:
        logs, rank = self._pi[token].copy(), np.zeros(len(token), np.int64)
        for byte in range(_BYTES):
            letter = np.flatnonzero(self._letters[token, byte])
            capital = (mask[letter] >> np.uint32(byte) & np.uint32(1)).astype(np.int64)
            logs[letter] += self._theta[capital, rank[letter]]
            rank[letter] += 1
        return np.asarray(logs.argmax(axis=1))


def case_classes(
    pins: CodecPin, codec: Path, streams: dict[str, NDArray[np.uint16]], offsets: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the class of each document of a region, by the pinned files in the folder `codec`."""
    if pins.mixture_sha256 is None or "cases" not in streams:
        return np.full(len(offsets) - 1, NO_LETTERS)
    vocabulary, mixture = codec / CodecFiles.VOCABULARY, codec / CodecFiles.MIXTURE
    for path, expected in ((vocabulary, pins.vocab_sha256), (mixture, pins.mixture_sha256)):
        read = sha256_file(path) if path.is_file() else None
        if read != expected:
            raise Refused("FILE_HASH", str(path), expected=expected, read=read)
    return CasePatterns(vocabulary.read_bytes(), mixture).of_documents(streams["ids"], streams["cases"], offsets)
