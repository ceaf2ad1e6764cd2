"""A region's files: the published reading recipe works as it stands, reruns adopt, shapes are checked."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from casebits_dagster.codec.bytetable import ByteTable
from casebits_dagster.codec.decode import Codec
from casebits_dagster.codec.mixture import Mixture
from casebits_dagster.filters.region import filter_region
from casebits_dagster.records.canonical import parse
from casebits_dagster.records.errors import Absent, CasebitsError, RecordError
from casebits_dagster.records.layout import CASES, IDS, OFFSETS, RAW_BYTES, RECEIPT, GenerationFolder, Home
from casebits_dagster.records.pins import Generation, load_generation
from casebits_dagster.records.region import Receipt
from casebits_dagster.regions import encode as encode_stage
from casebits_dagster.regions.encode import encode_region
from casebits_dagster.regions.index import INDEX_DTYPE, NO_LETTERS, cached_index, index_region
from casebits_dagster.regions.read import Region


@pytest.fixture(scope="module")
def generation(pins: Path) -> Generation:
    return load_generation(pins, "sample")


@pytest.fixture(scope="module")
def encoded(generation: Generation, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home with regions 8 (empty) and 10, filtered and encoded."""
    home = Home(tmp_path_factory.mktemp("encoded"))
    for index in (8, 10):
        filter_region(generation, index, home)
        assert encode_region(generation, index, home).published
    return home


def test_text_comes_back_from_every_document(generation: Generation, encoded: Home) -> None:
    folder = encoded.generation("sample")
    region, codec = Region.open(folder.region(10)), Codec.load(generation.codec_folder)
    with pa.memory_map(str(folder.kept_text(10))) as source:
        kept = pa.ipc.open_file(source).read_all()["text"].to_pylist()
    assert [codec.decode(*region.tokens(k)) for k in range(len(region))] == kept
    assert [region.document(k, codec).encode() for k in range(len(region))] == kept
    for line, text in zip(region.documents(), kept, strict=True):
        assert line["id"] == hashlib.sha256(text).hexdigest()[:32]
    assert region.raw_bytes.tolist() == [len(text) for text in kept]


def test_documents_jsonl_is_canonical_line_by_line(encoded: Home) -> None:
    region = Region.open(encoded.generation("sample").region(10))
    byte_offset = 0
    for number, raw in enumerate((region.folder / "documents.jsonl").read_bytes().splitlines(keepends=True)):
        line = parse(raw, "documents.jsonl")
        assert isinstance(line, dict)
        assert (line["index"], line["byte_offset"]) == (number, byte_offset)
        assert line["token_offset"] == int(region.offsets[number])
        byte_offset += int(region.raw_bytes[number])


@pytest.mark.parametrize("index", [8, 10])
def test_the_receipt_lists_what_lies_there(encoded: Home, index: int) -> None:
    folder = encoded.generation("sample").region(index)
    receipt = Receipt.parse((folder / RECEIPT).read_bytes(), RECEIPT)
    assert receipt.content_id == receipt.expected_content_id()
    for file in receipt.files:
        raw = (folder / file.name).read_bytes()
        assert (file.bytes, file.sha256) == (len(raw), hashlib.sha256(raw).hexdigest())
        assert file.items * {"<u2": 2, "<u8": 8, "jsonl": 0}[file.dtype] in (len(raw), 0)
    counts = receipt.counts
    assert counts.rows_read == counts.documents + sum(counts.dropped.values()) + sum(counts.quarantined.values())
    assert counts.documents == counts.train_documents + counts.validation_documents


def test_the_empty_region_is_files_of_no_items(encoded: Home) -> None:
    folder = encoded.generation("sample").region(8)
    sizes = {name: (folder / name).stat().st_size for name in (IDS, CASES, OFFSETS, RAW_BYTES, "documents.jsonl")}
    assert sizes == {IDS: 0, CASES: 0, OFFSETS: 8, RAW_BYTES: 0, "documents.jsonl": 0}
    region = Region.open(folder)
    assert (len(region), len(region.ids), region.offsets.tolist(), region.documents()) == (0, 0, [0], [])
    with pytest.raises(Absent, match=r"NO_SUCH_DOCUMENT .*: document 0: the region has 0 documents"):
        region.tokens(0)


def test_a_rerun_adopts_equal_bytes(generation: Generation, encoded: Home, tmp_path: Path) -> None:
    home = Home(tmp_path / "copy")
    shutil.copytree(encoded.root, home.root)
    assert encode_region(generation, 10, home).published is False
    assert [path.name for path in home.staging.iterdir()] == []


def test_bytes_do_not_depend_on_the_block_size(
    generation: Generation, encoded: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encode_stage, "BLOCK_BYTES", 1)
    home = Home(tmp_path / "small")
    filter_region(generation, 10, home)
    result = encode_region(generation, 10, home)
    want = (encoded.generation("sample").region(10) / RECEIPT).read_bytes()
    assert (result.folder / RECEIPT).read_bytes() == want


