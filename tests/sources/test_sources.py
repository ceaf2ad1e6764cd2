"""A source as its pin has it: the hash of a range, and a file that is not the pinned one."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from casebits_dagster.records.errors import CasebitsError
from casebits_dagster.records.pins import Source, SourceFile, load_generation
from casebits_dagster.records.plan import RegionSpec
from casebits_dagster.sources import range_sha256, read_rows, require_source_file
from tests.sources.formats import climbmix_line
from tests.sources.reading import HELLO, rows_of

CONTENT = climbmix_line(3, HELLO) * 3


@pytest.fixture
def source(pins: Path, tmp_path: Path) -> Source:
    """A folder with one file of three lines in ClimbMix's layout."""
    (tmp_path / "a.jsonl").write_bytes(CONTENT)
    file = SourceFile(path="a.jsonl", bytes=len(CONTENT), sha256=hashlib.sha256(CONTENT).hexdigest())
    sample = load_generation(pins, "sample").source
    return replace(sample, pin=replace(sample.pin, format="climbmix_jsonl")).at(tmp_path, file)


def test_a_range_has_the_hash_of_its_bytes_and_its_rows(source: Source) -> None:
    spec = RegionSpec(0, "a.jsonl", "bytes", 1, len(CONTENT) - 1)
    assert range_sha256(source, spec) == hashlib.sha256(CONTENT[1:-1]).hexdigest()
    (block,) = read_rows(source, spec)
    line = len(CONTENT) // 3
    assert [(row.position, row.text) for row in rows_of(block)] == [
        (line, b"Hello, world"),
        (2 * line, b"Hello, world"),
    ]


def test_the_pinned_file_is_taken_and_another_is_refused(source: Source) -> None:
    require_source_file(source, "a.jsonl")
    path, pinned = source.folder / "a.jsonl", source.file("a.jsonl")
    path.write_bytes(CONTENT.replace(b"995", b"996"))
    with pytest.raises(CasebitsError) as caught:
        require_source_file(source, "a.jsonl")
    read = hashlib.sha256(path.read_bytes()).hexdigest()
    assert str(caught.value) == f"SOURCE_PIN {path}: expected sha256 {pinned.sha256}, read {read}"
    path.write_bytes(CONTENT[:-1])
    with pytest.raises(CasebitsError) as caught:
        require_source_file(source, "a.jsonl")
    size = len(CONTENT)
    assert str(caught.value) == f"SOURCE_PIN {source.pin.repo}/a.jsonl: expected {size} bytes, read {size - 1}"
