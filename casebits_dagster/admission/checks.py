"""The closed table of admission checks, and the proof that collects them.

Guarantees: an admission lists every check of the table, each passed; a refusal carries the id of the check that failed,
with the file, document and position where it did. A check's `version` is raised when what it proves changes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from casebits_dagster.records.errors import Rejected
from casebits_dagster.records.region import CheckResult

SAMPLE_LEAST = 32

Array = npt.NDArray[Any]


class Check(NamedTuple):
    """`layer` is where the truth comes from: L1 the files' shape, L2 the format's rules, L3 the declared ids,
    L4 the source, L5 the encoder."""

    id: str
    layer: str
    version: int
    proves: str


_TABLE = (
    Check("L1_FILES", "L1", 1, "the folder holds the six files of a region and nothing else but an admission"),
    Check("L1_RECEIPT", "L1", 1, "the receipt is a canonical record, sealed by its own content id"),
    Check("L1_SIZES", "L1", 1, "each file has the name, dtype, items and bytes that the receipt states"),
    Check("L1_HASH", "L1", 1, "each file has the SHA-256 that the receipt states"),
    Check("L1_SHAPE", "L1", 1, "one mask an id, one length and one line a document, one cut more than documents"),
    Check("L2_CODEC_PIN", "L2", 1, "the receipt names the pinned codec, and vocabulary and mixture hash to it"),
    Check("L2_VOCABULARY", "L2", 1, "ids are dense, tokens short and without A-Z, every byte present, nothing added"),
    Check("L2_OFFSETS", "L2", 1, "cuts start at 0, rise strictly and end at the number of ids"),
    Check("L2_ID_RANGE", "L2", 1, "every id is in the vocabulary"),
    Check("L2_EOD", "L2", 1, "the end-of-document id closes each document and stands nowhere else"),
    Check("L2_CAPITALS", "L2", 1, "no id is a capital byte: case travels in masks alone"),
    Check("L2_MASK_EOD", "L2", 1, "the mask of an end of document is 0"),
    Check("L2_MASK_LENGTH", "L2", 1, "no mask bit stands beyond its token's last byte"),
    Check("L2_MASK_LETTERS", "L2", 1, "mask bits stand on ASCII letters only"),
    Check("L2_RAW_BYTES", "L2", 1, "a document's byte length is the sum of its tokens' lengths"),
    Check("L2_DOCUMENTS", "L2", 1, "documents.jsonl has one canonical line a document, with its index and offsets"),
    Check("L2_IDS_UNIQUE", "L2", 1, "no document id stands twice"),
    Check("L3_DOCUMENT_IDS", "L3", 1, "each declared document id is the hash of the decoded text"),
    Check("L4_PINS", "L4", 1, "the receipt names the pinned generation, region, source, filter and split"),
    Check("L4_SOURCE_RANGE", "L4", 1, "the source has the stated size, and the range read has the stated hash"),
    Check("L4_VERDICTS", "L4", 1, "the verdict table has its columns, and one row for each source row in order"),
    Check("L4_ROWS", "L4", 1, "lengths and clusters of the verdict table are those of the source"),
    Check("L4_QUARANTINE", "L4", 1, "exactly the malformed source rows are quarantined, each with reason and place"),
    Check("L4_VERDICT_IDS", "L4", 1, "each row's document id is the hash of the source text"),
    Check("L4_SELECTION", "L4", 1, "every verdict follows from the pinned rules and the recorded scores"),
    Check("L4_KEPT", "L4", 1, "the documents are exactly the kept rows"),
    Check("L4_ORDER", "L4", 1, "the documents stand in source order"),
    Check("L4_TEXT", "L4", 1, "each decoded document is, byte for byte, the text of its source row"),
    Check("L4_SPLIT", "L4", 1, "each document is on the side that the split rule gives its source text"),
    Check("L4_DOCUMENTS", "L4", 1, "documents.jsonl is, byte for byte, what source and verdict table give"),
    Check("L4_COUNTS", "L4", 1, "the receipt's counts are those recounted, and conserve the rows read"),
    Check("L4_VERDICTS_DIGEST", "L4", 1, "the receipt's digest is that of the verdicts re-derived"),
    Check("L4_SCORES", "L4", 1, "recorded scores are those of the source text"),
    Check("L5_SEGMENTATION", "L5", 1, "re-encoding the text with the reference tokenizer gives the same ids"),
)
CHECKS = {check.id: check for check in _TABLE}


def check_table() -> tuple[Check, ...]:
    """Return all checks in the order in which they run."""
    return _TABLE


class Proof:
    """The checks that one region has passed so far. `region` starts every place that a refusal names."""

    def __init__(self, region: str, *, full: bool) -> None:
        self.region, self._full, self._seed = region, full, ""
        self._examined: dict[str, tuple[int, int]] = {}

    def rejected(
        self,
        check: str,
        where: str,
        problem: str = "",
        *,
        expected: object = None,
        read: object = None,
        document: int | None = None,
        position: int | None = None,
    ) -> Rejected:
        """Return the refusal of a check: `document` is an index in the region; `position` a token of the region, a
        byte of the document, a line or a row of the source file, whichever `where` counts in."""
        place = f"{self.region}/{where}"
        return Rejected(
            CHECKS[check].id, place, problem, expected=expected, read=read, document=document, position=position
        )

    def require_equal(self, check: str, where: str, expected: object, read: object) -> None:
        if expected != read:
            raise self.rejected(check, where, expected=expected, read=read)

    def require_none(
        self, check: str, where: str, bad: Array, problem: str, place: Callable[[int], dict[str, Any]]
    ) -> None:
        """Refuse at the first True of `bad`; `place` turns its index into document, position, expected and read."""
        if bad.any():
            raise self.rejected(check, where, problem, **place(int(bad.argmax())))

    def passed(self, check: str, population: int, examined: int | None = None) -> None:
        self._examined[check] = (population, population if examined is None else examined)

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
        """Return the result of every check of the table; one that never ran is a KeyError, not an admission."""
        return tuple(self._result(check, *self._examined[check.id]) for check in _TABLE)

    def _result(self, check: Check, population: int, examined: int) -> CheckResult:
        full = examined == population
        return CheckResult(
            id=check.id,
            version=check.version,
            population=population,
            examined=examined,
            mode="full" if full else "sample",
            seed="" if full else self._seed,
            result="passed",
        )


def owner(cuts: Array, position: int) -> int:
    """Return which of the slices that `cuts` delimits holds `position` (the last one when slices are empty)."""
    return int(np.searchsorted(cuts, position, side="right")) - 1