def test_encoding_before_filtering_says_what_to_do(generation: Generation, home: Home) -> None:
    with pytest.raises(Absent, match=r"not filtered yet \(materialise filtered_documents first\)"):
        encode_region(generation, 3, home)


def test_shapes_that_disagree_are_refused(encoded: Home, tmp_path: Path) -> None:
    source = encoded.generation("sample").region(10)

    def broken(name: str, cut: int) -> Path:
        folder = tmp_path / f"{name}.{cut}"
        shutil.copytree(source, folder)
        (folder / name).write_bytes((folder / name).read_bytes()[:cut])
        return folder

    with pytest.raises(RecordError, match=r"FILE_SIZE .*case.u16le: expected 101937, read 101936"):
        Region.open(broken(CASES, -2))
    with pytest.raises(RecordError, match=r"FILE_SIZE .*offsets.u64le: expected 69, read 70"):
        Region.open(broken(RAW_BYTES, -8))
    both = broken(IDS, -2)
    (both / CASES).write_bytes((both / CASES).read_bytes()[:-2])
    with pytest.raises(RecordError, match=r"FILE_SIZE .*ids.u16le: expected 101937, read 101936"):
        Region.open(both)
    (both / IDS).unlink()
    with pytest.raises(Absent, match=r"FILE_MISSING .*ids.u16le"):
        Region.open(both)
    with pytest.raises(Absent, match="no region is published here"):
        Region.open(tmp_path / "nowhere")


def test_index_rows_speak_of_the_documents(generation: Generation, encoded: Home) -> None:
    region = Region.open(encoded.generation("sample").region(10))
    mixture = Mixture.load(generation.codec_folder / "mixture.npz", Codec.load(generation.codec_folder).table)
    rows, lines = index_region(region, mixture), region.documents()
    assert rows.dtype == INDEX_DTYPE
    assert [row.tobytes().hex() for row in rows["id"]] == [line["id"] for line in lines]
    assert rows["cluster"].tolist() == [line["cluster"] for line in lines]
    assert rows["split"].tolist() == [["train", "validation"].index(line["split"]) for line in lines]
    assert int(rows["tokens"].sum()) == len(region.ids)
    assert set(rows["case_class"].tolist()) <= set(range(NO_LETTERS + 1))
    assert len(index_region(Region.open(encoded.generation("sample").region(8)), mixture)) == 0


def test_an_index_that_rotted_or_is_of_another_region_is_remade(
    generation: Generation, encoded: Home, tmp_path: Path
) -> None:
    home = Home(tmp_path / "copy")
    shutil.copytree(encoded.root, home.root)
    folder = home.generation("sample")
    shutil.copytree(generation.codec_folder, folder.codec)
    table: ByteTable = Codec.load(folder.codec).table
    region = Region.open(folder.region(10))
    first = cached_index(folder, 10, region, table)
    path, stamp = folder.index(10), folder.index(10).with_suffix(".stamp")
    rows, mark = path.read_bytes(), stamp.read_bytes()
    flipped = bytes([*rows[:200], rows[200] ^ 1, *rows[201:]])
    for broken, beside in ((flipped, mark), (rows[:-1], mark), (b"", mark), (rows, b"\xff"), (rows, b"")):
        path.write_bytes(broken)
        stamp.write_bytes(beside)
        assert cached_index(folder, 10, region, table).tobytes() == first.tobytes()
        assert (path.read_bytes(), stamp.read_bytes()) == (rows, mark)
    assert region.receipt.content_id in mark.decode()
    assert sorted(file.name for file in path.parent.iterdir()) == [".staging", "00010.npy", "00010.stamp"]
    assert list((path.parent / ".staging").iterdir()) == []


def test_an_index_that_cannot_be_kept_is_made_all_the_same(
    generation: Generation, encoded: Home, tmp_path: Path
) -> None:
    folder = encoded.generation("sample")
    (tmp_path / "index").write_text("a file where the folder of the cache would be")
    region, table = Region.open(folder.region(10)), Codec.load(generation.codec_folder).table
    (tmp_path / "codec").symlink_to(generation.codec_folder)
    assert len(cached_index(GenerationFolder(tmp_path), 10, region, table)) == len(region)


def test_verdicts_of_a_published_region_are_never_replaced_by_others(
    generation: Generation, encoded: Home, tmp_path: Path
) -> None:
    home = Home(tmp_path / "copy")
    shutil.copytree(encoded.root, home.root)
    folder = home.generation("sample")
    before = {path.name: path.read_bytes() for path in folder.verdicts(10).parent.iterdir()}
    rules = tuple(
        dataclasses.replace(rule, at_least=Decimal(900)) if rule.reason == "too_short" else rule
        for rule in generation.policy.rules
    )
    stricter = dataclasses.replace(generation, policy=dataclasses.replace(generation.policy, rules=rules))
    with pytest.raises(CasebitsError, match=r"NONDETERMINISTIC_REGION .*a change of pins is a new generation"):
        filter_region(stricter, 10, home)
    assert {path.name: path.read_bytes() for path in folder.verdicts(10).parent.iterdir()} == before
