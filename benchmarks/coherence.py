"""What `casebits coherence` finds, what it mistakes, and how fast it is.

    python -m benchmarks.coherence [--texts FOLDER_OR_PARQUET] [--repeats 5] [--tokens 4000000]

Three tables: the verdict on every cluster of the texts as it is; the verdict on all of them with a share of blocks
shuffled, by size of block; and the speed beside a plain count of tokens and pairs by `np.unique` in the same run.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from casebits_dagster.mixing.coherence import Coherence, examine
from casebits_dagster.mixing.token_file import open_token_file
from casebits_dagster.records.pins import default_pins_folder

U2 = NDArray[np.uint16]
_SEPARATOR = 50256
_BLOCKS = (2, 4, 8, 16, 64, 256, 1024, 4096, 65536)
_SHARES = (0.01, 0.05, 0.2, 1.0)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sample = default_pins_folder() / "sample" / "pd_mix.parquet"
    parser.add_argument("--texts", type=Path, default=sample, help="Parquet of GPT-2 `tokens` and `cluster_id`")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=4_000_000, help="of the second and third table, at most")
    options = parser.parse_args()
    table = _table(options.texts)
    with tempfile.TemporaryDirectory() as folder:
        _false_alarms(table, Path(folder))
        stream = _stream(table)[: options.tokens]
        _found(stream, Path(folder), options.repeats)
        _speed(stream, Path(folder), options.repeats)


def _table(texts: Path) -> pa.Table:
    paths = sorted(texts.glob("*.parquet")) if texts.is_dir() else [texts]
    return pa.concat_tables([pq.read_table(path, columns=["tokens", "cluster_id"]) for path in paths])


def _stream(table: pa.Table) -> U2:
    column = table["tokens"].combine_chunks()
    starts = np.concatenate([[0], np.cumsum(column.value_lengths().to_numpy())[:-1]])
    return np.insert(column.flatten().to_numpy().astype("<u2"), starts, _SEPARATOR)


def _examine(stream: U2, folder: Path, **options: Any) -> Coherence:
    path = folder / "stream.bin"
    stream.tofile(path)
    return examine(open_token_file(path, "u2"), **options)


def _false_alarms(table: pa.Table, folder: Path) -> None:
    print(f"{'text as it is':<16}{'tokens':>12}{'chunks':>9}{'without order':>15}{'allowed':>9}{'least z':>9}  verdict")
    clusters = sorted(set(table["cluster_id"].to_pylist()))
    for name, part in [("all", table), *((f"cluster {k}", _cluster(table, k)) for k in clusters)]:
        found = _examine(_stream(part), folder)
        without = int((found.z < 2.33).sum())
        print(f"{name:<16}{found.file.tokens:>12,}{len(found.z):>9,}{without:>15,}{found.needed - 1:>9,}", end="")
        print(f"{np.nanmin(found.z):>9.1f}  {found.verdict}", flush=True)


def _cluster(table: pa.Table, cluster: int) -> pa.Table:
    return table.filter(pc.equal(table["cluster_id"], cluster))


def _found(stream: U2, folder: Path, repeats: int) -> None:
    """Print how many of `repeats` damaged streams are called scrambled."""
    for chunk, scattered in itertools.product((1024, 4096), (True, False)):
        how = "scattered blocks" if scattered else "one run of blocks"
        print(f"\nfound of {repeats}: {how} shuffled in {len(stream):,} tokens, chunks of {chunk:,}")
        print(f"{'block':>8}" + "".join(f"{share:>8.0%}" for share in _SHARES))
        for block in _BLOCKS:
            told = [_times(stream, folder, repeats, block, share, chunk, scattered) for share in _SHARES]
            print(f"{block:>8,}" + "".join(f"{times:>8}" for times in told), flush=True)


def _times(stream: U2, folder: Path, repeats: int, block: int, share: float, chunk: int, scattered: bool) -> int:
    verdicts = []
    for seed in range(repeats):
        damaged = _damage(stream, block, share, scattered, np.random.default_rng(seed))
        verdicts.append(_examine(damaged, folder, chunk_tokens=chunk).verdict)
    return verdicts.count("scrambled")


def _damage(stream: U2, block: int, share: float, scattered: bool, random: np.random.Generator) -> U2:
    damaged = stream.copy()
    rows = damaged[: len(stream) // block * block].reshape(-1, block)
    count = max(1, round(share * len(rows)))
    chosen = (
        random.permutation(len(rows))[:count]
        if scattered
        else random.integers(len(rows) - count + 1) + np.arange(count)
    )
    rows[chosen] = random.permuted(rows[chosen], axis=1)
    return damaged


def _speed(stream: U2, folder: Path, repeats: int) -> None:
    path = folder / "stream.bin"
    np.tile(stream, 4).tofile(path)
    file = open_token_file(path, "u2")

    def peer() -> None:
        """Count the tokens and the pairs."""
        ids = file.read(0, file.tokens).astype(np.uint32)
        np.unique(ids, return_counts=True)
        np.unique(ids[:-1] << np.uint32(16) | ids[1:], return_counts=True)

    ours, plain = _least_seconds(lambda: examine(file), repeats), _least_seconds(peer, repeats)
    print(f"\n{file.tokens:,} tokens, least CPU time of {repeats}")
    print(f"  coherence                 {file.tokens / ours / 1e6:6.1f} M tokens/s")
    print(f"  np.unique, ids and pairs  {file.tokens / plain / 1e6:6.1f} M tokens/s, {ours / plain:.1f} times as fast")


def _least_seconds(call: Callable[[], object], repeats: int) -> float:
    spent = []
    for _ in range(repeats):
        begin = time.process_time()
        call()
        spent.append(time.process_time() - begin)
    return min(spent)


if __name__ == "__main__":
    main()
