"""The filter stage of one region: source rows in, the verdict table and the kept text out.

`verdicts/<id>.parquet` has every row of the region, whatever became of it; `verdicts/<id>.kept.arrow` carries the kept
text to the encoder. Memory: the text of one block, and columns of the region.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from casebits_dagster.codec.bytetable import Bytes, Cuts
from casebits_dagster.filters.judge import KEEP, judge, require_metrics
from casebits_dagster.filters.metrics import score
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.errors import CasebitsError
from casebits_dagster.records.layout import RECEIPT, Home
from casebits_dagster.records.pins import Generation
from casebits_dagster.records.region import Receipt
from casebits_dagster.sources import read_rows, require_source_file
from casebits_dagster.sources.columns import PROBLEMS, SourceRows
from casebits_dagster.stores.local import LocalStore

RANGE_SHA256 = b"range_sha256"
KEPT_SCHEMA = pa.schema([("position", pa.int64()), ("text", pa.large_binary())])


@dataclass(frozen=True, slots=True)
class FilteredRegion:
    """What the filter stage did. rows_read = kept + sum(dropped) + sum(quarantined)."""

    index: int
    rows_read: int
    kept: int
    dropped: dict[str, int]
    quarantined: dict[str, int]
    verdicts_digest: str
    range_sha256: str
    verdicts: Path
    kept_text: Path


def filter_region(generation: Generation, index: int, home: Home) -> FilteredRegion:
    """Judge every row of the region and write its verdict table and kept text; a rerun replaces each by a rename.

    Raises NONDETERMINISTIC_REGION, replacing nothing, when a published region was made from other verdicts.
    """
    require_metrics(generation.policy)
    generation.require_runnable()
    region, digest = generation.plan[index], hashlib.sha256()
    require_source_file(generation.source, region.path)
    folder = home.generation(generation.name)
    target, text = folder.verdicts(index), folder.kept_text(index)
    tables, kept_ids = [], np.empty(0, "V16")
    with LocalStore(folder.root, home.staging).staged(f"verdicts.{index:05d}") as staging:
        with pa.OSFile(str(staging / text.name), "wb") as sink, pa.ipc.new_file(sink, KEPT_SCHEMA) as writer:
            for rows in read_rows(generation.source, region, digest):
                verdicts, keep = _judged(generation, rows, kept_ids)
                writer.write_batch(_kept_rows(rows, keep))
                tables.append(verdicts)
                kept_ids = np.concatenate([kept_ids, _ids(verdicts)[keep]])
        table = pa.concat_tables(tables)
        made = verdicts_digest(table)
        _require_unchanged(folder.region(index) / RECEIPT, made)
        # The encoder takes the hash of what was read here from the table, and reads the source no second time.
        table = table.replace_schema_metadata({RANGE_SHA256: digest.hexdigest()})
        pq.write_table(table, staging / target.name, compression="zstd")
        target.parent.mkdir(parents=True, exist_ok=True)
        # The table goes last: where it is found, the text beside it is complete.
        (staging / text.name).rename(text)
        (staging / target.name).rename(target)
    counts = Counter(table["verdict"].to_pylist())
    return FilteredRegion(
        index=index,
        rows_read=counts.total(),
        kept=counts[KEEP],
        dropped=reasons(counts, "dropped:"),
        quarantined=reasons(counts, "quarantined:"),
        verdicts_digest=made,
        range_sha256=digest.hexdigest(),
        verdicts=target,
        kept_text=text,
    )


def _require_unchanged(receipt: Path, digest: str) -> None:
    """Refuse to replace the verdicts that a published region was made from."""
    if receipt.exists():
        published = Receipt.parse(receipt.read_bytes(), str(receipt)).verdicts_digest
        if published != digest:
            remedy = "a change of pins is a new generation"
            raise CasebitsError(
                "NONDETERMINISTIC_REGION", f"{receipt}: verdicts_digest", expected=published, read=digest, remedy=remedy
            )


def verdicts_digest(table: pa.Table) -> str:
    """Return the content digest of a verdict table: positions "<i8", verdicts each ended by LF, 16-byte ids."""
    positions = table["position"].to_numpy().astype("<i8").tobytes()
    verdicts = "".join(f"{verdict}\n" for verdict in table["verdict"].to_pylist()).encode()
    return sha256(positions, verdicts, b"".join(table["document_id"].to_pylist()))


def _kept_rows(rows: SourceRows, keep: NDArray[np.int64]) -> pa.RecordBatch:
    text, cuts = gather(rows.text, rows.cuts, keep)
    buffers = [None, pa.py_buffer(cuts), pa.py_buffer(text)]
    column = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(keep), buffers)
    return pa.record_batch([pa.array(rows.positions[keep]), column], schema=KEPT_SCHEMA)


def gather(text: Bytes, cuts: Cuts, rows: NDArray[np.int64]) -> tuple[Bytes, Cuts]:
    """Return the text and cuts of some rows (ascending) of a column of text."""
    lengths = np.diff(cuts)
    chosen = np.zeros(len(lengths), bool)
    chosen[rows] = True
    kept = np.zeros(len(rows) + 1, "<i8")
    np.cumsum(lengths[rows], out=kept[1:])
    return text[np.repeat(chosen, lengths)], kept


def _judged(
    generation: Generation, rows: SourceRows, kept_before: NDArray[np.void]
) -> tuple[pa.Table, NDArray[np.int64]]:
    """Return the verdict table of a block, and which of its rows are kept."""
    policy, readable = generation.policy, rows.problems == 0
    scores, ids = score(policy.metrics, rows.text, rows.cuts), document_ids(rows.text, rows.cuts)
    ids[~readable] = np.void(bytes(16))
    verdicts = judge(policy, scores, rows.clusters, ids, readable, kept_before)
    named = [v or f"quarantined:{PROBLEMS[p]}" for v, p in zip(verdicts, rows.problems, strict=True)]
    columns = {
        "position": rows.positions,
        "verdict": pa.array(named, pa.string()),
        "document_id": pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(ids), [None, pa.py_buffer(ids)]),
        "cluster": rows.clusters,
        "source_tokens": rows.source_tokens,
        "problem_at": rows.problem_at,
    }
    for number, name in enumerate(policy.metrics):
        columns[f"score_{name}"] = pa.array(scores[:, number], mask=~readable)
    return pa.table(columns), np.flatnonzero(np.array(verdicts) == KEEP)


def _ids(table: pa.Table) -> NDArray[np.void]:
    return np.frombuffer(b"".join(table["document_id"].to_pylist()), "V16")


def document_ids(text: Bytes, cuts: Cuts) -> NDArray[np.void]:
    """Return the id of each document, the first 16 bytes of the SHA-256 of its text: "V16" (N,)."""
    view = np.ascontiguousarray(text).data
    digests = (hashlib.sha256(view[begin:end]).digest()[:16] for begin, end in itertools.pairwise(cuts.tolist()))
    return np.frombuffer(bytearray(b"".join(digests)), "V16")


def reasons(counts: Counter[str], prefix: str) -> dict[str, int]:
    """Return the counts of the verdicts of one kind (`dropped:`, `quarantined:`), by reason."""
    return {name.removeprefix(prefix): count for name, count in sorted(counts.items()) if name.startswith(prefix)}
