"""What can happen to a region after hashing: on the disk, in transit, by a stranger's hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from casebits_dagster.records.canonical import Json, canonical
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.layout import CASES, IDS, RECEIPT
from tests.faults.build import Made
from tests.faults.world import SOURCE


def rot(name: str) -> Callable[[Made], object]:
    def mutate(made: Made) -> None:
        path = made.folder / name
        raw = bytearray(path.read_bytes())
        raw[len(raw) // 2] ^= 1
        path.write_bytes(raw)

    return mutate


def shorter(name: str) -> Callable[[Made], object]:
    return lambda made: (made.folder / name).write_bytes((made.folder / name).read_bytes()[:-1])


def missing(name: str) -> Callable[[Made], object]:
    return lambda made: (made.folder / name).unlink()


def foreign(made: Made) -> None:
    (made.folder / "casebits_mixture.ids.u16le.tmp").write_bytes(b"")


def link(made: Made) -> None:
    target = made.folder.parent / "elsewhere"
    (made.folder / IDS).rename(target)
    (made.folder / IDS).symlink_to(target)


def files_swapped(made: Made) -> None:
    ids, cases = (made.folder / name for name in (IDS, CASES))
    first, second = ids.read_bytes(), cases.read_bytes()
    ids.write_bytes(second)
    cases.write_bytes(first)


def stale_receipt(made: Made) -> None:
    """The receipt of an earlier run, which hashed other ids."""
    old = dict(made.receipt)
    del old["content_id"]
    old["files"] = [file | {"sha256": "0" * 64} if file["name"] == IDS else file for file in old["files"]]
    write_receipt(made.folder, old)


def write_receipt(folder: Path, claimed: dict[str, Json]) -> None:
    claimed["content_id"] = sha256(canonical(claimed))
    (folder / RECEIPT).write_bytes(canonical(claimed))


def receipt_edited(made: Made) -> None:
    path = made.folder / RECEIPT
    path.write_bytes(path.read_bytes().replace(b'"documents":10', b'"documents":11'))


def receipt_pretty(made: Made) -> None:
    (made.folder / RECEIPT).write_text(json.dumps(made.receipt, indent=1))


def verdicts_rotten(made: Made) -> None:
    made.verdict_file.write_bytes(made.verdict_file.read_bytes()[:-9])


def verdicts_without_column(made: Made) -> None:
    pq.write_table(pq.read_table(made.verdict_file).drop_columns(["problem_at"]), made.verdict_file)


def verdicts_with_null(made: Made) -> None:
    table = pq.read_table(made.verdict_file)
    values = [None, *table["cluster"].to_pylist()[1:]]
    pq.write_table(table.set_column(3, "cluster", pa.array(values, pa.int32())), made.verdict_file)


def verdict_text_not_utf8(made: Made) -> None:
    table = pq.read_table(made.verdict_file)
    raw = pa.array([b"keep\xff", *map(str.encode, table["verdict"].to_pylist()[1:])], pa.binary())
    text = pa.StringArray.from_buffers(len(raw), *raw.buffers()[1:])
    pq.write_table(table.set_column(1, "verdict", text), made.verdict_file)


def source_rotten(made: Made) -> None:
    path = made.generation.source.folder / SOURCE
    raw = bytearray(path.read_bytes())
    raw[60] ^= 1
    path.write_bytes(raw)


def source_shorter(made: Made) -> None:
    path = made.generation.source.folder / SOURCE
    path.write_bytes(path.read_bytes()[:-1])


def source_footer_rotten(made: Made) -> None:
    path = made.generation.source.folder / SOURCE
    path.write_bytes(path.read_bytes()[:-4] + b"none")
