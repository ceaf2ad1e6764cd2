"""Layer 4 on decisions: the verdict table against the source, and everything that must follow from it.

Guarantees: which rows are documents, in which order and on which side of the split is derived again from the source,
the recorded scores and the pinned rules; nothing the producer decided is taken over. All columns, no loop over rows
but one hash each for the split.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from casebits_dagster.admission.checks import Array, Proof
from casebits_dagster.admission.documents import DeclaredDocuments
from casebits_dagster.admission.source import REASONS, SourceRows
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.layout import DOCUMENTS
from casebits_dagster.records.pins import FilterPolicy, RegionSpec, Rule
from casebits_dagster.records.record import micro
from casebits_dagster.records.region import SplitPin


@dataclass(frozen=True, slots=True)
class VerdictTable:
    """The filter stage's record of every row: `verdicts` "U", `ids` "u1" (rows, 16), integer columns, and the scores
    as micro-units by metric; `scored` marks rows whose every score is there."""

    positions: Array
    verdicts: Array
    ids: Array
    clusters: Array
    source_tokens: Array
    problem_at: Array
    scores: dict[str, Array]
    scored: Array


@dataclass(frozen=True, slots=True)
class Selection:
    """What must have been kept: `rows` count from the start of the range; `verdicts` are those of all rows."""

    verdicts: Array
    rows: Array
    validation: Array


def read_verdicts(path: Path, spec: RegionSpec, policy: FilterPolicy, proof: Proof) -> VerdictTable:
    """Return the verdict table after checking its columns, its positions and where scores stand."""
    where = f"verdicts/{path.name}"
    try:
        table = pq.read_table(path, partitioning=None)
        table.validate(full=True)
    except (OSError, pa.ArrowException) as error:
        raise proof.rejected("L4_VERDICTS", where, str(error)) from error
    wanted = _schema(policy)
    expected = {field.name: str(field.type) for field in wanted}
    proof.require_equal("L4_VERDICTS", where, expected, {field.name: str(field.type) for field in table.schema})
    proof.require_equal("L4_VERDICTS", f"{where}: rows", spec.end - spec.begin, table.num_rows)
    for name in wanted.names[: -len(policy.metrics) or None]:
        proof.require_equal("L4_VERDICTS", f"{where}: {name} nulls", 0, table.column(name).null_count)
    positions = _numbers(table, "position")
    bad = positions != np.arange(spec.begin, spec.end)
    proof.require_none(
        "L4_VERDICTS",
        f"{where}: position",
        bad,
        "rows are not in source order",
        lambda at: {"expected": spec.begin + at, "read": int(positions[at]), "position": spec.begin + at},
    )
    proof.passed("L4_VERDICTS", len(positions))
    present = [_present(table, f"score_{metric}") for metric in policy.metrics]
    return VerdictTable(
        positions,
        np.array(table.column("verdict").to_pylist(), "U"),
        np.frombuffer(b"".join(table.column("document_id").to_pylist()), "u1").reshape(-1, 16),
        _numbers(table, "cluster"),
        _numbers(table, "source_tokens"),
        _numbers(table, "problem_at"),
        {metric: _numbers(table, f"score_{metric}") for metric in policy.metrics},
        np.all([*present, np.ones(len(positions), bool)], axis=0),
    )


def _schema(policy: FilterPolicy) -> pa.Schema:
    columns = [
        ("position", pa.int64()),
        ("verdict", pa.string()),
        ("document_id", pa.binary(16)),
        ("cluster", pa.int32()),
        ("source_tokens", pa.int64()),
        ("problem_at", pa.int64()),
    ]
    return pa.schema(columns + [(f"score_{metric}", pa.int64()) for metric in policy.metrics])


def _numbers(table: Any, name: str) -> Array:
    return np.asarray(table.column(name).fill_null(0).to_numpy())


def _present(table: Any, name: str) -> Array:
    return np.asarray(table.column(name).is_valid().to_numpy())


def check_rows(table: VerdictTable, source: SourceRows, where: str, proof: Proof) -> None:
    """Compare the columns that the table copies from the source, its quarantine, and its ids."""
    quarantined = source.quarantined
    ids = np.where(quarantined[:, None], np.zeros(16, "u1"), source.digests[:, :16])
    reasons = np.array([f"quarantined:{reason}" for reason in REASONS])[source.reasons]
    claimed = np.char.startswith(table.verdicts, "quarantined")
    _require_rows(table, proof, "L4_ROWS", f"{where}: source_tokens", source.lengths, table.source_tokens)
    _require_rows(table, proof, "L4_ROWS", f"{where}: cluster", source.clusters, table.clusters)
    proof.passed("L4_ROWS", len(ids))
    check = "L4_QUARANTINE"
    _require_rows(
        table, proof, check, f"{where}: verdict", np.where(quarantined, reasons, ""), table.verdicts, quarantined
    )
    _require_rows(table, proof, check, f"{where}: verdict", quarantined, claimed)
    _require_rows(table, proof, check, f"{where}: problem_at", source.problem_at, table.problem_at)
    _require_rows(table, proof, check, f"{where}: scores", ~quarantined, table.scored)
    proof.passed(check, len(ids))
    _require_rows(table, proof, "L4_VERDICT_IDS", f"{where}: document_id", _whole(ids), _whole(table.ids))
    proof.passed("L4_VERDICT_IDS", len(ids))


def _whole(ids: Array) -> Array:
    """Return the ids "u1" (N, 16) as "V16" (N,)."""
    return np.ascontiguousarray(ids).view("V16").ravel()


def _require_rows(
    table: VerdictTable, proof: Proof, check: str, where: str, expected: Array, read: Array, among: Array | None = None
) -> None:
    bad = expected != read if among is None else (expected != read) & among
    proof.require_none(
        check,
        where,
        bad,
        "row does not fit the source",
        lambda at: {"expected": expected[at].item(), "read": read[at].item(), "position": int(table.positions[at])},
    )


def check_selection(
    table: VerdictTable, source: SourceRows, policy: FilterPolicy, split: SplitPin, where: str, proof: Proof
) -> Selection:
    """Return the selection re-derived: the rules in their order on every row, then the split of what is kept."""
    expected = _derive_verdicts(table, source, policy)
    _require_rows(table, proof, "L4_SELECTION", f"{where}: verdict", expected, table.verdicts)
    proof.passed("L4_SELECTION", len(expected))
    rows = np.flatnonzero(expected == "keep")
    return Selection(expected, rows, split_sides(source.digests[rows, :16], split))


def _derive_verdicts(table: VerdictTable, source: SourceRows, policy: FilterPolicy) -> Array:
    keep = len(policy.rules)
    first = np.full(len(source.reasons), keep)
    for number, rule in reversed(list(enumerate(policy.rules))):
        if rule.kind != "duplicate":
            first[_applies(rule, table.scores, source.clusters)] = number
    first[source.quarantined] = keep + 1
    again = _repeats(source.digests[:, :16], first == keep) & (first <= keep)
    duplicate = [number for number, rule in enumerate(policy.rules) if rule.kind == "duplicate"]
    for number in duplicate[:1]:
        first[again] = np.minimum(first[again], number)
    labels = np.array([*(f"dropped:{rule.reason}" for rule in policy.rules), "keep", ""])
    quarantine = np.array([f"quarantined:{reason}" for reason in REASONS])[source.reasons]
    return np.where(source.quarantined, quarantine, labels[first])


def _applies(rule: Rule, scores: dict[str, Array], clusters: Array) -> Array:
    if rule.kind == "clusters":
        return ~np.isin(clusters, rule.accept)
    values = scores[str(rule.metric)]
    low, high = (None if limit is None else micro(limit) for limit in (rule.at_least, rule.at_most))
    drop = np.zeros(len(values), bool)
    if low is not None:
        drop |= values < low
    if high is not None:
        drop |= values > high
    return drop


def _repeats(ids: Array, candidates: Array) -> Array:
    """Mark the rows whose id an earlier candidate has: the first candidate of an id is the one that is kept."""
    _, group = np.unique(np.ascontiguousarray(ids).view("S16").ravel(), return_inverse=True)
    rows = np.arange(len(ids))
    earliest = np.full(len(ids) + 1, len(ids))
    np.minimum.at(earliest, group[candidates], rows[candidates])
    return np.asarray(rows > earliest[group])


def split_sides(ids: Array, split: SplitPin) -> Array:
    """Return True for each id that the split rule puts into validation."""
    salt = split.salt.encode() + b"\0"
    drawn = b"".join(hashlib.sha256(salt + row.tobytes()).digest()[:8] for row in ids)
    return np.frombuffer(drawn, ">u8") < np.uint64(split.threshold)


def check_documents(table: VerdictTable, selection: Selection, declared: DeclaredDocuments, proof: Proof) -> None:
    """Compare the declared documents with the selection: which rows, in which order, on which side."""
    expected, read = table.positions[selection.rows], declared.source_position
    for extra in np.setdiff1d(read, expected)[:1]:
        document = int(np.flatnonzero(read == extra)[0])
        problem = "a document that was not kept"
        raise proof.rejected("L4_KEPT", DOCUMENTS, problem, document=document, position=int(extra))
    for lost in np.setdiff1d(expected, read)[:1]:
        raise proof.rejected("L4_KEPT", DOCUMENTS, "a kept row is no document", position=int(lost))
    proof.require_equal("L4_KEPT", f"{DOCUMENTS}: documents", len(expected), len(read))
    proof.passed("L4_KEPT", len(expected))
    _require_documents(proof, "L4_ORDER", "source_position", expected, read)
    proof.passed("L4_ORDER", len(expected))


def check_split(selection: Selection, declared: DeclaredDocuments, proof: Proof) -> None:
    """Compare each document's declared side with the one its source text gives."""
    _require_documents(proof, "L4_SPLIT", "split validation", selection.validation, declared.validation)
    proof.passed("L4_SPLIT", len(selection.rows))


def _require_documents(proof: Proof, check: str, field: str, expected: Array, read: Array) -> None:
    proof.require_none(
        check,
        f"{DOCUMENTS}: {field}",
        expected != read,
        "document differs from the source",
        lambda at: {"expected": expected[at].item(), "read": read[at].item(), "document": at, "position": at},
    )


def verdicts_digest(table: VerdictTable, selection: Selection) -> str:
    """Return the digest of the verdicts as re-derived; the receipt must hold it."""
    lines = "".join(f"{verdict}\n" for verdict in selection.verdicts.tolist()).encode("ascii")
    return sha256(table.positions.astype("<i8").tobytes() + lines + table.ids.tobytes())
