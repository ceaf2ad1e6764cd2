"""The closed table of admission checks, and the proof that collects them.

Guarantees: an admission lists every check of its codec's format, each passed; a refusal carries the id of the check
that failed, with the file, document and position where it did. A check's `version` is raised when what it proves
changes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from casebits_dagster.records.errors import Rejected
from casebits_dagster.records.region import CheckResult

SAMPLE_LEAST = 32

Array = npt.NDArray[Any]
Column = Array | range | str | None


CASEBITS, PLAIN = "casebits-1", "plain-1"


class Check(NamedTuple):
    """One check, with the codec formats that it applies to."""

    id: str
    proves: str
    formats: tuple[str, ...] = (CASEBITS, PLAIN)
    version: int = 1

    @property
    def layer(self) -> str:
        """Where the truth comes from: L1 the files' shape, L2 the format's rules, L3 the declared ids, L4 the source,
        L5 the encoder."""
        return self.id[:2]


_TABLE = (
    Check("L1_FILES", "the folder holds the files of the pinned format and nothing else but an admission"),
    Check("L1_RECEIPT", "the receipt is a canonical record, sealed by its own content id"),
    Check("L1_SIZES", "each file has the name, dtype, items and bytes that the receipt states"),
    Check("L1_HASH", "each file has the SHA-256 that the receipt states"),
    Check("L1_SHAPE", "one length and one line a document, one cut more than documents, one mask an id"),
    Check("L2_CODEC_PIN", "the receipt names the pinned codec, and its files hash to it"),
    Check("L2_VOCABULARY", "ids are dense and all but the separator spell bytes, as the format wants them"),
    Check("L2_OFFSETS", "cuts start at 0, rise strictly and end at the number of ids"),
    Check("L2_ID_RANGE", "every id is in the vocabulary"),
    Check("L2_EOD", "the separator stands once a document, at its pinned side, and nowhere else"),
    Check("L2_CAPITALS", "no id is a capital byte: case travels in masks alone", (CASEBITS,)),
    Check("L2_MASK_EOD", "the mask of an end of document is 0", (CASEBITS,)),
    Check("L2_MASK_LENGTH", "no mask bit stands beyond its token's last byte", (CASEBITS,)),
    Check("L2_MASK_LETTERS", "mask bits stand on ASCII letters only", (CASEBITS,)),
    Check("L2_RAW_BYTES", "a document's byte length is the sum of its tokens' lengths"),
    Check("L2_DOCUMENTS", "documents.jsonl has one canonical line a document, with its index and offsets"),
    Check("L2_IDS_UNIQUE", "no document id stands twice"),
    Check("L3_DOCUMENT_IDS", "each declared document id is the hash of the decoded text"),
    Check("L4_PINS", "the receipt names the pinned generation, region, source, filter and split"),
    Check("L4_SOURCE_RANGE", "the source has the stated size, and the range read has the stated hash"),
    Check("L4_VERDICTS", "the verdict table has its columns, and one row for each source row in order"),
    Check("L4_ROWS", "lengths and clusters of the verdict table are those of the source"),
    Check("L4_QUARANTINE", "exactly the malformed source rows are quarantined, each with reason and place"),
    Check("L4_VERDICT_IDS", "each row's document id is the hash of the source text"),
    Check("L4_SELECTION", "every verdict follows from the pinned rules and the recorded scores"),
    Check("L4_KEPT", "the documents are exactly the kept rows"),
    Check("L4_ORDER", "the documents stand in source order"),
    Check("L4_TEXT", "each decoded document is, byte for byte, the text of its source row"),
    Check("L4_IDS", "where the source's ids are kept, they are those of the source row", (PLAIN,)),
    Check("L4_SPLIT", "each document is on the side that the split rule gives its source text"),
    Check("L4_DOCUMENTS", "documents.jsonl is, byte for byte, what source and verdict table give"),
    Check("L4_COUNTS", "the receipt's counts are those recounted, and conserve the rows read"),
    Check("L4_VERDICTS_DIGEST", "the receipt's digest is that of the verdicts re-derived"),
    Check("L4_SCORES", "recorded scores are those of the source text"),
    Check("L5_SEGMENTATION", "where ids are made from text, the reference tokenizer makes the same ones"),
)
CHECKS = {check.id: check for check in _TABLE}


def check_table() -> tuple[Check, ...]:
    """Return all checks, layer by layer."""
    return _TABLE


class Proof:
    """The checks that one region has passed so far. `region` starts every place that a refusal names; `format` is that
    of the pinned codec."""

    def __init__(self, region: str, *, full: bool, format: str = CASEBITS) -> None:
        self.region, self.format, self._full, self._seed = region, format, full, ""
        self._results: dict[str, CheckResult] = {}

    def rejected(self, check: str, where: str, problem: str = "", **found: Any) -> Rejected:
        """Return the refusal of a check; `found` may hold expected, read, document (its index in the region) and
        position: a token of the region, a byte of the document, a line or a row of the source file, whichever `where`
        counts in."""
        return Rejected(CHECKS[check].id, f"{self.region}/{where}", problem, **found)

    def require_equal(self, check: str, where: str, expected: object, read: object) -> None:
        if expected != read:
            raise self.rejected(check, where, expected=expected, read=read)

    def require_fields(self, check: str, where: str, expected: Mapping[str, object], record: object) -> None:
        """Refuse at the first field of `record` that is not as expected."""
        for name, value in expected.items():
            self.require_equal(check, f"{where}.{name}", value, getattr(record, name))

    def require_columns(
        self, check: str, where: str, expected: Column, read: Column, problem: str, bad: Column = None, **place: Column
    ) -> None:
        """Refuse at the first row where the columns differ, or where `bad` is True; `place` holds, by row, the document
        and position to name."""
        differs = np.asarray(expected != read if bad is None else bad)
        rows = differs.any(axis=1) if differs.ndim == 2 else differs
        if rows.any():
            columns = {"expected": expected, "read": read, **place}
            found = {name: _value(column, int(rows.argmax())) for name, column in columns.items()}
            raise self.rejected(check, where, problem, **found)

    def passed(self, check: str, population: int, examined: int | None = None) -> None:
        examined = population if examined is None else examined
        sampled = examined != population
        self._results[check] = CheckResult(
            id=check,
            version=CHECKS[check].version,
            population=population,
            examined=examined,
            mode="sample" if sampled else "full",
            seed=self._seed if sampled else "",
            result="passed",
        )

    def seed(self, receipt_sha256: str) -> None:
        """Fix the seed of all samples: the receipt's hash, which no producer can choose after the fact."""
        self._seed = receipt_sha256

    def sample(self, check: str, population: int) -> list[int]:
        """Return the sorted members to examine: all in full mode or when few, else `SAMPLE_LEAST` drawn by the seed."""
        if self._full or population <= SAMPLE_LEAST:
            return list(range(population))
        chosen: set[int] = set()
        draw = 0
        while len(chosen) < SAMPLE_LEAST:
            digest = hashlib.sha256(f"{self._seed}:{check}:{draw}".encode()).digest()
            chosen.add(int.from_bytes(digest[:8], "big") % population)
            draw += 1
        return sorted(chosen)

    def results(self) -> tuple[CheckResult, ...]:
        """Return the result of every check of the format; one that never ran is a KeyError, not an admission."""
        return tuple(self._results[check.id] for check in _TABLE if self.format in check.formats)


