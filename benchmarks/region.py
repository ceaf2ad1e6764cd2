"""Time regions of ClimbMix's form through their stages, beside bare `tokenizers` on the same text.

    python -m benchmarks.region [--bytes 268435456] [--regions 1] [--workers 0] [--texts FOLDER] [--full-peer]

Makes one JSONL file in ClimbMix's layout from Parquet rows (the sample source, or any FOLDER of files with its
columns), each document re-cut at a seeded offset so that every id is new, and takes its regions from source bytes to an
admission. Times are CPU seconds of this process with all its threads, so that other load on the machine does not count
as ours. `--workers 2` also makes the regions again with that many processes at once, and compares the wall clocks.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import itertools
import multiprocessing
import os
import re
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

# Read when the encoder is imported: what is measured is one core.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("RAYON_NUM_THREADS", "1")

import numpy as np
import pyarrow as pa
import tokenizers

from benchmarks.climbmix import write_climbmix
from casebits_dagster.admission import verify_region
from casebits_dagster.codec.encode import Encoder
from casebits_dagster.filters.region import filter_region
from casebits_dagster.records.digests import sha256_file
from casebits_dagster.records.layout import Home
from casebits_dagster.records.pins import Generation, SourceFile, default_pins_folder, load_generation
from casebits_dagster.records.plan import RegionSpec
from casebits_dagster.regions.encode import encode_region
from casebits_dagster.sources import read_rows

T = TypeVar("T")
PEER_BYTES = 4 << 20
IDS_BYTES = 32 << 20
WARM_BYTES = 4 << 20
READ, FILTER, ENCODE, VERIFY = "read", "filter", "encode", "verify"


def main() -> None:
    """Print the tables and end in the total."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=int, default=1 << 28, help="bytes of JSONL a region (default: %(default)s)")
    parser.add_argument("--regions", type=int, default=1, help="how many regions, one after the other")
    parser.add_argument("--workers", type=int, default=0, help="then again with so many processes at once")
    parser.add_argument("--texts", type=Path, help="a folder of Parquet files (default: the sample source)")
    parser.add_argument("--generation", default="climbmix-lower32k-v1", help="whose policy, codec and split are used")
    parser.add_argument("--full-peer", action="store_true", help="the peer encodes all text, not 4 MiB of it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        _run(Path(folder), options)


def _run(folder: Path, options: argparse.Namespace) -> None:
    texts = options.texts or default_pins_folder() / "sample"
    tokens = write_climbmix(folder / "large.jsonl", sorted(texts.glob("*.parquet")), options.bytes * options.regions)
    generation = large_generation(folder, options.generation, options.bytes, options.regions)
    take(dataclasses.replace(generation, plan=(RegionSpec(0, "large.jsonl", "bytes", 0, WARM_BYTES),)), 0, folder / "w")
    spent = {READ: 0.0, FILTER: 0.0, ENCODE: 0.0, VERIFY: 0.0}
    read = kept = 0
    home, begin = Home(folder / "home"), time.perf_counter()
    for index in range(options.regions):
        seconds, rows, size = take(generation, index, home.root)
        spent = {name: spent[name] + seconds[name] for name in spent}
        read, kept = read + rows, kept + size
        if options.regions > 1:
            print(f"region {index}: producer {_producer(seconds):.2f} s, verifier {seconds[VERIFY]:.2f} s, {_memory()}")
    wall = time.perf_counter() - begin
    _report(generation, home, spent, options, tokens, read, kept)
    if options.workers:
        _scale(generation, folder, options.workers, wall)
    print(f"total: {(_producer(spent) + spent[VERIFY]) / tokens * 1e9:.1f} ns per source token")


def take(generation: Generation, index: int, root: Path) -> tuple[dict[str, float], int, int]:
    """Take one region through all stages; return the CPU seconds of each, the rows read and the bytes of text kept."""
    home = Home(root)
    _, reading = _timed(lambda: sum(1 for _ in read_rows(generation.source, generation.plan[index])))
    judged, filtering = _timed(lambda: filter_region(generation, index, home))
    encoded, encoding = _timed(lambda: encode_region(generation, index, home))
    _, verifying = _timed(lambda: verify_region(encoded.folder, generation, index=index))
    spent = {READ: reading, FILTER: filtering - reading, ENCODE: encoding, VERIFY: verifying}
    return spent, judged.rows_read, encoded.receipt.counts.raw_bytes


def large_generation(folder: Path, name: str, size: int, regions: int) -> Generation:
    """Return a generation like the pinned one, over `regions` regions of `size` bytes of the file in `folder`."""
    generation = load_generation(default_pins_folder(), name)
    path = folder / "large.jsonl"
    file = SourceFile(path=path.name, bytes=path.stat().st_size, sha256=sha256_file(path))
    cuts = [size * number for number in range(regions)] + [file.bytes]
    plan = tuple(RegionSpec(index, file.path, "bytes", *pair) for index, pair in enumerate(itertools.pairwise(cuts)))
    return dataclasses.replace(generation, source=generation.source.at(folder, file), plan=plan)


def _report(
    generation: Generation,
    home: Home,
    spent: dict[str, float],
    options: argparse.Namespace,
    tokens: int,
    read: int,
    kept: int,
) -> None:
    peer = _bare(generation, home, kept if options.full_peer else PEER_BYTES) * kept / tokens * 1e9
    regions = f"{options.regions} region" + "s" * (options.regions > 1)
    print(
        f"{regions} of {options.bytes:,} bytes: {tokens:,} GPT-2 tokens in {read:,} rows; {kept:,} bytes of text kept"
    )
    print(f"{'stage':<58}{'ns a source token':>18}{'MB of text a CPU-s':>20}")
    producer, parsed = _producer(spent), _parsed(generation)
    rows = {
        "read: range hash, parse, detokenise": spent[READ],
        "filter: score, judge, verdicts, kept text": spent[FILTER],
        "encode: ids, masks, files, hashes, lines, mask costs": spent[ENCODE],
        "of it, the ids alone, warm": _ids(generation, home) * kept,
        "producer: source bytes to published region": producer,
        "verifier: layers 1 to 4 in full, 5 sampled": spent[VERIFY],
        "peer: bare tokenizers, encoding the kept text alone": peer * tokens / 1e9,
        "peer: np.fromstring, parsing the lists of ids alone": parsed * tokens,
    }
    for name, seconds in rows.items():
        print(f"{name:<58}{seconds / tokens * 1e9:>18.1f}{kept / seconds / 1e6:>20.1f}")
    for name, seconds in (("producer", producer), ("verifier", spent[VERIFY])):
        each = seconds / tokens
        print(f"{name}: {each * 1e9 / peer:.3f} of bare tokenizers, {each / parsed:.1f} times np.fromstring")
    print(_memory())


def _producer(seconds: dict[str, float]) -> float:
    return seconds[READ] + seconds[FILTER] + seconds[ENCODE]


def _memory() -> str:
    return f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB"


def _scale(generation: Generation, folder: Path, workers: int, wall: float) -> None:
    """Make the same regions with several processes at once and compare the wall clocks."""
    jobs = [(generation, index, folder / "again") for index in range(len(generation.plan))]
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        pool.map(_warm, range(workers), chunksize=1)
        begin = time.perf_counter()
        pool.starmap(take, jobs, chunksize=1)
        together = time.perf_counter() - begin
    print(f"{workers} processes: {wall / together:.2f} times as fast as one ({together:.1f} s against {wall:.1f} s)")


def _warm(number: int) -> None:
    hashlib.sha256(bytes(number))
    time.sleep(1)


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    begin = time.process_time()
    result = work()
    return result, time.process_time() - begin


def _parsed(generation: Generation) -> float:
    """Return the CPU seconds a token that `np.fromstring` needs to parse the lists of 16 MiB of the file."""
    path = generation.source.folder / generation.plan[0].path
    with path.open("rb") as stream:
        lists = re.findall(rb"\[([0-9, ]+)\]", stream.read(1 << 24))
    count, seconds = _timed(lambda: sum(len(np.fromstring(ids, "<i8", sep=",")) for ids in lists))
    return seconds / count


def _texts(generation: Generation, home: Home, limit: int) -> tuple[list[str], int]:
    """Return texts of the first region as they are encoded, about `limit` bytes of them, and their bytes."""
    texts, size = [], 0
    with pa.memory_map(str(home.generation(generation.name).kept_text(0))) as source:
        for raw in pa.ipc.open_file(source).read_all()["text"].to_pylist():
            if size < limit:
                texts.append(raw.lower().decode())
                size += len(raw)
    return texts, size


def _bare(generation: Generation, home: Home, limit: int) -> float:
    """Return the CPU seconds a byte that bare `tokenizers` needs to encode."""
    tokenizer = tokenizers.Tokenizer.from_file(str(generation.vocabulary))
    texts, size = _texts(generation, home, limit)
    _, seconds = _timed(lambda: tokenizer.encode_batch_fast(texts, add_special_tokens=False))
    return seconds / size


def _ids(generation: Generation, home: Home) -> float:
    """Return the CPU seconds a byte that our encoder needs for the ids alone, once warm."""
    encoder = Encoder(generation.vocabulary)
    texts, size = _texts(generation, home, IDS_BYTES)
    encoder.tokenise(texts)
    _, seconds = _timed(lambda: encoder.tokenise(texts))
    return seconds / size


if __name__ == "__main__":
    main()
