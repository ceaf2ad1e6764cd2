"""The verifier's own estimate of the bigram entropy is the writer's, and a report that says another one is refused."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from casebits_dagster.mixing import report as parts
from casebits_dagster.mixing.build import build_mix
from casebits_dagster.mixing.verify_loss import check_bigram
from casebits_dagster.records.errors import CasebitsError
from casebits_dagster.records.layout import Home
from casebits_dagster.records.mix import MixReport
from casebits_dagster.records.recipe import Recipe
from tests.mixing.corpus import control, corpus, recipe
from tests.mixing.plain_corpus import plain_corpus

Shards = list[NDArray[Any]]


def estimated(home: Home, made: Recipe, *, plain: bool = False) -> tuple[Shards, MixReport, float]:
    """Return the ids of a mix's shards, its report with the range, and the entropy of its ids."""
    source = plain_corpus(home) if plain else corpus(home)
    if made.documents_of:
        build_mix(recipe(), {"tiny": source}, home)
    done = build_mix(made, {"tiny": source}, home)
    report, windows, length = done.report, done.report.train.windows, made.sequence_length
    names = sorted(done.folder.glob("train_*.bin" if plain else "train_*.ids.u16le"))
    shards = [np.fromfile(path, "<u2") for path in names]
    held = [ids[: min(made.windows_per_shard, (len(ids) - 1) // length) * length] for ids in shards]
    runs = parts.train_runs(done.folder, made, windows, report.codec)
    counts = np.bincount(np.concatenate(held), minlength=1 << 16)
    reference = parts.loss_reference(counts, report.loss_reference.vocabulary_size, runs, made.seed)
    return shards, replace(report, loss_reference=reference), float(reference.unigram_nats)


@pytest.mark.parametrize(
    "made", [recipe(), control(recipe()), recipe(sequence_length=700, windows=6, validation_windows=0)]
)
@pytest.mark.parametrize("plain", [False, True])
def test_the_range_is_that_of_the_writer(home: Home, made: Recipe, plain: bool) -> None:
    shards, report, unigram = estimated(home, made, plain=plain)
    check_bigram(shards, report, unigram)
    bigram = report.loss_reference.bigram
    assert bigram is not None
    assert bigram.low_nats <= bigram.high_nats <= report.loss_reference.unigram_nats
    check_bigram(shards, replace(report, loss_reference=replace(report.loss_reference, bigram=None)), unigram)


@pytest.mark.parametrize("field", ["low_nats", "high_nats", "runs"])
def test_another_range_is_refused(home: Home, field: str) -> None:
    shards, report, unigram = estimated(home, recipe())
    bigram = report.loss_reference.bigram
    assert bigram is not None
    wrong: Any = getattr(bigram, field) + (1 if field == "runs" else Decimal("0.0001"))
    loss = replace(report.loss_reference, bigram=replace(bigram, **{field: wrong}))
    with pytest.raises(CasebitsError, match=r"^MIX_LOSS_REFERENCE loss_reference\.bigram"):
        check_bigram(shards, replace(report, loss_reference=loss), unigram)
