"""The check of whole blocks of text finds the rows that the strict decoder refuses, and where."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from casebits_dagster.sources.columns import SourceRows
from casebits_dagster.sources.utf8 import utf8_rows
from tests.sources.reading import Seen, rows_of

EDGES = (b"\xed\x9f\xbf", b"\xed\xa0\x80", b"\xf4\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xc0\x80", b"\xe2\x82", b"a\0")
_texts = st.one_of(st.text().map(str.encode), st.binary(max_size=6), st.sampled_from(EDGES))


@settings(deadline=None)
@given(st.lists(_texts, min_size=1, max_size=20))
def test_rows_fail_as_the_strict_decoder_says(texts: list[bytes]) -> None:
    count, cuts = len(texts), np.cumsum([0, *map(len, texts)])
    nothing = np.zeros(count, "<i8")
    text = np.frombuffer(b"".join(texts), np.uint8)
    rows = SourceRows(nothing, nothing.astype("<i4"), nothing, np.zeros(count, np.uint8), nothing - 1, text, cuts)
    assert rows_of(utf8_rows(rows)) == [_judged(text) for text in texts]


def _judged(text: bytes) -> Seen:
    try:
        text.decode()
    except UnicodeDecodeError as error:
        kind = "truncated_utf8" if error.reason == "unexpected end of data" else "not_utf8"
        return Seen(0, b"", 0, 0, kind, error.start)
    return Seen(0, text, 0)
