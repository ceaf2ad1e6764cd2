"""Audits of plain mixes: one stream, a separator at the start of every document, the source's own ids."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from casebits_dagster.lineage.audit import audit_window
from casebits_dagster.lineage.render import audit_markdown, audit_text
from casebits_dagster.records.layout import ARRAY_NAMES, Home
from casebits_dagster.records.mix import SEGMENTS, TABLE
from casebits_dagster.records.pins import Generation
from casebits_dagster.records.vocabulary import GPT2_SEPARATOR
from tests.admission.reading import spelling

NAMES = ARRAY_NAMES["plain-1"]


@pytest.fixture
def tampered(plain: tuple[Generation, Home], home: Home) -> Home:
    shutil.copytree(plain[1].root, home.root)
    return home


def tables(home: Home, mix: str = "plain") -> tuple[Any, Any]:
    return np.load(home.mix(mix) / SEGMENTS), np.load(home.mix(mix) / TABLE)


def first(home: Home, field: str, value: int) -> Any:
    """Return the first segment with this value."""
    segments, _ = tables(home)
    return segments[np.flatnonzero(segments[field] == value)[0]]


@pytest.mark.parametrize("mix", ["plain", "plain_control"])
def test_windows_of_a_plain_mix_are_proven_down_to_the_ids_of_their_rows(
    plain: tuple[Generation, Home], mix: str
) -> None:
    generation, home = plain
    for window in (0, 15, 16, int(first(home, "inserted", 1)["window"])):
        audit = audit_window(home, mix, window, generations={"kept": generation}, recompute="all")
        assert (audit.failures, audit.proven) == ((), True)
        assert sum(segment.length for segment in audit.segments) == 512
        links = [one.link for one in audit.evidence]
        assert links.count("ids of the source row") == links.count("separator of the document") == len(audit.documents)
        # One stream: no masks are compared.
        assert [one.where.rpartition(", ")[2] for one in audit.evidence if one.link == "tokens of the segment"] == [
            "ids"
        ] * len(audit.segments)


def test_an_inserted_separator_is_told(plain: tuple[Generation, Home]) -> None:
    row = first(plain[1], "inserted", 1)
    window = int(row["window"])
    audit = audit_window(plain[1], "plain", window)
    told = audit.segments[[segment.position for segment in audit.segments].index(row["position"])]
    assert (told.kind, told.inserted) == ("floated_tail", 1)
    assert audit_text(audit).splitlines()[0] == f"window {window} of mix plain (aligned): proven."
    assert f"| {told.position} | {told.length} | floated_tail | 1 | `{told.document}` |" in audit_markdown(audit)


def _shard(home: Home, window: int) -> tuple[Path, int]:
    """Return the shard of a window, and the place of its first token."""
    return home.mix("plain") / f"train_{window // 16:06d}.bin", window % 16 * 512


def _change(path: Path, change: Callable[[Any], object]) -> None:
    ids = np.fromfile(path, "<u2")
    change(ids)
    ids.tofile(path)


def other_token(home: Home) -> int:
    path, begin = _shard(home, 20)
    _change(path, lambda ids: ids.__setitem__(begin + 3, ids[begin + 3] ^ 1))
    return 20


def other_inserted_separator(home: Home) -> int:
    row = first(home, "inserted", 1)
    path, begin = _shard(home, int(row["window"]))
    _change(path, lambda ids: ids.__setitem__(begin + int(row["position"]), 0))
    return int(row["window"])


def beginning(home: Home, change: Callable[[Any], object]) -> int:
    """Change the ids of the beginning of a document in its region and in its window; return the window."""
    row, documents = first(home, "document_start", 0), tables(home)[1]
    document = documents[row["document"]]
    folder = home.generation("kept").region(int(document["region"]))
    begin = int(np.fromfile(folder / NAMES.offsets, "<u8")[document["index"]])
    end = begin + int(row["length"])
    ids = np.fromfile(folder / NAMES.ids, "<u2")
    change(ids[begin:end])
    ids.tofile(folder / NAMES.ids)
    path, place = _shard(home, int(row["window"]))
    place += int(row["position"])
    _change(path, lambda found: found.__setitem__(slice(place, place + end - begin), ids[begin:end]))
    return int(row["window"])


def separator_moved(home: Home) -> int:
    """The text stays what it was: a separator spells nothing."""

    def change(ids: Any) -> None:
        assert ids[0] == GPT2_SEPARATOR
        ids[:2] = ids[1], ids[0]

    return beginning(home, change)


def text_spelled_by_other_ids(home: Home) -> int:
    """Cut the letters of two neighbours in another place: `the` `re` for `there`, and so on."""
    spelled = spelling()
    known = {text: number for number, text in enumerate(spelled)}

    def change(ids: Any) -> None:
        for at in range(1, len(ids) - 1):
            both = spelled[ids[at]] + spelled[ids[at + 1]]
            for cut in range(1, len(both)):
                pair = known.get(both[:cut]), known.get(both[cut:])
                if None not in pair and pair != (ids[at], ids[at + 1]):
                    ids[at : at + 2] = pair
                    return
        raise AssertionError("no two neighbours can be cut in another place")

    return beginning(home, change)


FAULTS: dict[str, tuple[Callable[[Home], int], set[str]]] = {
    "a token of the shard": (other_token, {"tokens of the segment"}),
    "an inserted separator": (other_inserted_separator, {"tokens of the segment"}),
    "a separator moved in region and shard": (separator_moved, {"separator of the document", "ids of the source row"}),
    "the same text by other ids, in region and shard": (text_spelled_by_other_ids, {"ids of the source row"}),
}


@pytest.mark.parametrize("name", FAULTS)
def test_tampering_with_a_plain_mix_fails_at_its_links(
    plain: tuple[Generation, Home], tampered: Home, name: str
) -> None:
    fault, links = FAULTS[name]
    audit = audit_window(tampered, "plain", fault(tampered), generations={"kept": plain[0]})
    assert (audit.proven, {failure.link for failure in audit.failures}) == (False, links)
