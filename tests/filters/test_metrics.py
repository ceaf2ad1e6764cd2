"""Every metric against a plain, slow definition of it, and the policy rule by rule."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from casebits_dagster.filters.judge import judge, require_metrics
from casebits_dagster.filters.metrics import METRICS, STOP_WORDS, score
from casebits_dagster.records.errors import RecordError
from casebits_dagster.records.policy import FilterPolicy

NAMES = tuple(METRICS)
ALPHABET = st.sampled_from(
    [*list("aZz09!~ \t\n\r\x0b\x0c\xa0\x85éß中🙂"), "the ", "The", " of", "AND", "\nthat\n", "have."]
)


def plain(text: str) -> list[int]:
    words = [word for word in re.split("[ \t\n\r\v\f]+", text) if word]
    stops = {word.decode() for word in STOP_WORDS}

    def share(part: int, whole: int) -> int:
        return part * 10**6 // whole if whole else 0

    def count(expression: str) -> int:
        return len(re.findall(expression, text, re.ASCII))

    lowered = [re.sub("[A-Z]", lambda match: match.group().lower(), word) for word in words]
    return [
        len(text) * 10**6,
        share(count("[A-Za-z]"), len(text)),
        share(count("[0-9]"), len(text)),
        share(count(r"[!-/:-@\[-`{-~]"), len(text)),
        share(sum(ord(character) > 127 for character in text), len(text)),
        share(sum(map(len, words)), len(words)),
        share(sum(word in stops for word in lowered), len(words)),
    ]


def scored(texts: list[str]) -> list[list[int]]:
    raw = [text.encode() for text in texts]
    cuts = np.cumsum([0, *map(len, raw)]).astype("<i8")
    found: list[list[int]] = score(NAMES, np.frombuffer(b"".join(raw), np.uint8), cuts).tolist()
    return found


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(ALPHABET, max_size=12).map("".join), max_size=5))
def test_columns_equal_the_plain_definition(texts: list[str]) -> None:
    assert scored(texts) == [plain(text) for text in texts]


def test_a_document_ends_its_last_word() -> None:
    assert [row[-1] for row in scored(["x the", "rapy", "to", "day", "", "be"])] == [500_000, 0, 10**6, 0, 0, 10**6]


def policy(toml: str, tmp_path: Path) -> FilterPolicy:
    path = tmp_path / "p.toml"
    path.write_text('policy_id = "p"\ndescription = "x"\nmetrics = ["characters", "digit_share"]\n' + toml)
    return FilterPolicy.from_toml(path)


RULES = """
[[rules]]
reason = "short"
kind = "threshold"
metric = "characters"
at_least = 10
[[rules]]
reason = "digits"
kind = "threshold"
metric = "digit_share"
at_most = 0.25
[[rules]]
reason = "cluster"
kind = "clusters"
accept = [1, 2]
[[rules]]
reason = "again"
kind = "duplicate"
"""


def test_the_first_rule_that_applies_decides_and_bounds_are_kept(tmp_path: Path) -> None:
    rows = [
        # characters, digit share, cluster, id, readable, verdict
        (10_000_000, 250_000, 1, b"a", True, "keep"),
        (9_999_999, 999_999, 9, b"b", True, "dropped:short"),
        (10_000_000, 250_001, 9, b"c", True, "dropped:digits"),
        (10_000_000, 0, 3, b"d", True, "dropped:cluster"),
        (10_000_000, 0, -1, b"e", True, "dropped:cluster"),
        (20_000_000, 0, 2, b"a", True, "dropped:again"),
        (20_000_000, 0, 2, b"d", True, "keep"),  # its twin was dropped, so this one is the first
        (0, 0, 0, b"", False, ""),
        (20_000_000, 0, 2, b"d", True, "dropped:again"),
        (20_000_000, 0, 2, b"z", True, "dropped:again"),  # kept in an earlier block
    ]
    found = judge(
        policy(RULES, tmp_path),
        np.array([row[:2] for row in rows], "<i8"),
        np.array([row[2] for row in rows], "<i4"),
        np.array([row[3].ljust(16, b"\0") for row in rows], "V16"),
        np.array([row[4] for row in rows]),
        np.array([b"z".ljust(16, b"\0")], "V16"),
    )
    assert found == [row[5] for row in rows]


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ('[[rules]]\nreason = "x"\nkind = "threshold"\nmetric = "characters"', "needs a recorded metric and at_least"),
        (
            '[[rules]]\nreason = "x"\nkind = "threshold"\nmetric = "symbol_share"\nat_most = 1',
            "needs a recorded metric",
        ),
        ('[[rules]]\nreason = "x"\nkind = "duplicate"\nat_most = 1', "a duplicate rule takes no metric and no bound"),
        ('[[rules]]\nreason = "x"\nkind = "clusters"\nmetric = "characters"', "a clusters rule takes no metric"),
        ('[[rules]]\nreason = "x"\nkind = "clusters"', "a clusters rule, and no other, lists what it accepts"),
        ('[[rules]]\nreason = "x"\nkind = "duplicate"\naccept = [1]', "lists what it accepts"),
        ('[[rules]]\nreason = "x"\nkind = "clusters"\naccept = [1]', "a policy needs one duplicate rule"),
        (
            '[[rules]]\nreason = "x"\nkind = "duplicate"\n[[rules]]\nreason = "y"\nkind = "clusters"\naccept = [1]',
            "a policy needs one duplicate rule, the last",
        ),
        ('[[rules]]\nreason = "x"\nkind = "duplicate"\n' * 2, "a policy needs one duplicate rule"),
    ],
)
def test_a_rule_that_cannot_decide_is_refused(tmp_path: Path, toml: str, message: str) -> None:
    with pytest.raises(RecordError, match="PIN_INVALID") as caught:
        policy(toml, tmp_path).check("p.toml")
    assert message in str(caught.value)


def test_a_metric_nobody_computes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text('policy_id = "p"\ndescription = "x"\nmetrics = ["perplexity"]\nrules = []\n')
    with pytest.raises(RecordError, match="read perplexity"):
        require_metrics(FilterPolicy.from_toml(path))
