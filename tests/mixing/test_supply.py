"""Which documents a mix of whole documents may take at all."""

from __future__ import annotations

import numpy as np

from casebits_dagster.mixing.supply import _closable
from casebits_dagster.records.layout import Home
from casebits_dagster.records.mix import REPORT, MixReport


def fits(lengths: list[int], window: int) -> list[int]:
    array = np.array(lengths, "<i8")
    found: list[int] = array[_closable(array, window)].tolist()
    return found


def test_documents_whose_last_window_nothing_can_close_are_left_out() -> None:
    assert fits([6, 40, 94, 95, 194, 196, 200, 299], 100) == [6, 40, 94, 194, 200]


def test_the_rule_rests_where_documents_are_long_against_a_window() -> None:
    assert fits([7, 96, 199], 100) == [7, 96, 199]
    assert fits([96, 199], 0) == [96, 199]
    assert fits([], 100) == []


def test_the_shipped_mix_loses_nothing(sample_home: Home) -> None:
    path = sample_home.mix("sample_aligned") / REPORT
    report = MixReport.parse(path.read_bytes(), REPORT)
    assert (report.train.windows, report.cut, report.returned) == (400, (), ())
    assert report.selection.unfit_documents > 0
    assert report.conservation.selected_tokens == report.conservation.window_tokens == 400 * 2_048
