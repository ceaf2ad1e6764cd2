"""Token streams of the sample's texts, whole or damaged, for the tests of coherence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from casebits_dagster.mixing.coherence import Coherence, examine
from casebits_dagster.mixing.seeds import counter_keys
from casebits_dagster.mixing.token_file import open_token_file

U2 = NDArray[np.uint16]
SEPARATOR = 50256
CLUSTERS = {
    "proofs": 2,
    "code": 5,
    "documentation": 11,
    "speeches": 14,
    "dictionary": 16,
    "novels": 17,
    "scripture": 19,
    "chess": 20,
}


def sample_stream(pins: Path, cluster: int | None = None) -> U2:
    """Return the documents of the sample (of one cluster) in GPT-2 tokens, a separator before each."""
    table = pq.read_table(pins / "sample/pd_mix.parquet", columns=["tokens", "cluster_id"])
    return stream_of(table if cluster is None else table.filter(pc.equal(table["cluster_id"], cluster)))


def stream_of(table: pa.Table) -> U2:
    """Return column `tokens` as one stream, a separator before each row."""
    column = table["tokens"].combine_chunks()
    starts = np.concatenate([[0], np.cumsum(column.value_lengths().to_numpy())[:-1]])
    return np.insert(column.flatten().to_numpy().astype("<u2"), starts, SEPARATOR)


def shuffle_blocks(stream: U2, block: int, chosen: Sequence[int] | None = None) -> U2:
    """Return the stream with the tokens of the chosen blocks (all) in random order, each within its block."""
    damaged = stream.copy()
    rows = damaged[: len(stream) // block * block].reshape(-1, block)
    which = np.arange(len(rows)) if chosen is None else np.asarray(chosen)
    order = np.argsort(counter_keys(len(which) * block, f"damage {block}").reshape(-1, block), axis=1, kind="stable")
    rows[which] = np.take_along_axis(rows[which], order, axis=1)
    return damaged


def examined(stream: Any, path: Path, dtype: str = "u2", **options: Any) -> Coherence:
    """Write a stream to `path` and examine it."""
    np.asarray(stream).astype(f"<{dtype}").tofile(path)
    return examine(open_token_file(path, dtype), **options)
