"""Selection as one would say it, on lists and whole sorts: what the columns of the product are compared with."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

LIMIT = 2**64


@dataclass(frozen=True)
class Doc:
    id: bytes
    region: int
    index: int
    tokens: int
    cell: tuple[int, int]
    validation: bool = False


@dataclass(frozen=True)
class Use:
    """One use of a document: its copy number."""

    copy: int
    doc: Doc


def splitmix64(value: int) -> int:
    value = (value + 0x9E3779B97F4A7C15) % LIMIT
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 % LIMIT
    value = (value ^ value >> 27) * 0x94D049BB133111EB % LIMIT
    return value ^ value >> 31


def key(use: Use, seed: str) -> tuple[int, int, bytes]:
    """Epoch by epoch, then by the hash of the id, ties by id."""
    seed64 = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big")
    first = splitmix64(int.from_bytes(use.doc.id[:8], "big") ^ seed64)
    return use.copy, splitmix64(first ^ use.copy) if use.copy else first, use.doc.id


def supply(docs: Sequence[Doc], excluded: set[bytes], window: int) -> tuple[list[Doc], int, int, int]:
    """Return what may be taken, and how many are left out: excluded, repeated, unfit."""
    fresh = [doc for doc in docs if doc.id not in excluded]
    named = {doc.id: doc for doc in reversed(fresh)}
    first = [doc for doc in fresh if named[doc.id] is doc]
    train = [doc for doc in first if not doc.validation]
    shortest = min((doc.tokens for doc in train), default=0)
    unfit = {doc for doc in train if 16 * shortest <= window and 0 < -doc.tokens % window < shortest}
    kept = [doc for doc in first if doc not in unfit]
    return kept, len(docs) - len(fresh), len(fresh) - len(first), len(unfit)


def select(docs: Sequence[Doc], targets: list[list[int]], epochs: list[list[int]], seed: str) -> set[Use]:
    """Return the uses of train documents that meet the targets."""
    taken: set[Use] = set()
    cells = {
        (i, j): sorted(
            (
                Use(copy, doc)
                for doc in docs
                if doc.cell == (i, j) and not doc.validation
                for copy in range(epochs[i][j])
            ),
            key=lambda use: key(use, seed),
        )
        for i, row in enumerate(targets)
        for j, target in enumerate(row)
        if target
    }
    rest = 0
    for i, row in enumerate(targets):
        carry = 0
        for j in reversed(range(len(row))):
            if (i, j) in cells:
                want = row[j] + carry
                ends = [0, *accumulate(use.doc.tokens for use in cells[i, j])]
                count = min(range(len(ends)), key=lambda k: (abs(ends[k] - want), k))
                taken |= set(cells[i, j][:count])
                carry = want - ends[count]
        rest += settle([uses for (row_number, _), uses in sorted(cells.items()) if row_number == i], taken, carry)
    settle([uses for _, uses in sorted(cells.items(), key=lambda item: item[0][::-1])], taken, rest)
    return taken


def settle(cells: list[list[Use]], taken: set[Use], residue: int) -> int:
    """Add, leave out or swap one document inside a cell so that the residue closes; return what remains."""
    for uses in cells if residue else []:
        enter: dict[int, Use | None] = {0: None}
        leave: dict[int, Use | None] = {0: None}
        for use in uses:
            (leave if use in taken else enter).setdefault(use.doc.tokens, use)
        for length in sorted(enter):
            if length - residue in leave:
                taken -= {leave[length - residue]}
                taken |= {entering for entering in (enter[length],) if entering}
                return 0
    return residue
