"""Time and memory of a stratification report, on index rows and score columns of made-up documents.

    python -m benchmarks.stratification [--documents 10000000] [--metrics 9] [--runs 3] [--folder FOLDER]

Documents lie in regions of 71,000, in 20 clusters, one in fifty has the text of another one. Index rows and each score
are files, one a region, which are read and hashed as the cached ones are. Seconds are of the processor, the least of
some runs; memory is the peak of a process of its own less what it had before it started.

The peer is pandas: all columns in one frame in memory, grouped once for the strata and once for each score, with the
exact quartiles, a table of regions by clusters, and the ids that stand twice. It writes no report and judges nothing.
"""

from __future__ import annotations

import argparse
import io
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.selection import FRONTIER, REGION, _index_rows
from casebits_dagster.records.digests import sha256
from casebits_dagster.stratify import Prefix, tabulate
from casebits_dagster.stratify.strata import LENGTH_EDGES

KEYS = ["cluster", "length", "case_class", "split"]


@dataclass(frozen=True)
class Measured:
    """What one way took, in seconds and megabytes, and what it found, to compare."""

    seconds: float
    peak_mb: float
    found: tuple[int, ...]


def main() -> None:
    """Print a line a way, and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=10_000_000)
    parser.add_argument("--metrics", type=int, default=9)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where the files are written (42 bytes a document, 8 a score)")
    options = parser.parse_args()
    regions, metrics = -(-options.documents // REGION), options.metrics
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        print(f"{options.documents:,} documents in {regions} regions, {metrics} scores each: being made", flush=True)
        for region in range(regions):
            _make(folder, region, min(REGION, options.documents - region * REGION), metrics)
        few = max(1, regions // 10)
        ways = [("report", _report, regions), ("report", _report, few), ("pandas (peer)", _pandas, regions)]
        whole, small, peer = (_print(name, way, folder, count, options) for name, way, count in ways)
    if whole.found != peer.found:
        raise SystemExit(f"the report found {whole.found}, pandas {peer.found}")
    millions = FRONTIER / options.documents
    print(
        f"seconds {whole.seconds / peer.seconds:.2f} of pandas, memory {whole.peak_mb / peer.peak_mb:.3f} of pandas; "
        f"ten times the regions take {whole.peak_mb / small.peak_mb:.2f} times the memory\n"
        f"a frontier of {FRONTIER / 1e6:.0f} million documents, in proportion: {whole.seconds * millions:.0f} s, "
        f"{28 * FRONTIER / 1e9:.1f} GB of scratch files"
    )


def _print(name: str, way: Callable[..., Measured], folder: str, regions: int, options: Any) -> Measured:
    runs = []
    for _ in range(options.runs):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            runs.append(pool.apply(way, (folder, regions, options.metrics)))
    best, documents = min(runs, key=lambda run: run.seconds), min(regions * REGION, options.documents)
    print(
        f"{name:<15}{documents:>12,} documents{best.seconds:>8.1f} s{best.seconds / documents * 1e6:>7.2f} s a million"
        f"{best.peak_mb:>8.0f} MB   documents, tokens, strata, repeats {best.found}",
        flush=True,
    )
    return best


def _report(folder: str, regions: int, metrics: int) -> Measured:
    memory, began = _peak(), time.process_time()
    prefix = Prefix(
        generation="made",
        version=1,
        manifest_sha256="0" * 64,
        regions=regions,
        splits=(regions * REGION, regions * REGION // 1_000),
        metrics=tuple(f"score_{metric}" for metric in range(metrics)),
        rows=lambda region: _read(folder, region, "rows"),
        scores=lambda region: np.stack([_read(folder, region, str(metric)) for metric in range(metrics)]),
    )
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        report = tabulate(prefix, Path(scratch))
        report.to_bytes()
    strata = sum(
        (row["train_documents"] > 0) + (row["validation_documents"] > 0) for row in report.tables["strata"].records()
    )
    found = (report.documents, report.tokens, strata, report.repeats.documents)
    return Measured(time.process_time() - began, (_peak() - memory) / 1e3, found)


def _pandas(folder: str, regions: int, metrics: int) -> Measured:
    memory, began = _peak(), time.process_time()
    parts = [_read(folder, region, "rows") for region in range(regions)]
    frame = pd.DataFrame({name: np.concatenate([part[name] for part in parts]) for name in _COLUMNS})
    words = np.concatenate([np.ascontiguousarray(part["id"]).view("<u8").reshape(-1, 2) for part in parts])
    del parts
    frame["high"], frame["low"] = words[:, 0], words[:, 1]
    frame["length"] = np.searchsorted(LENGTH_EDGES, frame["tokens"], "right")
    sums = {"tokens": ["size", "sum"], "raw_bytes": "sum"}
    strata = frame.groupby(KEYS).agg(sums)
    pd.crosstab(frame["region"], frame["cluster"], frame["tokens"], aggfunc="sum")
    for metric in range(metrics):
        column = np.concatenate([_read(folder, region, str(metric)) for region in range(regions)])
        edges = np.quantile(column, (0.25, 0.5, 0.75))
        frame["bucket"] = np.searchsorted(edges, column, "right")
        frame.groupby([*KEYS, "bucket"]).agg(sums)
    repeats = int(frame.duplicated(["high", "low"]).sum())
    found = (len(frame), int(frame["tokens"].sum()), len(strata), repeats)
    return Measured(time.process_time() - began, (_peak() - memory) / 1e3, found)


_COLUMNS = ("region", "tokens", "raw_bytes", "cluster", "split", "case_class")


def _make(folder: str, region: int, count: int, metrics: int) -> None:
    rows, random = _index_rows(region, count), np.random.default_rng(region)
    rows["case_class"], rows["raw_bytes"] = random.integers(0, 5, count), rows["tokens"] * np.uint64(4)
    _write(folder, region, "rows", rows)
    for metric in range(metrics):
        _write(folder, region, str(metric), random.integers(0, 1_000_000, count))


def _write(folder: str, region: int, name: str, rows: NDArray[Any]) -> None:
    content = io.BytesIO()
    np.save(content, rows)
    Path(f"{folder}/{region:05d}.{name}.npy").write_bytes(content.getvalue())
    Path(f"{folder}/{region:05d}.{name}.stamp").write_text(sha256(content.getvalue()))


def _read(folder: str, region: int, name: str) -> NDArray[Any]:
    raw = Path(f"{folder}/{region:05d}.{name}.npy").read_bytes()
    if sha256(raw) != Path(f"{folder}/{region:05d}.{name}.stamp").read_text():
        raise SystemExit(f"region {region}: {name} rotted")
    found: NDArray[Any] = np.load(io.BytesIO(raw))
    return found


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    main()
