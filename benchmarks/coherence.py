"""What `casebits coherence` finds, what it mistakes, and how fast it is.

    python -m benchmarks.coherence [--texts FOLDER_OR_PARQUET ...] [--repeats 3] [--tokens 4000000]

Three tables. Verdict and chunks without order of every kind of text in the sample and of each of `--texts`, as GPT-2
ids and in the lower-case vocabulary of 32,768: as it is, and damaged in five ways, of which a shift by one token is
none. How many of `--repeats` damaged streams are found, by size and share of the shuffled blocks. And the speed beside
bare counts of the same file in the same run.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from casebits_dagster.codec.bytetable import ByteTable, read_vocabulary
from casebits_dagster.codec.encode import Encoder
from casebits_dagster.mixing.coherence import (
    _FALSE_ALARM,
    _TEXT_WITHOUT_ORDER,
    Coherence,
    _poisson_bound,
    examine,
)
from casebits_dagster.mixing.token_file import open_token_file
from casebits_dagster.records.errors import CasebitsError
from casebits_dagster.records.pins import default_pins_folder
from casebits_dagster.records.vocabulary import gpt2_file

U2 = NDArray[np.uint16]
SEPARATOR = 50256
KINDS = {
    "proofs": 2,
    "code": 5,
    "documentation": 11,
    "English: speeches": 14,
    "dictionary": 16,
    "English: novels": 17,
    "English: scripture": 19,
    "chess": 20,
}
TINY = (300, 1_000, 2_000)
BLOCKS, SHARES = (2, 4, 8, 16, 64, 256, 1024, 4096, 65536), (0.01, 0.05, 0.2, 1.0)
WHOLE, LEAST = 3, 1 << 16
"""Damage of single blocks, from the fourth kind on, is asked of files of at least so many tokens."""
Damage = Callable[[U2, np.random.Generator], U2]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, nargs="*", default=[], help="more Parquet files of GPT-2 `tokens`")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=4_000_000, help="of one stream, at most")
    options = parser.parse_args()
    encoder = Encoder(default_pins_folder() / "codecs" / "climbmix-lower-32768" / "vocabulary.json")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stream.bin"
        _kinds(list(_streams(options.texts, encoder, options.tokens)), path)
        stream = _gpt2(_table(_sample()))[: options.tokens]
        _found(stream[: 1 << 20], path, options.repeats)
        _speed(stream, path, options.repeats)


def _sample() -> Path:
    return default_pins_folder() / "sample" / "pd_mix.parquet"


def _table(texts: Path) -> pa.Table:
    paths = sorted(texts.glob("*.parquet")) if texts.is_dir() else [texts]
    tables = [pq.read_table(path) for path in paths]
    return pa.concat_tables(
        [table.select([n for n in ("tokens", "cluster_id") if n in table.column_names]) for table in tables]
    )


def _streams(texts: list[Path], encoder: Encoder, most: int) -> Iterator[tuple[str, U2]]:
    """Yield a name and a stream of ids of every kind of text."""
    sample = _table(_sample())
    clusters = {name: sample.filter(pc.equal(sample["cluster_id"], cluster)) for name, cluster in KINDS.items()}
    tables = {**clusters, "all of the sample": sample, **{path.stem: _table(path) for path in texts}}
    for name, table in tables.items():
        yield f"{name}, GPT-2", _gpt2(table)[:most]
        try:
            yield f"{name}, lower 32k", _lower(table, encoder, most)
        except CasebitsError as error:
            print(f"{name}, lower 32k: left out: {error}")
    for tokens in TINY:
        yield f"tiny: {tokens:,}, GPT-2", _gpt2(clusters["English: novels"])[7 : 7 + tokens]


def _gpt2(table: pa.Table) -> U2:
    column = table["tokens"].combine_chunks()
    starts = np.concatenate([[0], np.cumsum(column.value_lengths().to_numpy())[:-1]])
    return np.insert(column.flatten().to_numpy().astype("<u2"), starts, SEPARATOR)


def _lower(table: pa.Table, encoder: Encoder, most: int) -> U2:
    """Return about `most` tokens of the texts in the vocabulary of the encoder."""
    source = ByteTable.of(read_vocabulary(gpt2_file("encoder.json")))
    ends = np.cumsum(pc.list_value_length(table["tokens"]).to_numpy())
    part = table["tokens"].slice(0, int(np.searchsorted(ends, most)) + 1).combine_chunks()
    ids = part.flatten().to_numpy().astype("<u2")
    cuts = np.concatenate([[0], np.cumsum(source.lengths[ids])[ends[: len(part)] - 1]]).astype("<i8")
    return encoder.encode(source.decode(ids), cuts).ids[:most]


def _examine(stream: U2, path: Path) -> Coherence:
    stream.astype("<u2").tofile(path)
    return examine(open_token_file(path, "u2"))


def _shuffled(block: int, share: float, scattered: bool = True) -> Damage:
    """Shuffle the tokens inside a share of the blocks: scattered ones, or a run of them. A block of 0 is all of it."""

    def damage(stream: U2, random: np.random.Generator) -> U2:
        damaged, size = stream.copy(), block or max(1, len(stream))
        rows = damaged[: len(stream) // size * size].reshape(-1, size)
        count = min(len(rows), max(1, round(share * len(rows))))
        first = int(random.integers(len(rows) - count + 1))
        chosen = random.permutation(len(rows))[:count] if scattered else first + np.arange(count)
        rows[chosen] = random.permuted(rows[chosen], axis=1)
        return damaged

    return damage


DAMAGES: dict[str, tuple[Damage, str]] = {
    "as it is": (lambda stream, random: stream, "coherent"),
    "off by one": (lambda stream, random: np.roll(stream, 1), "coherent"),
    "all shuffled": (_shuffled(0, 1.0), "scrambled"),
    "inside 1,024": (_shuffled(1024, 1.0), "scrambled"),
    "5 %, one run": (_shuffled(1024, 0.05, scattered=False), "scrambled"),
    "5 %, scattered": (_shuffled(1024, 0.05), "scrambled"),
}


def _kinds(streams: list[tuple[str, U2]], path: Path) -> None:
    """Print the verdict on every stream, with the chunks without order; those that are wrong are marked."""
    print("verdict, and chunks of 1,024 tokens without order (! where it is wrong)")
    print(f"{'file':<30}{'tokens':>11}{'chunks':>8}" + "".join(f"{name:>16}" for name in DAMAGES))
    wrong, files = {"coherent": 0, "scrambled": 0}, {"coherent": 0, "scrambled": 0}
    chunks = without = 0
    for name, stream in streams:
        cells = []
        for number, (damage, expected) in enumerate(DAMAGES.values()):
            if number >= WHOLE and len(stream) < LEAST:
                cells.append("-")
                continue
            found = _examine(damage(stream, np.random.default_rng(number)), path)
            flagged = int(found.without_order.sum())
            failed = found.verdict not in (expected, "undecided")
            wrong[expected] += failed
            files[expected] += 1
            cells.append(f"{'!' * failed}{found.verdict} {flagged:,}")
            if not number:
                chunks, without = chunks + len(found.z), without + flagged
        print(f"{name:<30}{len(stream):>11,}{len(found.z):>8,}" + "".join(f"{cell:>16}" for cell in cells), flush=True)
    told = {expected: f"{wrong[expected]} of {files[expected]} files" for expected in wrong}
    print(f"text called scrambled: {told['coherent']}; scrambled called coherent: {told['scrambled']}")
    print(
        f"{without} of {chunks:,} chunks of text without order: of {chunks:,} in one file the verdict allows ", end=""
    )
    print(f"{_poisson_bound(_TEXT_WITHOUT_ORDER * chunks, _FALSE_ALARM) - 1}, and no 8 in a row\n", flush=True)


def _found(stream: U2, path: Path, repeats: int) -> None:
    """Print how many of `repeats` damaged streams are called scrambled."""
    print(f"\nfound of {repeats}: scattered blocks shuffled in {len(stream):,} tokens")
    print(f"{'block':>8}" + "".join(f"{share:>8.0%}" for share in SHARES))
    for block in BLOCKS:
        told = [
            [
                _examine(_shuffled(block, share)(stream, np.random.default_rng(seed)), path).verdict
                for seed in range(repeats)
            ]
            for share in SHARES
        ]
        print(f"{block:>8,}" + "".join(f"{verdicts.count('scrambled'):>8}" for verdicts in told), flush=True)


def _speed(stream: U2, path: Path, repeats: int) -> None:
    np.tile(stream, 8).tofile(path)
    file = open_token_file(path, "u2")

    def pairs() -> None:
        ids = file.read(0, file.tokens).astype(np.uint32)
        np.unique(ids, return_counts=True)
        np.unique(ids[:-1] << np.uint32(16) | ids[1:], return_counts=True)

    calls: dict[str, Callable[[], object]] = {
        "coherence": lambda: examine(file),
        "np.unique, ids and pairs": pairs,
        "np.bincount, ids": lambda: np.bincount(file.read(0, file.tokens)),
    }
    spent = {name: _least_seconds(call, repeats) for name, call in calls.items()}
    print(f"\n{file.tokens:,} tokens, least CPU time of {repeats}")
    for name, seconds in spent.items():
        speed, ratio = file.tokens / seconds / 1e6, spent["coherence"] / seconds
        print(f"  {name:<26}{speed:6.1f} M tokens/s, {ratio:5.1f} times as fast as coherence")


def _least_seconds(call: Callable[[], object], repeats: int) -> float:
    spent = []
    for _ in range(repeats):
        begin = time.process_time()
        call()
        spent.append(time.process_time() - begin)
    return min(spent)


if __name__ == "__main__":
    main()
