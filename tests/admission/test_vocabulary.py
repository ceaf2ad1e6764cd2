"""What a lower-BPE vocabulary file must be, rule by rule."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from casebits_dagster.admission import verify_region
from casebits_dagster.admission.tables import CaseTable, spelled_bytes
from casebits_dagster.admission.vocabulary import read_vocabulary
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.errors import Rejected
from casebits_dagster.records.pins import load_generation
from tests.faults.build import make_region
from tests.faults.world import make_world, unspell


def vocabulary(change: Callable[[dict[str, Any]], object] = lambda found: None) -> bytes:
    """Return a vocabulary of the 256 bytes and one token `th`, changed."""
    single = {chr(code): unspell(chr(code)) for code in (*range(33, 127), *range(161, 173), *range(174, 324))}
    found: dict[str, Any] = {"<eod>": 0} | {text: number + 1 for number, text in enumerate(single)} | {"th": 257}
    change(found)
    return json.dumps({"added_tokens": [], "model": {"merges": [], "vocab": found}}).encode()


def test_a_sound_vocabulary() -> None:
    table = read_vocabulary(vocabulary())
    tokens = [table.spelling.decode(np.array([number]))[0].tobytes() for number in range(516)]
    assert (len(table.spelling.views), tokens[0], tokens[257], tokens[515]) == (516, b"", b"th", b"Th")
    small, other = tokens.index(b"t"), tokens.index(b"1")
    assert [int(table.inside[number]) for number in (0, 257, small)] == [0, 3, 1]
    assert [int(table.forbidden[number]) for number in (0, 257, small, other)] == [0xFFFF, 0xFFFC, 0xFFFE, 0xFFFF]
    capitals = (table.forbidden & CaseTable.CAPITAL).nonzero()[0]
    assert [tokens[number] for number in capitals] == [bytes([c]) for c in range(65, 91)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda found: found.update(th=300), "ids are not 0 .. V-1, each once"),
        (lambda found: found.update(th=256), "ids are not 0 .. V-1, each once"),
        (lambda found: (found.pop("t"), found.update(t_=found.pop("th"), th=found["u"] - 1)), "byte 116 is no token"),
        (lambda found: found.update({"": 258}), "token 258 has no bytes"),
        (lambda found: found.update({"a" * 17: 258}), "token 258 has 17 bytes, more than a mask has bits"),
        (lambda found: found.update(tH=258), "token 258 has a capital letter"),
        (lambda found: found.update({"\u4e2d": 258}), "not a byte-level vocabulary: KeyError('\u4e2d')"),
    ],
)
def test_a_broken_vocabulary(change: Callable[[dict[str, Any]], object], message: str) -> None:
    with pytest.raises(ValueError, match="^" + message.replace("(", r"\(").replace(")", r"\)") + "$"):
        read_vocabulary(vocabulary(change))


def test_added_tokens_are_refused() -> None:
    raw = vocabulary().replace(b'"added_tokens": []', b'"added_tokens": [{"id": 0, "content": "<eod>"}]')
    with pytest.raises(ValueError, match="tokens are added to the vocabulary"):
        read_vocabulary(raw)


@pytest.mark.parametrize("raw", [b"{}", b"[]", b"not json"])
def test_something_else_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"not a byte-level vocabulary|Expecting value"):
        read_vocabulary(raw)


def test_the_spelling_is_the_one_of_byte_level_vocabularies() -> None:
    assert spelled_bytes("\u0120the\u010a\u00c3\u00a9") == b" the\n\xc3\xa9"


def test_a_pinned_vocabulary_that_breaks_a_rule_admits_nothing(tmp_path: Path, pins: Path) -> None:
    sample = load_generation(pins, "sample")
    folder = tmp_path / "codec"
    folder.mkdir()
    raw = sample.vocabulary.read_bytes().replace(b'"added_tokens":[]', b'"added_tokens":[1]')
    (folder / "vocabulary.json").write_bytes(raw)
    (folder / "mixture.npz").write_bytes((sample.codec_folder / "mixture.npz").read_bytes())
    generation, home, rows = make_world(tmp_path, pins)
    codec = replace(generation.pins.codec, vocab_sha256=sha256(raw))
    broken = replace(generation, codec_folder=folder, pins=replace(generation.pins, codec=codec))
    made = make_region(broken, home, rows, 1)
    with pytest.raises(Rejected, match=r"^L2_VOCABULARY 00001/vocabulary.json: tokens are added"):
        verify_region(made.folder, broken)


@pytest.mark.parametrize("name", ["vocabulary.json", "mixture.npz"])
def test_a_codec_file_that_is_not_the_pinned_one(tmp_path: Path, pins: Path, name: str) -> None:
    generation, home, rows = make_world(tmp_path, pins)
    made = make_region(generation, home, rows, 1)
    folder = tmp_path / "codec"
    folder.mkdir()
    for path in (generation.vocabulary, generation.codec_folder / "mixture.npz"):
        (folder / path.name).write_bytes(path.read_bytes() + b" " * (path.name == name))
    with pytest.raises(Rejected, match=r"^L2_CODEC_PIN 00001/receipt.json: pins.codec"):
        verify_region(made.folder, replace(generation, codec_folder=folder))
