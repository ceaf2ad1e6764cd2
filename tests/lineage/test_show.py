"""A window as a person reads it: the text of its tokens, its marks, and where each segment comes from."""

from __future__ import annotations

import argparse
import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from casebits_dagster.commands import OK
from casebits_dagster.lineage.show import ShownSegment, ShownWindow, show_markdown, show_text, show_window, visible
from casebits_dagster.reading import show
from casebits_dagster.records.errors import Absent, CasebitsError, Refused
from casebits_dagster.records.layout import DOCUMENTS, Home
from casebits_dagster.records.mix import SEGMENTS
from casebits_dagster.records.pins import Generation, load_generation
from casebits_dagster.sources import read_rows
from casebits_dagster.training import PackedMix
from tests.mixing.mix_mutations import seal

MIX = "sample_aligned"
CUT = re.compile(r"^(\\x[0-9a-f]{2}){0,3}(.*?)(\\x[0-9a-f]{2}){0,3}$", re.DOTALL)
"""A text with up to three bytes of a character that the window cuts, on either side."""


@pytest.fixture(scope="module")
def texts(pins: Path) -> dict[int, str]:
    return source_texts(load_generation(pins, "sample"))


def source_texts(generation: Generation) -> dict[int, str]:
    """Return the text of every row of a source of one file, by its number."""
    found = {}
    for spec in generation.plan:
        for rows in read_rows(generation.source, spec):
            for position, begin, end in zip(rows.positions.tolist(), rows.cuts[:-1], rows.cuts[1:], strict=True):
                found[position] = rows.text[begin:end].tobytes().decode()
    return found


def require_text(shown: ShownWindow, texts: dict[int, str], mix: PackedMix) -> None:
    """Check that each segment is the part of its source row that it says, and is numbered as a trainer sees it."""
    for segment in shown.segments:
        inside = CUT.fullmatch(segment.text)
        text = texts[segment.source_position]
        assert inside is not None
        assert inside[2] in text
        assert text.startswith(inside[2]) or segment.document_start > 0
        assert text.endswith(inside[2]) or segment.after > 0
    numbers = np.repeat([one.number for one in shown.segments], [one.length for one in shown.segments])
    assert numbers.tolist() == mix[shown.window].segment_ids.tolist()


@pytest.mark.parametrize("split", ["train", "val"])
@pytest.mark.parametrize("name", ["sample_aligned", "sample_concatenated", "sample_interleaved", "sample_stratified"])
def test_the_text_is_that_of_the_source_rows(sample_home: Home, texts: dict[int, str], name: str, split: Any) -> None:
    mix = PackedMix.open(sample_home.root, name=name, split=split)
    for window in range(0, len(mix), max(1, len(mix) // 6)):
        require_text(show_window(sample_home, name, window, split), texts, mix)


def test_plain_codecs_have_separators_before_and_inside(plain: tuple[Generation, Home]) -> None:
    generation, home = plain
    mix, texts = PackedMix.open(home.root, name="plain"), source_texts(generation)
    segments = np.load(home.mix("plain") / SEGMENTS)
    floats, opens = (
        segments["window"][segments[name] == value] for name, value in (("inserted", 1), ("document_start", 0))
    )
    for window in (int(floats[0]), int(floats[-1]), int(opens[0])):
        shown = show_window(home, "plain", window)
        require_text(shown, texts, mix)
        said = show_text(shown).splitlines()
        starts = sum(segment.document_start == 0 for segment in shown.segments)
        floated = [segment for segment in shown.segments if segment.inserted]
        assert (said.count("[separator]"), said.count("[inserted separator]")) == (starts, len(floated))
        for one in floated:
            at = said.index(f"[goes on at its token {one.document_start:,} of {one.document_tokens:,}]")
            assert said[at - 1] == "[inserted separator]"


def segment(**changes: Any) -> ShownSegment:
    fields: dict[str, Any] = {
        "number": 0,
        "position": 0,
        "length": 6,
        "kind": "whole",
        "inserted": 0,
        "domain": "code",
        "document": "ab" * 16,
        "document_start": 0,
        "document_tokens": 6,
        "generation": "sample",
        "region": "00003",
        "index": 12,
        "source_path": "pd_mix.parquet",
        "source_position": 345,
        "cluster": 17,
        "text": "One line,\nand [separator] another.",
    }
    return ShownSegment(**(fields | changes))


def test_boundaries_are_marked_so_that_no_text_can_pass_for_one() -> None:
    shown = ShownWindow(
        mix="m",
        split="train",
        strategy="aligned",
        window=7,
        windows=8,
        sequence_length=16,
        mix_manifest_sha256="cd" * 32,
        separator_id=0,
        separator_position="end",
        segments=(
            segment(kind="tail", document_start=2048, document_tokens=2054),
            segment(number=1, position=6),
            segment(
                number=2, position=12, length=4, kind="cut", document_tokens=9, cluster=None, text="=== document 3\x1b"
            ),
        ),
    )
    assert show_text(shown) == (
        "window 7 of mix m (train, aligned): 16 tokens\n"
        f"mix manifest {'cd' * 32}\n"
        "\n"
        "=== document 0: tokens 0 to 6, code, tail\n"
        f"    sample/00003 document 12 ({'ab' * 16}), row 345 of pd_mix.parquet, cluster 17\n"
        "[goes on at its token 2,048 of 2,054]\n"
        "| One line,\n"
        "| and [separator] another.\n"
        "[separator]\n"
        "\n"
        "=== document 1: tokens 6 to 12, code, whole\n"
        f"    sample/00003 document 12 ({'ab' * 16}), row 345 of pd_mix.parquet, cluster 17\n"
        "| One line,\n"
        "| and [separator] another.\n"
        "[separator]\n"
        "\n"
        "=== document 2: tokens 12 to 16, code, cut\n"
        f"    sample/00003 document 12 ({'ab' * 16}), row 345 of pd_mix.parquet, no cluster\n"
        "| === document 3␛\n"
        "[cut here: its last 5 of 9 tokens are in no window]\n"
    )
    fenced = dataclasses.replace(shown, segments=(segment(text="````text\n# not a heading"),))
    assert show_markdown(fenced) == f"```````text\n{show_text(fenced)}```````\n"


def test_a_record_holds_the_text_as_it_was(sample_home: Home) -> None:
    shown = show_window(sample_home, MIX, 7)
    assert ShownWindow.parse(shown.to_bytes(), "shown") == shown
    assert (
        ShownWindow.parse(dataclasses.replace(shown, segments=(segment(text="\t\x1b"),)).to_bytes(), "shown")
        .segments[0]
        .text
        == "\t\x1b"
    )


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("plain, né, 日本, 😀\n", "plain, né, 日本, 😀\n"),
        ("a\tb\r\n", "a␉\tb␍\n"),
        ("\x00\x1b[31m\x7f\x9b", "␀␛[31m␡<U+009B>"),
        ("\u202egnp\u2028\u200b\ufeff", "<U+202E>gnp<U+2028><U+200B><U+FEFF>"),
        ("a\u00a0b\u3000", "a\u00a0b\u3000"),
    ],
)
def test_control_characters_are_made_visible(text: str, seen: str) -> None:
    assert visible(text) == seen