def _value(column: Column, row: int) -> object:
    """Return what a refusal shows of a column: its value at the row, ids as hex; a text stands for itself."""
    if isinstance(column, np.ndarray):
        return column[row].tobytes().hex() if column.ndim == 2 else column[row].item()
    return column[row] if isinstance(column, range) else column


def owner(cuts: Array, positions: Array | int) -> Array:
    """Return which of the slices that `cuts` delimits holds a position (the last one when slices are empty)."""
    return np.asarray(np.searchsorted(cuts, positions, side="right")) - 1


def blocks(offsets: Array, size: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of whole documents, cut at `offsets`, of about `size` tokens each: at least one document, all
    together all of them."""
    first, count = 0, len(offsets) - 1
    while first < count:
        end = int(np.searchsorted(offsets, int(offsets[first]) + size, side="right")) - 1
        end = min(max(end, first + 1), count)
        yield first, end
        first = end


def slice_digests(column: Array, begins: Array, ends: Array) -> Array:
    """Return the SHA-256 of the bytes of each slice [begin:end) of a column, "u1" (N, 32)."""
    view, new = column.data, hashlib.sha256
    hashed = [new(view[begin:end]).digest() for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
    return np.frombuffer(b"".join(hashed), "u1").reshape(-1, 32)


def whole_ids(ids: Array) -> Array:
    """Return the ids "u1" (N, 16) as "V16" (N,)."""
    return np.ascontiguousarray(ids).view("V16").ravel()


def numbered(ids: Array) -> Array:
    """Return for each id "V16" how many others had appeared when it first did: equal ids, equal numbers."""
    buffers = [None, pa.py_buffer(np.ascontiguousarray(ids))]
    indices = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(ids), buffers).dictionary_encode().indices
    return np.asarray(indices.to_numpy())


def integers(column: Any, null: int) -> Array:
    """Return an Arrow column of integers as "<i8", with `null` for nulls; beyond 63 bits they are negative."""
    return np.asarray(pc.fill_null(pc.cast(column, pa.int64(), safe=False), null).to_numpy(zero_copy_only=False))


def first_difference(expected: Sequence[object], read: Sequence[object]) -> int:
    """Return where two sequences part."""
    pairs = enumerate(zip(expected, read, strict=False))
    return next((at for at, (want, got) in pairs if want != got), min(len(expected), len(read)))
