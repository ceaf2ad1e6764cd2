"""The verifier's own reading of a source range: hash the bytes, parse the rows, judge and hash their texts.

Guarantees: shares with the producer nothing but the ranged read; every byte is fetched once. Works a few rows at a
time; cost and memory: see benchmarks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from casebits_dagster.admission import flat, lines, parquet
from casebits_dagster.admission.checks import Array, Proof, slice_digests, whole_ids
from casebits_dagster.admission.rows import SOUND, Block, Digest, Reader
from casebits_dagster.admission.scores import Weights, measure
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.errors import RecordError
from casebits_dagster.records.layout import RECEIPT
from casebits_dagster.records.pins import Source
from casebits_dagster.records.plan import RegionSpec
from casebits_dagster.records.region import Receipt
from casebits_dagster.stores.source import source_store

READERS: dict[str, Reader] = {
    "parquet_tokens": parquet.read_tokens,
    "parquet_text": parquet.read_text,
    "climbmix_jsonl": lines.read_climbmix,
    "jsonl_text": lines.read_text,
    "flat_u16": flat.read_flat,
}


@dataclass(frozen=True, slots=True)
class SourceRows:
    """The rows of a range: `positions` "<i8" in the file; `lengths` "<i8" as stored, `clusters` "<i4" (-1: none),
    `reasons` "u1" (index in REASONS), `problem_at` "<i8" (-1: none), `digests` "u1" (rows, 32): the text's SHA-256,
    zeros when quarantined; `scores` by row, where they were asked for; `kept` as `digests`, of the ids of sound rows as
    "<u2" without separators, where they were asked for."""

    scores: dict[int, dict[str, int]]
    positions: Array
    lengths: Array
    clusters: Array
    reasons: Array
    problem_at: Array
    digests: Array
    kept: Array

    @property
    def quarantined(self) -> Array:
        return np.asarray(self.reasons != SOUND)

    @property
    def ids(self) -> Array:
        return whole_ids(self.digests[:, :16])

    def digest(self) -> str:
        """Return the SHA-256 over all columns but the positions, one after the other."""
        columns = (self.lengths, self.clusters, self.reasons, self.problem_at, self.digests)
        return sha256(*(column.tobytes() for column in columns))


@dataclass(frozen=True, slots=True)
class SourceRange:
    """One region's rows of one file of the pinned source."""

    source: Source
    spec: RegionSpec
    metrics: tuple[str, ...]
    weights: Weights | None = None
    keeps_ids: bool = False

    def read(self, scored: set[int], receipt: Receipt, proof: Proof) -> tuple[SourceRows, str]:
        """Return all rows, with the scores of those in `scored` (counted from the start of the range), and the SHA-256
        of the bytes that the range covers, after comparing it with the receipt's."""
        place, digest = f"{RECEIPT}: source", hashlib.sha256()
        size = source_store(self.source).size(self.spec.path)
        proof.require_equal("L4_SOURCE_RANGE", f"{place}.file_bytes", size, receipt.source.file_bytes)
        try:
            rows = self._rows(digest, scored)
        except (RecordError, pa.ArrowException, OSError) as error:
            # An error of pyarrow about what it reads has no number; one with a number is the machine's.
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise proof.rejected("L4_SOURCE_RANGE", f"{place}.path", str(error)) from error
        read = digest.hexdigest()
        proof.require_equal("L4_SOURCE_RANGE", f"{place}.range_sha256", read, receipt.source.range_sha256)
        proof.passed("L4_SOURCE_RANGE", 1)
        return rows, read

    def _rows(self, digest: Digest, scored: set[int]) -> SourceRows:
        kinds = ("<i8", "<i8", "<i4", "u1", "<i8")
        none = np.empty((0, 32), "u1")
        columns: list[tuple[Array, ...]] = [(*(np.empty(0, kind) for kind in kinds), none, none)]
        scores: dict[int, dict[str, int]] = {}
        first = 0
        for block in self._blocks(digest):
            block.judge()
            digests = slice_digests(block.text, block.cuts[:-1], block.cuts[1:])
            kept = none
            if self.keeps_ids:
                ids, id_cuts = block.bare_ids()
                kept = slice_digests(ids, id_cuts[:-1], id_cuts[1:])
            judged = (block.positions, block.lengths, block.clusters, block.reasons, block.problem_at)
            columns.append((*judged, digests, kept))
            for row in scored & set(range(first, first + len(digests))):
                if not block.reasons[row - first]:
                    text, tokens = block.text_of(row - first), block.tokens_of(row - first)
                    scores[row] = measure(text, self.metrics, tokens, self.weights)
            first += len(digests)
        rows = SourceRows(scores, *map(np.concatenate, zip(*columns, strict=True)))
        rows.digests[rows.quarantined] = 0
        return rows

    def find(self, row: int) -> tuple[Block, int]:
        """Return a block that holds the row, and its place there (read again: only a refusal asks for it)."""
        for block in self._blocks(hashlib.sha256()):
            if row < len(block.reasons):
                return block, row
            row -= len(block.reasons)
        raise IndexError(row)

    def _blocks(self, digest: Digest) -> Iterator[Block]:
        return READERS[self.source.pin.format](source_store(self.source), self.spec, self.source, digest)