def test_what_is_not_there_is_absent(sample_home: Home, home: Home) -> None:
    with pytest.raises(Absent) as caught:
        show_window(home, MIX, 0)
    assert str(caught.value) == f"FILE_MISSING {home.mix(MIX)}: no mix is published here (see `casebits status`)"
    for window in (-1, 400):
        with pytest.raises(Absent) as caught:
            show_window(sample_home, MIX, window)
        said = "it has windows 0 to 399"
        assert str(caught.value) == f"NO_SUCH_WINDOW sample_aligned: train window {window}: {said}"
    with pytest.raises(Absent, match=r"^NO_SUCH_WINDOW sample_interleaved: val window 0: it has no window$"):
        show_window(sample_home, "sample_interleaved", 0, "val")


def _broken(path: Callable[[Home], Path]) -> Callable[[Home], None]:
    def mutate(home: Home) -> None:
        raw = bytearray(path(home).read_bytes())
        raw[len(raw) // 2] ^= 1
        path(home).write_bytes(raw)

    return mutate


def _short(home: Home) -> None:
    segments = np.load(home.mix(MIX) / SEGMENTS)
    segments["length"][np.searchsorted(segments["window"], 7)] -= 1
    np.save(home.mix(MIX) / SEGMENTS, segments)
    seal(home.mix(MIX))


@pytest.mark.parametrize(
    ("mutate", "code", "where"),
    [
        (_broken(lambda home: home.mix(MIX) / "train_000000.ids.u16le"), "FILE_HASH", "train_000000.ids.u16le"),
        (_broken(lambda home: home.mix(MIX) / SEGMENTS), "FILE_HASH", SEGMENTS),
        (
            _broken(lambda home: home.generation("sample").region(13) / DOCUMENTS),
            "FILE_HASH",
            f"sample/00013/{DOCUMENTS}",
        ),
        (
            _broken(lambda home: home.generation("sample").codec / "vocabulary.json"),
            "VOCAB_MISMATCH",
            "sample/codec/vocabulary.json",
        ),
        (_short, "MIX_SEGMENTS", "segments.npy: window 7"),
    ],
    ids=["shard", "segments", "region", "vocabulary", "sum of segments"],
)
def test_nothing_is_shown_that_does_not_hash(
    tampered: Home, mutate: Callable[[Home], None], code: str, where: str
) -> None:
    mutate(tampered)
    with pytest.raises(CasebitsError) as caught:
        show_window(tampered, MIX, 7)
    assert (caught.value.code, caught.value.where) == (code, where)
    assert isinstance(caught.value, Refused) == (code != "MIX_SEGMENTS")


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_verb_writes_text_or_the_record(sample_home: Home, capsysbinary: Any, form: str) -> None:
    options = argparse.Namespace(home=sample_home.root, mix=MIX, window=3, split="val", format=form)
    shown = show_window(sample_home, MIX, 3, "val")
    assert show(options) == OK
    assert capsysbinary.readouterr().out == (shown.to_bytes() if form == "json" else show_text(shown).encode())
