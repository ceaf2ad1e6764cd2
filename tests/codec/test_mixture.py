"""The mixture of casing patterns: costs are integers, probabilities sum to one, training is deterministic."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from casebits_dagster.codec.bytetable import ByteTable, read_vocabulary
from casebits_dagster.codec.encode import Encoder
from casebits_dagster.codec.mixture import COST_UNIT, Mixture, letter_table, train_mixture
from casebits_dagster.records.codec import CodecFiles
from casebits_dagster.records.errors import CasebitsError
from casebits_dagster.records.pins import default_pins_folder, load_codec
from casebits_dagster.sources.training import train_from_source

FOLDER = default_pins_folder() / "codecs" / "sample-lower-8192"
ENCODER = Encoder(FOLDER / "vocabulary.json")
TABLE = ENCODER.table
MIXTURE = Mixture.load(FOLDER / "mixture.npz", TABLE)


def token_id(text: bytes) -> int:
    return read_vocabulary(FOLDER / "vocabulary.json").index(text)


def test_probabilities_of_all_masks_sum_to_one() -> None:
    for text in (b"a", b" the", b"1a2b" if b"1a2b" in read_vocabulary(FOLDER / "vocabulary.json") else b"ing"):
        letters = [place for place, byte in enumerate(text) if chr(byte).isalpha()]
        masks = [
            sum(1 << place for rank, place in enumerate(letters) if bits >> rank & 1)
            for bits in range(1 << len(letters))
        ]
        ids = np.full(len(masks), token_id(text), "<u2")
        total = MIXTURE.joint(ids, np.array(masks, "<u2")).sum()
        assert abs(total - 1) < 1e-3


def test_costs_are_exact_integers_of_the_frozen_parameters() -> None:
    the = token_id(b" the")
    ids, masks = np.full(3, the, "<u2"), np.array([0, 0b0010, 0b1110], "<u2")
    costs = MIXTURE.costs(ids, masks)
    want = [-np.log2(MIXTURE.joint(ids[k : k + 1], masks[k : k + 1]).sum()) * COST_UNIT for k in range(3)]
    assert costs.tolist() == [round(float(cost)) for cost in want]
    assert costs[0] < costs[1] < costs[2]


def test_a_token_without_letters_costs_nothing() -> None:
    ids = np.array([0, token_id(b".")], "<u2")
    assert abs(int(MIXTURE.costs(ids, np.zeros(2, "<u2")).sum())) < 40
    assert MIXTURE.components(ids, np.zeros(2, "<u2")).tolist() == [255, 255]


def test_components_name_the_casing_pattern() -> None:
    ids = np.full(3, token_id(b" the"), "<u2")
    assert MIXTURE.components(ids, np.array([0, 0b0010, 0b1110], "<u2")).tolist() == [0, 1, 2]


def test_letters_are_the_ascii_letters_of_a_token() -> None:
    table = ByteTable.of([b"", b"ab1c", "é".encode() + b"z"])
    assert letter_table(table)[:, :5].tolist() == [[0, 0, 0, 0, 0], [1, 1, 0, 1, 0], [0, 0, 1, 0, 0]]


def test_training_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    text = ("The cat SAT on the mat. NASA said so; McDonald did too. " * 30).encode()
    encoded = ENCODER.encode(np.frombuffer(text, np.uint8), np.array([0, len(text)]))
    digests = set()
    for name in ("a.npz", "b.npz"):
        train_mixture(TABLE, encoded.ids, encoded.cases).save(tmp_path / name)
        digests.add(hashlib.sha256((tmp_path / name).read_bytes()).hexdigest())
    assert len(digests) == 1


def test_the_committed_codec_is_what_its_command_makes(tmp_path: Path) -> None:
    made = train_from_source(default_pins_folder(), "sample", tmp_path / "sample-lower-8192", 8192)
    pinned = load_codec(FOLDER)
    # The vocabulary is trained in integers; the mixture in floating point, which may differ between processors.
    assert made.vocabulary_sha256 == pinned.vocabulary_sha256
    assert made.command == pinned.command
    with np.load(tmp_path / "sample-lower-8192" / CodecFiles.MIXTURE) as got, np.load(FOLDER / "mixture.npz") as want:
        for name in ("pi", "theta"):
            assert np.abs(got[name].astype(int) - want[name].astype(int)).max() <= 1


def test_a_codec_is_never_overwritten() -> None:
    with pytest.raises(CasebitsError, match="the codec exists"):
        train_from_source(default_pins_folder(), "sample", FOLDER, 8192)
