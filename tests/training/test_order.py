"""The order of windows: a permutation an epoch, the same for any number of ranks and workers, resumed anywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from casebits_dagster.mixing.seeds import splitmix64
from casebits_dagster.records.errors import RecordError
from casebits_dagster.training import WindowOrder
from casebits_dagster.training.order import BLOCK, permuted

MANIFEST = "ab" * 32
WORLDS = (1, 2, 3, 4, 5, 8)


def order(windows: int, epochs: int | None = None, seed: int = 1, **changes: Any) -> WindowOrder:
    named = {"manifest_sha256": MANIFEST, "split": "train"} | changes
    return WindowOrder(windows=windows, epochs=epochs, seed=seed, **named)


def read(stream: WindowOrder, place: int, batch: int, steps: int, world: int = 1, workers: int = 1) -> list[list[int]]:
    """Return the windows of some steps as `world` ranks with `workers` each read them: shares joined by rank, and the
    workers of a rank in turn, as a DataLoader takes them."""
    found: list[list[int]] = []
    readers = [
        [iter(stream.steps(place, batch, rank, world, worker, workers)) for worker in range(workers)]
        for rank in range(world)
    ]
    for number in range(steps):
        shares = [next(ranks[number % workers], None) for ranks in readers]
        if None in shares:
            assert set(shares) == {None}
            break
        found.append([window for share in shares if share for window in share.windows.tolist()])
    return found


def flat(steps: list[list[int]]) -> list[int]:
    return [window for step in steps for window in step]


def test_the_order_is_pinned() -> None:
    """What a seed gave once it gives for ever: a run of last year resumes."""
    assert order(100).at(np.arange(12)).tolist() == [81, 29, 68, 69, 36, 9, 0, 8, 26, 39, 25, 10]
    assert order(100).at(np.arange(100, 112)).tolist() == [40, 68, 44, 16, 37, 54, 41, 4, 6, 51, 77, 67]
    assert order(10**9).at(np.arange(3)).tolist() == [581018214, 189908139, 177315525]


@pytest.mark.parametrize(
    "other", [{"seed": 2}, {"split": "val"}, {"manifest_sha256": "cd" * 32}], ids=["seed", "split", "manifest"]
)
def test_all_that_it_follows_from_moves_it(other: dict[str, Any]) -> None:
    first, second = order(1000), order(1000, **other)
    assert (first.at(np.arange(1000)) == second.at(np.arange(1000))).sum() < 20


@given(st.integers(1, 400), st.integers(0, 2**64 - 1))
@settings(max_examples=150, deadline=None)
def test_every_window_stands_once_in_an_epoch(size: int, key: int) -> None:
    found = permuted(np.arange(size), size, np.full(size, key, np.uint64))
    assert np.sort(found).tolist() == list(range(size))


@pytest.mark.parametrize("size", [2, 3, 5, 6, 7, 60, 101])
def test_no_place_and_no_neighbour_is_preferred(size: int) -> None:
    """20,000 permutations: each window at each place, and each distance of neighbours, within five sigma."""
    keys = splitmix64(np.arange(20_000, dtype=np.uint64))
    found = permuted(np.tile(np.arange(size), (len(keys), 1)), size, keys[:, None])
    counts = np.array([np.bincount(column, minlength=size) for column in found.T])
    apart = np.bincount((found[:, 1] - found[:, 0]) % size, minlength=size)[1:]
    for seen, chance in ((counts, 1 / size), (apart, 1 / (size - 1))):
        sigma = np.sqrt(len(keys) * chance * (1 - chance))
        assert (np.abs(seen - len(keys) * chance) <= 5 * sigma).all()


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("world", WORLDS)
def test_the_stream_is_the_same_for_any_number_of_ranks_and_workers(world: int, workers: int) -> None:
    stream = order(37, epochs=3)
    assert read(stream, 0, 8, 99, world, workers) == read(stream, 0, 8, 99)


@pytest.mark.parametrize("batch", [1, 7, 8, 37, 50])
def test_nothing_is_lost_and_nothing_comes_twice_in_an_epoch(batch: int) -> None:
    """Neither ranks nor batch divide the 37 windows."""
    steps = read(order(37, epochs=3), 0, batch, 999, world=4, workers=2)
    assert [len(step) for step in steps] == [batch] * (111 // batch) + [111 % batch] * (111 % batch > 0)
    epochs = np.array(flat(steps)).reshape(3, 37)
    assert np.sort(epochs, axis=1).tolist() == [list(range(37))] * 3
    assert len({tuple(epoch) for epoch in epochs.tolist()}) == 3


@pytest.mark.parametrize("world", WORLDS)
def test_a_run_that_stops_at_any_step_goes_on_with_any_other_number_of_ranks(world: int) -> None:
    stream, whole = order(37, epochs=3), read(order(37, epochs=3), 0, 8, 99)
    for stop in range(len(whole) + 1):
        before = read(stream, 0, 8, stop, world)
        place = stream.resume(stream.state(sum(map(len, before))))
        for after in WORLDS:
            assert before + read(stream, place, 8, 99, after, workers=2) == whole


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_resume_of_a_resume_is_the_run_that_never_stopped(data: st.DataObject) -> None:
    """Ranks, workers and even the batch change at every stop; what is read does not."""
    windows, epochs = data.draw(st.integers(1, 60)), data.draw(st.integers(1, 4))
    stream, place, found = order(windows, epochs), 0, list[int]()
    while place < windows * epochs:
        batch, world, workers = (data.draw(st.integers(1, most)) for most in (20, 9, 4))
        steps = read(stream, place, batch, data.draw(st.integers(1, 9)), world, workers)
        found += flat(steps)
        place = stream.resume(stream.state(len(found)))
    assert found == stream.at(np.arange(windows * epochs)).tolist()


def test_shares_differ_by_one_at_most_and_may_be_empty() -> None:
    for batch, world in ((8, 3), (8, 8), (3, 5)):
        sizes = [len(next(order(100).steps(0, batch, rank, world)).windows) for rank in range(world)]
        assert (sum(sizes), max(sizes) - min(sizes)) == (batch, int(batch % world > 0))


def test_a_step_knows_its_places_and_blocks_do_not_show() -> None:
    batch, count = 7, 2 * BLOCK // 7 + 3
    stream = order(1000)
    steps = [step for step, _ in zip(stream.steps(3, batch), range(count), strict=False)]
    assert [(step.begin, step.end) for step in steps] == [(3 + batch * k, 3 + batch * (k + 1)) for k in range(count)]
    assert flat([step.windows.tolist() for step in steps]) == stream.at(3 + np.arange(batch * count)).tolist()


def test_a_mix_without_windows_has_no_steps() -> None:
    assert list(order(0).steps(0, 8)) == []


def test_a_state_of_another_stream_is_refused() -> None:
    stream = order(37)
    good = stream.state(16)
    assert good == {
        "schema": "casebits/window-order/1",
        "manifest_sha256": MANIFEST,
        "split": "train",
        "seed": 1,
        "place": 16,
    }
    for key, other in (("schema", "x"), ("manifest_sha256", "cd" * 32), ("split", "val"), ("seed", 2)):
        with pytest.raises(RecordError) as caught:
            stream.resume(good | {key: other})
        assert str(caught.value) == f"ORDER_STATE state: {key}: expected {good[key]}, read {other}"
    for place in (-1, 1.5, True, None):
        with pytest.raises(RecordError) as caught:
            stream.resume(good | {"place": place})
        assert str(caught.value) == f"ORDER_STATE state: place: expected a number of windows, read {place}"


@pytest.mark.parametrize("asked", [(0, 0), (0, 8, 2, 2), (0, 8, -1, 2), (0, 8, 0, 1, 1, 1), (-1, 8)])
def test_steps_of_ranks_that_are_none_are_refused(asked: tuple[int, ...]) -> None:
    with pytest.raises(RecordError, match=r"^ORDER_STEPS steps: expected a batch of 1 or more, ranks below their"):
        next(order(37).steps(*asked))
