"""Exports hold the tokens of the mix, and the real library of each format reads them."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import pickle
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from casebits_dagster.codec.bytetable import ByteTable
from casebits_dagster.codec.decode import Codec
from casebits_dagster.mixing.build import build_mix
from casebits_dagster.publication.open_mix import open_mix
from casebits_dagster.records.digests import sha256, sha256_file
from casebits_dagster.records.errors import Absent, CasebitsError, RecordError, Refused
from casebits_dagster.records.layout import Home
from casebits_dagster.records.mix import SEGMENTS, TABLE
from casebits_dagster.records.recipe import Aligned
from casebits_dagster.training import PackedMix, exports
from casebits_dagster.training.exports import LAYOUTS, RECORD, Export, Format, Layout, export_mix
from tests.mixing.corpus import TinySource, corpus, recipe
from tests.mixing.plain_corpus import plain_corpus

SAMPLES = ("sample_aligned", "sample_concatenated", "sample_interleaved")
EVERY = [(form, layout) for form, layouts in LAYOUTS.items() for layout in layouts]


@pytest.fixture(scope="module")
def table(sample_home: Home) -> ByteTable:
    return Codec.load(sample_home.generation("sample").codec).table


def write(home: Home, folder: Path, form: Format, layout: Layout | None = None, mix: str = SAMPLES[0]) -> Export:
    table = Codec.load(home.generation("sample").codec).table if form == "datasets" else None
    return export_mix(open_mix(home.root, mix), folder, form, layout, table)


def flat(path: Path) -> NDArray[np.uint16]:
    """What nanoGPT does: `np.memmap(os.path.join(data_dir, "train.bin"), dtype=np.uint16, mode="r")`."""
    return np.memmap(path, dtype=np.uint16, mode="r")


def parsed_index(path: Path) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
    """Read an `.idx` by its documented layout: lengths int32 and byte offsets int64 of the sequences, and document
    cuts int64, behind magic, version, dtype code and the two counts."""
    raw = path.read_bytes()
    magic, version, code, sequences, documents = struct.unpack_from("<9sQBQQ", raw)
    assert (magic, version, code) == (b"MMIDIDX\0\0", 1, 8)
    at = struct.calcsize("<9sQBQQ")
    lengths = np.frombuffer(raw, "<i4", sequences, at)
    pointers = np.frombuffer(raw, "<i8", sequences, at + lengths.nbytes)
    cuts = np.frombuffer(raw, "<i8", documents, at + lengths.nbytes + pointers.nbytes)
    assert at + lengths.nbytes + pointers.nbytes + cuts.nbytes == len(raw)
    return lengths, pointers, cuts


@pytest.mark.parametrize("mix", SAMPLES)
def test_a_flat_file_has_the_windows_of_the_mix_where_they_were(sample_home: Home, tmp_path: Path, mix: str) -> None:
    write(sample_home, tmp_path / "out", "nanogpt", mix=mix)
    for split in ("train", "val") if (tmp_path / "out" / "val.bin").exists() else ("train",):
        packed = PackedMix.open(sample_home.root, name=mix, split=split, last_target="flat")
        windows, length = packed.batch(np.arange(len(packed))), packed.sequence_length
        ids, masks = flat(tmp_path / "out" / f"{split}.bin"), flat(tmp_path / "out" / f"{split}_cases.bin")
        assert (len(ids), len(masks)) == (packed.files.file_tokens, packed.files.file_tokens)
        np.testing.assert_array_equal(ids[: len(packed) * length], windows.ids.reshape(-1))
        np.testing.assert_array_equal(ids[1 : len(packed) * length + 1], windows.targets.reshape(-1))
        np.testing.assert_array_equal(masks[: len(packed) * length], np.asarray(windows.cases).reshape(-1))


def test_a_split_without_windows_is_not_written(sample_home: Home, tmp_path: Path) -> None:
    done = write(sample_home, tmp_path / "out", "nanogpt", mix="sample_interleaved")
    assert [split.split for split in done.splits] == ["train"]
    assert sorted(os.listdir(tmp_path / "out")) == [RECORD, "meta.pkl", "train.bin", "train_cases.bin"]


@pytest.mark.parametrize(("form", "layout"), EVERY)
def test_the_record_says_what_is_there(sample_home: Home, tmp_path: Path, form: Format, layout: Layout) -> None:
    done, folder = write(sample_home, tmp_path / "out", form, layout), tmp_path / "out"
    assert Export.parse((folder / RECORD).read_bytes(), RECORD) == done
    files = [(file.name, file.bytes, file.sha256) for file in done.files]
    found = [path for path in sorted(folder.iterdir()) if path.name != RECORD]
    assert files == [(path.name, path.stat().st_size, sha256_file(path)) for path in found]
    assert (done.format, done.layout, done.mix) == (form, layout, "sample_aligned")
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("mix", SAMPLES)
def test_formats_of_one_layout_hold_the_same_tokens(sample_home: Home, tmp_path: Path, mix: str) -> None:
    done = {pair: write(sample_home, tmp_path / "-".join(pair), *pair, mix) for pair in EVERY}
    for layout in ("windows", "documents"):
        assert len({done[pair].splits for pair in EVERY if pair[1] == layout}) == 1
    # A concatenation has its documents in one piece already.
    same = {export.splits[0].ids_sha256 for export in done.values()}
    assert len(same) == (1 if mix != "sample_aligned" else 2)


def test_documents_have_the_texts_that_their_ids_hash(sample_home: Home, tmp_path: Path, table: ByteTable) -> None:
    done = write(sample_home, tmp_path / "out", "datasets")
    rows = pq.read_table(tmp_path / "out" / "train.parquet").to_pylist()
    assert [row["id"] for row in rows] == [sha256(row["text"].encode())[:32] for row in rows]
    assert {row["whole"] for row in rows} == {True}
    assert {row["domain"] for row in rows} == {"literature", "reference", "code", "speech", "games"}
    ids = np.concatenate([np.array(row["ids"], "<u2") for row in rows])
    masks = np.concatenate([np.array(row["masks"], "<u2") for row in rows])
    (train, _) = done.splits
    assert (sha256(ids.tobytes()), sha256(masks.tobytes())) == (train.ids_sha256, train.cases_sha256)
    assert (len(ids), len(rows)) == (train.tokens, train.sequences) == (819_200, 651)


def test_documents_come_in_the_order_in_which_the_mix_first_shows_them(sample_home: Home, tmp_path: Path) -> None:
    write(sample_home, tmp_path / "out", "datasets")
    folder = sample_home.mix("sample_aligned")
    shown = list(dict.fromkeys(np.load(folder / SEGMENTS)["document"].tolist()))
    ids = [value.hex() for value in np.load(folder / TABLE)["id"].tolist()]
    assert pq.read_table(tmp_path / "out" / "train.parquet")["id"].to_pylist() == [ids[row] for row in shown]


def test_a_document_that_was_cut_says_so_and_has_the_text_up_to_there(sample_home: Home, tmp_path: Path) -> None:
    write(sample_home, tmp_path / "out", "datasets")
    rows = pq.read_table(tmp_path / "out" / "val.parquet").to_pylist()
    assert [row["whole"] for row in rows] == [True] * 24 + [False]
    cut = rows[-1]
    arrays = open_frontier_region(sample_home, cut["region"])
    whole = arrays.document(cut["index"], Codec.load(sample_home.generation("sample").codec))
    assert (sha256(whole.encode())[:32], whole.startswith(cut["text"])) == (cut["id"], True)
    assert 0 < len(cut["text"]) < len(whole)


def open_frontier_region(home: Home, number: int) -> Any:
    from casebits_dagster.publication.consume import open_frontier

    return open_frontier(home.root, "sample").region(number)


def test_text_that_ends_inside_a_character_keeps_what_is_before() -> None:
    text = np.frombuffer("aé".encode() + "bü".encode()[:2], np.uint8)
    assert exports._texts(text, np.array([0, 3, 5]), whole=False).to_pylist() == ["aé", "b"]


def test_row_groups_are_bounded_and_change_nothing(
    sample_home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(sample_home, tmp_path / "one", "datasets")
    monkeypatch.setattr(exports, "_BATCH_TOKENS", 8192)
    write(sample_home, tmp_path / "many", "datasets")
    one, many = (pq.ParquetFile(tmp_path / name / "train.parquet") for name in ("one", "many"))
    assert (one.num_row_groups, many.num_row_groups > 1, many.read() == one.read()) == (1, True, True)
    groups = [many.read_row_group(number, ["ids"])["ids"] for number in range(many.num_row_groups)]
    assert [len(ids) for ids in groups if len(ids) > 1 and len(ids.combine_chunks().flatten()) > 8192] == []


@pytest.mark.parametrize("layout", ["documents", "windows"])
def test_an_index_of_megatron_has_a_sequence_for_every_document(
    sample_home: Home, tmp_path: Path, layout: Layout
) -> None:
    done = write(sample_home, tmp_path / "out", "megatron", layout)
    for split in done.splits:
        lengths, pointers, cuts = parsed_index(tmp_path / "out" / f"{split.split}.idx")
        assert (int(lengths.sum()), len(lengths)) == (split.tokens, split.sequences)
        np.testing.assert_array_equal(pointers, 2 * (np.cumsum(lengths.astype(np.int64)) - lengths))
        np.testing.assert_array_equal(cuts, np.arange(split.sequences + 1))
        masks = (tmp_path / "out" / f"{split.split}_cases.idx").read_bytes()
        assert masks == (tmp_path / "out" / f"{split.split}.idx").read_bytes()
        if layout == "documents":
            ids, ends = flat(tmp_path / "out" / f"{split.split}.bin"), np.cumsum(lengths.astype(np.int64)) - 1
            whole = slice(None) if split.split == "train" else slice(-1)
            assert set(ids[ends[whole]].tolist()) == {0}
            assert np.count_nonzero(ids == 0) == len(ends[whole])


def test_meta_is_what_nanogpt_takes(sample_home: Home, tmp_path: Path, table: ByteTable) -> None:
    mix = open_mix(sample_home.root, "sample_aligned")
    export_mix(mix, tmp_path / "spelled", "nanogpt", table=table)
    export_mix(mix, tmp_path / "bare", "nanogpt")
    meta, bare = (pickle.loads((tmp_path / name / "meta.pkl").read_bytes()) for name in ("spelled", "bare"))
    assert bare == {"vocab_size": 8192}
    text = "the end\n"
    assert (meta["vocab_size"], len(meta["itos"]), meta["itos"][0]) == (8192, 8192, "")
    assert "".join(meta["itos"][meta["stoi"][character]] for character in text) == text
    assert int(flat(tmp_path / "bare" / "train.bin").max()) < meta["vocab_size"]


@pytest.fixture(scope="module", params=["casebits", "plain"])
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Home, TinySource]:
    """An aligned mix in four shards whose tails float: of a plain codec with separators that were inserted."""
    home = Home(tmp_path_factory.mktemp(request.param) / "home")
    source = corpus(home) if request.param == "casebits" else plain_corpus(home)
    build_mix(recipe(windows=60, windows_per_shard=16, aligned=Aligned(tails="float")), {"tiny": source}, home)
    return home, source


def test_documents_are_the_slices_of_their_source_without_inserted_separators(
    tiny: tuple[Home, TinySource], tmp_path: Path
) -> None:
    home, source = tiny
    mix = open_mix(home.root, "tiny_aligned")
    done = export_mix(mix, tmp_path / "out", "megatron")
    folder, used = home.mix("tiny_aligned"), mix.report.conservation
    table = np.load(folder / TABLE)
    shown = list(dict.fromkeys(np.load(folder / SEGMENTS)["document"].tolist()))
    streams: dict[str, list[NDArray[np.uint16]]] = {"ids": [], "cases": []}
    for _, region, index, *_ in table[shown].tolist():
        arrays = source.region(region)
        begin, end = (int(cut) for cut in arrays.offsets[index : index + 2])
        for stream, parts in streams.items():
            parts.append(np.asarray(getattr(arrays, stream)[begin:end]))
    ids, cases = (np.concatenate(parts).astype("<u2") for parts in streams.values())
    np.testing.assert_array_equal(flat(tmp_path / "out" / "train.bin"), ids)
    train = done.splits[0]
    assert train.tokens == used.window_tokens - used.inserted_separators
    assert (used.inserted_separators > 0) == (source.separator_position == "start")
    plain = source.format == "plain-1"
    assert train.cases_sha256 == (None if plain else hashlib.sha256(cases.tobytes()).hexdigest())
    assert (tmp_path / "out" / "train_cases.bin").exists() == (not plain)


def test_windows_are_cut_where_the_document_changes(tiny: tuple[Home, TinySource], tmp_path: Path) -> None:
    home, _ = tiny
    mix = open_mix(home.root, "tiny_aligned")
    done = export_mix(mix, tmp_path / "out", "megatron", "windows")
    lengths, _, _ = parsed_index(tmp_path / "out" / "train.idx")
    segments, length = np.load(home.mix("tiny_aligned") / SEGMENTS), mix.report.recipe.sequence_length
    expected: list[int] = []
    last: tuple[int, int] | None = None
    for _, _, document, start, tokens, _, inserted in segments.tolist():
        if last == (document, start) and not inserted:
            expected[-1] += tokens
        else:
            expected.append(tokens)
        last = (document, start + tokens - inserted)
    assert lengths.tolist() == [*expected, 1]
    assert done.splits[0].tokens == mix.report.train.windows * length + 1


def test_what_is_there_is_never_overwritten(sample_home: Home, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(CasebitsError) as caught:
        write(sample_home, tmp_path / "out", "nanogpt")
    assert str(caught.value) == f"EXPORT_EXISTS {tmp_path}/out: is there already (name a new folder)"
    assert (os.listdir(tmp_path), os.listdir(tmp_path / "out")) == (["out"], [])


def test_rows_of_a_dataset_are_documents_and_need_the_vocabulary(sample_home: Home, tmp_path: Path) -> None:
    with pytest.raises(RecordError) as caught:
        write(sample_home, tmp_path / "out", "datasets", "windows")
    assert str(caught.value) == "EXPORT_LAYOUT export: datasets: expected documents, read windows"
    mix = open_mix(sample_home.root, "sample_aligned")
    with pytest.raises(Absent) as missing:
        export_mix(mix, tmp_path / "out", "datasets")
    digest = mix.report.sources[0].vocabulary_sha256
    remedy = f"name a codec whose vocabulary has the sha256 {digest}"
    assert str(missing.value) == f"FILE_MISSING export: datasets: texts need the vocabulary ({remedy})"
    assert os.listdir(tmp_path) == []


def test_a_mix_that_does_not_verify_leaves_nothing(sample_home: Home, tmp_path: Path) -> None:
    folder = shutil.copytree(sample_home.mix("sample_aligned"), tmp_path / "mix")
    shard = folder / "train_000002.case.u16le"
    raw = bytearray(shard.read_bytes())
    raw[7] ^= 1
    shard.write_bytes(raw)
    with pytest.raises(Refused) as caught:
        export_mix(open_mix(folder), tmp_path / "out", "nanogpt")
    assert caught.value.code == "FILE_HASH"
    assert os.listdir(tmp_path) == ["mix"]


def library(name: str, code: str, *arguments: object) -> Any:
    """Run code with a library in a process of its own (they warn, and keep state) and return the JSON that it prints
    last."""
    if importlib.util.find_spec(name.partition(".")[0]) is None:
        pytest.skip(f"{name} is not installed: `make test-slow` installs it")
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-W", "ignore", "-c", code, *map(str, arguments)]
    found = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (found.returncode, found.stderr if found.returncode else "") == (0, "")
    return json.loads(found.stdout.splitlines()[-1])


_MEGATRON = """
import hashlib, json, sys
from pathlib import Path
import numpy as np
from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder, DType
prefix, again = sys.argv[1:]
dataset = IndexedDataset(prefix)
builder = IndexedDatasetBuilder(again + ".bin", DType.optimal_dtype(8192))
digest = hashlib.sha256()
for number in range(len(dataset)):
    digest.update(dataset[number].tobytes())
    builder.add_document(dataset[number], [len(dataset[number])])
