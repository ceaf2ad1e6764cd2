"""A cluster on this machine: PostgreSQL, Redis, an S3 server, a head with the daemon, two workers; and its corpus."""

from __future__ import annotations

import importlib.util
import itertools
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import dagster as dg
import pytest

from casebits_dagster.admission import admit_region
from casebits_dagster.filters.region import filter_region
from casebits_dagster.orchestration.instance import prepare_instance
from casebits_dagster.records.layout import ADMISSION, Home
from casebits_dagster.records.pins import load_generation
from casebits_dagster.regions.encode import encode_region
from casebits_dagster.stores import regions as stored_regions
from casebits_dagster.stores.object import ObjectStore, object_store
from tests.cluster.guide import blocks
from tests.cluster.machines import CHECKOUT, Machine
from tests.cluster.servers import postgres, redis
from tests.stores.conftest import set_environment
from tests.stores.s3_server import BUCKET, Server, aws_environment, seaweed

GENERATION, REGIONS, ROWS = "sixty", 60, 1358
URL = f"s3://{BUCKET}/corpora"
# The files that are shipped wait for hours, as real batches want; a test has minutes.
HASTE = {
    "poll_interval_seconds: 30": "poll_interval_seconds: 3",
    "max_runtime_seconds: 14400": "max_runtime_seconds: 120",
}


@dataclass
class Cluster:
    """What a test sees of the cluster from outside: its store, its database, its machines, and a log of what it did."""

    head: Machine
    workers: list[Machine]
    s3: Server
    store: ObjectStore
    instance: dg.DagsterInstance
    pins: Path
    begun: float = field(default_factory=time.monotonic)

    def start(self) -> list[Machine]:
        """Start the daemon and the workers that do not run, each worker on one core; return the workers."""
        commands = blocks()
        for machine, core in zip(self.workers, itertools.cycle(os.sched_getaffinity(0)), strict=False):
            if not machine.processes():
                machine.start(["taskset", "--cpu-list", str(core), "bash", "-c", commands["worker"]])
        if not self.head.processes():
            self.head.start(["bash", "-c", commands["head"]])
        return self.workers

    def log(self, event: str) -> None:
        print(f"{time.monotonic() - self.begun:6.1f} s  {event}", flush=True)

    def admitted(self) -> set[str]:
        """Return the regions that have an admission in the store."""
        names = [Path(name) for name in self.store.list(f"generations/{GENERATION}/regions")]
        return {name.parent.name for name in names if name.name == ADMISSION}

    def wait(self, what: str, ready: Callable[[], bool], seconds: float, interval: float = 0.5) -> None:
        end = time.monotonic() + seconds
        while not ready():
            if time.monotonic() > end:
                logs = [f"--- {one.name}\n{one.log.read_text()[-3000:]}" for one in (self.head, *self.workers)]
                raise AssertionError(f"after {seconds:.0f} s not yet: {what}\n" + "\n".join(logs))
            time.sleep(interval)


@pytest.fixture(scope="session")
def sixty_pins(pins: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pins of one generation: the sample's source, cut into 60 regions."""
    folder = tmp_path_factory.mktemp("sixty") / "pins"
    for name in ("filters", "codecs/sample-lower-8192", "sample"):
        shutil.copytree(pins / name, folder / name)
    (folder / "generations").mkdir()
    (folder / "mixes").mkdir()
    sample, _, _ = (pins / "generations/sample.toml").read_text().partition("\n# Region 8")
    cuts = [round(index * ROWS / REGIONS) for index in range(REGIONS + 1)]
    regions = f'[[regions]]\npath = "pd_mix.parquet"\ncuts = {cuts}\n'
    text = sample.replace('generation = "sample"', f'generation = "{GENERATION}"') + "\n" + regions
    (folder / f"generations/{GENERATION}.toml").write_text(text)
    return folder


@pytest.fixture(scope="session")
def alone(sixty_pins: Path, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """The same corpus as one machine makes it, without a store and without Dagster."""
    home, generation = Home(tmp_path_factory.mktemp("alone") / "home"), load_generation(sixty_pins, GENERATION)
    for region in generation.plan:
        filter_region(generation, region.index, home)
        encode_region(generation, region.index, home)
        admit_region(generation, region.index, home, run_id="alone")
    return home


@pytest.fixture(scope="session")
def cluster(sixty_pins: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Start everything, and end it: first the machines by SIGTERM, then the servers. No process may be left."""
    for module in ("dagster_celery", "dagster_postgres", "redis"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"no {module}: pip install -r requirements-cluster.lock")
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "s3").mkdir()
    with ExitStack() as stack:
        database, broker = stack.enter_context(postgres()), stack.enter_context(redis())
        server = stack.enter_context(seaweed(folder / "s3"))
        shared = {**database, **aws_environment(server.port), "CASEBITS_BROKER": broker, "CASEBITS_STORE": URL}
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
            **shared,
            "CASEBITS_PINS": str(sixty_pins),
            # A batch of the product's size would be all regions of the test in one run.
            "CASEBITS_REGIONS_A_RUN": "10",
            "GENERATION": GENERATION,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(CHECKOUT),
        }
        monkeypatch = stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in shared.items():
            monkeypatch.setenv(name, value)
        set_environment(monkeypatch, server.port)
        stack.callback(stored_regions._opened.cache_clear)
        machines = [Machine(name, folder / name, environment) for name in ("head", "worker-1", "worker-2")]
        stack.callback(_stop, machines)
        for machine in machines:
            _prepare(machine)
        instance = stack.enter_context(dg.DagsterInstance.from_config(machines[0].environment["DAGSTER_HOME"]))
        yield Cluster(machines[0], machines[1:], server, object_store(URL), instance, sixty_pins)


def _prepare(machine: Machine) -> None:
    """Make the machine's instance of the settings that are shipped, but for two times."""
    settings = prepare_instance(Home(machine.home), "cluster") / "dagster.yaml"
    text = settings.read_text()
    for patient, hasty in HASTE.items():
        assert text.count(patient) == 1
        text = text.replace(patient, hasty)
    settings.write_text(text)
    machine.environment["DAGSTER_HOME"] = str(settings.parent)


def _stop(machines: list[Machine]) -> None:
    left = {machine.name: machine.stop(30) for machine in machines}
    assert left == {machine.name: [] for machine in machines}
