"""CaseBits restores every text byte for byte, whatever it holds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from casebits_dagster.codec import encode as encode_module
from casebits_dagster.codec.bytetable import END_MARKER, ByteTable, gpt2_alphabet, read_vocabulary
from casebits_dagster.codec.decode import Codec
from casebits_dagster.codec.encode import Encoder, case_masks, tokenise_reference
from casebits_dagster.records.errors import RecordError
from casebits_dagster.records.pins import default_pins_folder, gpt2_file

FOLDER = default_pins_folder() / "codecs" / "sample-lower-8192"
ENCODER = Encoder(FOLDER / "vocabulary.json")
CODEC = Codec.load(FOLDER)
REFERENCE = tokenizers.Tokenizer.from_file(str(FOLDER / "vocabulary.json"))

NASTY = {
    "capital i with dot": "\u0130stanbul \u0130",
    "sharp s": "Stra\u00dfe STRA\u1e9eE",
    "kelvin sign": "300 \u212a K k",
    "dz digraphs": "\u01c4\u01c5\u01c6\u01c7\u01c8\u01c9\u01ca\u01cb",
    "zwj emoji": "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 Family",
    "nul": "A\0B\0\0c",
    "byte order mark": "\ufeffHello",
    "lone carriage returns": "one\rTWO\r\nThree\n\r",
    "one long run": "A" * 5_000 + "b" * 5_000,
    "end marker": f"{END_MARKER} <|ENDOFTEXT|> {END_MARKER}{END_MARKER}",
    "empty": "",
    "one capital": "Q",
    "white space": " \t\n\u00a0\u2003  \n\n",
}


def columns(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    raw = [text.encode() for text in texts]
    cuts = np.cumsum([0, *map(len, raw)]).astype("<i8")
    return np.frombuffer(b"".join(raw), np.uint8), cuts


def round_trip(texts: list[str]) -> list[str]:
    encoded = ENCODER.encode(*columns(texts))
    spans = zip(encoded.offsets[:-1].tolist(), encoded.offsets[1:].tolist(), strict=True)
    return [CODEC.text(encoded.ids[begin:end], encoded.cases[begin:end]) for begin, end in spans]


def test_nasty_texts_come_back() -> None:
    assert dict(zip(NASTY, round_trip(list(NASTY.values())), strict=True)) == NASTY


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=60), max_size=6))
def test_any_text_comes_back(texts: list[str]) -> None:
    assert round_trip(texts) == texts


def test_20_000_random_documents_come_back() -> None:
    random = np.random.default_rng(20)
    alphabet = np.array(list("aAbBzZ  \n.,09éÉßİ中🙂\u200d"))
    texts = ["".join(alphabet[random.integers(0, len(alphabet), size)]) for size in random.integers(0, 40, 20_000)]
    assert round_trip(texts) == texts


def test_every_code_point_encodes_as_the_reference_does() -> None:
    points = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    texts = ["".join(points[start : start + 64]).lower() for start in range(0, len(points), 64)]
    lowered = [text.encode().lower().decode() for text in texts]
    fast, cuts = ENCODER._tokenise(lowered)
    slow, slow_cuts = tokenise_reference(REFERENCE, lowered)
    assert fast.tobytes() == slow.tobytes()
    assert cuts.tobytes() == slow_cuts.tobytes()


def test_the_fallback_gives_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode_module, "fastokens", None)
    fallback = Encoder(FOLDER / "vocabulary.json")
    texts = [*NASTY.values(), "The Quick Brown FOX jumps over 13 lazy dogs. " * 40]
    want, got = ENCODER.encode(*columns(texts)), fallback.encode(*columns(texts))
    assert fallback.engine.startswith("tokenizers ")
    assert ENCODER.engine.startswith("fastokens ")
    assert [array.tobytes() for array in (got.ids, got.cases, got.offsets, got.raw_bytes)] == [
        array.tobytes() for array in (want.ids, want.cases, want.offsets, want.raw_bytes)
    ]


def test_a_worked_example() -> None:
    encoded = ENCODER.encode(*columns(["The NASA", ""]))
    tokens = [CODEC.table.token_bytes(int(token)) for token in encoded.ids]
    assert b"".join(tokens) == b"the nasa"
    assert tokens[0] == b"the"
    assert encoded.cases[0] == 0b001
    assert encoded.ids[-2:].tolist() == [0, 0]
    assert encoded.cases[-2:].tolist() == [0, 0]
    assert encoded.offsets.tolist() == [0, len(encoded.ids) - 1, len(encoded.ids)]
    assert encoded.raw_bytes.tolist() == [8, 0]


def test_masks_reach_the_sixteenth_byte_from_any_bit() -> None:
    for lead in range(8):
        text = b"x" * lead + b"a" * 15 + b"Z" + b"A" + b"b" * 15
        cuts = np.array([*range(lead + 1), lead + 16, lead + 32], "<i8")
        masks = case_masks(np.frombuffer(text, np.uint8), cuts)
        assert masks[lead:].tolist() == [1 << 15, 1]


def test_the_end_marker_as_text_never_becomes_id_0() -> None:
    encoded = ENCODER.encode(*columns([END_MARKER * 3]))
    assert np.flatnonzero(encoded.ids == 0).tolist() == [len(encoded.ids) - 1]


def test_byte_table_equals_a_plain_join() -> None:
    tokens = read_vocabulary(gpt2_file("encoder.json"))
    table = ByteTable.of(tokens)
    random = np.random.default_rng(7)
    # Every token, all lengths mixed: 1 to 128 bytes, and the empty end marker at both ends and doubled.
    ids = np.concatenate([[50_256], random.permutation(50_257), random.integers(0, 50_257, 20_000), [50_256] * 2])
    assert table.decode(ids.astype("<u2")).tobytes() == b"".join(tokens[token] for token in ids)
    assert table.decode(np.empty(0, "<u2")).tobytes() == b""


def test_the_alphabet_is_the_one_of_the_reference_library() -> None:
    assert set(gpt2_alphabet()) == set(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    assert gpt2_alphabet()["Ġ"] == 0x20
    assert sorted(gpt2_alphabet().values()) == list(range(256))


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ({0: "a"}, "id 0 must be"),
        ({300: "abcdefghijklmnopq"}, "expected tokens of at most 16 bytes, read 17"),
        ({300: "aB"}, "expected no token with A-Z, read b'aB'"),
        ({65: "ab"}, "expected all 256 single bytes, read without"),
    ],
)
def test_a_vocabulary_that_cannot_carry_casebits_is_refused(
    tmp_path: Path, tokens: dict[int, str], message: str
) -> None:
    alphabet = {byte: text for text, byte in gpt2_alphabet().items()}
    by_id = {0: END_MARKER} | {byte + 1: alphabet[byte] for byte in range(256)} | {300: "ab"}
    by_id |= tokens
    vocabulary = {text: rank for rank, text in enumerate(dict.fromkeys(by_id[key] for key in sorted(by_id)))}
    path = tmp_path / "vocabulary.json"
    path.write_text(json.dumps({"model": {"vocab": vocabulary}}))
    with pytest.raises(RecordError, match="CODEC_PIN") as caught:
        Encoder(path)
    assert message in str(caught.value)
