"""Time reading a mix by `PackedMix` beside a bare loop over the same memory-mapped files.

    python -m benchmarks.loader [--tokens 200000000] [--length 2048] [--batch 64] [--rounds 5]

Makes a mix of two streams (200 M tokens: 800 MB; synthetic lengths over the sample's text) in a temporary folder. Each
way reads every window once, in the same seeded order: one by one, in batches, and, where PyTorch is installed, as
int64 tensors. The bare loop copies T + 1 tokens of each stream from a numpy memmap, and knows of no document, target
or shard. CPU seconds of this process, the least of all rounds, in which the ways take turns; then the memory that is
no file's page, after each round.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import tempfile
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.mix import synthetic_frontier
from casebits_dagster.mixing.build import build_mix
from casebits_dagster.mixing.seeds import I64
from casebits_dagster.records.layout import Home
from casebits_dagster.records.recipe import Aligned, Domain, Lengths, Recipe, Selection
from casebits_dagster.training import PackedMix, WindowOrder


def main() -> None:
    """Print the speed of each way, its ratio to the bare loop, and the memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=200_000_000, help="tokens of the mix (default: %(default)s)")
    parser.add_argument("--length", type=int, default=2_048, help="tokens of a window (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=64, help="windows of a batch (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="of which the fastest counts (default: %(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        mix = _built(Path(folder), options.tokens, options.length)
        _compare(mix, options.batch, options.rounds)


def _built(root: Path, tokens: int, length: int) -> PackedMix:
    everything = Domain(name="all", generation="synthetic", share=Decimal(1))
    whole = Lengths(edges=(), profile=(Decimal(1),))
    recipe = Recipe(
        mix="loader",
        description="synthetic",
        strategy="aligned",
        sequence_length=length,
        windows_per_shard=1 << 30,
        seed="loader",
        aligned=Aligned(),
        selection=Selection(windows=tokens // length, domains=(everything,), lengths=whole),
    )
    build_mix(recipe, {"synthetic": synthetic_frontier(root, tokens * 11 // 10)}, Home(root / "home"))
    begin = time.process_time()
    mix = PackedMix.open(root / "home", length, name="loader")
    print(
        f"{len(mix):,} windows of {length:,} tokens, {4e-6 * len(mix) * length:.0f} MB in one shard of two streams; ",
        end="",
    )
    print(f"verified in {time.process_time() - begin:.2f} CPU s")
    return mix


def _compare(mix: PackedMix, size: int, rounds: int) -> None:
    batches = [step.windows for step in _order(mix).steps(0, size)]
    ways, memory = _ways(mix, batches), []
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            begin = time.process_time()
            way()
            spent[name].append(time.process_time() - begin)
        memory.append(f"{_anonymous():.0f}")
    for name, seconds in spent.items():
        peer = min(spent[f"bare, {name.partition(', ')[2]}"])
        speed = len(mix) * mix.sequence_length / min(seconds) / 1e6
        print(f"{name:<28}{min(seconds):>8.3f} CPU s{speed:>8.0f} M tokens/s{peer / min(seconds):>8.2f} of bare")
    print(f"memory that is no file's page, after each round: {', '.join(memory)} MB")


def _order(mix: PackedMix) -> WindowOrder:
    return WindowOrder(manifest_sha256=mix.manifest_sha256, split=mix.split, windows=len(mix), seed=1, epochs=1)


def _ways(mix: PackedMix, batches: list[I64]) -> dict[str, Callable[[], object]]:
    length, width = mix.sequence_length, mix.sequence_length + 1
    names = [mix.folder / f"train_000000.{suffix}" for suffix in ("ids.u16le", "case.u16le")]
    streams = [np.memmap(name, "<u2", "r") for name in names]
    windows = np.concatenate(batches).tolist()

    def bare() -> None:
        for window in windows:
            for stream in streams:
                stream[window * length : window * length + width].copy()

    def bare_batches() -> None:
        for batch in batches:
            for stream in streams:
                found = np.empty((len(batch), width), np.uint16)
                for row, window in enumerate(batch.tolist()):
                    found[row] = stream[window * length : window * length + width]

    def one_by_one() -> None:
        for window in windows:
            mix[window]

    def by_batch() -> None:
        for batch in batches:
            mix.batch(batch)

    def streamed() -> None:
        for step in _order(mix).steps(0, len(batches[0])):
            mix.batch(step.windows)

    def masked() -> None:
        for batch in batches:
            found = mix.batch(batch)
            found.segment_ids, found.position_ids, found.cu_seqlens, found.loss_mask  # noqa: B018

    ways: dict[str, Callable[[], object]] = {
        "bare, windows": bare,
        "mix[k], windows": one_by_one,
        "bare, batches": bare_batches,
        "mix.batch, batches": by_batch,
        "order and batch, batches": streamed,
        "with all masks, batches": masked,
    }
    return ways | (_torch_ways(mix, batches, streams) if importlib.util.find_spec("torch") else {})


def _torch_ways(mix: PackedMix, batches: list[I64], streams: list[Any]) -> dict[str, Callable[[], object]]:
    import torch

    from casebits_dagster.training.torch_dataset import WindowStream

    length = mix.sequence_length

    def bare() -> None:
        """As nanoGPT reads its `.bin`, and the masks beside them."""
        for batch in batches:
            begins = (batch * length).tolist()
            for stream, kind in zip(streams, (np.int64, np.int32), strict=True):
                for shift in (0, 1):
                    rows = [stream[begin + shift : begin + shift + length].astype(kind) for begin in begins]
                    torch.stack([torch.from_numpy(row) for row in rows])

    def stream() -> None:
        fields = ("ids", "targets", "cases", "target_cases")
        for _ in WindowStream(mix, seed=1, global_batch=len(batches[0]), epochs=1, fields=fields):
            pass

    return {"bare, tensors": bare, "WindowStream, tensors": stream}


def _anonymous() -> float:
    """Return the megabytes of this process that are no file's pages."""
    return int(re.findall(r"RssAnon:\s+(\d+)", Path("/proc/self/status").read_text())[0]) / 1e3


if __name__ == "__main__":
    main()
