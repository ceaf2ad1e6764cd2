"""A file in ClimbMix's layout and of any size: Parquet rows, re-cut at seeded offsets, so that every id is new."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

SHORTEST = 40


def write_climbmix(path: Path, parquets: Sequence[Path], size: int, seed: int = 11) -> int:
    """Write lines in ClimbMix's layout until the file has `size` bytes or more; return how many tokens they have."""
    tokens = written = 0
    with path.open("wb") as stream:
        for cluster, row in _recut(parquets, seed):
            line = json.dumps({"cluster_id": cluster, "tokens": row, "token_count": len(row)}) + "\n"
            written += stream.write(line.encode())
            tokens += len(row)
            if written >= size:
                break
    return tokens


def _recut(parquets: Sequence[Path], seed: int) -> Iterator[tuple[int, list[int]]]:
    """Yield the documents of all files again and again, each without some of its first tokens."""
    random = np.random.default_rng(seed)
    for first in range(1_000_000):
        for path in parquets:
            table = pq.read_table(path, columns=["cluster_id", "tokens"])
            clusters, rows = table["cluster_id"].to_pylist(), table["tokens"].combine_chunks()
            for number in random.permutation(len(rows)):
                row = rows[int(number)].as_py()[int(random.integers(0, SHORTEST)) * (first > 0) :]
                if len(row) > SHORTEST:
                    yield clusters[number], row
