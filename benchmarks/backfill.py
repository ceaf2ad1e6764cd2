"""What orchestration costs: backfills through the real daemon, beside the same regions made by a loop.

    python -m benchmarks.backfill work [--regions 16] [--bytes 268435456] [--texts FOLDER] [--a-run 8]
    python -m benchmarks.backfill modes [--regions 20]
    python -m benchmarks.backfill scale [--regions 2100] [--a-run 700] [--settings one-person]

`work` backfills regions of ClimbMix's size, beside a pool of two processes without Dagster, and tells how much of two
places no region was worked on, from the first region's begin to the last one's end. `modes` takes tiny regions through
every way to run them, beside a loop without Dagster. `scale` loads thousands of partitions, asks for their page, and
takes that many tiny regions through a backfill and the frontier behind it, with a PostgreSQL of its own unless the
settings have none.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg

from benchmarks.climbmix import write_climbmix
from casebits_dagster.admission import admit_region
from casebits_dagster.definitions import build
from casebits_dagster.filters.region import filter_region
from casebits_dagster.orchestration.instance import ONE_PERSON, prepare_instance
from casebits_dagster.orchestration.jobs import corpus_job_name, regions_job_name
from casebits_dagster.orchestration.partitions import range_tags
from casebits_dagster.orchestration.stages import FRONTIER
from casebits_dagster.publication.frontier import advance_frontier
from casebits_dagster.records.digests import sha256_file
from casebits_dagster.records.errors import RecordError
from casebits_dagster.records.layout import Home, region_id
from casebits_dagster.records.pins import Generation, default_pins_folder, load_generation
from casebits_dagster.records.run import RunRecord
from casebits_dagster.regions.encode import encode_region
from tests.cluster.servers import postgres
from tests.crashes.work import NOW
from tests.slow.server import Server

NAME = "bench"
STAGES = [f"{NAME}/{stage}" for stage in ("filtered_documents", "encoded_arrays", "admission_proof")]
PLACES = 2
QUIET: Any = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


def main() -> None:
    """Print the tables of one part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("work", "modes", "scale"))
    parser.add_argument("--regions", type=int, help="how many (default: 16, 20, 2100)")
    parser.add_argument("--bytes", type=int, help="bytes of JSONL a region (default: 256 MiB; tiny: 8 KiB)")
    parser.add_argument("--texts", type=Path, help="a folder of Parquet files (default: the sample source)")
    parser.add_argument("--a-run", type=int, help="regions a run (default: 8 in `work`, else the product's)")
    parser.add_argument(
        "--settings", default="one-server", help="a folder of deploy/, in `scale` (default: %(default)s)"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="casebits-") as folder:
        {"work": _work, "modes": _modes, "scale": _scale}[options.part](Path(folder), options)


def _work(folder: Path, options: argparse.Namespace) -> None:
    regions, size = options.regions or 16, options.bytes or 1 << 28
    texts = sorted((options.texts or default_pins_folder() / "sample").glob("*.parquet"))
    tokens = write_climbmix(folder / "region.jsonl", texts, size)
    pins = write_pins(folder, [(folder / "region.jsonl", [0, (folder / "region.jsonl").stat().st_size])] * regions)
    pool = _pool(pins, folder / "pool", regions)
    shutil.rmtree(folder / "pool")
    print(f"one region: {tokens:,} source tokens; {regions} in a pool of {PLACES} without Dagster: {pool:.1f} s")
    with _server(folder / "home", pins, options.a_run or 8) as server:
        wall = _backfill(server, regions)
        print(f"{regions} regions through the daemon, {len(server.dagster.runs())} runs: {wall:.1f} s from end to end")
        print(f"{_tell(Home(server.home), regions) / pool:.2f} times the pool")


def _modes(folder: Path, options: argparse.Namespace) -> None:
    regions, size = options.regions or 20, options.bytes or 8192
    pins = tiny_pins(folder, regions, size)
    work = _loop(pins, Home(folder / "loop"), regions)
    print(f"{regions} tiny regions, {work / regions * 1000:.0f} ms each in a loop without Dagster")
    print("way to run them                                       s a region   regions a minute")
    for name, way in (
        ("one run over the range, in this process", partial(_in_process, regions)),
        ("one run a region, in this process", partial(_in_process, 1)),
        ("backfill through the daemon, one run over the range", partial(_daemon, regions, ONE_PERSON)),
        ("backfill through the daemon, one run a region", partial(_daemon, 1, ONE_PERSON)),
        ("the same on PostgreSQL, one run over the range", partial(_daemon, regions, "one-server")),
        ("the same on PostgreSQL, one run a region", partial(_daemon, 1, "one-server")),
    ):
        wall = way(folder / re.sub("[ ,]+", "_", name), pins, regions)
        print(f"{name:53} {wall / regions:10.2f} {60 * regions / wall:12.0f}")


