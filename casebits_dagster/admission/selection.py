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
import pyarrow.compute as pc
import pyarrow.parquet as pq

from casebits_dagster.admission.checks import Array, Proof, integers, numbered
from casebits_dagster.admission.files import RegionFiles
from casebits_dagster.admission.rows import REASONS
from casebits_dagster.admission.source import SourceRows
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.layout import DOCUMENTS, RECEIPT
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
    """The filter stage's record of every row: `verdicts` as texts and as `codes` "<i8" (index in `labels`: those that
    the policy can give; -1: none of them); `columns` by name, "document_id" as "V16", the others as integers (scores in
    micro-units); `scored` marks rows whose every score is there, `where` names the file."""

    where: str
    labels: list[str]
    verdicts: pa.StringArray
    codes: Array
    columns: dict[str, Array]
    scored: Array


@dataclass(frozen=True, slots=True)
class Selection:
    """What must have been kept: `codes` are the verdicts of all rows; `rows` count from the start of the range, and the
    columns after it are those of the kept rows."""

    codes: Array
    rows: Array
    positions: Array
    digests: Array
    ids: Array
    clusters: Array
    validation: Array
    scores: dict[str, Array]


def read_verdicts(path: Path, policy: FilterPolicy, proof: Proof) -> VerdictTable:
    """Return the verdict table after checking its columns."""
    where = f"verdicts/{path.name}"
    try:
        table = pq.read_table(path, partitioning=None).combine_chunks()
        table.validate(full=True)
    except (OSError, pa.ArrowException) as error:
        raise proof.rejected("L4_VERDICTS", where, str(error)) from error
    scores = [f"score_{metric}" for metric in policy.metrics]
    expected = _TYPES | dict.fromkeys(scores, "int64")
    proof.require_equal("L4_VERDICTS", where, expected, {field.name: str(field.type) for field in table.schema})
    for name in _TYPES:
        proof.require_equal("L4_VERDICTS", f"{where}: {name} nulls", 0, table.column(name).null_count)
    columns = {name: integers(table.column(name), 0) for name, kind in expected.items() if kind.startswith("int")}
    ids = table.column("document_id").combine_chunks()
    columns["document_id"] = np.frombuffer(ids.buffers()[1], "V16")[ids.offset :][: len(ids)]
    labels = [f"quarantined:{reason}" for reason in REASONS] + [f"dropped:{rule.reason}" for rule in policy.rules]
    labels.append("keep")
    verdicts = table.column("verdict")
    codes = integers(pc.index_in(verdicts, pa.array(labels)), -1)
    scored = [np.ones(table.num_rows, bool), *(table.column(name).is_valid().to_numpy() for name in scores)]
    return VerdictTable(where, labels, verdicts, codes, columns, np.all(scored, axis=0))


def check_rows(table: VerdictTable, source: SourceRows, proof: Proof) -> None:
    """Compare the rows of the table, the columns that it copies from the source, its quarantine, and its ids."""
    require, quarantined = functools.partial(_require_rows, table, proof), source.quarantined
    proof.require_equal("L4_VERDICTS", f"{table.where}: rows", len(quarantined), len(table.codes))
    expected, read, problem = source.positions, table.columns["position"], "rows are not in source order"
    proof.require_columns("L4_VERDICTS", f"{table.where}: position", expected, read, problem, position=expected)
    proof.passed("L4_VERDICTS", len(quarantined))
    require("L4_ROWS", "source_tokens", source.lengths)
    require("L4_ROWS", "cluster", source.clusters)
    proof.passed("L4_ROWS", len(quarantined))
    _require_verdicts(table, proof, "L4_QUARANTINE", np.where(quarantined, source.reasons, table.codes))
    held = pc.starts_with(table.verdicts, "quarantined").to_numpy()
    require("L4_QUARANTINE", "verdict", quarantined, held)
    require("L4_QUARANTINE", "problem_at", source.problem_at)
    require("L4_QUARANTINE", "scores", ~quarantined, table.scored)
    proof.passed("L4_QUARANTINE", len(quarantined))
    require("L4_VERDICT_IDS", "document_id", source.ids)
    proof.passed("L4_VERDICT_IDS", len(quarantined))


