"""The PyTorch layer by the real library: tensors, ranks, workers that are spawned, and exact resumption."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from casebits_dagster.records.errors import RecordError
from casebits_dagster.records.layout import Home
from casebits_dagster.training import PackedMix

pytestmark = pytest.mark.slow
BATCH, SEED = 48, 3
SPAWN = {"multiprocessing_context": "spawn"}


@pytest.fixture(scope="module")
def made() -> Any:
    """The module under test: imported here, so that what needs no PyTorch is collected and run without it."""
    pytest.importorskip("torch", reason="PyTorch, an extra, is not installed here")
    from casebits_dagster.training import torch_dataset

    return torch_dataset


@pytest.fixture(scope="module")
def mix(sample_home: Home) -> PackedMix:
    return PackedMix.open(sample_home.root, 2048, name="sample_aligned")


def windows(batches: Any) -> list[list[int]]:
    return [batch["windows"].tolist() for batch in batches]


def joined(ranks: list[list[list[int]]]) -> list[list[int]]:
    """Return the steps of which each rank has a share."""
    return [list(itertools.chain(*shares)) for shares in zip(*ranks, strict=True)]


@pytest.fixture(scope="module")
def whole(made: Any, mix: PackedMix) -> list[list[int]]:
    """Two epochs that nobody stopped: 400 windows each, so that steps of 48 go over the end of the first."""
    return windows(made.WindowStream(mix, seed=SEED, global_batch=BATCH, epochs=2))


def test_tensors_are_the_windows(made: Any, mix: PackedMix) -> None:
    every = (*made.FIELDS, "segment_ids", "position_ids", "cu_seqlens")
    batch = next(iter(made.WindowStream(mix, seed=SEED, global_batch=4, fields=every)))
    expected = mix.batch(batch["windows"].numpy())
    for name in every:
        assert np.array_equal(batch[name].numpy(), getattr(expected, name))
    kinds = {name: str(batch[name].dtype).removeprefix("torch.") for name in every}
    assert kinds == {
        "ids": "int64",
        "targets": "int64",
        "cases": "int32",
        "target_cases": "int32",
        "loss_mask": "bool",
        "segment_ids": "int32",
        "position_ids": "int32",
        "cu_seqlens": "int32",
    }
    # They are the caller's own: changing one changes no other, and no file.
    batch["ids"].zero_()
    assert np.array_equal(batch["targets"].numpy(), expected.targets)


def test_the_map_style_dataset_works_with_any_sampler(made: Any, mix: PackedMix) -> None:
    from torch.utils.data import DataLoader

    dataset = made.WindowDataset(mix, fields=("ids", "targets"))
    assert len(dataset) == 400
    found = list(DataLoader(dataset, batch_size=150, num_workers=2, **SPAWN))
    assert [len(batch["ids"]) for batch in found] == [150, 150, 100]
    assert np.array_equal(np.concatenate([batch["targets"].numpy() for batch in found]), mix.batch(range(400)).targets)


@pytest.mark.parametrize("world", [1, 2, 4, 8])
def test_ranks_share_each_step(made: Any, mix: PackedMix, whole: list[list[int]], world: int) -> None:
    options: dict[str, Any] = {"seed": SEED, "global_batch": BATCH, "epochs": 2, "world_size": world}
    ranks = [windows(made.WindowStream(mix, rank=rank, **options)) for rank in range(world)]
    assert joined(ranks) == whole


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_do_not_change_the_stream(made: Any, mix: PackedMix, whole: list[list[int]], workers: int) -> None:
    loader = SPAWN if workers else {}
    options = {"seed": SEED, "global_batch": BATCH, "epochs": 2, "fields": ("ids",)}
    assert windows(made.WindowLoader(mix, num_workers=workers, loader=loader, **options)) == whole


def test_every_stop_resumes_from_its_state(made: Any, mix: PackedMix, whole: list[list[int]]) -> None:
    """A state goes through JSON and to another number of ranks, at every step of two epochs."""
    options: dict[str, Any] = {"seed": SEED, "global_batch": BATCH, "epochs": 2, "fields": ("ids",)}
    for stop in range(len(whole) + 1):
        first = made.WindowLoader(mix, **options)
        before = windows(itertools.islice(first, stop))
        state = json.loads(json.dumps(first.state_dict()))
        assert (before, state["place"]) == (whole[:stop], min(stop * BATCH, 800))
        ranks = [made.WindowLoader(mix, rank=rank, world_size=2, **options) for rank in range(2)]
        for rank in ranks:
            rank.load_state_dict(state)
        assert joined([windows(rank) for rank in ranks]) == whole[stop:]


def test_the_state_is_that_of_what_was_handed_out_and_not_of_what_was_read_ahead(
    made: Any, mix: PackedMix, whole: list[list[int]]
) -> None:
    options: dict[str, Any] = {"seed": SEED, "global_batch": BATCH, "epochs": 2, "fields": ("ids",)}
    loader = made.WindowLoader(mix, num_workers=2, loader={**SPAWN, "prefetch_factor": 4}, **options)
    found = []
    for batch in loader:
        found.append(batch["windows"].tolist())
        if len(found) == 5:
            break
    assert (found, loader.state_dict()["place"]) == (whole[:5], 5 * BATCH)
    # The same loader goes on where it was left, and so does another one, without workers, from its state.
    again = made.WindowLoader(mix, **options)
    again.load_state_dict(loader.state_dict())
    assert windows(loader) == windows(again) == whole[5:]


def test_a_state_of_another_seed_is_refused(made: Any, mix: PackedMix) -> None:
    state = made.WindowStream(mix, seed=1, global_batch=8).state_dict()
    with pytest.raises(RecordError, match=r"^ORDER_STATE state: seed: expected 2, read 1$"):
        made.WindowStream(mix, seed=2, global_batch=8).load_state_dict(state)


def test_ranks_are_those_of_the_process_group(made: Any, sample_home: Home, tmp_path: Path) -> None:
    """Two processes joined by gloo, none of which says which one it is, read one stream."""
    code = """
        import sys
        import torch.distributed as group
        from casebits_dagster.training import PackedMix
        from casebits_dagster.training.torch_dataset import WindowStream

        home, meeting, rank = sys.argv[1:]
        group.init_process_group("gloo", init_method=f"file://{meeting}", rank=int(rank), world_size=2)
        stream = WindowStream(PackedMix.open(home, name="sample_aligned"), seed=3, global_batch=48, fields=("ids",))
        print(next(iter(stream))["windows"].tolist())
        group.barrier()
        group.destroy_process_group()
    """
    arguments = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        textwrap.dedent(code),
        str(sample_home.root),
        str(tmp_path / "meet"),
    ]
    ranks = [subprocess.Popen([*arguments, str(rank)], stdout=subprocess.PIPE, text=True) for rank in range(2)]
    said = [json.loads(rank.communicate(timeout=120)[0]) for rank in ranks]
    mix = PackedMix.open(sample_home.root, name="sample_aligned")
    alone = next(iter(made.WindowStream(mix, seed=3, global_batch=48)))
    assert [len(part) for part in said] == [24, 24]
    assert said[0] + said[1] == alone["windows"].tolist()
