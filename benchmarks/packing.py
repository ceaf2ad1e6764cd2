"""Time packing beside peers, and pack mixes with the length profiles of two published ones.

    python -m benchmarks.packing [--documents 10000000] [--runs 5] [--peers-documents 20000] [--only speed|mixes]

Prints three tables: best-fit bin assignment beside lightbinpack, TRL's packing (through datasets) and a plain bisect
best-fit in Python, with ratios; a whole plan (seconds, memory, what it loses); and the mixes P1b and P2d at full size
(dropped, returned and inserted tokens, the context statistic, spread and window order) beside their published figures.
All lengths are synthetic and seeded: log-normal for speed; for the mixes drawn inside each length bucket from a power
law whose exponent was fitted so that the plain concatenation has about the published context statistic.
Times are CPU seconds of this process, the least of several runs. `pip install -e .[bench]` installs the peers.
"""

from __future__ import annotations

import argparse
import bisect
import importlib
import re
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from casebits_dagster.mixing.packing import aligned, concatenated
from casebits_dagster.mixing.packing.best_fit import best_fit_decreasing
from casebits_dagster.mixing.packing.layout import Layout, WindowPlan, lost_tokens, tokens_of_sources
from casebits_dagster.mixing.packing.order import deviation, stratified
from casebits_dagster.mixing.seeds import I64

T = TypeVar("T")
LENGTH = 16_384
K = 1_024
EDGES = (64, 4 * K, 16 * K, 32 * K, 64 * K, 128 * K, 512 * K)
DOMAINS = ("code", "math", "commoncrawl", "chess", "stockfish")
GAMES = slice(3, 5)
WINDOWS_PER_STEP = 128


class Published(NamedTuple):
    """A published mix: shares of DOMAINS and of the buckets between EDGES in percent, and its figures."""

    name: str
    length: int
    tokens: int
    domains: Sequence[float]
    profile: Sequence[float]
    exponent: float
    dropped: int
    inserted: str
    plain: str
    aligned: str


MIXES = (
    Published(
        name="P1b",
        length=16_384,
        tokens=1_000_589_883,
        domains=(37, 29, 28, 3, 3),
        profile=(18.2, 0.0, 56.1, 16.6, 4.5, 4.6),
        exponent=3.0,
        dropped=180_274,
        inserted="30,199",
        plain="52.1 28.5 11.2",
        aligned="56.4 35.4 16.9",
    ),
    Published(
        name="P2d",
        length=32_768,
        tokens=600_700_000,
        domains=(40, 29.1, 24.9, 3, 3),
        profile=(15.6, 3.6, 17.0, 22.4, 8.5, 32.9),
        exponent=2.5,
        dropped=259_095,
        inserted="?",
        plain="51.6 28.1 11.7",
        aligned="56.6 33.4 14.8",
    ),
)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=5, help="of which the fastest counts (default: %(default)s)")
    parser.add_argument("--peers-documents", type=int, default=20_000, help="for the peers that move tokens or loop")
    parser.add_argument("--only", choices=("speed", "mixes"))
    options = parser.parse_args()
    if options.only != "mixes":
        lengths = log_normal(options.documents)
        whole_plan(lengths, options.runs)
        bin_assignment(np.minimum(lengths, LENGTH), options.runs, options.peers_documents)
    if options.only != "speed":
        for mix in MIXES:
            published_mix(mix)


def log_normal(documents: int) -> I64:
    """Return lengths of 1,750 tokens on average, at most 60,000."""
    drawn = np.random.default_rng(0).lognormal(6.8, 1.16, documents)
    return np.clip(drawn, 1, 60_000).astype(np.int64)


def least(work: Callable[[], T], runs: int) -> tuple[T, float]:
    """Return the result, and the CPU seconds of the fastest of so many runs."""
    seconds = []
    for _ in range(runs):
        begin = time.process_time()
        result = work()
        seconds.append(time.process_time() - begin)
    return result, min(seconds)


