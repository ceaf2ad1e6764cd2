"""Files made to be large in memory, or damaged: read in bounded pieces, or refused by name."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from casebits_dagster.records.errors import RecordError
from casebits_dagster.records.pins import GenerationPin, Source, SourceFile, SourcePin, default_pins_folder
from casebits_dagster.records.plan import RegionSpec
from casebits_dagster.sources import FORMATS, read_rows
from casebits_dagster.sources.columns import PROBLEMS, Reading, SourceRows
from casebits_dagster.sources.ranges import MOST_RECORDS
from casebits_dagster.sources.training import train_from_source
from casebits_dagster.stores.local import LocalStore


def source_of(path: Path, kind: str, rows: int | None = None) -> Source:
    pin = GenerationPin.from_toml(default_pins_folder() / "generations/sample.toml").source
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    file = SourceFile(path=path.name, bytes=path.stat().st_size, sha256=digest, rows=rows)
    fields = {name: getattr(pin, name) for name in SourcePin.__dataclass_fields__}
    return Source(SourcePin(**{**fields, "format": kind, "location": ".", "files": (file,)}), path.parent, (file,))


def blocks(path: Path, kind: str, end: int, unit: str) -> list[SourceRows]:
    source = source_of(path, kind)
    region = RegionSpec(0, path.name, unit, 0, end)  # type: ignore[arg-type]
    reading = Reading(source.vocabulary())
    return list(FORMATS[kind](LocalStore(path.parent), region, reading, hashlib.sha256()))


@pytest.mark.parametrize("kind", ["climbmix_jsonl", "jsonl_text"])
def test_very_many_tiny_lines_come_in_several_blocks(tmp_path: Path, kind: str) -> None:
    count = MOST_RECORDS + 5
    (tmp_path / "a.jsonl").write_bytes(b"\n" * count)
    found = blocks(tmp_path / "a.jsonl", kind, count, "bytes")
    assert [len(block.positions) for block in found] == [MOST_RECORDS, 5]
    assert np.concatenate([block.positions for block in found]).tolist() == list(range(count))
    assert {PROBLEMS[kind] for block in found for kind in block.problems} == {"malformed_line"}


def test_a_dictionary_does_not_make_one_block_of_a_row_group(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["the same text " * 50] * 3_000}), path)
    found = blocks(path, "parquet_text", 3_000, "rows")
    assert [len(block.positions) for block in found] == [1024, 1024, 952]


def test_a_column_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_arrays([pa.array(["x"]), pa.array(["y"])], names=["text", "text"]), path)
    with pytest.raises(RecordError, match=r"^SOURCE_FORMAT a.parquet: text: the file has this column twice"):
        blocks(path, "parquet_text", 1, "rows")


def test_damaged_pages_are_refused_with_their_file(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": [f"{k} text" for k in range(2_000)]}), path, compression="snappy")
    raw = bytearray(path.read_bytes())
    raw[40:400] = b"\xff" * 360
    path.write_bytes(raw)
    with pytest.raises(RecordError, match=r"^SOURCE_FORMAT a.parquet: not a Parquet file: "):
        blocks(path, "parquet_text", 2_000, "rows")


def test_training_reads_whole_files_whatever_rows_are_stated(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "many words of a text that goes on and on"}\n' * 100)
    source = source_of(path, "jsonl_text", rows=100)
    assert (
        sum(len(b.positions) for b in read_rows(source, RegionSpec(0, "a.jsonl", "bytes", 0, path.stat().st_size)))
        == 100
    )
    pins = tmp_path / "pins"
    (pins / "generations").mkdir(parents=True)
    text = (default_pins_folder() / "generations/sample.toml").read_text()
    head, tail = text[: text.index("[source]")], text[text.index("[split]") :]
    made = source.pin
    listed = f'path = "a.jsonl", bytes = {made.files[0].bytes}, sha256 = "{made.files[0].sha256}", rows = 100'
    (pins / "generations/lines.toml").write_text(
        f'{head}[source]\nrepo = "local/lines"\nrepo_type = "folder"\nlocation = "{tmp_path}"\nformat = "jsonl_text"\n'
        f'revision = "{made.expected_revision()}"\nlicence_spdx = "CC0-1.0"\ntitle = "t"\nurl = "u"\nchanges = "c"\n'
        f"files = [{{{listed}}}]\n{tail}".replace('generation = "sample"', 'generation = "lines"')
    )
    said: list[str] = []
    train_from_source(pins, "lines", pins / "codecs/new", 270, progress=said.append)
    assert any("100 documents" in line for line in said) is True
