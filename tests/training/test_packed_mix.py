"""Windows as a trainer reads them, beside an oracle that follows every token to its document, one by one."""

from __future__ import annotations

import itertools
import pickle
import shutil
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, get_args

import numpy as np
import pytest

from casebits_dagster.mixing.build import build_mix
from casebits_dagster.publication.send import publish_mix
from casebits_dagster.records.errors import CasebitsError, RecordError, Refused
from casebits_dagster.records.layout import Home
from casebits_dagster.records.mix import SEGMENTS, TABLE, val_name
from casebits_dagster.records.pins import load_generation
from casebits_dagster.records.recipe import Aligned
from casebits_dagster.training import PackedMix, packed_mix
from casebits_dagster.training.packed_mix import LastTarget, Split
from tests.mixing.corpus import TinySource, control, corpus, recipe
from tests.mixing.mix_mutations import seal
from tests.mixing.plain_corpus import plain_corpus
from tests.sample import NOW

SAMPLES = ("sample_aligned", "sample_concatenated", "sample_interleaved", "sample_stratified")
FLOATS = recipe(windows=60, windows_per_shard=16, aligned=Aligned(tails="float"))
TINY = ("tiny_aligned", "tiny_aligned_control")
Token: TypeAlias = "tuple[int, int]"
Place: TypeAlias = "tuple[int, int] | None"
"""A document and a token of it; nothing for an inserted separator."""


@dataclass(frozen=True)
class Corpus:
    home: Home
    source: TinySource


@pytest.fixture(scope="module", params=["casebits", "plain"])
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """An aligned mix in four shards whose tails float, and the same documents end to end: of both codecs."""
    home = Home(tmp_path_factory.mktemp(request.param) / "home")
    source = corpus(home) if request.param == "casebits" else plain_corpus(home)
    for made in (FLOATS, control(FLOATS)):
        build_mix(made, {"tiny": source}, home)
    return Corpus(home, source)


@pytest.fixture
def copied(tiny: Corpus, tmp_path: Path) -> Path:
    """The folder of a mix, to be tampered with."""
    return shutil.copytree(tiny.home.mix(TINY[0]), tmp_path / "copy")


@dataclass(frozen=True)
class Expected:
    """One window: tokens and targets as (id, mask)."""

    tokens: list[Token]
    targets: list[Token]
    segment_ids: list[int]
    position_ids: list[int]
    cu_seqlens: list[int]
    loss_mask: list[bool]


class Oracle:
    """Follows every place of a window to the token of a document, in plain Python, from tables and regions alone."""

    def __init__(self, tiny: Corpus, name: str, split: Split, last_target: LastTarget) -> None:
        source, folder, self.last_target = tiny.source, tiny.home.mix(name), last_target
        self.at_start, self.separator = source.separator_position == "start", (source.separator_id, 0)
        names = (SEGMENTS, TABLE) if split == "train" else (val_name(SEGMENTS), val_name(TABLE))
        segments, documents = (np.load(folder / each).tolist() for each in names)
        self.windows: dict[int, list[Any]] = defaultdict(list)
        for window, *segment in segments:
            self.windows[window].append(segment)
        self.tokens: list[list[Token]] = []
        for _, region, index, *_ in documents:
            arrays = source.region(region)
            begin, end = (int(cut) for cut in arrays.offsets[index : index + 2])
            pairs = zip(arrays.ids[begin:end].tolist(), arrays.cases[begin:end].tolist(), strict=True)
            self.tokens.append(list(pairs))

    def window(self, number: int) -> Expected:
        runs = self.windows[number]
        places = [place for run in runs for place in self._places(run)]
        starts = [run[0] for run in runs]
        counted, numbers, positions = self._first(runs[0]), [], []
        for place in range(len(places)):
            counted += place in starts and place > 0
            numbers.append(counted)
            positions.append(place - max(start for start in starts if start <= place))
        tokens = [self._token(place) for place in places]
        truths = [self._truth(place) for place in places]
        last = self._token(self._places(after[0])[0]) if (after := self.windows.get(number + 1)) else self.separator
        mask = [self._is_true(*pair) for pair in itertools.pairwise(places)]
        if self.last_target == "next":
            last = truths[-1] or self.separator
        mask.append(last == truths[-1])
        return Expected(tokens, [*tokens[1:], last], numbers, positions, [*starts, len(places)], mask)

    def _places(self, run: list[int]) -> list[Place]:
        _, document, start, length, _, inserted = run
        return [None] * inserted + [(document, start + at) for at in range(length - inserted)]

    def _first(self, run: list[int]) -> int:
        """A window that begins with a separator at the start of a document begins with document 1."""
        _, _, start, _, _, inserted = run
        return int(self.at_start and (inserted == 1 or start == 0))

    def _token(self, place: Place) -> Token:
        return self.separator if place is None else self.tokens[place[0]][place[1]]

    def _ends(self, place: Place) -> bool:
        return place is not None and place[1] + 1 == len(self.tokens[place[0]])

    def _truth(self, place: Place) -> Token | None:
        """What truly follows: the next token of the document, or the separator that opens another; else nothing."""
        if place is None or self._ends(place):
            return self.separator if place and self.at_start else None
        return self.tokens[place[0]][place[1] + 1]

    def _is_true(self, place: Place, following: Place) -> bool:
        if self._ends(place):
            return self.at_start and self._token(following) == self.separator
        return place is not None and following == (place[0], place[1] + 1)


