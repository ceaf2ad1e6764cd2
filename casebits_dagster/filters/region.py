"""The filter stage of one region: source rows in, the verdict table and the kept text out.

`verdicts/<id>.parquet` has every row of the region, whatever became of it; `verdicts/<id>.kept.arrow` carries the kept
text to the encoder, and the source's own ids where the codec keeps them. Memory: the text of one block, and columns of
the region.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from casebits_dagster.codec.bytetable import Bytes, Cuts
from casebits_dagster.filters.judge import KEEP, judge, require_metrics, verdict_names
from casebits_dagster.filters.metrics import score
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.errors import CasebitsError, RecordError
from casebits_dagster.records.layout import RECEIPT, Home
from casebits_dagster.records.pins import Generation
from casebits_dagster.records.region import Receipt
from casebits_dagster.sources import read_rows, require_source_file
from casebits_dagster.sources.columns import PROBLEMS, SourceRows
from casebits_dagster.stores.local import LocalStore, make_folder
from casebits_dagster.stores.regions import may_be_replaced

RANGE_SHA256 = b"range_sha256"
KEPT_SCHEMA = pa.schema([("position", pa.int64()), ("text", pa.large_binary())])
# Of a generation that keeps the ids of its source: little-endian uint16, no separators.
KEPT_IDS_SCHEMA = KEPT_SCHEMA.append(pa.field("tokens", pa.large_binary()))


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
    require_metrics(generation.policy, generation.policy_file, generation.source.pin.format)
    generation.require_runnable()
    region, digest = generation.plan[index], hashlib.sha256()
    require_source_file(generation.source, region.path)
    folder = home.generation(generation.name)
    target, text = folder.verdicts(index), folder.kept_text(index)
    schema = KEPT_IDS_SCHEMA if generation.keeps_ids else KEPT_SCHEMA
    tables: list[pa.Table] = []
    kept: set[bytes] = set()
    with LocalStore(folder.root, home.staging).staged(f"verdicts.{index:05d}") as staging:
        with pa.OSFile(str(staging / text.name), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for rows in read_rows(generation.source, region, digest):
                verdicts, keep = _judged(generation, rows, kept)
                writer.write_batch(_kept_rows(rows, keep, schema))
                tables.append(verdicts)
        table = pa.concat_tables(tables)
        made = verdicts_digest(table)
        _require_unchanged(home, generation.name, index, made)
        # The encoder takes the hash of what was read here from the table, and reads the source no second time.
        table = table.replace_schema_metadata({RANGE_SHA256: digest.hexdigest()})
        pq.write_table(table, staging / target.name, compression="zstd", use_dictionary=["verdict", "cluster"])
        make_folder(target.parent)
        # The table goes last: where it is found, the text beside it is complete.
        (staging / text.name).rename(text)
        (staging / target.name).rename(target)
    counts = count_verdicts(table)
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


def _require_unchanged(home: Home, generation: str, index: int, digest: str) -> None:
    """Refuse to replace the verdicts that a published region was made from."""
    receipt = home.generation(generation).region(index) / RECEIPT
    try:
        published = Receipt.parse(receipt.read_bytes(), str(receipt)).verdicts_digest
    except (OSError, RecordError):
        # There is none, or it is damaged: the encoder compares what it makes with what was admitted.
        return
    if not may_be_replaced(home, generation, index) and published != digest:
        remedy = "a change of pins is a new generation"
        raise CasebitsError(
            "NONDETERMINISTIC_REGION", f"{receipt}: verdicts_digest", expected=published, read=digest, remedy=remedy
        )


def verdicts_digest(table: pa.Table) -> str:
    """Return the content digest of a verdict table: positions "<i8", verdicts each ended by LF, 16-byte ids."""
    lines = pc.binary_join_element_wise(table["verdict"], "", "\n").combine_chunks()
    positions = table["position"].to_numpy().astype("<i8").tobytes()
    return sha256(positions, "".join(lines.to_pylist()).encode(), document_id_column(table).tobytes())


def document_id_column(table: pa.Table) -> NDArray[np.void]:
    """Return the document ids of a verdict table, "V16" (N,)."""
    column = table["document_id"].combine_chunks()
    return np.frombuffer(column.buffers()[1], "V16")[column.offset : column.offset + len(column)]


def count_verdicts(table: pa.Table) -> Counter[str]:
    """Return how many rows have each verdict."""
    counted = pc.value_counts(table["verdict"])
    return Counter(dict(zip(counted.field(0).to_pylist(), counted.field(1).to_pylist(), strict=True)))


def _kept_rows(rows: SourceRows, keep: NDArray[np.bool_], schema: pa.Schema) -> pa.RecordBatch:
    columns = [pa.array(rows.positions[keep]), _kept(rows.text, rows.cuts, keep)]
    if "tokens" in schema.names and rows.tokens is not None and rows.token_cuts is not None:
        columns.append(_kept(rows.tokens.view(np.uint8), 2 * rows.token_cuts, keep))
    return pa.record_batch(columns, schema=schema)


def _kept(content: Bytes, cuts: Cuts, keep: NDArray[np.bool_]) -> pa.LargeBinaryArray:
    content, cuts = gather(content, cuts, keep)
    buffers = [None, pa.py_buffer(cuts), pa.py_buffer(content)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(cuts) - 1, buffers)


def gather(text: Bytes, cuts: Cuts, keep: NDArray[np.bool_]) -> tuple[Bytes, Cuts]:
    """Return the text and cuts of the rows to keep of a column of text; nothing is copied when that is all."""
    if keep.all():
        return text, cuts
    kept = np.zeros(int(keep.sum()) + 1, "<i8")
    np.cumsum(np.diff(cuts)[keep], out=kept[1:])
    # Neighbours that are kept are copied as one.
    edges = np.flatnonzero(np.diff(keep, prepend=False, append=False))
    runs = [text[begin:end] for begin, end in cuts[edges].reshape(-1, 2).tolist()]
    return np.concatenate([text[:0], *runs]), kept


def _judged(generation: Generation, rows: SourceRows, kept: set[bytes]) -> tuple[pa.Table, NDArray[np.bool_]]:
    """Return the verdict table of a block, and which of its rows are kept; their ids are added to `kept`."""
    policy, readable = generation.policy, rows.problems == 0
    scores = score(policy.metrics, rows, generation.weights)
    ids = document_ids(rows.text, rows.cuts)
    ids[~readable] = np.void(bytes(16))
    codes = judge(policy, scores, rows.clusters, ids, readable, kept)
    # Behind the names of `judge` come the problems: the row of -1, with problem p, is number p from there.
    names = verdict_names(policy)
    places = np.where(readable, codes, len(names) - 1 + rows.problems)
    named = pa.array([*names, *(f"quarantined:{problem}" for problem in PROBLEMS[1:])])
    columns = {
        "position": rows.positions,
        "verdict": named.take(pa.array(places)),
        "document_id": pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(ids), [None, pa.py_buffer(ids)]),
        "cluster": rows.clusters,
        "source_tokens": rows.source_tokens,
        "problem_at": rows.problem_at,
    }
    for name, column in zip(policy.metrics, scores, strict=True):
        columns[f"score_{name}"] = pa.array(column, mask=~readable)
    return pa.table(columns), codes == names.index(KEEP)


def document_ids(text: Bytes, cuts: Cuts) -> NDArray[np.void]:
    """Return the id of each document, the first 16 bytes of the SHA-256 of its text: "V16" (N,)."""
    view, new = np.ascontiguousarray(text).data, hashlib.sha256
    digests = b"".join([new(view[begin:end]).digest() for begin, end in itertools.pairwise(cuts.tolist())])
    return np.frombuffer(digests, "V16").reshape(-1, 2)[:, 0].copy()


def reasons(counts: Counter[str], prefix: str) -> dict[str, int]:
    """Return the counts of the verdicts of one kind (`dropped:`, `quarantined:`), by reason."""
    return {name.removeprefix(prefix): count for name, count in sorted(counts.items()) if name.startswith(prefix)}