builder.finalize(again + ".idx")
same = [Path(prefix + end).read_bytes() == Path(again + end).read_bytes() for end in (".bin", ".idx")]
print(json.dumps([len(dataset), int(dataset.sequence_lengths.sum()), len(dataset.document_indices) - 1,
                  str(dataset.index.dtype.__name__), digest.hexdigest(), same]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["documents", "windows"])
def test_megatron_core_reads_it_and_would_write_the_same_bytes(
    sample_home: Home, tmp_path: Path, layout: Layout
) -> None:
    done = write(sample_home, tmp_path / "out", "megatron", layout)
    for split in done.splits:
        for stream, digest in (("", split.ids_sha256), ("_cases", split.cases_sha256)):
            prefix = tmp_path / "out" / f"{split.split}{stream}"
            found = library("megatron.core", _MEGATRON, prefix, tmp_path / f"again{stream}")
            count = split.sequences
            assert found == [count, split.tokens, count, "uint16", digest, [True, True]]


_DATASETS = """
import hashlib, json, sys
import datasets
import numpy as np
found = datasets.load_dataset(sys.argv[1], cache_dir=sys.argv[2])
told = {}
for name, rows in found.items():
    rows = rows.with_format("numpy")
    ids, masks, bad = hashlib.sha256(), hashlib.sha256(), 0
    for row in rows:
        ids.update(row["ids"].astype("<u2").tobytes())
        masks.update(row["masks"].astype("<u2").tobytes())
        bad += row["whole"] and hashlib.sha256(str(row["text"]).encode()).hexdigest()[:32] != row["id"]
    told[name] = [len(rows), ids.hexdigest(), masks.hexdigest(), int(bad)]
    kinds = [str(rows.features[name].feature.dtype) for name in ("ids", "masks")] + [rows.features["text"].dtype]
print(json.dumps([told, kinds]))
"""


@pytest.mark.slow
def test_datasets_reads_it(sample_home: Home, tmp_path: Path) -> None:
    done = write(sample_home, tmp_path / "out", "datasets")
    told, kinds = library("datasets", _DATASETS, tmp_path / "out", tmp_path / "cache")
    train, val = ([split.sequences, split.ids_sha256, split.cases_sha256, 0] for split in done.splits)
    assert (told, kinds) == ({"train": train, "validation": val}, ["uint16", "uint16", "string"])
