"""Real rows go through with nothing lost: each is counted, and its text is what its ids spell."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from casebits_dagster.sources import climbmix_jsonl, flat_u16, parquet_tokens
from casebits_dagster.sources.columns import Reading
from tests.sources.formats import climbmix_line
from tests.sources.reading import GPT2, SEPARATOR, Seen, read, read_all, spell


def judged(position: int, cluster: int, tokens: list[int], stripped: list[int]) -> Seen:
    """Return a row by a slow join of the vocabulary's bytes and the strict decoder."""
    text = spell(stripped)
    try:
        text.decode()
    except UnicodeDecodeError as error:
        kind = "truncated_utf8" if error.reason == "unexpected end of data" else "not_utf8"
        return Seen(position, b"", cluster, len(tokens), kind, error.start, ())
    return Seen(position, text, cluster, len(tokens), tokens=tuple(stripped))


def stripped(tokens: list[int]) -> list[int]:
    return tokens[:-1] if tokens[-1:] == [SEPARATOR] else tokens


@pytest.mark.parametrize("name", ["climblab_real_sample.parquet", "bench/part_00.parquet"])
def test_parquet_rows_and_the_same_as_lines(shared_data: Path, tmp_path: Path, name: str) -> None:
    path = shared_data / name
    table = pq.read_table(path, columns=["cluster_id", "tokens"])
    clusters = table["cluster_id"].fill_null(-1).to_pylist()
    rows = list(zip(clusters, table["tokens"].to_pylist(), strict=True))
    want = [judged(row, cluster, tokens, stripped(tokens)) for row, (cluster, tokens) in enumerate(rows)]
    got, _ = read(parquet_tokens.read_rows, path, 0, len(rows), "rows")
    assert got == want
    lines = tmp_path / "a.jsonl"
    lines.write_bytes(b"".join(climbmix_line(max(cluster, 0), tokens) for cluster, tokens in rows))
    found = read_all(climbmix_jsonl.read_rows, lines)
    assert [(row.text, row.tokens) for row in found] == [(row.text, row.tokens) for row in want]


def test_a_flat_file(shared_data: Path) -> None:
    path = shared_data / "nanogpt_shakespeare_val.bin"
    ids = np.fromfile(path, "<u2").tolist()
    for at in ("start", "end"):
        got, _ = read(flat_u16.read_rows, path, 0, path.stat().st_size, reading=Reading(GPT2, at))
        assert sum(row.source_tokens for row in got) == len(ids)
        assert b"".join(row.text for row in got) == spell(ids)
        assert {row.problem for row in got} == {""}
