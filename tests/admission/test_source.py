"""The verifier's own reading of source rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from casebits_dagster.admission import source
from casebits_dagster.admission.source import REASONS, SourceRange, read_batches
from casebits_dagster.records.errors import RecordError
from casebits_dagster.records.plan import RegionSpec
from casebits_dagster.stores.local import LocalStore
from tests.faults.world import SEPARATOR, SOURCE, source_rows, write_source


def range_of(folder: Path, begin: int, end: int) -> SourceRange:
    return SourceRange(LocalStore(folder), RegionSpec(0, SOURCE, "rows", begin, end))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_source(tmp_path / SOURCE, source_rows())
    return tmp_path


@pytest.mark.parametrize("batch_rows", [1, 3, 256])
@pytest.mark.parametrize(("begin", "end"), [(0, 23), (5, 10), (9, 31), (95, 97)])
def test_rows_are_those_that_were_written(
    folder: Path, begin: int, end: int, batch_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "_BATCH_ROWS", batch_rows)
    wanted = source_rows()[begin:end]
    read = range_of(folder, begin, end).rows(set(), ())
    assert [REASONS[reason] for reason in read.reasons] == [row.reason for row in wanted]
    assert read.problem_at.tolist() == [row.problem_at for row in wanted]
    assert read.lengths.tolist() == [len(row.tokens or []) for row in wanted]
    assert read.clusters.tolist() == [-1 if row.cluster is None else row.cluster for row in wanted]
    sound = [row for row, wanted_row in enumerate(wanted) if not wanted_row.reason]
    assert [range_of(folder, begin, end).text(row) for row in sound] == [wanted[row].text for row in sound]


def test_a_row_beyond_the_range(folder: Path) -> None:
    with pytest.raises(IndexError):
        range_of(folder, 0, 3).text(3)


@pytest.mark.parametrize("kind", [pa.uint16(), pa.int32(), pa.int64(), pa.uint64()])
def test_any_integer_type_will_do(tmp_path: Path, kind: pa.DataType) -> None:
    rows = [[64, 65, SEPARATOR], [], [SEPARATOR], [SEPARATOR, SEPARATOR], [64, 50257]]
    write(tmp_path, pa.array(rows, pa.list_(kind)), pa.array([3, 0, 1, 2, 2]), pa.array([1, 2, 3, 4, 5], pa.int32()))
    read = range_of(tmp_path, 0, 5).rows({0, 4}, ("characters",))
    assert [REASONS[reason] for reason in read.reasons] == ["", "", "", "inner_separator", "id_out_of_range"]
    assert read.problem_at.tolist() == [-1, -1, -1, 0, 1]
    assert read.scores == {0: {"characters": 2_000_000}}
    assert (range_of(tmp_path, 0, 5).text(0), range_of(tmp_path, 0, 5).text(2)) == (b"ab", b"")


def test_a_null_or_negative_id_is_out_of_range(tmp_path: Path) -> None:
    write(tmp_path, pa.array([[64, None], [64, -1]]), pa.array([2, 2]), pa.array([1, 1]))
    read = range_of(tmp_path, 0, 2).rows(set(), ())
    assert ([REASONS[reason] for reason in read.reasons], read.problem_at.tolist()) == (["id_out_of_range"] * 2, [1, 1])


def test_the_first_reason_that_applies_counts(tmp_path: Path) -> None:
    rows = [None, [SEPARATOR, 50257], [SEPARATOR, 50257], [SEPARATOR, 447], [50257, 64, 50258]]
    write(tmp_path, pa.array(rows), pa.array([None, 3, 2, 2, 3]), pa.array([1] * 5))
    read = range_of(tmp_path, 0, 5).rows(set(), ())
    reasons = ["null_row", "count_mismatch", "id_out_of_range", "inner_separator", "id_out_of_range"]
    assert [REASONS[reason] for reason in read.reasons] == reasons
    assert read.problem_at.tolist() == [-1, 2, 1, 0, 0]


def test_the_digest_covers_every_column(folder: Path) -> None:
    first, second = (range_of(folder, 0, end).rows(set(), ()) for end in (23, 22))
    assert (len(first.digest()), first.digest() == second.digest()) == (64, False)
    assert np.array_equal(first.digests[:22], second.digests)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"tokens": [[1]], "token_count": [1]}, "cluster_id: expected integers, read null"),
        ({"tokens": [1], "token_count": [1], "cluster_id": [1]}, None),
        ({"tokens": [[0.5]], "token_count": [1], "cluster_id": [1]}, "tokens: expected a list of integers, read list"),
        ({"tokens": [[1]], "token_count": ["1"], "cluster_id": [1]}, "token_count: expected integers, read string"),
        ({"token_count": [1], "cluster_id": [1]}, "tokens: expected a list of integers, read null"),
    ],
)
def test_other_columns_are_refused(tmp_path: Path, columns: dict[str, list[object]], message: str | None) -> None:
    pq.write_table(pa.table(columns), tmp_path / SOURCE)
    expected = message or "tokens: expected a list of integers, read int64"
    with pytest.raises(RecordError, match=f"^SOURCE_INVALID {SOURCE}: {expected}"):
        list(read_batches(LocalStore(tmp_path), RegionSpec(0, SOURCE, "rows", 0, 1)))


def write(folder: Path, tokens: pa.Array, counts: pa.Array, clusters: pa.Array) -> None:
    pq.write_table(pa.table({"tokens": tokens, "token_count": counts, "cluster_id": clusters}), folder / SOURCE)
