"""What a codec's files may not be: each is refused by name, before any text is lost."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from casebits_dagster.codec.bytetable import ByteTable, read_vocabulary
from casebits_dagster.codec.encode import Encoder
from casebits_dagster.codec.mixture import Mixture
from casebits_dagster.records.errors import CasebitsError, RecordError
from casebits_dagster.records.pins import default_pins_folder, generation_names
from casebits_dagster.sources.training import train_from_source

PINNED = default_pins_folder() / "codecs" / "sample-lower-8192"


def vocabulary(folder: Path, **changes: Any) -> Path:
    found = json.loads((PINNED / "vocabulary.json").read_bytes()) | changes
    path = folder / "vocabulary.json"
    path.write_text(json.dumps(found))
    return path


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("added_tokens", [{"id": 0, "content": "<|endoftext|>", "special": True}]),
        ("normalizer", {"type": "NFC"}),
    ],
)
def test_a_tokenizer_that_changes_text_is_refused(tmp_path: Path, key: str, value: object) -> None:
    path = vocabulary(tmp_path, **{key: value})
    with pytest.raises(RecordError) as caught:
        Encoder(path).encode(np.frombuffer(b"say", "u1"), np.array([0, 3]))
    assert str(caught.value).startswith(f"CODEC_PIN {path}: {key}: expected none, read ")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not JSON: "),
        ('{"</s>": 0, "\u2581the": 1}', "expected tokens spelled byte by byte, read '\u2581the'"),
    ],
)
def test_a_vocabulary_that_spells_no_bytes_is_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "vocabulary.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(RecordError) as caught:
        read_vocabulary(path, 0)
    assert str(caught.value).startswith(f"CODEC_PIN {path}: {message}")


def test_the_separator_is_the_pinned_id_whatever_its_name(tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.json"
    path.write_text('{"<end of text>": 0, "a": 1, "<|endoftext|>": 2}')
    assert read_vocabulary(path, 0) == [b"", b"a", b"<|endoftext|>"]


@pytest.mark.parametrize("content", [b"garbage", b""])
def test_a_mixture_that_is_none_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "mixture.npz").write_bytes(content)
    table = ByteTable.of(read_vocabulary(PINNED / "vocabulary.json"))
    with pytest.raises(RecordError, match=r"^CODEC_PIN .*mixture.npz: not a mixture: "):
        Mixture.load(tmp_path / "mixture.npz", table)


def test_the_mixture_of_another_vocabulary_is_refused() -> None:
    with pytest.raises(RecordError, match=r"expected pi \(2, K\) and theta \(K, 16\), read \(8192, 4\) and \(4, 16\)"):
        Mixture.load(PINNED / "mixture.npz", ByteTable.of([b"", b"a"]))


def test_a_source_that_is_not_the_pinned_one_trains_nothing(tmp_path: Path) -> None:
    pins = tmp_path / "pins"
    shutil.copytree(default_pins_folder(), pins)
    source = bytearray((pins / "sample/pd_mix.parquet").read_bytes())
    source[1000] ^= 1
    (pins / "sample/pd_mix.parquet").write_bytes(source)
    with pytest.raises(CasebitsError, match=r"^SOURCE_PIN .*expected sha256 c485703a"):
        train_from_source(pins, "sample", pins / "codecs/new", 300)
    assert not (pins / "codecs/new").exists()


def test_more_entries_than_ids_have_bits_are_refused(tmp_path: Path) -> None:
    pins = default_pins_folder()
    with pytest.raises(RecordError, match=r"size: expected at most 65,536, as ids have 16 bits, read 70000"):
        train_from_source(pins, "sample", tmp_path / "new", 70_000)


def test_a_folder_without_pins_is_absent(tmp_path: Path) -> None:
    with pytest.raises(CasebitsError, match=r"^PIN_MISSING .*there is no such folder of pins"):
        generation_names(tmp_path)
