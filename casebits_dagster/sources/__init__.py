"""Source formats: pinned rows in, columns of documents out. One module a format, one line a module here."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from casebits_dagster.records.digests import sha256_file
from casebits_dagster.records.errors import CasebitsError
from casebits_dagster.records.pins import Source
from casebits_dagster.records.plan import RegionSpec
from casebits_dagster.sources import climbmix_jsonl, flat_u16, jsonl_text, parquet_text, parquet_tokens
from casebits_dagster.sources.columns import RangeHash, Reading, RowReader, SourceRows
from casebits_dagster.stores.source import source_store

FORMATS: dict[str, RowReader] = {
    "climbmix_jsonl": climbmix_jsonl.read_rows,
    "flat_u16": flat_u16.read_rows,
    "jsonl_text": jsonl_text.read_rows,
    "parquet_text": parquet_text.read_rows,
    "parquet_tokens": parquet_tokens.read_rows,
}
_SMALL = 1 << 28


def read_rows(source: Source, region: RegionSpec, digest: RangeHash | None = None) -> Iterator[SourceRows]:
    """Yield the rows of a range of the source in blocks; `digest` is fed the bytes that the range covers.

    There is one block at least: a range that lies inside one row has no rows.
    """
    reading = Reading(source.vocabulary(), source.pin.separator_at)
    blocks = FORMATS[source.pin.format](source_store(source), region, reading, digest or hashlib.sha256())
    yield next(blocks, SourceRows.none())
    yield from blocks


def range_sha256(source: Source, region: RegionSpec) -> str:
    """Return the SHA-256 of the bytes that a range covers, reading all of them."""
    digest = hashlib.sha256()
    for _ in read_rows(source, region, digest):
        pass
    return digest.hexdigest()


def require_source_file(source: Source, path: str) -> None:
    """Refuse a source file that is not the pinned one, by size; by hash where it is small enough to read."""
    pinned, store = source.file(path), source_store(source)
    size, where = store.size(path), f"{source.pin.repo}/{path}"
    if size != pinned.bytes:
        raise CasebitsError("SOURCE_PIN", where, expected=f"{pinned.bytes} bytes", read=size)
    local = source.folder / path
    if source.pin.repo_type == "folder" and size < _SMALL and (read := sha256_file(local)) != pinned.sha256:
        raise CasebitsError("SOURCE_PIN", str(local), expected=f"sha256 {pinned.sha256}", read=read)
