"""The filter's metrics once more, one text at a time, in the plainest code there is: for samples.

Values are micro-units: floor(10^6 * value), 0 when the denominator is 0. White space is the six ASCII bytes, a word a
maximal run of others, a character a code point.
"""

from __future__ import annotations

import string
from collections.abc import Callable

_STOP_WORDS = frozenset(b"the be to of and that have with".split())


def measure(text: bytes, metrics: tuple[str, ...]) -> dict[str, int]:
    """Return the metrics of a valid UTF-8 text; one that this verifier does not know is left out."""
    return {name: METRICS[name](text) for name in metrics if name in METRICS}


def _micro(numerator: int, denominator: int) -> int:
    return numerator * 1_000_000 // denominator if denominator else 0


def _characters(text: bytes) -> int:
    return len(text.decode())


def _share(kind: str) -> Callable[[bytes], int]:
    """Return the measure of the share of characters that are of an ASCII kind."""
    drop = kind.encode()
    return lambda text: _micro(len(text) - len(text.translate(None, drop)), _characters(text))


def _non_ascii_share(text: bytes) -> int:
    return _micro(sum(character > "\x7f" for character in text.decode()), _characters(text))


def _mean_word_length(text: bytes) -> int:
    # bytes.split() and bytes.lower() know ASCII only, as the definitions do; those of str would not.
    words = text.split()
    return _micro(sum(len(word.decode()) for word in words), len(words))


def _stop_word_share(text: bytes) -> int:
    words = text.split()
    return _micro(sum(word.lower() in _STOP_WORDS for word in words), len(words))


METRICS: dict[str, Callable[[bytes], int]] = {
    "characters": lambda text: _micro(_characters(text), 1),
    "ascii_letter_share": _share(string.ascii_letters),
    "digit_share": _share(string.digits),
    "symbol_share": _share(string.punctuation),
    "non_ascii_share": _non_ascii_share,
    "mean_word_length": _mean_word_length,
    "stop_word_share": _stop_word_share,
}
