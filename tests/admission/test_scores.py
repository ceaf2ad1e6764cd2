"""The verifier's own metrics, by hand."""

from __future__ import annotations

import pytest

from casebits_dagster.admission.scores import METRICS, measure


@pytest.mark.parametrize(
    ("metric", "text", "micro"),
    [
        ("characters", "", 0),
        ("characters", "caf\u00e9 \U0001f600", 6_000_000),
        ("ascii_letter_share", "caf\u00e9", 750_000),
        ("digit_share", "a1\u0661", 333_333),
        ("symbol_share", "a!~ `", 600_000),
        ("non_ascii_share", "a\u00e9\u4e2d\U0001f600", 750_000),
        ("mean_word_length", "caf\u00e9 to\u00a0go\x0b\x1c", 3_333_333),
        ("mean_word_length", " \t\n\r\x0b\x0c", 0),
        ("stop_word_share", "THE end, The end of The\u212a", 500_000),
        ("stop_word_share", "", 0),
        ("digit_share", "", 0),
    ],
)
def test_metric(metric: str, text: str, micro: int) -> None:
    assert measure(text.encode(), (metric,)) == {metric: micro}


def test_an_unknown_metric_is_left_out() -> None:
    assert measure(b"text", ("characters", "poetry")) == {"characters": 4_000_000}
    shares = ["ascii_letter_share", "digit_share", "non_ascii_share", "stop_word_share", "symbol_share"]
    assert sorted(METRICS) == sorted([*shares, "characters", "mean_word_length"])
