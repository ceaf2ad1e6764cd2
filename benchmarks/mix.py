"""Write a mix of two streams and tell its speed beside two limits that are measured in the same run.

    python -m benchmarks.mix [--tokens 1000000000] [--workers 2] [--length 16384] [--rounds 3]

Makes a frontier of that size first: document lengths are synthetic (seeded, with the profile of a published mix),
their tokens and masks are those of the sample's real text, again and again from seeded offsets. The limits: `dd` of as
many zeros with `conv=fsync` to the same disk, and one core that copies and hashes as many bytes in memory. Each round
measures the limits and the mix one after the other, each on a disk with nothing left to write; the least of all rounds
counts. The wall clock is that from the plan to the published folder. CPU seconds are of this process, with one worker.
A table tells what each step takes when one thread does one after the other: what the wall clock is made of.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import re
import resource
import shutil
import subprocess
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.filters.region import filter_region
from casebits_dagster.mixing.build import build_mix, pack
from casebits_dagster.mixing.choose import choose
from casebits_dagster.mixing.sources import MixSource
from casebits_dagster.mixing.write import SourceTokens, count_ids, split_runs, token_blocks
from casebits_dagster.records.layout import Home
from casebits_dagster.records.pins import default_pins_folder, load_generation
from casebits_dagster.records.recipe import Aligned, Domain, Lengths, Recipe, Selection
from casebits_dagster.regions.encode import encode_region
from casebits_dagster.regions.read import Region

T = TypeVar("T")
REGION_TOKENS = 1 << 26
PROFILE = {
    (64, 4096): 0.182,
    (16384, 32768): 0.561,
    (32768, 65536): 0.166,
    (65536, 131072): 0.045,
    (131072, 262144): 0.046,
}
"""Shares of tokens by document length, of a published mix of 1.0 G tokens."""
INDEX = [
    (name, kind)
    for name, kind in zip(
        ("id", "index", "tokens", "cluster", "split", "case_class"),
        ("V16", "<u4", "<u4", "<i4", "u1", "u1"),
        strict=True,
    )
]


@dataclass(frozen=True)
class Arrays:
    ids: NDArray[np.uint16]
    cases: NDArray[np.uint16]
    offsets: NDArray[np.uint64]


def main() -> None:
    """Print the limits, the speeds and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=1_000_000_000, help="tokens of the mix (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="write again with so many processes")
    parser.add_argument("--length", type=int, default=16_384, help="tokens of a window (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="of which the fastest counts (default: %(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        _run(Path(folder), options)


def _run(folder: Path, options: argparse.Namespace) -> None:
    source = synthetic_frontier(folder, options.tokens * 11 // 10)
    print(f"frontier: {source.documents:,} documents in {source.regions} regions, synthetic lengths over real text")
    recipe = _recipe(options.tokens // options.length, options.length)
    tokens = options.tokens // options.length * options.length
    print(f"{tokens:,} tokens in two streams, {4 * tokens / 1e9:.2f} GB")
    rounds = [_round(recipe, source, folder, 4 * tokens, options.workers) for _ in range(options.rounds)]
    disk, memory, one, more = zip(*rounds, strict=True)
    alone = min(one, key=lambda built: built.spent)
    limits = {"limit: dd conv=fsync": disk, "limit: copy and hash in memory, one core": memory}
    walls = {
        f"write, hash and publish, {workers} workers": [built.wall for built in several]
        for workers, several in ((1, one), (options.workers, more))
    }
    for name, seconds in (limits | walls | {"CPU of it, 1 worker": [built.spent for built in one]}).items():
        least, every = min(seconds), " ".join(f"{each:.2f}" for each in seconds)
        speeds = f"{tokens / least / 1e6:>6.0f} M tokens/s {4 * tokens / least / 1e6:>6.0f} MB/s"
        print(f"{name:<42}{least:>7.2f} s {speeds}   of {every}")
    slower = max(min(seconds) for seconds in limits.values())
    for name, seconds in walls.items():
        print(f"{name}: {slower / min(seconds):.2f} of the smaller limit")
    planned = min(built.planned for built in one)
    print(f"planning: {planned:.2f} CPU s, {planned / alone.spent:.3f} of writing;", end=" ")
    print(f"choosing {alone.chosen:.2f} CPU s; peak memory of this process {alone.peak / 1e6:.0f} MB, pages of mapped")
    print("files not counted")
    _print_steps(recipe, source, folder / "steps", alone)


class Built(NamedTuple):
    """CPU seconds of choosing and of planning; wall, CPU and kernel CPU seconds of the rest; peak memory in bytes."""

    chosen: float
    planned: float
    wall: float
    spent: float
    kernel: float
    peak: int


def _round(
    recipe: Recipe, source: MixSource, folder: Path, size: int, workers: int
) -> tuple[float, float, Built, Built]:
    memory, disk = _copy_and_hash(size), _dd(folder, size)
    one, more = (_build(recipe, source, folder / f"home{each}", each) for each in (1, workers))
    return disk, memory, one, more


def _print_steps(recipe: Recipe, source: MixSource, folder: Path, built: Built) -> None:
    """Write the token files of train, a block at a time and a step at a time, and print the seconds of each step."""
    chosen = choose(recipe, {source.generation: source}, Home(folder))
    packed = pack(recipe, chosen)
    files = split_runs("train", packed.plan, SourceTokens(packed.used, chosen.sources), recipe.windows_per_shard)
    folder.mkdir()
    os.sync()
    clock = _Clock()
    for runs in files:
        digest, blocks = hashlib.sha256(), token_blocks(runs)
        with (folder / runs.name).open("wb", buffering=0) as stream:
            while found := clock.time("gather: mapped regions to a block", next, blocks, None):
                begin, block = found
                clock.time("count ids", count_ids, block, runs.counted - begin)
                clock.time("hash: SHA-256", digest.update, block.data)
                clock.time("write: to the page cache", stream.write, block.data)
            clock.time("fsync: to the disk", os.fsync, stream.fileno())
    shutil.rmtree(folder)
    print(f"{'the same files, one step after the other':<42}{'wall s':>9}{'CPU s':>9}{'kernel s':>10}")
    for name, seconds in (clock.spent | {"all steps": np.sum(list(clock.spent.values()), axis=0)}).items():
        print(f"  {name:<40}{seconds[0]:>9.2f}{seconds[1]:>9.2f}{seconds[2]:>10.2f}")
    print(f"  {'as the product does it, 1 worker':<40}{built.wall:>9.2f}{built.spent:>9.2f}{built.kernel:>10.2f}")


class _Clock:
    """Adds up wall, CPU and kernel CPU seconds by step."""

    def __init__(self) -> None:
        self.spent: dict[str, NDArray[np.float64]] = defaultdict(lambda: np.zeros(3))

    def time(self, step: str, work: Callable[..., T], *arguments: Any) -> T:
        before = _now()
        result = work(*arguments)
        self.spent[step] += _now() - before
        return result


def _now() -> NDArray[np.float64]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return np.array([time.perf_counter(), used.ru_utime + used.ru_stime, used.ru_stime])


def synthetic_frontier(folder: Path, tokens: int) -> MixSource:
    """Return a source of `tokens` tokens or more, its regions below `folder`."""
    text = _sample(folder / "sample")
    lengths = _lengths(tokens)
    cuts = np.searchsorted(np.cumsum(lengths), np.arange(REGION_TOKENS, lengths.sum(), REGION_TOKENS))
    parts = np.split(lengths, cuts)
    regions = [_region(folder / f"{number}", part, text, number) for number, part in enumerate(parts)]
    return MixSource(
        generation="synthetic",
        manifest_version=1,
        manifest_sha256="0" * 64,
        vocabulary_sha256="0" * 64,
        vocabulary_size=65_536,
        licences=("CC0-1.0",),
        documents=len(lengths),
        regions=len(regions),
        rows=lambda number: _rows(number, parts[number]),
        region=lambda number: regions[number],
    )


def _sample(root: Path) -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
    """Return ids and masks of the sample's text, without separators."""
    generation, home = load_generation(default_pins_folder(), "sample"), Home(root)
    streams = []
    for region in generation.plan:
        filter_region(generation, region.index, home)
        encode_region(generation, region.index, home)
        arrays = Region.open(home.generation(generation.name).region(region.index))
        streams.append([stream[arrays.ids != 0] for stream in (arrays.ids, arrays.cases)])
    ids, cases = (np.concatenate(parts) for parts in zip(*streams, strict=True))
    return ids, cases


def _lengths(tokens: int) -> NDArray[np.int64]:
    random = np.random.default_rng(16)
    drawn = []
    for (low, high), share in PROFILE.items():
        some = np.exp(random.uniform(np.log(low), np.log(high), int(2 * tokens * share / low) + 10)).astype(np.int64)
        drawn.append(some[: np.searchsorted(np.cumsum(some), tokens * share) + 1])
    return random.permutation(np.concatenate(drawn))


def _region(folder: Path, lengths: NDArray[np.int64], text: tuple[Any, Any], seed: int) -> Arrays:
    folder.mkdir()
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype("<u8")
    start = int(np.random.default_rng(seed).integers(len(text[0])))
    maps = []
    for number, stream in enumerate(text):
        content = np.resize(np.roll(stream, -start), int(offsets[-1]))
        content[offsets[1:].astype(np.int64) - 1] = 0
        content.tofile(folder / f"{number}")
        maps.append(np.memmap(folder / f"{number}", "<u2", "r"))
    return Arrays(maps[0], maps[1], offsets)


def _rows(number: int, lengths: NDArray[np.int64]) -> NDArray[Any]:
    rows = np.zeros(len(lengths), INDEX)
    names = (hashlib.sha256(b"%d %d" % (number, index)).digest()[:16] for index in range(len(lengths)))
    rows["id"], rows["index"], rows["tokens"] = np.frombuffer(b"".join(names), "V16"), np.arange(len(lengths)), lengths
    return rows


def _recipe(windows: int, length: int) -> Recipe:
    everything = Domain(name="all", generation="synthetic", share=Decimal(1))
    return Recipe(
        mix="benchmark",
        description="synthetic",
        strategy="aligned",
        sequence_length=length,
        windows_per_shard=max(1, (1 << 26) // length),
        seed="benchmark",
        aligned=Aligned(),
        selection=Selection(windows=windows, domains=(everything,), lengths=Lengths(edges=(), profile=(Decimal(1),))),
    )


def _build(recipe: Recipe, source: MixSource, root: Path, workers: int) -> Built:
    os.sync()
    marks = [_now()]

    def say(told: str) -> None:
        if len(marks) < 3:
            marks.append(_now())

    with _anonymous_memory() as peak:
        build_mix(recipe, {source.generation: source}, Home(root), workers=workers, say=say)
    marks.append(_now())
    shutil.rmtree(root)
    (_, chosen, _), (_, planned, _), rest = np.diff(marks, axis=0).tolist()
    wall, spent, kernel = rest
    return Built(chosen, planned, wall, spent, kernel, peak())


@contextlib.contextmanager
def _anonymous_memory() -> Iterator[Callable[[], int]]:
    """Yield a function that returns the most bytes of this process that were no file's pages, looked at 50 times a
    second."""
    seen, over = [0], threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            status = Path("/proc/self/status").read_text()
            seen[0] = max(seen[0], int(re.findall(r"RssAnon:\s+(\d+)", status)[0]) * 1024)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield lambda: seen[0]
    finally:
        over.set()
        thread.join()


def _copy_and_hash(size: int) -> float:
    """Return the CPU seconds that one core needs to copy `size` bytes and hash the copy, in pieces of 1 MiB."""
    source, target = (np.full(1 << 20, 7, np.uint8) for _ in range(2))
    digest, begin = hashlib.sha256(), time.process_time()
    for _ in range(size >> 20):
        np.copyto(target, source)
        digest.update(target.data)
    return time.process_time() - begin


def _dd(folder: Path, size: int) -> float:
    os.sync()
    path, begin = folder / "zeros", time.perf_counter()
    command = ["dd", "if=/dev/zero", f"of={path}", "bs=1M", f"count={size >> 20}", "conv=fsync", "status=none"]
    subprocess.run(command, check=True)
    seconds = time.perf_counter() - begin
    path.unlink()
    return seconds


if __name__ == "__main__":
    main()
