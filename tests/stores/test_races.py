"""Writers in processes of their own, against each other and against a server that is killed under them."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from casebits_dagster.records.errors import Conflict
from casebits_dagster.stores.base import WritableStore
from casebits_dagster.stores.local import LocalStore
from casebits_dagster.stores.object import ObjectStore, object_store
from tests.stores.conftest import set_environment
from tests.stores.s3_server import BUCKET, seaweed

pytestmark = pytest.mark.slow

# A name that several writers want costs SeaweedFS seconds (its locks wait by the second): ten at a time.
WRITERS, ROUNDS, TOGETHER, INCREMENTS = 12, 12, 10, 25
RACES = ROUNDS * TOGETHER
SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture(params=["folder", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "root") if request.param == "folder" else request.getfixturevalue("s3_url")


def _opened(place: str) -> WritableStore:
    return object_store(place) if "://" in place else LocalStore(Path(place))


def _run(writer: Callable[..., None], *args: object) -> list[Any]:
    """Run it in as many processes as there are writers, and return what each of them told."""
    with SPAWN.Manager() as manager:
        start, told = manager.Barrier(WRITERS, timeout=60), manager.dict()
        with _processes(writer, WRITERS, start, told, *args):
            pass
        return [told[number] for number in range(WRITERS)]


@contextmanager
def _processes(writer: Callable[..., None], count: int, *args: object) -> Iterator[None]:
    """Run writers, which must all end well."""
    processes = [SPAWN.Process(target=writer, args=(number, *args)) for number in range(count)]
    for process in processes:
        process.start()
    try:
        yield
        for process in processes:
            process.join(240)
        assert [process.exitcode for process in processes] == [0] * count
    finally:
        for process in processes:
            process.kill()
            process.join()


def _content(number: int, race: int) -> bytes:
    # Empty content must win and lose like any other.
    return b"" if number == race % WRITERS else b"%d" % number * (1 + race)


def _create(number: int, start: Any, told: Any, place: str) -> None:
    store, answers = _opened(place), list[str]()

    def answer(race: int) -> str:
        try:
            return f"made {store.put_new(f'races/{race:05d}', _content(number, race))}"
        except Conflict as error:
            return error.code

    with ThreadPoolExecutor(TOGETHER) as pool:
        for begin in range(0, RACES, TOGETHER):
            start.wait()
            answers += pool.map(answer, range(begin, begin + TOGETHER))
    told[number] = answers


def test_of_the_writers_of_a_name_exactly_one_wins(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    answers = _run(_create, place)
    store, winners = _opened(place), []
    for race, told in enumerate(zip(*answers, strict=True)):
        assert Counter(told) == {"made True": 1, "STORE_CONFLICT": WRITERS - 1}
        winners.append(told.index("made True"))
        assert store.get(f"races/{race:05d}") == _content(winners[-1], race)
    lost = Counter(told for answer in answers for told in answer)["STORE_CONFLICT"]
    with capsys.disabled():
        print(f"\n{place.partition(':')[0]}: {RACES} races of {WRITERS} writers: one winner each, {lost} told so")
        print(f"wins by writer: {[winners.count(number) for number in range(WRITERS)]}")


def _count(number: int, start: Any, told: Any, place: str) -> None:
    store, lost = _opened(place), 0
    start.wait()
    for _ in range(INCREMENTS):
        while not store.replace("counter", before := store.get("counter"), b"%d" % (int(before) + 1)):
            lost += 1
    told[number] = lost


def test_a_counter_counts_every_successful_swap_once(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    _opened(place).put_new("counter", b"0")
    lost = sum(_run(_count, place))
    # Two writers that swap in the same bytes are told apart, too: all of them write plain numbers.
    assert int(_opened(place).get("counter")) == WRITERS * INCREMENTS
    with capsys.disabled():
        print(f"\n{place.partition(':')[0]}: {WRITERS * INCREMENTS} swaps of {WRITERS} writers counted, {lost} lost")


def _publish(number: int, stop: Any, place: str, folder: Path) -> None:
    """Publish until told to stop, and log what was acknowledged."""
    store, turn = object_store(place), 0
    big = folder / f"{number}.big"
    with (folder / f"{number}.log").open("w") as log:
        while not stop.is_set():
            content = hashlib.shake_256(f"{number}/{turn}".encode()).digest((turn * 7919) % 90000)
            made = store.put_new(f"{number}/{turn:06d}", content)
            swapped = store.replace(f"{number}/LATEST", b"%d" % (turn - 1) if turn else None, b"%d" % turn)
            if turn % 50 == 25:
                big.write_bytes(content + bytes(9 << 20))
                store.put_file(f"{number}/{turn:06d}.big", big)
            log.write(json.dumps([turn, hashlib.sha256(content).hexdigest(), made, swapped]) + "\n")
            log.flush()
            turn += 1


def _acknowledged(store: ObjectStore, number: int, folder: Path) -> int:
    """Check all that a writer was told against what the store holds, and return how many objects that was."""
    told = [json.loads(line) for line in (folder / f"{number}.log").read_text().splitlines()]
    for turn, digest, made, swapped in told:
        content = store.get(f"{number}/{turn:06d}")
        assert (hashlib.sha256(content).hexdigest(), made, swapped) == (digest, True, True)
        if turn % 50 == 25:
            assert store.get(f"{number}/{turn:06d}.big") == content + bytes(9 << 20)
    assert store.get(f"{number}/LATEST") == b"%d" % (len(told) - 1)
    assert [turn for turn, *_ in told] == list(range(len(told)))
    return len(told)


def test_a_server_killed_under_its_writers_loses_nothing_it_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kills = [3.0, 1.9, 0.2, 2.3, 0.05, 1.3]  # seconds after the server was ready
    with seaweed(tmp_path) as server, SPAWN.Manager() as manager:
        set_environment(monkeypatch, server.port)
        place, stop = f"s3://{BUCKET}/a", manager.Event()
        with _processes(_publish, 6, stop, place, tmp_path):
            time.sleep(2.0)
            for seconds in kills:
                time.sleep(seconds)
                server.kill()
                server.start()
            time.sleep(1.0)
            stop.set()
        counts = [_acknowledged(object_store(place), number, tmp_path) for number in range(6)]
    with capsys.disabled():
        print(f"\n{len(kills)} kills of the server: {sum(counts)} acknowledged objects, all there ({counts})")