def _in_process(a_run: int, folder: Path, pins: Path, regions: int) -> float:
    home = Home(folder)
    job = build(pins, home).resolve_job_def(regions_job_name(NAME))
    with dg.DagsterInstance.from_config(str(prepare_instance(home))) as instance:
        begun = time.monotonic()
        for first in range(0, regions, a_run):
            job.execute_in_process(instance=instance, tags=range_tags(first, first + a_run - 1), run_config=QUIET)
        return time.monotonic() - begun


def _daemon(a_run: int, settings: str, folder: Path, pins: Path, regions: int) -> float:
    with _server(folder, pins, a_run, settings) as server:
        return _backfill(server, regions)


def _scale(folder: Path, options: argparse.Namespace) -> None:
    regions, size = options.regions or 2100, options.bytes or 8192
    for count in (regions, 25_000):
        (part := folder / str(count)).mkdir()
        pins, home = tiny_pins(part, count, size if count == regions else 64), Home(part / "home")
        loaded = _seconds(partial(_load, pins, home))
        with _server(home.root, pins, 0) as server:
            page = min(_seconds(lambda: server.dagster.partitions(STAGES[-1])) for _ in range(3))
        _loop(pins, home, 1)
        run = _seconds(partial(_frontier, build(pins, home)))
        print(
            f"{count:,} partitions: definitions {loaded:.2f} s, the partitions of an asset's page {page:.2f} s, "
            f"a run of the frontier over one region {run:.2f} s"
        )
    pins, home = folder / str(regions) / "pins", Home(folder / "end")
    with _server(home.root, pins, options.a_run or 0, options.settings) as server:
        wall = _backfill(server, regions)
        page = min(_seconds(lambda: server.dagster.partitions(STAGES[-1])) for _ in range(3))
    print(f"{regions:,} tiny regions through the daemon: {wall:.0f} s, {wall / regions:.2f} each; page {page:.2f} s")
    _tell(home, regions)
    last = home.generation(NAME).region(regions - 1)
    last.rename(folder / "last")
    run = _seconds(lambda: advance_frontier(load_generation(pins, NAME), home, now=NOW))
    print(f"frontier over all but one of them: {run:.1f} s")
    (folder / "last").rename(last)
    run = _seconds(partial(_frontier, build(pins, home)))
    print(f"a run of the frontier that grows by one: {run:.1f} s")


def _frontier(definitions: dg.Definitions) -> None:
    """Materialise the frontier, in this process and on an instance of its own."""
    key = dg.AssetKey([NAME, FRONTIER])
    with dg.DagsterInstance.ephemeral() as instance:
        job = definitions.resolve_job_def(corpus_job_name(NAME))
        job.execute_in_process(instance=instance, asset_selection=[key], run_config=QUIET)


def _tell(home: Home, regions: int) -> float:
    """Print where the time of a backfill went, out of the run records of its regions; return its seconds."""
    spans = sorted(stage_spans(home, regions))
    first, last = spans[0][0], max(end for _, end in spans)
    idle = _idle(spans, first) / PLACES / (last - first)
    print(f"first region's begin to last one's end: {last - first:.1f} s, of two places {idle:.1%} was idle")
    return last - first


def _idle(spans: Sequence[tuple[float, float]], first: float) -> float:
    """Return how many seconds of the places nobody worked in, with spans of stages (begin, end)."""
    edges = sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans])
    idle, active, before = 0.0, 0, first
    for moment, change in edges:
        idle += max(0, PLACES - active) * (moment - before)
        active, before = active + change, moment
    return idle


def stage_spans(home: Home, regions: int) -> Iterator[tuple[float, float]]:
    """Yield begin and end of every stage of every region, in seconds."""
    for index in range(regions):
        for path in home.generation(NAME).runs(index).iterdir():
            for stage in RunRecord.parse(path.read_bytes(), str(path)).stages:
                begin, end = (datetime.fromisoformat(text) for text in (stage.started_at, stage.finished_at))
                yield begin.timestamp(), end.timestamp()