def whole_plan(lengths: I64, runs: int) -> None:
    layout = Layout(sequence_length=LENGTH, seed="benchmark", tails="float", separator="start")
    Path("/proc/self/clear_refs").write_text("5")  # The peak so far is that of drawing the lengths.
    before = memory("VmRSS")
    plan, seconds = least(partial(aligned.plan, lengths, layout), 1)
    peak = memory("VmHWM") - before
    seconds = min(seconds, least(partial(aligned.plan, lengths, layout), max(1, runs - 1))[1])
    lost, returned = losses(lengths, plan)
    print(f"whole plan of {len(lengths):,} documents, {int(lengths.sum()):,} tokens, T = {LENGTH:,}:")
    print(f"  {seconds:.2f} s, {peak:.0f} MB more memory, {plan.segments.nbytes / 1e6:.0f} MB of it the segments")
    print(f"  {plan.windows:,} windows, {lost.sum():,} tokens lost in {np.count_nonzero(lost)} cut documents,", end=" ")
    print(f"{returned:,} returned, {int(plan.segments['inserted'].sum()):,} separators inserted\n")


def memory(field: str) -> float:
    """Return a figure of this process, in MB."""
    found = re.search(rf"{field}:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(found[1]) * 1_024 / 1e6 if found else 0.0


def bin_assignment(lengths: I64, runs: int, few: int) -> None:
    """Print seconds, windows and the ratio to ours of each peer; those that take long get the first `few` documents."""
    print(f"bin assignment, T = {LENGTH:,}, best-fit decreasing:")
    print(f"  {'':<34}{'documents':>12}{'seconds':>9}{'ns each':>9}{'windows':>11}{'times ours':>12}")
    nothing = np.empty(0, np.int64)
    assigned, ours = least(partial(best_fit_decreasing, lengths, nothing, LENGTH), runs)
    line("ours", len(lengths), ours, len(assigned.left), ours / len(lengths))
    each = ours / len(lengths)
    light = peer("lightbinpack")
    if light is not None:
        as_list = lengths.tolist()
        for name in ("obfd", "bfd", "ffd"):
            bins, seconds = least(partial(getattr(light, name), as_list, LENGTH), min(runs, 2))
            line(f"lightbinpack {name}", len(lengths), seconds, len(bins), each)
    lengths = lengths[:few]
    for name, pack in (("bisect best-fit in Python", bisect_best_fit), ("trl.pack_dataset bfd", trl_pack)):
        bins, seconds = least(partial(pack, lengths), 1)
        if bins:
            line(name, len(lengths), seconds, bins, each)
    print("  (trl moves the tokens too, and packs batches of 1,000 documents)\n")


def line(name: str, documents: int, seconds: float, bins: int, ours: float) -> None:
    each = seconds / documents
    print(f"  {name:<34}{documents:>12,}{seconds:>9.3f}{each * 1e9:>9.0f}{bins:>11,}{each / ours:>12.1f}", flush=True)


def peer(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as missing:
        print(f"  {name:<34}not installed ({missing})")
        return None


def bisect_best_fit(lengths: I64) -> int:
    """Return the windows of best-fit decreasing with a sorted list of what is left in each."""
    left: list[int] = []
    for length in sorted(lengths.tolist(), reverse=True):
        place = bisect.bisect_left(left, length)
        room = left.pop(place) if place < len(left) else LENGTH
        bisect.insort(left, room - length)
    return len(left)


def trl_pack(lengths: I64) -> int:
    """Return the windows that TRL makes of documents with these lengths; 0 when it is not installed."""
    data, trl = peer("datasets"), peer("trl.data_utils")
    if data is None or trl is None:
        return 0
    data.disable_progress_bars()
    offsets = np.append(0, np.cumsum(lengths)).astype(np.int32)
    documents = pa.ListArray.from_arrays(offsets, pa.array(np.zeros(offsets[-1], np.int32)))
    # Without fingerprints: those of some versions of its parts fail on others.
    table = data.table.InMemoryTable(pa.table({"input_ids": documents}))
    dataset, named = data.Dataset(table, fingerprint="documents"), {"new_fingerprint": "packed"}
    return len(trl.pack_dataset(dataset, seq_length=LENGTH, strategy="bfd", map_kwargs=named))


def published_mix(mix: Published) -> None:
    lengths, domains = profile_lengths(mix)
    tokens, documents = int(lengths.sum()), len(lengths)
    print(f"{mix.name}: T = {mix.length:,}, {tokens:,} tokens in {documents:,} documents (synthetic lengths)")
    row("", "windows", "dropped", "cut", "returned", "inserted", "context at T/4, T/2, 3T/4, %", "one domain")
    row("published, plain", "", "", "", "", "", mix.plain, "")
    row("published, aligned", "", f"{mix.dropped:,}", "", "", mix.inserted, mix.aligned, "")
    plain = concatenated.plan(lengths, Layout(sequence_length=mix.length, seed=mix.name))
    describe("ours, plain", lengths, domains, plain)
    for tails, spread in (("float", True), ("float", False), ("auto", True), ("auto", False)):
        layout = Layout(sequence_length=mix.length, seed=mix.name, tails=tails, spread=spread, separator="start")  # type: ignore[arg-type]
        plan, seconds = least(partial(aligned.plan, lengths, layout), 1)
        name = f"ours, {tails}, {'spread' if spread else 'as it fits'}"
        describe(name, lengths, domains, plan, f", planned in {seconds:.1f} s")
        if (tails, spread) == ("float", True):
            windows = tokens_of_sources(plan, domains)
    print("  (one domain: share of the windows of several documents that are above 95 % one domain)")
    for name, order in (("shuffled", windows), ("stratified", windows[stratified(windows, mix.name)])):
        found = deviation(order, WINDOWS_PER_STEP)
        prefix, step = found.prefix / mix.length, found.step / mix.length
        print(f"  {name} order strays from the shares by at most {prefix:.1f} windows in a prefix,", end=" ")
        print(f"{step:.1f} in a step of {WINDOWS_PER_STEP}")
    print()


def describe(name: str, lengths: I64, domains: I64, plan: WindowPlan, seconds: str = "") -> None:
    rows = plan.segments[plan.segments["window"] < plan.windows]
    lost, returned = losses(lengths, plan)
    runs, tokens = rows["length"].astype(np.int64), plan.windows * plan.sequence_length
    distances = (plan.sequence_length * quarter // 4 for quarter in (1, 2, 3))
    context = " ".join(f"{100 * np.maximum(0, runs - distance).sum() / tokens:.1f}" for distance in distances)
    shared = np.bincount(rows["window"], minlength=plan.windows) > 1
    most = tokens_of_sources(plan, domains).max(axis=1)[shared]
    one = 100 * np.mean(most > 0.95 * plan.sequence_length)
    counts = (plan.windows, lost.sum(), np.count_nonzero(lost), returned, rows["inserted"].sum())
    row(name, *(f"{count:,}" for count in counts), context, f"{one:.1f} %{seconds}")


def row(name: str, *cells: str) -> None:
    windows, dropped, cut, returned, inserted, context, one = cells
    print(f"  {name:<24}{windows:>8}{dropped:>9}{cut:>5}{returned:>10}{inserted:>10}  {context:<30}{one}", flush=True)


def losses(lengths: I64, plan: WindowPlan) -> tuple[I64, int]:
    """Return how many tokens of each document are cut off, and how many tokens were returned in whole documents."""
    lost = lost_tokens(lengths, plan.segments)
    lost[plan.returned] = 0
    return lost, int(lengths[plan.returned].sum())


def profile_lengths(mix: Published) -> tuple[I64, I64]:
    """Return lengths and domains, domain after domain: the games lie in the first bucket, the others fill the rest."""
    rows, columns = (np.array(shares) / sum(shares) for shares in (mix.domains, mix.profile))
    games = np.zeros_like(rows)
    games[GAMES] = rows[GAMES]
    cells = np.outer(rows - games, columns - games.sum() * (np.arange(len(columns)) == 0)) / (1 - games.sum())
    cells[:, 0] += games
    drawn, domains = np.random.default_rng(1), []
    lengths = []
    for domain, bucket in zip(*np.nonzero(cells), strict=True):
        wanted = int(cells[domain, bucket] * mix.tokens)
        low, high = EDGES[bucket : bucket + 2]
        power = 1 - mix.exponent if bucket else 0.0
        lengths.append(power_law(drawn.random(wanted // low + 1), low, high, power, wanted))
        domains.append(np.full(len(lengths[-1]), domain))
    return np.concatenate(lengths), np.concatenate(domains)


def power_law(uniform: NDArray[np.float64], low: int, high: int, power: float, wanted: int) -> I64:
    """Return lengths in [low, high) whose density falls with `power - 1`, about so many tokens of them."""
    drawn = (
        low * (high / low) ** uniform
        if not power
        else (low**power + (high**power - low**power) * uniform) ** (1 / power)
    )
    lengths = np.floor(drawn).astype(np.int64)
    return lengths[: int(np.searchsorted(np.cumsum(lengths), wanted))]


if __name__ == "__main__":
    main()
