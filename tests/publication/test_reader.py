"""Documents of a frontier by number: exact text, the same in any order, and nothing that is not proven."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from casebits_dagster.codec.decode import Codec
from casebits_dagster.codec.train import train_vocabulary
from casebits_dagster.publication.consume import Frontier, open_frontier
from casebits_dagster.publication.reader import Document, Documents, OutOfRange, Split, UnverifiedRegion, open_region
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.errors import Absent, Refused
from casebits_dagster.records.frontier import Manifest
from casebits_dagster.records.layout import IDS, RECEIPT, GenerationFolder, Home
from casebits_dagster.records.region import Receipt
from casebits_dagster.regions.read import Region
from tests.admission.test_plain import published
from tests.faults.plain import Side, make_plain

SPLITS: tuple[Split | None, ...] = (None, "train", "validation")


@pytest.fixture(scope="module")
def frontier(sample_home: Home) -> Frontier:
    return open_frontier(sample_home.root, "sample")


@pytest.fixture
def copy(sample_home: Home, tmp_path: Path) -> GenerationFolder:
    """A copy of the sample generation without the cached index, to be tampered with."""
    folder = GenerationFolder(tmp_path / "sample")
    shutil.copytree(sample_home.generation("sample").root, folder.root, ignore=shutil.ignore_patterns("index"))
    return folder


def flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(bytes(raw))


def told(document: Document) -> dict[str, Any]:
    """Return all that a document is, to be compared."""
    names = ("generation", "region", "index", "id", "split", "cluster", "tokens", "text")
    arrays = {"ids": document.ids.tolist(), "cases": document.cases.tolist()}
    return {name: getattr(document, name) for name in names} | arrays


def test_every_document_is_what_its_region_holds_and_its_text_is_exact(frontier: Frontier) -> None:
    found = list(Documents(frontier))
    want = []
    for number in range(frontier.manifest.count):
        region = frontier.region(number)
        for line in region.documents():
            ids, cases = (array.tolist() for array in region.tokens(line["index"]))
            place = {name: line[name] for name in ("index", "id", "split", "cluster")}
            want.append({"generation": "sample", "region": number, **place, "ids": ids, "cases": cases})
    read = [told(document) for document in found]
    assert [{name: item[name] for name in want[0]} for item in read] == want
    assert [sha256(item["text"].encode())[:32] for item in read] == [item["id"] for item in read]
    assert [item["tokens"] for item in read] == [len(item["ids"]) for item in read]
    assert {(document.ids.dtype.str, document.cases.dtype.str) for document in found} == {("<u2", "<u2")}


@pytest.mark.parametrize("split", SPLITS)
def test_a_split_has_its_documents_in_order(frontier: Frontier, split: Split | None) -> None:
    documents = Documents(frontier, split=split)
    want = [document.id for document in Documents(frontier) if split in (None, document.split)]
    assert [document.id for document in documents] == want
    assert [documents[number].id for number in range(len(documents))] == want
    assert [documents[number - len(documents)].id for number in range(len(documents))] == want


def test_the_splits_are_all_there_is(frontier: Frontier) -> None:
    assert [len(Documents(frontier, split=split)) for split in SPLITS] == [933, 898, 35]
    assert repr(Documents(frontier, split="train")) == "<898 train documents of sample, all regions>"


@pytest.fixture(scope="module")
def places(frontier: Frontier) -> list[tuple[int, int, Split]]:
    """Region, index and split of every document, in order."""
    return [(document.region, document.index, document.split) for document in Documents(frontier)]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(split=st.sampled_from(SPLITS), region=st.none() | st.integers(0, 13), draw=st.data())
def test_any_number_is_the_document_at_that_place(
    frontier: Frontier,
    places: list[tuple[int, int, Split]],
    split: Split | None,
    region: int | None,
    draw: st.DataObject,
) -> None:
    documents = Documents(frontier, split=split, region=region)
    want = [place for place in places if region in (None, place[0]) and split in (None, place[2])]
    assert len(documents) == len(want)
    if want:
        number = draw.draw(st.integers(-len(want), len(want) - 1))
        found = documents[np.int64(number)]
        assert (found.region, found.index, found.split) == want[number]


def test_a_region_alone(frontier: Frontier) -> None:
    counts = [len(Documents(frontier, region=number)) for number in range(14)]
    assert counts == [entry.documents for entry in frontier.manifest.regions]
    empty = Documents(frontier, region=8)
    assert (len(empty), list(empty), repr(empty)) == (0, [], "<0 train and validation documents of sample, region 8>")
    assert Documents(frontier).arrays(3) is frontier.region(3)


def test_beyond_the_last_document_is_an_index_error(frontier: Frontier) -> None:
    documents = Documents(frontier, split="validation")
    for number in (35, -36):
        with pytest.raises(OutOfRange) as caught:
            documents[number]
        assert str(caught.value) == f"NO_SUCH_DOCUMENT sample: document {number}: there are 35"
        assert issubclass(OutOfRange, IndexError)


def test_what_cannot_be_asked_for(frontier: Frontier) -> None:
    with pytest.raises(Absent) as caught:
        Documents(frontier, split="test")  # type: ignore[arg-type]
    assert str(caught.value) == "NO_SUCH_SPLIT documents: split: expected train, validation or None, read test"
    with pytest.raises(Absent) as caught:
        Documents(frontier, region=14)
    assert str(caught.value) == "REGION_MISSING regions/00014: the frontier holds regions 0 to 13"


def test_a_pass_holds_one_region_and_random_access_a_few(frontier: Frontier) -> None:
    documents = Documents(frontier)
    list(documents)
    assert documents._rows.cache_info().currsize == 0
    for number in range(len(documents)):
        documents[number]
    info = documents._rows.cache_info()
    assert (info.currsize, info.maxsize, info.misses) == (13, 16, 13)


def test_a_document_needs_no_region_but_its_own(copy: GenerationFolder) -> None:
    flip(copy.region(5) / RECEIPT)
    flip(copy.region(3) / IDS)
    documents = Documents(open_frontier(copy.root), split="train")
    first = documents[0]
    assert sha256(first.text.encode())[:32] == first.id
    with pytest.raises(Refused, match=r"^FILE_HASH regions/00005/receipt.json: expected sha256"):
        documents[-1]
    alone = Documents(open_frontier(copy.root), region=3)
    with pytest.raises(Refused, match=rf"^FILE_HASH regions/00003/{IDS}: expected sha256"):
        alone[0]
    with pytest.raises(Refused, match=rf"^FILE_HASH regions/00003/{IDS}: expected sha256"):
        list(alone)


@dataclass
class Lying:
    """A frontier that says otherwise of its totals, or hands out other rows."""

    true: Frontier
    manifest: Manifest
    changed: Callable[[NDArray[np.void]], NDArray[np.void]]

    @property
    def codec(self) -> Codec:
        return self.true.codec

    def receipt(self, index: int) -> Receipt:
        return self.true.receipt(index)

    def rows(self, index: int) -> NDArray[np.void]:
        return self.changed(self.true.rows(index))

    def region(self, index: int) -> Region:
        return self.true.region(index)


def test_totals_that_the_regions_do_not_have_are_refused(frontier: Frontier) -> None:
    splits = frontier.manifest.splits
    more = replace(splits, train=replace(splits.train, documents=splits.train.documents + 1))
    lying = Lying(frontier, replace(frontier.manifest, splits=more), lambda rows: rows)
    documents = Documents(lying, split="train")
    for read in (lambda: list(documents), lambda: documents[-1]):
        with pytest.raises(Refused) as caught:
            read()
        want = "COUNT_MISMATCH manifest 1: splits: expected 898 documents, read 899"
        assert str(caught.value) == want


def test_a_region_of_other_counts_is_refused(frontier: Frontier) -> None:
    expected = frontier.receipt(0).counts.validation_documents
    documents = Documents(Lying(frontier, frontier.manifest, lambda rows: rows[:0]), split="validation", region=0)
    for read in (lambda: list(documents), lambda: documents[0]):
        with pytest.raises(Refused) as caught:
            read()
        where = "regions/00000/receipt.json: counts"
        want = f"COUNT_MISMATCH {where}: validation documents, expected {expected}, read 0"
        assert str(caught.value) == want


@pytest.mark.parametrize("at", ["start", "end"])
def test_documents_of_a_plain_codec(tmp_path: Path, pins: Path, at: Side) -> None:
    trained = train_vocabulary(["a few words, and few words more"] * 40, 300, None)
    generation, home, _ = make_plain(tmp_path, pins, at, trained)
    documents = Documents(published(generation, home))
    found = list(documents)
    assert [sha256(document.text.encode())[:32] for document in found] == [document.id for document in found]
    separators = {(int(document.ids[0]), int(document.ids[-1])).index(0) for document in found}
    assert separators == {0 if at == "start" else 1}
    assert (len(found) > 0, {int(document.cases.max()) for document in found}) == (True, {0})


def test_a_folder_is_opened_when_it_proves(copy: GenerationFolder) -> None:
    folder = copy.region(1)
    region = open_region(folder)
    assert (type(region), len(region)) == (Region, Receipt.parse((folder / RECEIPT).read_bytes(), "r").counts.documents)
    flip(folder / IDS)
    with pytest.raises(Refused, match=rf"^FILE_HASH 00001/{IDS}: expected sha256"):
        open_region(folder)


def test_what_nothing_proves_is_read_only_by_its_name(copy: GenerationFolder) -> None:
    folder = copy.region(1)
    flip(folder / IDS)
    with pytest.raises(TypeError):
        open_region(folder, True)  # type: ignore[call-arg]
    region = open_region(folder, unverified=True)
    assert type(region) is UnverifiedRegion
    assert repr(region) == f"<UNVERIFIED region {folder}: nothing proves these bytes>"
    assert len(region.ids) == Receipt.parse((folder / RECEIPT).read_bytes(), "r").counts.tokens
