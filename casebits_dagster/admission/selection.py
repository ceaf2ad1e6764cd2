"""Layer 4 on decisions: the verdict table against the source, and everything that must follow from it.

Guarantees: which rows are documents, in which order and on which side of the split is derived again from the source,
the recorded scores and the pinned rules; nothing the producer decided is taken over. All columns, no loop over rows
but one hash each for the split.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from casebits_dagster.admission.checks import Array, Proof
from casebits_dagster.admission.files import RegionFiles
from casebits_dagster.admission.source import SourceRows, integers
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.layout import DOCUMENTS, RECEIPT
from casebits_dagster.records.plan import RegionSpec
from casebits_dagster.records.policy import FilterPolicy, Rule
from casebits_dagster.records.record import micro
from casebits_dagster.records.region import SplitPin

_TYPES = {
    "position": "int64",
    "verdict": "string",
    "document_id": "fixed_size_binary[16]",
    "cluster": "int32",
    "source_tokens": "int64",
    "problem_at": "int64",
}


@dataclass(frozen=True, slots=True)
class VerdictTable:
    """The filter stage's record of every row: `columns` by name, "verdict" as "U", "document_id" as "V16", the others
    as integers (scores in micro-units); `scored` marks rows whose every score is there, `where` names the file."""

    where: str
    columns: dict[str, Array]
    scored: Array


@dataclass(frozen=True, slots=True)
class Selection:
    """What must have been kept: `verdicts` are those of all rows; `rows` count from the start of the range, and the
    columns after it are those of the kept rows."""

    verdicts: Array
    rows: Array
    positions: Array
    digests: Array
    ids: Array
    clusters: Array
    validation: Array
    scores: dict[str, Array]


def read_verdicts(path: Path, spec: RegionSpec, policy: FilterPolicy, proof: Proof) -> VerdictTable:
    """Return the verdict table after checking its columns, its positions and where scores stand."""
    where = f"verdicts/{path.name}"
    try:
        table = pq.read_table(path, partitioning=None)
        table.validate(full=True)
    except (OSError, pa.ArrowException) as error:
        raise proof.rejected("L4_VERDICTS", where, str(error)) from error
    scores = [f"score_{metric}" for metric in policy.metrics]
    expected = _TYPES | dict.fromkeys(scores, "int64")
    proof.require_equal("L4_VERDICTS", where, expected, {field.name: str(field.type) for field in table.schema})
    proof.require_equal("L4_VERDICTS", f"{where}: rows", spec.end - spec.begin, table.num_rows)
    for name in _TYPES:
        proof.require_equal("L4_VERDICTS", f"{where}: {name} nulls", 0, table.column(name).null_count)
    columns = {name: integers(table.column(name), 0) for name, kind in expected.items() if kind.startswith("int")}
    columns["verdict"] = np.array(table.column("verdict").to_pylist(), "U")
    columns["document_id"] = np.frombuffer(b"".join(table.column("document_id").to_pylist()), "V16")
    rows, read, problem = np.arange(spec.begin, spec.end), columns["position"], "rows are not in source order"
    proof.require_columns("L4_VERDICTS", f"{where}: position", rows, read, problem, position=rows)
    proof.passed("L4_VERDICTS", len(rows))
    present = [table.column(name).is_valid().to_numpy() for name in scores]
    return VerdictTable(where, columns, np.all([*present, np.ones(len(rows), bool)], axis=0))


def check_rows(table: VerdictTable, source: SourceRows, proof: Proof) -> None:
    """Compare the columns that the table copies from the source, its quarantine, and its ids."""
    require, verdicts = functools.partial(_require_rows, table, proof), table.columns["verdict"]
    quarantined = source.quarantined
    require("L4_ROWS", "source_tokens", source.lengths)
    require("L4_ROWS", "cluster", source.clusters)
    proof.passed("L4_ROWS", len(quarantined))
    require("L4_QUARANTINE", "verdict", np.where(quarantined, source.quarantine, verdicts))
    require("L4_QUARANTINE", "verdict", quarantined, np.char.startswith(verdicts, "quarantined"))
    require("L4_QUARANTINE", "problem_at", source.problem_at)
    require("L4_QUARANTINE", "scores", ~quarantined, table.scored)
    proof.passed("L4_QUARANTINE", len(quarantined))
    require("L4_VERDICT_IDS", "document_id", source.ids)
    proof.passed("L4_VERDICT_IDS", len(quarantined))


def _require_rows(
    table: VerdictTable, proof: Proof, check: str, field: str, expected: Array, read: Array | None = None
) -> None:
    """Compare a column of the table, or what was read from it, with what the source gives."""
    read = table.columns[field] if read is None else read
    where, problem = f"{table.where}: {field}", "row does not fit the source"
    proof.require_columns(check, where, expected, read, problem, position=table.columns["position"])


def check_selection(
    table: VerdictTable, source: SourceRows, policy: FilterPolicy, split: SplitPin, proof: Proof
) -> Selection:
    """Return the selection re-derived: the rules in their order on every row, then the split of what is kept."""
    expected = _derive_verdicts(table, source, policy)
    _require_rows(table, proof, "L4_SELECTION", "verdict", expected)
    proof.passed("L4_SELECTION", len(expected))
    rows = np.flatnonzero(expected == "keep")
    return Selection(
        verdicts=expected,
        rows=rows,
        positions=table.columns["position"][rows],
        digests=source.digests[rows],
        ids=source.ids[rows],
        clusters=source.clusters[rows],
        validation=split_sides(source.ids[rows], split),
        scores={metric: table.columns[f"score_{metric}"][rows] for metric in policy.metrics},
    )


def _derive_verdicts(table: VerdictTable, source: SourceRows, policy: FilterPolicy) -> Array:
    keep = len(policy.rules)
    labels = np.array([*(f"dropped:{rule.reason}" for rule in policy.rules), "keep"])
    first = np.full(len(source.reasons), keep)
    for number, rule in reversed(list(enumerate(policy.rules))):
        if rule.kind != "duplicate":
            first[_applies(rule, table, source.clusters)] = number
    again = _repeats(source.ids, (first == keep) & ~source.quarantined)
    duplicate = next((number for number, rule in enumerate(policy.rules) if rule.kind == "duplicate"), keep)
    first[again] = np.minimum(first[again], duplicate)
    return np.where(source.quarantined, source.quarantine, labels[first])


def _applies(rule: Rule, table: VerdictTable, clusters: Array) -> Array:
    if rule.kind == "clusters":
        return ~np.isin(clusters, rule.accept)
    values = table.columns[f"score_{rule.metric}"]
    drop = np.zeros(len(values), bool)
    if rule.at_least is not None:
        drop |= values < micro(rule.at_least)
    if rule.at_most is not None:
        drop |= values > micro(rule.at_most)
    return drop


def _repeats(ids: Array, candidates: Array) -> Array:
    """Mark the rows whose id an earlier candidate has: the first candidate of an id is the one that is kept."""
    _, group = np.unique(ids, return_inverse=True)
    rows = np.arange(len(ids))
    earliest = np.full(len(ids) + 1, len(ids))
    np.minimum.at(earliest, group[candidates], rows[candidates])
    return np.asarray(rows > earliest[group])


def split_sides(ids: Array, split: SplitPin) -> Array:
    """Return True for each id that the split rule puts into validation."""
    salt = split.salt.encode() + b"\0"
    drawn = b"".join(hashlib.sha256(salt + row).digest()[:8] for row in ids.tolist())
    return np.frombuffer(drawn, ">u8") < np.uint64(split.threshold)


def check_documents(selection: Selection, read: Array, proof: Proof) -> None:
    """Compare the declared source positions of the documents with the selection: which rows, in which order."""
    expected = selection.positions
    for extra in np.setdiff1d(read, expected)[:1].tolist():
        document = int(np.flatnonzero(read == extra)[0])
        raise proof.rejected("L4_KEPT", DOCUMENTS, "a document that was not kept", document=document, position=extra)
    for lost in np.setdiff1d(expected, read)[:1].tolist():
        raise proof.rejected("L4_KEPT", DOCUMENTS, "a kept row is no document", position=lost)
    proof.require_equal("L4_KEPT", f"{DOCUMENTS}: documents", len(expected), len(read))
    proof.passed("L4_KEPT", len(expected))
    _require_documents(proof, "L4_ORDER", "source_position", expected, read)


def check_split(selection: Selection, read: Array, proof: Proof) -> None:
    """Compare each document's declared side with the one its source text gives."""
    _require_documents(proof, "L4_SPLIT", "split validation", selection.validation, read)


