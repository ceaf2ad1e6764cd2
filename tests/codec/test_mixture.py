"""The mixture of casing patterns: costs are integers, probabilities sum to one, training is deterministic."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import shutil
from collections import Counter
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from pathlib import Path

import numpy as np
import pytest

from casebits_dagster.codec.bytetable import ByteTable, read_vocabulary
from casebits_dagster.codec.decode import Codec
from casebits_dagster.codec.encode import Encoder
from casebits_dagster.codec.mixture import (
    COMPONENTS,
    COST_UNIT,
    Mixture,
    PairCounter,
    letter_table,
    train_mixture,
)
from casebits_dagster.records.codec import CodecFiles
from casebits_dagster.records.errors import CasebitsError, RecordError
from casebits_dagster.records.pins import default_pins_folder, load_codec
from casebits_dagster.records.region import Separator
from casebits_dagster.sources.training import Retrained, retrain, train_from_source

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


def reference_cost(mixture: Mixture, token: int, mask: int) -> int:
    """Return the cost of a pair in decimal arithmetic alone, from the definition."""
    places = [place for place in range(16) if mixture.letters[token, place]]
    with localcontext(prec=80):
        one, total = Decimal(65_535), Decimal(0)
        for pi, theta in zip(mixture.pi[token].tolist(), mixture.theta.tolist(), strict=True):
            share = Decimal(pi) / one
            for rank, place in enumerate(places):
                share *= (Decimal(theta[rank]) if mask >> place & 1 else one - Decimal(theta[rank])) / one
            total += share
        return int((-total.ln() / Decimal(2).ln() * 65_536).to_integral_value(ROUND_HALF_EVEN))


def random_pairs(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return random ids with random masks on their letters, as "<u2"."""
    random = np.random.default_rng(seed)
    ids = random.integers(0, len(MIXTURE.pi), count).astype("<u2")
    bits = random.random((count, 16)) < random.choice([0.0, 0.1, 0.5, 1.0], (count, 1))
    return ids, ((MIXTURE.letters[ids] & bits) << np.arange(16)).sum(axis=1).astype("<u2")


def test_costs_are_those_of_decimal_arithmetic() -> None:
    ids, masks = random_pairs(3_000, seed=3)
    want = [reference_cost(MIXTURE, token, mask) for token, mask in zip(ids.tolist(), masks.tolist(), strict=True)]
    assert MIXTURE.costs(ids, masks).tolist() == want


def test_costs_near_a_tie_are_decided_exactly() -> None:
    # One id a pi: of a million costs take those whose fraction is nearest to a half, where floating point may err.
    share = np.arange(1, 65_535).astype("<u2")
    mixture = Mixture(share[:, None], MIXTURE.theta[:1], np.tile(TABLE_LETTERS, (len(share), 1)))
    ids = np.arange(len(share)).astype("<u2")
    near: list[tuple[float, int, int]] = []
    for mask in range(16):
        masks = np.full(len(ids), mask, "<u2")
        bits = -np.log2(mixture.joint(ids, masks).sum(axis=1)) * COST_UNIT
        distance = np.abs(bits - np.floor(bits) - 0.5)
        near += [(float(distance[k]), int(ids[k]), mask) for k in np.argsort(distance)[:20]]
    assert max(near)[0] < 1e-2
    assert min(near)[0] < 1e-5
    pairs = np.array([(token, mask) for _, token, mask in near], "<u2")
    want = [reference_cost(mixture, token, mask) for _, token, mask in near]
    assert mixture.costs(pairs[:, 0], pairs[:, 1]).tolist() == want
    assert [mixture.exact_cost(token, mask) for _, token, mask in near] == want


TABLE_LETTERS = np.array([1, 1, 1, 1] + [0] * 12, np.uint8)


def test_costs_rise_with_surprise() -> None:
    ids, masks = np.full(3, token_id(b" the"), "<u2"), np.array([0, 0b0010, 0b1110], "<u2")
    costs = MIXTURE.costs(ids, masks).tolist()
    assert costs == sorted(costs)


def counted(ids: np.ndarray, masks: np.ndarray) -> PairCounter:
    counter = PairCounter()
    counter.add(ids, masks)
    return counter


def test_a_text_costs_the_sum_of_its_tokens_however_it_is_cut() -> None:
    ids, masks = random_pairs(5_000, seed=4)
    counter = counted(ids[:1_000], masks[:1_000])
    counter.add(ids[1_000:], masks[1_000:])
    pairs = counter.pairs()
    assert MIXTURE.cost(pairs) == int(MIXTURE.costs(ids, masks).sum())
    listed = list(zip(pairs.ids.tolist(), pairs.masks.tolist(), strict=True))
    assert listed == sorted(set(zip(ids.tolist(), masks.tolist(), strict=True)))
    assert dict(zip(listed, pairs.counts.tolist(), strict=True)) == Counter(
        zip(ids.tolist(), masks.tolist(), strict=True)
    )
    empty = PairCounter().pairs()
    assert (MIXTURE.cost(empty), MIXTURE.independent_bits(empty), len(empty.counts)) == (0, 0.0, 0)


def test_independent_bits_cost_what_coins_with_the_chances_of_the_mixture_cost() -> None:
    ids, masks = random_pairs(300, seed=5)
    want = 0.0
    for token, mask in zip(ids.tolist(), masks.tolist(), strict=True):
        weights = MIXTURE.pi[token] / MIXTURE.pi[token].sum()
        for rank, byte in enumerate(np.flatnonzero(MIXTURE.letters[token]).tolist()):
            chance = sum(w * t / 65_535 for w, t in zip(weights, MIXTURE.theta[:, rank].tolist(), strict=True))
            want -= math.log2(chance if mask >> byte & 1 else 1 - chance)
    assert MIXTURE.independent_bits(counted(ids, masks).pairs()) == pytest.approx(want, rel=1e-9)


