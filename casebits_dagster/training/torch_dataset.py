"""Windows of a mix as PyTorch tensors: a map-style dataset, a stream, and a loader that resumes exactly.

    loader = WindowLoader(mix, seed=1, global_batch=64, num_workers=2)
    for batch in loader:
        loss = model(batch["ids"], batch["targets"])
        torch.save(loader.state_dict(), ...)

PyTorch is an extra (`pip install casebits-dagster[torch]`); nothing else of the package imports this module.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as distributed
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from casebits_dagster.training.order import WindowOrder
from casebits_dagster.training.packed_mix import PackedMix, Windows

FIELDS = ("ids", "targets", "cases", "target_cases", "loss_mask")
_WIDE = {"ids": np.int64, "targets": np.int64, "cases": np.int32, "target_cases": np.int32}


def tensors(windows: Windows, fields: Sequence[str] = FIELDS) -> dict[str, torch.Tensor]:
    """Return fields of windows by name, in memory of their own: ids and targets int64, case masks and all that counts
    int32, `loss_mask` bool. Case masks are left out where the codec has none."""
    found = {name: getattr(windows, name) for name in fields}
    arrays = {name: array for name, array in found.items() if array is not None}
    return {name: torch.from_numpy(array.astype(_WIDE.get(name, array.dtype))) for name, array in arrays.items()}


class WindowDataset(Dataset):  # type: ignore[misc]
    """Map style: `dataset[k]` is window k, (T,) tensors by name. In no order of its own, so it has no state."""

    def __init__(self, mix: PackedMix, fields: Sequence[str] = FIELDS) -> None:
        self.mix, self.fields = mix, tuple(fields)

    def __len__(self) -> int:
        return len(self.mix)

    def __getitem__(self, window: int) -> dict[str, torch.Tensor]:
        return tensors(self.mix[window], self.fields)


class WindowStream(IterableDataset):  # type: ignore[misc]
    """A rank's share of every step, (B, T) tensors by name, from `place` on; `end` is the place behind the step.

    Give it to a DataLoader with `batch_size=None`: a step is a batch. Workers take steps in turn, so the DataLoader
    yields them in order. `rank` and `world_size` are those of `torch.distributed`, where it runs.
    """

    def __init__(
        self,
        mix: PackedMix,
        *,
        seed: int,
        global_batch: int,
        epochs: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        fields: Sequence[str] = FIELDS,
    ) -> None:
        joined = distributed.is_available() and distributed.is_initialized()
        self.mix, self.fields, self.global_batch, self.place = mix, tuple(fields), global_batch, 0
        self.rank = rank if rank is not None else distributed.get_rank() if joined else 0
        self.world_size = world_size if world_size is not None else distributed.get_world_size() if joined else 1
        self.order = WindowOrder(
            manifest_sha256=mix.manifest_sha256, split=mix.split, windows=len(mix), seed=seed, epochs=epochs
        )

    def __iter__(self) -> Iterator[dict[str, Any]]:
        worker = get_worker_info()
        turn = (worker.id, worker.num_workers) if worker else (0, 1)
        for step in self.order.steps(self.place, self.global_batch, self.rank, self.world_size, *turn):
            found = tensors(self.mix.batch(step.windows), self.fields)
            self.place = step.end
            yield {**found, "windows": torch.from_numpy(step.windows.copy()), "end": step.end}

    def state_dict(self) -> dict[str, Any]:
        """Return what resumes behind the last step that was yielded in this process: JSON values, equal on all ranks.

        Workers read ahead in processes of their own: there, the state is that of `WindowLoader`.
        """
        return self.order.state(self.place)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, with any number of ranks and workers. Raises RecordError when it is of another stream."""
        self.place = self.order.resume(state)


class WindowLoader:
    """Iterates over a `WindowStream` by a DataLoader, and knows which steps were handed out, however far workers read
    ahead. `options` are those of the stream; `loader` those of the DataLoader (pin_memory, multiprocessing_context...).
    """

    def __init__(
        self, mix: PackedMix, *, num_workers: int = 0, loader: Mapping[str, Any] | None = None, **options: Any
    ) -> None:
        self.stream, self.loader = WindowStream(mix, **options), {**(loader or {}), "num_workers": num_workers}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in DataLoader(self.stream, batch_size=None, **self.loader):
            self.stream.place = batch["end"]
            yield batch

    def state_dict(self) -> dict[str, Any]:
        """Return what resumes behind the last batch that was yielded: JSON values, equal on all ranks."""
        return self.stream.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, with any number of ranks and workers. Raises RecordError when it is of another stream."""
        self.stream.load_state_dict(state)