def _require_verdicts(table: VerdictTable, proof: Proof, check: str, codes: Array) -> None:
    for row in np.flatnonzero(codes != table.codes)[:1].tolist():
        shown = {"expected": table.labels[codes[row]], "read": table.verdicts[row].as_py()}
        position = int(table.columns["position"][row])
        raise proof.rejected(
            check, f"{table.where}: verdict", "row does not fit the source", **shown, position=position
        )


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
    codes = _derive_verdicts(table, source, policy)
    _require_verdicts(table, proof, "L4_SELECTION", codes)
    proof.passed("L4_SELECTION", len(codes))
    rows = np.flatnonzero(codes == len(table.labels) - 1)
    return Selection(
        codes=codes,
        rows=rows,
        positions=table.columns["position"][rows],
        digests=source.digests[rows],
        ids=source.ids[rows],
        clusters=source.clusters[rows],
        validation=split_sides(source.ids[rows], split),
        scores={metric: table.columns[f"score_{metric}"][rows] for metric in policy.metrics},
    )


def _derive_verdicts(table: VerdictTable, source: SourceRows, policy: FilterPolicy) -> Array:
    keep, first = len(table.labels) - 1, len(REASONS)
    codes = np.full(len(source.reasons), keep)
    for number, rule in reversed(list(enumerate(policy.rules, first))):
        if rule.kind != "duplicate":
            codes[_applies(rule, table, source.clusters)] = number
    again = _repeats(source.ids, (codes == keep) & ~source.quarantined)
    for number in [number for number, rule in enumerate(policy.rules, first) if rule.kind == "duplicate"]:
        codes[again & (codes > number)] = number
    return np.where(source.quarantined, source.reasons, codes)


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
    numbers, earliest = numbered(ids), np.full(len(ids), len(ids))
    # The last of several assignments to one place stands, so the first candidate is assigned last.
    rows = np.flatnonzero(candidates)[::-1]
    earliest[numbers[rows]] = rows
    return np.arange(len(ids)) > earliest[numbers]


def split_sides(ids: Array, split: SplitPin) -> Array:
    """Return True for each id that the split rule puts into validation."""
    salt = split.salt.encode() + b"\0"
    drawn = b"".join(hashlib.sha256(salt + row).digest()[:8] for row in ids.tolist())
    return np.frombuffer(drawn, ">u8") < np.uint64(split.threshold)


def check_documents(selection: Selection, read: Array, proof: Proof) -> None:
    """Compare the declared source positions of the documents with the selection: which rows, in which order."""
    expected = selection.positions
    if not np.array_equal(expected, read):
        _refuse_documents(expected, read, proof)
    proof.passed("L4_KEPT", len(expected))
    _require_documents(proof, "L4_ORDER", "source_position", expected, read)


def _refuse_documents(expected: Array, read: Array, proof: Proof) -> None:
    """Refuse documents that are not the kept rows, each once; they may still stand in another order."""
    for extra in np.setdiff1d(read, expected)[:1].tolist():
        document = int(np.flatnonzero(read == extra)[0])
        raise proof.rejected("L4_KEPT", DOCUMENTS, "a document that was not kept", document=document, position=extra)
    for lost in np.setdiff1d(expected, read)[:1].tolist():
        raise proof.rejected("L4_KEPT", DOCUMENTS, "a kept row is no document", position=lost)
    proof.require_equal("L4_KEPT", f"{DOCUMENTS}: documents", len(expected), len(read))


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
    for label, count in zip(table.labels, np.bincount(selection.codes, minlength=len(table.labels)), strict=True):
        kind, _, reason = label.partition(":")
        if count:
            tally[kind][reason] = int(count)
    rows, documents, validation = len(selection.codes), len(selection.rows), int(selection.validation.sum())
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
    lines = b"".join(np.array([f"{label}\n".encode() for label in table.labels], "O")[selection.codes])
    return sha256(table.columns["position"].astype("<i8").tobytes(), lines, table.columns["document_id"].tobytes())
