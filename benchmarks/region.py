"""Time one region through its stages, in ns a source token, beside bare `tokenizers` on the same text.

    python -m benchmarks.region [--tokens 8000000] [--full-peer]

The region is made from the sample source: its documents, re-cut at seeded offsets so that every id is new, until there
are as many GPT-2 tokens as asked. Times are CPU seconds of this process with all threads, so other load on the machine
does not count as ours.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tokenizers

from casebits_dagster.admission import verify_region
from casebits_dagster.filters.region import filter_region
from casebits_dagster.records.digests import sha256_file
from casebits_dagster.records.layout import Home
from casebits_dagster.records.pins import Generation, default_pins_folder, load_generation
from casebits_dagster.records.plan import RegionSpec
from casebits_dagster.regions.encode import encode_region

T = TypeVar("T")
PEER_BYTES = 4 << 20


def main() -> None:
    """Print the table and end in the total."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=8_000_000, help="GPT-2 tokens of the region (default 8,000,000)")
    parser.add_argument("--full-peer", action="store_true", help="let the peer encode all of the text, not 4 MiB of it")
    options = parser.parse_args()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("RAYON_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as folder:
        _run(Path(folder), options.tokens, options.full_peer)


def _run(folder: Path, tokens: int, full_peer: bool) -> None:
    generation = large_generation(folder, tokens)
    home = Home(folder / "home")
    count = sum(len(row) for row in pq.read_table(folder / "large.parquet")["tokens"].to_pylist())
    filter_region(load_generation(default_pins_folder(), "sample"), 8, Home(folder / "warm"))
    judged, filter_seconds = _timed(lambda: filter_region(generation, 0, home))
    encoded, encode_seconds = _timed(lambda: encode_region(generation, 0, home))
    _, verify_seconds = _timed(lambda: verify_region(encoded.folder, generation, index=0))
    size = encoded.receipt.counts.raw_bytes
    peer_bytes, peer_seconds = _peer(generation, judged.kept_text, size if full_peer else PEER_BYTES)
    peer = peer_seconds / peer_bytes * size / count * 1e9
    print(f"one region of {count:,} GPT-2 tokens, {size:,} bytes of kept text, {judged.kept:,} documents kept")
    print(f"{'stage':<42}{'ns a source token':>18}{'MB of text a CPU-s':>20}")
    stages = {
        "filter: read, detokenise, score, judge": filter_seconds,
        f"encode: {encoded.encoder}, masks, files": encode_seconds,
        "verify: layers 1 to 4 in full, 5 sampled": verify_seconds,
    }
    for name, seconds in stages.items():
        print(f"{name:<42}{seconds / count * 1e9:>18.1f}{size / seconds / 1e6:>20.1f}")
    print(f"{'peer: bare tokenizers, encoding alone':<42}{peer:>18.1f}{peer_bytes / peer_seconds / 1e6:>20.1f}")
    total = sum(stages.values()) / count * 1e9
    print(f"the whole path costs {total / peer:.2f} of what bare tokenizers needs to encode the same text")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
    print(f"total: {total:.1f} ns per source token")


def large_generation(folder: Path, tokens: int) -> Generation:
    """Return the sample generation with its source replaced by one region of about `tokens` tokens."""
    generation = load_generation(default_pins_folder(), "sample")
    sample = pq.read_table(generation.source.folder / "pd_mix.parquet")
    rows, clusters = sample["tokens"].to_pylist(), sample["cluster_id"].to_pylist()
    random = np.random.default_rng(11)
    made: list[list[int]] = []
    made_clusters: list[int] = []
    total = 0
    while total < tokens:
        for number in random.permutation(len(rows)):
            row = rows[number][int(random.integers(0, 40)) :]
            if total < tokens and len(row) > 40:
                made.append(row)
                made_clusters.append(clusters[number])
                total += len(row)
    table = pa.table(
        {
            "tokens": pa.array(made, pa.list_(pa.uint16())),
            "token_count": [len(row) for row in made],
            "cluster_id": made_clusters,
        }
    )
    path = folder / "large.parquet"
    pq.write_table(table, path, row_group_size=4_000)
    file = dataclasses.replace(
        generation.source.files[0], path=path.name, bytes=path.stat().st_size, sha256=sha256_file(path), rows=len(made)
    )
    plan = (RegionSpec(0, path.name, "rows", 0, len(made)),)
    return dataclasses.replace(generation, source=generation.source.at(folder, file), plan=plan)


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    begin = time.process_time()
    result = work()
    return result, time.process_time() - begin


def _peer(generation: Generation, kept: Path, limit: int) -> tuple[int, float]:
    """Return how many bytes of the kept text bare `tokenizers` encoded, and in how many CPU seconds."""
    tokenizer = tokenizers.Tokenizer.from_file(str(generation.vocabulary))
    texts, size = [], 0
    with pa.memory_map(str(kept)) as source:
        for raw in pa.ipc.open_file(source).read_all()["text"].to_pylist():
            if size < limit:
                texts.append(raw.lower().decode())
                size += len(raw)
    _, seconds = _timed(lambda: tokenizer.encode_batch_fast(texts, add_special_tokens=False))
    return size, seconds


if __name__ == "__main__":
    main()