def tiny_pins(folder: Path, regions: int, size: int) -> Path:
    """Write a generation of regions of so many bytes, and return its pins."""
    path = folder / "tiny.jsonl"
    write_climbmix(path, sorted((default_pins_folder() / "sample").glob("*.parquet")), regions * size)
    cuts = [size * index for index in range(regions)] + [path.stat().st_size]
    return write_pins(folder, [(path, cuts)])


def write_pins(folder: Path, files: Sequence[tuple[Path, Sequence[int]]]) -> Path:
    """Write the pins of a generation with ClimbMix's policy and codec, over files with cuts; return the folder."""
    pins, pinned = folder / "pins", default_pins_folder()
    (pins / "generations").mkdir(parents=True)
    (pins / "mixes").mkdir()
    for name in ("codecs", "filters"):
        (pins / name).symlink_to(pinned / name)
    (pins / "source").mkdir()
    digests, tables = dict[Path, str](), ""
    for number, (path, cuts) in enumerate(files):
        name = f"part_{number:04d}.jsonl"
        (pins / "source" / name).hardlink_to(path)
        digests[path] = digests.get(path) or sha256_file(path)
        tables += (
            f'[[source.files]]\npath = "{name}"\nbytes = {path.stat().st_size}\nsha256 = "{digests[path]}"\n'
            f'[[regions]]\npath = "{name}"\ncuts = {list(cuts)}\n'
        )
    text, _, _ = (pinned / "generations/climbmix-lower32k-v1.toml").read_text().partition("# The 100 root files")
    for old, new in (
        ('generation = "climbmix-lower32k-v1"', f'generation = "{NAME}"'),
        ('repo = "nvidia/Nemotron-ClimbMix"', 'repo = "bench/recut"'),
        ('repo_type = "dataset"', 'repo_type = "folder"\nlocation = "source"'),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    split = '[split]\nrule = "sha256-salt-id"\nsalt = "bench"\nshare = 0.001\n'
    file = pins / f"generations/{NAME}.toml"
    file.write_text(text + split + tables)
    try:
        load_generation(pins, NAME)
    except RecordError as error:
        # The revision of a folder follows from its files: the error says what it must be.
        file.write_text(file.read_text().replace(str(error.read), str(error.expected)))
    return pins


def _loop(pins: Path, home: Home, regions: int) -> float:
    generation = load_generation(pins, NAME)
    begun = time.monotonic()
    for index in range(regions):
        _make(generation, index, home)
    return time.monotonic() - begun


def _make(generation: Generation, index: int, home: Home) -> None:
    filter_region(generation, index, home)
    encode_region(generation, index, home)
    admit_region(generation, index, home, run_id="bare")


def _pool(pins: Path, folder: Path, regions: int) -> float:
    """Return the seconds from the first region's begin to the last one's end, with a process a place and no Dagster."""
    with ProcessPoolExecutor(PLACES, multiprocessing.get_context("spawn")) as pool:
        spans = list(pool.map(partial(_alone, pins, folder), range(regions)))
    return max(end for _, end in spans) - min(begin for begin, _ in spans)


def _alone(pins: Path, folder: Path, index: int) -> tuple[float, float]:
    generation, begun = load_generation(pins, NAME), time.time()
    _make(generation, index, Home(folder))
    return begun, time.time()


@contextmanager
def _server(root: Path, pins: Path, a_run: int, settings: str = ONE_PERSON) -> Iterator[Server]:
    """Yield a web server and a daemon over a new home; a backfill has `a_run` regions a run, 0 for the product's."""
    environment = {"CASEBITS_PINS": str(pins), "CASEBITS_REGIONS_A_RUN": str(a_run or "")}
    with nullcontext(dict[str, str]()) if settings == ONE_PERSON else postgres() as database:
        server = Server(Home(root), {**environment, **database}, settings)
        try:
            server.start_web()
            server.start_daemon()
            yield server
        finally:
            server.stop(60)


def _backfill(server: Server, regions: int) -> float:
    """Return how long a backfill took, from its launch to its last run's end."""
    begun = time.monotonic()
    backfill = server.dagster.backfill(STAGES, [region_id(index) for index in range(regions)])
    status = server.dagster.end_of_backfill(backfill, 7200)
    if status != "COMPLETED_SUCCESS":
        raise SystemExit(f"the backfill ended as {status}")
    return time.monotonic() - begun


def _load(pins: Path, home: Home) -> object:
    return build(pins, home).get_repository_def()


def _seconds(call: Callable[[], object]) -> float:
    begun = time.monotonic()
    call()
    return time.monotonic() - begun


if __name__ == "__main__":
    main()
