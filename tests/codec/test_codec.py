"""CaseBits restores every text byte for byte, whatever it holds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from casebits_dagster.codec import encode as encode_module
from casebits_dagster.codec.bytetable import END_MARKER, ByteTable, gpt2_alphabet, read_vocabulary
from casebits_dagster.codec.decode import Codec
from casebits_dagster.codec.encode import Encoder
from casebits_dagster.codec.mixture import letter_table
from casebits_dagster.records.errors import CasebitsError, RecordError
from casebits_dagster.records.pins import default_pins_folder
from casebits_dagster.records.vocabulary import gpt2_file
from tests.codec.nasty import NASTY

FOLDER = default_pins_folder() / "codecs" / "sample-lower-8192"
ENCODER = Encoder(FOLDER / "vocabulary.json")
CODEC = Codec.load(FOLDER)
REFERENCE = Encoder(FOLDER / "vocabulary.json", engine="tokenizers")


def columns(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    raw = [text.encode() for text in texts]
    cuts = np.cumsum([0, *map(len, raw)]).astype("<i8")
    return np.frombuffer(b"".join(raw), np.uint8), cuts


def round_trip(texts: list[str]) -> list[str]:
    encoded = ENCODER.encode(*columns(texts))
    spans = zip(encoded.offsets[:-1].tolist(), encoded.offsets[1:].tolist(), strict=True)
    return [CODEC.text(encoded.ids[begin:end], encoded.cases[begin:end]) for begin, end in spans]


def engines(texts: list[str]) -> tuple[list[bytes], list[bytes]]:
    """Return ids and cuts of lower-cased texts as each of the two libraries gives them."""
    lowered = [text.encode().lower().decode() for text in texts]
    fast, slow = ENCODER.tokenise(lowered), REFERENCE.tokenise(lowered)
    return [array.tobytes() for array in fast], [array.tobytes() for array in slow]


def test_nasty_texts_come_back() -> None:
    assert round_trip([text for _, text in NASTY]) == [text for _, text in NASTY]


def test_nasty_texts_encode_as_the_reference_does() -> None:
    fast, slow = engines([text for _, text in NASTY])
    assert fast == slow


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=60), max_size=6))
def test_any_text_comes_back(texts: list[str]) -> None:
    assert round_trip(texts) == texts


def random_texts(count: int, seed: int) -> list[str]:
    """Return short texts in which letters, blanks, digits, marks and other scripts meet in every order."""
    random = np.random.default_rng(seed)
    alphabet = [*"aAbBzZeEtTsS  \n\t.,'09_-\r\0éÉßİ中🙂\u200d\u0301\u00a0\u2028\ufeff\u01c5", "'s", "The ", END_MARKER]
    alphabet += [chr(code) for code in random.integers(0, 0x110000, 60) if not 0xD800 <= code < 0xE000]
    parts = np.array(alphabet, dtype=object)
    return ["".join(parts[random.integers(0, len(parts), size)]) for size in random.integers(0, 40, count)]


def test_20_000_random_documents_come_back() -> None:
    texts = random_texts(20_000, seed=20)
    assert round_trip(texts) == texts


def test_30_000_random_strings_encode_as_the_reference_does() -> None:
    fast, slow = engines(random_texts(30_000, seed=30))
    assert fast == slow


CODE_POINTS = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]


@pytest.mark.parametrize("context", ["{}", "{} ", "a{}", " {}b", "1{}'s", "\n{}\u0301"])
def test_every_code_point_encodes_as_the_reference_does(context: str) -> None:
    # The base plane one by one in each context; beyond it the tables of classes are plain, and 64 at once will do.
    near = ["".join(map(context.format, CODE_POINTS[start : start + 16])) for start in range(0, 63_488, 16)]
    far = ["".join(CODE_POINTS[start : start + 64]) for start in range(63_488, len(CODE_POINTS), 64)]
    fast, slow = engines(near + (far if context == "{}" else []))
    assert fast == slow


def test_the_fallback_gives_the_same_bytes() -> None:
    texts = [*(text for _, text in NASTY), "The Quick Brown FOX jumps over 13 lazy dogs. " * 40]
    want, got = ENCODER.encode(*columns(texts)), REFERENCE.encode(*columns(texts))
    assert (REFERENCE.engine, ENCODER.engine) == (
        f"tokenizers {version('tokenizers')}",
        f"fastokens {version('fastokens')}",
    )
    assert [array.tobytes() for array in (got.ids, got.cases, got.offsets, got.raw_bytes)] == [
        array.tobytes() for array in (want.ids, want.cases, want.offsets, want.raw_bytes)
    ]


@pytest.mark.parametrize("raw", [b"\xed\xa0\x80", b"a\xff", b"\xf0\x9f\x99", b"\xc0\x80"])
def test_text_that_is_not_utf8_is_refused_before_the_encoder(raw: bytes) -> None:
    text, cuts = np.frombuffer(b"good" + raw, np.uint8), np.array([0, 4, 4 + len(raw)])
    with pytest.raises(CasebitsError, match=r"^NOT_UTF8 text: document 1: only UTF-8 is encoded$"):
        ENCODER.encode(text, cuts)


_THREADS = """
import os, sys, pathlib, numpy as np
from casebits_dagster.codec.encode import Encoder
before = len(os.listdir("/proc/self/task"))
encoder = Encoder(pathlib.Path(sys.argv[1]))
encoder.encode(np.frombuffer(b"Many words. " * 999, np.uint8), np.arange(0, 11989, 12))
print(len(os.listdir("/proc/self/task")) - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
@pytest.mark.parametrize(("allowed", "threads"), [(None, "0"), ("2", "1")])
def test_the_encoder_keeps_to_one_thread_unless_it_is_given_more(allowed: str | None, threads: str) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "FASTOKENS_BPE_THREADS"}
    environment |= {"FASTOKENS_BPE_THREADS": allowed} if allowed else {}
    command = [sys.executable, "-c", _THREADS, str(FOLDER / "vocabulary.json")]
    assert (
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip() == threads
    )


