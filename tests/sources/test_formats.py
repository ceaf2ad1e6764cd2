"""One suite for every format: the same rows go in, and the same rows come out, however the file is cut."""

from __future__ import annotations

import hashlib
import itertools
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.sources.formats import FORMAT_TABLE, Format, Written
from tests.sources.reading import EURO, HELLO, Seen, read, spell

ROWS: Written = [(k % 21, HELLO * (k % 5 + 1) + EURO * (k % 3)) for k in range(23)] + [(0, []), (20, HELLO)]


@pytest.fixture(params=FORMAT_TABLE, ids=lambda form: form.file)
def form(request: pytest.FixtureRequest) -> Format:
    found: Format = request.param
    return found


def expected(form: Format, rows: Written, positions: list[int]) -> list[Seen]:
    return [
        Seen(
            position=position,
            text=spell(tokens),
            cluster=cluster if form.clusters else -1,
            source_tokens=(len(tokens) + (form.name == "flat_u16")) if form.tokens else 0,
            tokens=tuple(tokens) if form.tokens else None,
        )
        for position, (cluster, tokens) in zip(positions, rows, strict=True)
    ]


def covered(form: Format, path: Path, begin: int, end: int) -> bytes:
    """Return the bytes whose hash a range has."""
    raw = path.read_bytes()
    if form.unit == "bytes":
        return raw[begin:end]
    if path.suffix != ".parquet":
        return raw
    metadata, first, spans = pq.read_metadata(path), 0, []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        chunks = [group.column(k) for k in range(group.num_columns)]
        if first < end and first + group.num_rows > begin:
            starts = [chunk.dictionary_page_offset or chunk.data_page_offset for chunk in chunks]
            ends = [start + chunk.total_compressed_size for start, chunk in zip(starts, chunks, strict=True)]
            spans.append((min(starts), max(ends)))
        first += group.num_rows
    return raw[min(spans)[0] : max(end for _, end in spans)]


@pytest.mark.parametrize("block", [1, 7, 100, 1 << 24])
def test_every_row_comes_out_as_it_went_in(tmp_path: Path, form: Format, block: int) -> None:
    path = tmp_path / form.file
    want = expected(form, ROWS, form.write(path, ROWS))
    got, digest = read(form.reader, path, 0, form.end(path, ROWS), form.unit, form.reading, block=block)
    assert got == want
    assert digest == hashlib.sha256(covered(form, path, 0, form.end(path, ROWS))).hexdigest()


@pytest.mark.parametrize("seed", range(4))
def test_any_ranges_yield_every_row_once_and_hash_their_own_bytes(tmp_path: Path, form: Format, seed: int) -> None:
    path, random = tmp_path / form.file, np.random.default_rng(seed)
    want = expected(form, ROWS, form.write(path, ROWS))
    end = form.end(path, ROWS)
    cuts = sorted({0, end, *random.integers(0, end, 9).tolist()})
    got = []
    for begin, stop in itertools.pairwise(cuts):
        rows, digest = read(form.reader, path, begin, stop, form.unit, form.reading, block=int(random.integers(1, 400)))
        assert digest == hashlib.sha256(covered(form, path, begin, stop)).hexdigest()
        assert [row for row in rows if not begin <= row.position < stop] == []
        got += rows
    assert got == want


def test_a_range_is_read_again_alone(tmp_path: Path, form: Format) -> None:
    # What is read depends on the range alone, so work that stopped resumes at any region.
    path = tmp_path / form.file
    form.write(path, ROWS)
    end = form.end(path, ROWS)
    whole, _ = read(form.reader, path, 0, end, form.unit, form.reading)
    again, _ = read(form.reader, path, end // 3, end // 2, form.unit, form.reading)
    assert again == [row for row in whole if end // 3 <= row.position < end // 2]


def test_one_row_is_found_by_its_position(tmp_path: Path, form: Format) -> None:
    path = tmp_path / form.file
    want = expected(form, ROWS, form.write(path, ROWS))
    got, _ = read(form.reader, path, want[9].position, want[9].position + 1, form.unit, form.reading)
    assert got == [want[9]]
