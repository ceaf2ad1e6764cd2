"""The entropy of a token given the one before it, estimated again from a mix's ids; nothing here is the writer's.

The sample: windows hold T // run runs of run = min(256, T) ids from their start on; all runs of train, in order, are
cut into n = min(4096, all) equal parts, and of part k the run number splitmix64(k xor seed) modulo its size is taken.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.mixing.verify_tables import fail
from casebits_dagster.records.mix import MixReport

_RUN, _RUNS, _EXACT = 256, 4096, 4096


def check_bigram(shards: Sequence[NDArray[Any]], report: MixReport, unigram: float) -> None:
    """Both ends of the range are those of the sampled runs, to 5 digits; `unigram` is that of all ids
    (MIX_LOSS_REFERENCE)."""
    said = report.loss_reference.bigram
    if said is None:
        return
    rows = _runs(shards, report)
    if rows.shape != (said.runs, said.run_tokens):
        read = (said.runs, said.run_tokens)
        fail("MIX_LOSS_REFERENCE", "loss_reference.bigram", "runs", expected=rows.shape, read=read)
    keys = _keys(rows.size, f"{report.recipe.seed}/bigram/shuffle")
    spare = np.uint64((1 << rows.size.bit_length()) - 1)
    mixed = rows.ravel()[np.argsort(keys | spare, kind="stable")].reshape(rows.shape)
    apparent, chance = _information(rows), _information(mixed)
    low = max(0.0, min(unigram, _entropy(rows.ravel()) - apparent))
    high = max(low, min(unigram, unigram - apparent + chance))
    for field, value in (("low_nats", low), ("high_nats", high)):
        if abs(float(getattr(said, field)) - value) > 1e-5:
            where = f"loss_reference.bigram.{field}"
            fail("MIX_LOSS_REFERENCE", where, expected=f"{value:.6f}", read=getattr(said, field))


def _runs(shards: Sequence[NDArray[Any]], report: MixReport) -> NDArray[Any]:
    recipe = report.recipe
    run = min(_RUN, recipe.sequence_length)
    each = recipe.sequence_length // run
    total = report.train.windows * each
    part = np.arange(min(_RUNS, total), dtype=np.int64)
    low, high = part * total // len(part), (part + 1) * total // len(part)
    keys = _keys(len(part), f"{recipe.seed}/bigram/runs")
    window, place = np.divmod(low + (keys % (high - low).astype(np.uint64)).astype(np.int64), each)
    shard, inside = np.divmod(window, recipe.windows_per_shard)
    begins = inside * recipe.sequence_length + place * run
    pairs = zip(shard.tolist(), begins.tolist(), strict=True)
    return np.array([shards[number][begin : begin + run] for number, begin in pairs])


def _keys(count: int, text: str) -> NDArray[np.uint64]:
    """Return splitmix64 of 0 to count - 1, each xored with the first 8 bytes of the text's SHA-256."""
    seed = np.uint64(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big"))
    state = (np.arange(count, dtype=np.uint64) ^ seed) + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state = (state ^ (state >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(state ^ (state >> np.uint64(31)))


def _information(rows: NDArray[Any]) -> float:
    pairs = rows[:, :-1].astype(np.uint32) * np.uint32(1 << 16) + rows[:, 1:]
    return _entropy(rows[:, :-1].ravel()) + _entropy(rows[:, 1:].ravel()) - _entropy(pairs.ravel())


def _entropy(values: NDArray[Any]) -> float:
    """Return Grassberger's estimate, ln N - sum n G(n) / N: G(n) is 2 (1 + 1/3 + ... + 1/(2 (n // 2) - 1)) - gamma -
    ln 2, and ln n from 4,096 on."""
    times = np.unique(values, return_counts=True)[1]
    sums = np.concatenate([[0.0], np.cumsum(2 / np.arange(1, _EXACT, 2))])
    small = sums[np.minimum(times, _EXACT - 1) // 2] - np.euler_gamma - np.log(2)
    g = np.where(times < _EXACT, small, np.log(times))
    return float(np.log(times.sum()) - (times * g).sum() / times.sum())