def test_a_worked_example() -> None:
    encoded = ENCODER.encode(*columns(["The NASA", ""]))
    tokens = [CODEC.table.tokens[int(token)].as_py() for token in encoded.ids]
    assert b"".join(tokens) == b"the nasa"
    assert tokens[0] == b"the"
    assert encoded.cases[0] == 0b001
    assert encoded.ids[-2:].tolist() == [0, 0]
    assert encoded.cases[-2:].tolist() == [0, 0]
    assert encoded.offsets.tolist() == [0, len(encoded.ids) - 1, len(encoded.ids)]
    assert encoded.raw_bytes.tolist() == [8, 0]


def test_masks_reach_the_sixteenth_byte_from_any_bit() -> None:
    table = ENCODER.table
    longest = int(np.flatnonzero(table.lengths == table.lengths.max())[0])
    spelled = table.tokens[longest].as_py()
    want = sum(1 << place for place, byte in enumerate(spelled) if chr(byte).isalpha())
    for lead in range(9):
        # A lead of lines puts the first bit of the mask on every bit of a byte.
        text = "\n0" * lead + "-" * (lead % 2) + spelled.decode().upper()
        encoded = ENCODER.encode(*columns([text]))
        assert encoded.cases[encoded.ids == longest].tolist() == [want]


def test_a_mask_of_sixteen_bits_is_complete_from_any_bit(tmp_path: Path) -> None:
    # The trainer stops at 15 bytes; the format allows 16.
    alphabet = {byte: text for text, byte in gpt2_alphabet().items()}
    spelled = [END_MARKER, *(alphabet[byte] for byte in range(256)), "abcdefghijklmnop"]
    path = tmp_path / "vocabulary.json"
    path.write_text(json.dumps({"model": {"vocab": {text: rank for rank, text in enumerate(spelled)}}}))
    encoder = Encoder(path)
    for lead in range(9):
        capital = np.array([False] * lead + [True] * 16 + [False] * 15 + [True])
        ids = np.array([1 + ord("x")] * lead + [257, 257], "<u4")
        assert encoder._masks(capital, ids).tolist() == [0] * lead + [0xFFFF, 0x8000]


def test_masks_are_right_in_every_part_of_a_long_text() -> None:
    text = "The NASA probe McX-7 went UP; iPhone, eBay. " * 9_000
    encoded = ENCODER.encode(*columns([text]))
    assert len(encoded.ids) > 3 * encode_module._PART
    assert CODEC.text(encoded.ids, encoded.cases) == text
    assert np.flatnonzero(encoded.cases & ~letter_masks(encoded.ids)).tolist() == []


def letter_masks(ids: np.ndarray) -> np.ndarray:
    masks: np.ndarray = (letter_table(ENCODER.table) * (1 << np.arange(16))).sum(axis=1)[ids].astype("<u2")
    return masks


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
