"""Time and memory of choosing the documents of a mix, on index rows of made-up documents.

    python -m benchmarks.selection [--documents 10000000] [--peer-documents 1000000] [--folder FOLDER]

Documents lie in regions of 71,000, in five domains, one in fifty has the text of another one. Their lengths follow one
log-normal law (median 600 tokens, 1 in 20 above 16,384), and the mix wants other shares by domain and by length than
they have. Index rows are files, one a region, mapped when their region is read. Seconds are of the processor; memory
is the peak of a process of its own less what it had before it started.

The peer is the plain way: all index rows in one table, ids compared and documents ordered by whole sorts of it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.mixing.seeds import splitmix64
from casebits_dagster.mixing.select import select
from casebits_dagster.mixing.sources import MixSource
from casebits_dagster.mixing.supply import supply
from casebits_dagster.mixing.targets import Margins, plan_targets
from casebits_dagster.records.recipe import Domain, Lengths, Selection
from casebits_dagster.records.record import micro
from casebits_dagster.regions.index import INDEX_DTYPE

REGION = 71_000
FRONTIER = 150_000_000
LENGTH = 16_384
EDGES = (4_096, 16_384, 32_768, 65_536, 131_072)
PROFILE = ("0.182", "0.1", "0.461", "0.166", "0.045", "0.046")
SHARES = {"code": "0.37", "math": "0.29", "web": "0.28", "chess": "0.03", "engine": "0.03"}
SEED = "benchmark"


@dataclass(frozen=True)
class Measured:
    """What one way took, in seconds and megabytes, and the documents that it chose."""

    seconds: dict[str, float]
    peak_mb: float
    chosen: int
    tokens: int


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=10_000_000)
    parser.add_argument("--peer-documents", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, help="where the index rows are written (42 bytes a document)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        regions = -(-options.documents // REGION)
        print(f"{options.documents:,} documents in {regions} regions: their index rows are being made", flush=True)
        for region in range(regions):
            count = min(REGION, options.documents - region * REGION)
            np.save(f"{folder}/{region:05d}.npy", _index_rows(region, count))
        small = min(regions, -(-options.peer_documents // REGION))
        ours = _print("columns", _columns, folder, regions, options.documents)
        _print("columns", _columns, folder, small, min(small * REGION, options.documents))
        _print("whole table (peer)", _whole_table, folder, small, min(small * REGION, options.documents))
    millions = FRONTIER / options.documents
    total = sum(ours.seconds.values())
    print(
        f"a frontier of {FRONTIER / 1e6:.0f} million documents, in proportion: {ours.peak_mb * millions / 1e3:.1f} GB, "
        f"{total * millions:.0f} s"
    )


def _print(name: str, way: Callable[[str, int], Measured], folder: str, regions: int, documents: int) -> Measured:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.apply(way, (folder, regions))
    seconds = ", ".join(f"{stage} {value:.2f}" for stage, value in found.seconds.items())
    print(
        f"{name:<20}{documents:>12,} documents{found.peak_mb:>8.0f} MB{found.peak_mb / documents * 1e6:>7.1f} MB a "
        f"million   seconds: {seconds}   chose {found.chosen:,} of {found.tokens:,} tokens",
        flush=True,
    )
    return found


def _columns(folder: str, regions: int) -> Measured:
    clock, source = _Clock(), _source(folder, regions)
    have = supply(_selection(regions), {"made": source}, np.empty(0, "V16"), LENGTH)
    clock.lap("supply")
    targets = plan_targets(_margins(), have.train.tokens, _windows(regions), LENGTH, "shrink")
    clock.lap("targets")
    chosen = select(have.documents, have.train, targets, SEED).documents
    clock.lap("select")
    return clock.measured(chosen)


def _whole_table(folder: str, regions: int) -> Measured:
    clock, source = _Clock(), _source(folder, regions)
    rows = np.concatenate([np.asarray(source.rows(region)) for region in range(regions)])
    rows = rows[np.sort(np.unique(rows["id"], return_index=True)[1])]
    rows = rows[rows["split"] == 0]
    clock.lap("supply")
    words = np.ascontiguousarray(rows["id"]).view(">u8").reshape(-1, 2)
    order = np.lexsort((words[:, 1], splitmix64(words[:, 0].astype("<u8"))))
    ends = np.cumsum(rows["tokens"][order], dtype=np.int64)
    chosen = rows[np.sort(order[: np.searchsorted(ends, _windows(regions) * LENGTH)])]
    clock.lap("select")
    return clock.measured(chosen)


class _Clock:
    """Processor seconds by stage, and the peak of memory since it was made."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.memory, self.began = _peak(), time.process_time()

    def lap(self, stage: str) -> None:
        now = time.process_time()
        self.seconds[stage], self.began = now - self.began, now

    def measured(self, chosen: NDArray[Any]) -> Measured:
        tokens = int(chosen["tokens"].sum(dtype=np.int64))
        return Measured(self.seconds, (_peak() - self.memory) / 1e3, len(chosen), tokens)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _windows(regions: int) -> int:
    return regions * REGION * 200 // LENGTH


def _selection(regions: int) -> Selection:
    domains = tuple(
        Domain(name=name, generation="made", clusters=tuple(range(number * 4, number * 4 + 4)), share=Decimal(share))
        for number, (name, share) in enumerate(SHARES.items())
    )
    lengths = Lengths(edges=EDGES, profile=tuple(map(Decimal, PROFILE)))
    return Selection(windows=_windows(regions), domains=domains, lengths=lengths)


def _margins() -> Margins:
    return Margins(
        list(SHARES), Lengths(edges=EDGES).names, [micro(share) for share in SHARES.values()], list(map(micro, PROFILE))
    )


def _source(folder: str, regions: int) -> MixSource:
    def no_tokens(_: int) -> Any:
        raise NotImplementedError

    return MixSource(
        generation="made",
        manifest_version=1,
        manifest_sha256="",
        vocabulary_sha256="",
        vocabulary_size=1,
        licences=(),
        documents=regions * REGION,
        regions=regions,
        rows=lambda region: np.load(f"{folder}/{region:05d}.npy", mmap_mode="r"),
        region=no_tokens,
    )


def _index_rows(region: int, count: int) -> NDArray[np.void]:
    number = np.arange(count, dtype=np.uint64) + np.uint64(region * REGION)
    text = np.where(number % 50 == 0, number // 2, number)
    ids = np.stack([splitmix64(2 * text), splitmix64(2 * text + 1)], axis=1)
    random = np.random.default_rng(region)
    rows = np.zeros(count, INDEX_DTYPE)
    rows["id"] = ids.astype(">u8").view("V16").ravel()
    rows["region"], rows["index"] = region, np.arange(count)
    rows["tokens"] = np.clip(random.lognormal(np.log(600), 2.0, count), 8, 1_000_000)
    rows["cluster"] = random.integers(0, 20, count)
    rows["split"] = splitmix64(text) % 1000 == 0
    return rows


if __name__ == "__main__":
    main()
