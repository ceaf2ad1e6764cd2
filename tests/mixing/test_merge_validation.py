"""A merge with validation windows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from casebits_dagster.mixing.build import build_mix
from casebits_dagster.mixing.verify import verify_mix
from casebits_dagster.records.errors import CasebitsError
from casebits_dagster.records.layout import Home
from casebits_dagster.records.recipe import Recipe
from tests.mixing import mix_mutations as mutations
from tests.mixing.corpus import corpus


def merge(windows: int) -> Recipe:
    one = mutations.merge_recipe()
    assert one.interleaved is not None
    return replace(one, interleaved=replace(one.interleaved, validation_windows=windows))


def test_a_merge_has_validation_windows_of_validation_documents(home: Home) -> None:
    source, one = corpus(home), merge(2)
    report = build_mix(one, {"tiny": source}, home).report
    held = np.load(home.mix(one.mix) / "val_documents.npy")
    assert (report.validation.windows, report.validation.file_tokens) == (2, 2 * one.sequence_length + 1)
    train = set(np.load(home.mix(one.mix) / "documents.npy")["id"].tolist())
    assert train.isdisjoint(held["id"].tolist())
    assert verify_mix(home.mix(one.mix), home).report == report


def test_a_merge_with_too_few_validation_tokens_is_refused(home: Home) -> None:
    with pytest.raises(CasebitsError, match="MIX_VALIDATION validation_windows: too few validation tokens"):
        build_mix(merge(10_000), {"tiny": corpus(home)}, home)