def found(window: Any) -> Expected:
    """Return what a window of the product says, as the oracle does."""
    masks, target_masks = window.cases, window.target_cases
    none = np.zeros_like(window.ids)
    return Expected(
        list(zip(window.ids.tolist(), (none if masks is None else masks).tolist(), strict=True)),
        list(zip(window.targets.tolist(), (none if masks is None else target_masks).tolist(), strict=True)),
        window.segment_ids.tolist(),
        window.position_ids.tolist(),
        window.cu_seqlens.tolist(),
        window.loss_mask.tolist(),
    )


@pytest.mark.parametrize("last_target", get_args(LastTarget))
@pytest.mark.parametrize("split", get_args(Split))
@pytest.mark.parametrize("name", TINY)
def test_every_window_is_what_the_oracle_says(tiny: Corpus, name: str, split: Split, last_target: LastTarget) -> None:
    mix = PackedMix.open(tiny.home.mix(name), 64, split=split, last_target=last_target)
    oracle = Oracle(tiny, name, split, last_target)
    total = sum(run[3] for runs in oracle.windows.values() for run in runs)
    assert len(mix) == (60 if (name, split) == (TINY[0], "train") else max(0, total - 1) // 64)
    assert [found(mix[number]) for number in range(len(mix))] == [oracle.window(number) for number in range(len(mix))]


def test_the_oracle_saw_all_kinds_of_windows(tiny: Corpus) -> None:
    segments = np.load(tiny.home.mix(TINY[0]) / SEGMENTS)
    first = segments[segments["position"] == 0]
    assert set(np.unique(first["document_start"] > 0).tolist()) == {False, True}
    assert int(segments["inserted"].max()) == (tiny.source.separator_position == "start")


def test_a_batch_is_its_windows(tiny: Corpus) -> None:
    mix = PackedMix.open(tiny.home.mix(TINY[0]))
    asked = [59, 0, 16, 15, 15, 31, -1]
    batch = mix.batch(asked)
    assert batch.numbers.tolist() == [59, 0, 16, 15, 15, 31, 59]
    for name in (
        "ids",
        "targets",
        "segment_ids",
        "position_ids",
        "loss_mask",
        *["cases", "target_cases"] * _masked(mix),
    ):
        assert getattr(batch, name).tolist() == [getattr(mix[window], name).tolist() for window in asked]
    begins = [64 * row + begin for row, window in enumerate(asked) for begin in mix[window].cu_seqlens[:-1].tolist()]
    assert batch.cu_seqlens.tolist() == [*begins, 64 * len(asked)]
    assert batch.max_seqlen == max(mix[window].max_seqlen for window in asked)
    empty = mix.batch([])
    assert (empty.ids.shape, empty.loss_mask.shape, empty.cu_seqlens.tolist(), empty.max_seqlen) == ((0, 64),) * 2 + (
        [0],
        0,
    )


def _masked(mix: PackedMix) -> bool:
    return mix[0].cases is not None


def test_types_are_those_that_attention_takes(tiny: Corpus) -> None:
    window = PackedMix.open(tiny.home.mix(TINY[0]))[3]
    names = ("ids", "targets", "segment_ids", "position_ids", "cu_seqlens", "loss_mask")
    kinds = ["uint16", "uint16", "int32", "int32", "int32", "bool"]
    assert [getattr(window, name).dtype.name for name in names] == kinds
    assert [window.ids.flags.writeable, window.targets.flags.writeable] == [False, False]


def test_another_length_is_refused(tiny: Corpus) -> None:
    with pytest.raises(RecordError) as caught:
        PackedMix.open(tiny.home.root, 128, name=TINY[0])
    assert str(caught.value) == (
        "SEQUENCE_LENGTH mix tiny_aligned: sequence_length: expected 64, read 128 (another T loses the alignment)"
    )


def test_what_is_opened_is_verified(tiny: Corpus, copied: Path) -> None:
    mix = PackedMix.open(copied)
    names = [*{path.name for path in copied.glob("train_*")}, *{path.name for path in copied.glob("next.*")}]
    for name in sorted([*names, SEGMENTS, TABLE]):
        kept = (copied / name).read_bytes()
        # In place: the map of the mix that is open is of this file.
        (copied / name).write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
        with pytest.raises(Refused) as caught:
            PackedMix.open(copied)
        assert (caught.value.code, caught.value.where) == ("FILE_HASH", name)
        (copied / name).write_bytes(kept)
    assert found(PackedMix.open(copied)[0]) == found(mix[0])


def _first_row(window: int, field: str, change: int) -> Any:
    def mutate(segments: Any) -> None:
        row = segments[np.searchsorted(segments["window"], window)]
        row[field] = int(row[field]) + change

    return mutate


@pytest.mark.parametrize(
    ("mutate", "read"),
    [
        (_first_row(5, "length", 1), 65),
        (_first_row(5, "window", -1), None),
        (_first_row(5, "position", 1), 64),
    ],
    ids=["sum of segments is not T", "a segment of another window", "segments leave a gap"],
)
def test_no_mask_where_the_segment_table_does_not_match(copied: Path, mutate: Any, read: int | None) -> None:
    segments = np.load(copied / SEGMENTS)
    mutate(segments)
    np.save(copied / SEGMENTS, segments)
    seal(copied)
    mix = PackedMix.open(copied)
    wrong = mix.batch([2, 5, 7])
    for name in ("segment_ids", "position_ids", "cu_seqlens", "max_seqlen", "loss_mask"):
        with pytest.raises(CasebitsError) as caught:
            getattr(wrong, name)
        told = caught.value
        assert (told.code, told.where, told.expected) == ("MIX_SEGMENTS", "segments.npy: window 5", 64)
        assert told.problem == "its segments do not fill it, in order"
        assert read in (None, told.read)
    # Tokens are read all the same, and the masks of other windows are what they were.
    assert wrong.ids.shape == (3, 64)
    assert mix.batch([2, 7]).segment_ids.shape == (2, 64)


def test_a_batch_too_large_for_int32_has_no_masks(tiny: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_mix, "_MOST", 127)
    mix = PackedMix.open(tiny.home.mix(TINY[0]))
    assert mix.batch([1]).cu_seqlens.tolist() == mix[1].cu_seqlens.tolist()
    with pytest.raises(RecordError, match=r"^BATCH_TOO_LARGE batch: expected at most 127 tokens, read 128$"):
        _ = mix.batch([1, 2]).cu_seqlens


def test_windows_end_at_the_last_one(tiny: Corpus) -> None:
    mix = PackedMix.open(tiny.home.mix(TINY[0]))
    assert [window.numbers.tolist() for window in mix] == [[window] for window in range(60)]
    assert mix[-1].ids.tolist() == mix[59].ids.tolist()
    with pytest.raises(IndexError, match=r"^window -61 of mix tiny_aligned: train has 60 windows$"):
        mix[-61]
    with pytest.raises(IndexError, match=r"^window 60 of mix tiny_aligned: train has 60 windows$"):
        mix.batch([0, 60])


def test_another_process_gets_names_and_no_tokens(tiny: Corpus) -> None:
    mix = PackedMix.open(tiny.home.mix(TINY[0]), last_target="flat")
    sent = pickle.dumps(mix)
    again = pickle.loads(sent)
    assert (again.manifest_sha256, again.last_target, len(again)) == (mix.manifest_sha256, "flat", 60)
    assert found(again[17]) == found(mix[17])
    assert len(sent) < 10_000


@pytest.mark.parametrize("split", get_args(Split))
@pytest.mark.parametrize("name", SAMPLES)
def test_documents_of_the_sample_count_the_separators(sample_home: Home, name: str, split: Split) -> None:
    mix = PackedMix.open(sample_home.root, name=name, split=split)
    batch = mix.batch(range(len(mix)))
    separators = batch.ids == mix.separator.id
    assert np.array_equal(batch.segment_ids, np.cumsum(separators, axis=1) - separators)
    assert np.array_equal(batch.position_ids == 0, np.diff(batch.segment_ids, axis=1, prepend=-1) > 0)
    # A separator ends each document: only what follows one is no true target, and all but it are.
    assert np.array_equal(batch.loss_mask, ~separators)
    flat = PackedMix.open(sample_home.root, name=name, split=split, last_target="flat").batch(range(len(mix)))
    assert np.array_equal(flat.targets[:, :-1], batch.targets[:, :-1])
    assert np.array_equal(flat.targets[:, :-1], batch.ids[:, 1:])
    assert np.array_equal(
        flat.loss_mask, batch.loss_mask & ((flat.targets == batch.targets) | (batch.position_ids < 0))
    )


def test_a_mix_that_was_published_is_opened_from_there(sample_home: Home, pins: Path, tmp_path: Path) -> None:
    publish_mix("sample_aligned", [load_generation(pins, "sample")], sample_home, str(tmp_path), now=NOW)
    built, published = (PackedMix.open(*each) for each in ((sample_home.mix("sample_aligned"),), (tmp_path, 2048)))
    assert published.manifest_sha256 == built.manifest_sha256
    assert np.array_equal(published[399].targets, built[399].targets)


def test_numpy_is_enough() -> None:
    """Neither PyTorch nor Dagster is imported, whether it is there or not."""
    code = (
        "import sys; from casebits_dagster.training import PackedMix, WindowOrder; "
        "print(sorted({'torch', 'dagster', 'pandas'} & {name.partition('.')[0] for name in sys.modules}))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "[]\n"