def _require_documents(proof: Proof, check: str, field: str, expected: Array, read: Array) -> None:
    where, problem, rows = f"{DOCUMENTS}: {field}", "document differs from the source", range(len(read))
    proof.require_columns(check, where, expected, read, problem, document=rows, position=rows)
    proof.passed(check, len(expected))


def check_counts(region: RegionFiles, table: VerdictTable, selection: Selection, proof: Proof) -> None:
    """Recount everything the receipt counts, compare its verdict digest, and check that rows are conserved."""
    tally: dict[str, dict[str, int]] = {"keep": {}, "dropped": {}, "quarantined": {}}
    for verdict, count in zip(*np.unique(selection.verdicts, return_counts=True), strict=True):
        kind, _, reason = verdict.item().partition(":")
        tally[kind][reason] = count.item()
    rows, documents, validation = len(selection.verdicts), len(selection.rows), int(selection.validation.sum())
    expected = {
        "rows_read": rows,
        "documents": documents,
        "tokens": len(region.ids),
        "raw_bytes": int(region.raw_bytes.sum()),
        "train_documents": documents - validation,
        "validation_documents": validation,
        "dropped": tally["dropped"],
        "quarantined": tally["quarantined"],
    }
    proof.require_fields("L4_COUNTS", f"{RECEIPT}: counts", expected, region.receipt.counts)
    proof.passed("L4_COUNTS", rows)
    digest = _verdicts_digest(table, selection)
    proof.require_equal("L4_VERDICTS_DIGEST", f"{RECEIPT}: verdicts_digest", digest, region.receipt.verdicts_digest)
    proof.passed("L4_VERDICTS_DIGEST", rows)


def _verdicts_digest(table: VerdictTable, selection: Selection) -> str:
    lines = "".join(f"{verdict}\n" for verdict in selection.verdicts.tolist()).encode("ascii")
    return sha256(table.columns["position"].astype("<i8").tobytes(), lines, table.columns["document_id"].tobytes())