@pytest.mark.parametrize("components", [1, 2, 3, 4, 5])
def test_more_components_never_cost_more(components: int) -> None:
    text = ("The cat SAT on the mat. NASA said so; McDonald did too. " * 30 + "iPhone eBay " * 9).encode()
    encoded = ENCODER.encode(np.frombuffer(text, np.uint8), np.array([0, len(text)]))
    pairs = counted(encoded.ids, encoded.cases).pairs()
    mixture = train_mixture(TABLE, pairs, components)
    assert (mixture.pi.shape, mixture.theta.shape) == ((len(TABLE.lengths), components), (components, 16))
    if components > 1:
        assert mixture.cost(pairs) <= train_mixture(TABLE, pairs, components - 1).cost(pairs) * 1.01


def test_what_is_exported_gives_the_probabilities_back(tmp_path: Path) -> None:
    MIXTURE.export(tmp_path / "head.npz", "ab" * 32)
    with np.load(tmp_path / "head.npz") as found:
        pi, theta = found["pi"], found["theta"]
        assert {name: (found[name].dtype.str, found[name].shape) for name in found.files} == {
            "pi": ("<f4", (8192, 4)),
            "theta": ("<f4", (4, 16)),
            "components": ("<U11", (4,)),
            "vocabulary_sha256": ("<U64", ()),
        }
        assert (found["components"].tolist(), str(found["vocabulary_sha256"])) == (list(COMPONENTS), "ab" * 32)
    the = token_id(b" the")
    capitalised = (pi[the] * theta[:, 0] * (1 - theta[:, 1]) * (1 - theta[:, 2])).sum()
    want = MIXTURE.joint(np.array([the], "<u2"), np.array([0b0010], "<u2")).sum()
    assert float(capitalised) == pytest.approx(float(want), rel=1e-3)
    with pytest.raises(FileExistsError):
        MIXTURE.export(tmp_path / "head.npz", "ab" * 32)


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
        train_mixture(TABLE, counted(encoded.ids, encoded.cases).pairs()).save(tmp_path / name)
        digests.add(hashlib.sha256((tmp_path / name).read_bytes()).hexdigest())
    assert len(digests) == 1


def test_the_committed_codec_is_what_its_command_makes(tmp_path: Path) -> None:
    lines: list[str] = []
    folder = tmp_path / "sample-lower-8192"
    made = train_from_source(default_pins_folder(), "sample", folder, 8192, progress=lines.append)
    pinned = load_codec(FOLDER)
    assert dataclasses.replace(made, trained_on=None, mixture_sha256=None) == dataclasses.replace(
        pinned, mixture_sha256=None
    )
    # The vocabulary is trained in integers; the mixture in floating point, which may differ between processors.
    with np.load(folder / CodecFiles.MIXTURE) as got, np.load(FOLDER / "mixture.npz") as want:
        for name in ("pi", "theta"):
            assert np.abs(got[name].astype(int) - want[name].astype(int)).max() <= 1
    assert lines == [
        "reading sample/pd-mix",
        "training 8192 entries on 1,358 documents, 6,694,211 bytes of text",
        "fitting the mixture to 1,976,974 tokens, 3.386 bytes a token",
    ]


def test_a_codec_trained_again_is_compared_with_its_pin(tmp_path: Path) -> None:
    pins = tmp_path / "pins"
    shutil.copytree(default_pins_folder(), pins, ignore=shutil.ignore_patterns("codecs"))
    folder = pins / "codecs" / "small"
    pin = train_from_source(pins, "sample", folder, 600, progress=lambda _: None)
    assert (pin.trained_on, load_codec(folder)) == ("sample", pin)
    assert retrain(pins, pin, lambda _: None) == Retrained(pin, pin, 0)
    with np.load(folder / CodecFiles.MIXTURE) as found:
        np.savez(folder / CodecFiles.MIXTURE, pi=found["pi"] ^ np.uint16(4), theta=found["theta"])
    other = dataclasses.replace(pin, vocabulary_sha256="0" * 64)
    assert retrain(pins, other, lambda _: None) == Retrained(other, pin, 4)
    with pytest.raises(
        RecordError, match=r"^PIN_INVALID small: trained_on: the pin does not say what it was trained on$"
    ):
        retrain(pins, dataclasses.replace(pin, trained_on=None), lambda _: None)


def test_a_plain_codec_keeps_capitals_and_has_no_mixture(tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    pin = train_from_source(default_pins_folder(), "sample", folder, 600, plain=True, progress=lambda _: None)
    assert load_codec(folder) == pin
    assert (pin.format, pin.mixture_sha256, pin.separator) == ("plain-1", None, Separator(id=0, at="end"))
    assert pin.command == "casebits train-codec sample plain --size 600 --plain"
    assert sorted(path.name for path in folder.iterdir()) == ["codec.toml", "vocabulary.json"]
    encoder = Encoder(folder / "vocabulary.json", pin.separator)
    encoded = encoder.encode(np.frombuffer(b"The CatThe", np.uint8), np.array([0, 7, 10]))
    assert Codec.load(folder).decode(encoded.ids, encoded.cases) == b"The CatThe"
    assert (encoded.offsets.tolist()[-1], int(encoded.ids[-1]), set(encoded.cases.tolist())) == (
        len(encoded.ids),
        0,
        {0},
    )


def test_a_codec_is_never_overwritten() -> None:
    with pytest.raises(CasebitsError, match="the codec exists"):
        train_from_source(default_pins_folder(), "sample", FOLDER, 8192, progress=lambda _: None)
