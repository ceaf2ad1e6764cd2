"""A plain codec: the ids of any uint16 tokenizer, kept where the source has them, made from the text where not."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pytest
import tokenizers

from casebits_dagster.codec.bytetable import ByteTable, read_vocabulary
from casebits_dagster.codec.decode import Codec
from casebits_dagster.codec.train import train_vocabulary
from casebits_dagster.filters.region import filter_region
from casebits_dagster.records.codec import CodecFiles
from casebits_dagster.records.digests import sha256_file
from casebits_dagster.records.errors import CasebitsError, RecordError
from casebits_dagster.records.layout import ARRAY_NAMES, DOCUMENTS, RECEIPT, Home
from casebits_dagster.records.pins import Generation, load_generation
from casebits_dagster.records.region import Separator
from casebits_dagster.records.vocabulary import GPT2_SEPARATOR, gpt2_file
from casebits_dagster.regions import encode as encode_stage
from casebits_dagster.regions.encode import encode_region
from casebits_dagster.regions.read import Region

NAMES = ARRAY_NAMES["plain-1"]
Side = Literal["start", "end"]


def plain(pins: Path, folder: Path, separator: Separator) -> Generation:
    """Return the sample generation with the plain codec whose vocabulary lies in `folder`."""
    generation = load_generation(pins, "sample")
    vocabulary = folder / CodecFiles.VOCABULARY
    pin = CodecFiles(
        codec="plain",
        format="plain-1",
        vocabulary_sha256=sha256_file(vocabulary),
        vocabulary_size=len(read_vocabulary(vocabulary)),
        command="none",
        separator=separator,
    ).pin
    return dataclasses.replace(generation, codec_folder=folder, pins=dataclasses.replace(generation.pins, codec=pin))


@pytest.fixture(params=["start", "end"])
def gpt2(request: pytest.FixtureRequest, pins: Path, tmp_path: Path) -> Generation:
    folder = tmp_path / "gpt2"
    folder.mkdir()
    shutil.copy(gpt2_file("encoder.json"), folder / CodecFiles.VOCABULARY)
    return plain(pins, folder, Separator(id=GPT2_SEPARATOR, at=request.param))


def keep_ids(kept: Path, rows: list[list[int]]) -> None:
    """Write the column of ids into a kept text, as the filter stage does where the ids are the codec's own."""
    with pa.memory_map(str(kept)) as source:
        table = pa.ipc.open_file(source).read_all()
    column = pa.array([np.array(row, "<u2").tobytes() for row in rows], pa.large_binary())
    texts = table.column("text").combine_chunks()
    table = pa.table({"position": table["position"].combine_chunks(), "text": texts, "tokens": column})
    with pa.OSFile(str(kept), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def kept_texts(kept: Path) -> list[bytes]:
    with pa.memory_map(str(kept)) as source:
        return [bytes(text) for text in pa.ipc.open_file(source).read_all()["text"].to_pylist()]


def spelled_by_bytes(texts: list[bytes]) -> list[list[int]]:
    """Return the texts in GPT-2's single-byte ids: ids that no encoder would choose, so keeping them shows."""
    table = ByteTable.of(read_vocabulary(gpt2_file("encoder.json")))
    ids = {table.tokens[token].as_py(): token for token in range(GPT2_SEPARATOR)}
    return [[ids[bytes([byte])] for byte in text] for text in texts]


def test_ids_of_the_source_are_kept_as_they_are(gpt2: Generation, home: Home) -> None:
    filter_region(gpt2, 10, home)
    kept = home.generation("sample").kept_text(10)
    texts = kept_texts(kept)
    rows = spelled_by_bytes(texts)
    keep_ids(kept, rows)
    done = encode_region(gpt2, 10, home)
    names = sorted([*NAMES.dtypes, DOCUMENTS, RECEIPT])
    assert sorted(path.name for path in done.folder.iterdir()) == names
    assert [file.name for file in done.receipt.files] == sorted([*NAMES.dtypes, DOCUMENTS])
    region, codec = Region.open(done.folder), Codec.load(gpt2.codec_folder)
    at_start = gpt2.pins.codec.separator == Separator(id=GPT2_SEPARATOR, at="start")
    for number, row in enumerate(rows):
        want = [GPT2_SEPARATOR, *row] if at_start else [*row, GPT2_SEPARATOR]
        assert region.tokens(number)[0].tolist() == want
        assert region.document(number, codec).encode() == texts[number]
    assert region.raw_bytes.tolist() == [len(text) for text in texts]
    assert done.receipt.counts.tokens == sum(map(len, rows)) + len(rows)
    assert (done.mask_bits_per_token, done.independent_bits_per_token) == (0.0, 0.0)


def test_an_id_outside_the_vocabulary_is_refused_not_wrapped(
    gpt2: Generation, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encode_stage, "BLOCK_BYTES", 1)
    filter_region(gpt2, 10, home)
    kept = home.generation("sample").kept_text(10)
    rows = spelled_by_bytes(kept_texts(kept))
    rows[3][5] = 50_257
    keep_ids(kept, rows)
    with pytest.raises(CasebitsError) as caught:
        encode_region(gpt2, 10, home)
    want = f"ID_OUT_OF_RANGE {kept}: document 3, position 5: expected an id below 50257, read 50257"
    assert str(caught.value) == want
    assert not home.generation("sample").region(10).exists()


def test_a_file_that_only_spells_ids_cannot_encode_text(gpt2: Generation, pins: Path, home: Home) -> None:
    # Filtered for a codec that keeps no ids, so that there is only text.
    filter_region(load_generation(pins, "sample"), 10, home)
    with pytest.raises(RecordError, match=r"^CODEC_PIN .*json: it spells ids, and cannot encode text"):
        encode_region(gpt2, 10, home)


@pytest.mark.parametrize("at", ["start", "end"])
def test_text_is_encoded_with_the_pinned_tokenizers_file(pins: Path, home: Home, tmp_path: Path, at: Side) -> None:
    folder = tmp_path / "codec"
    folder.mkdir()
    generation = load_generation(pins, "sample")
    filter_region(generation, 10, home)
    texts = [text.decode() for text in kept_texts(home.generation("sample").kept_text(10))]
    (folder / CodecFiles.VOCABULARY).write_bytes(train_vocabulary(texts, 700, None))
    generation = plain(pins, folder, Separator(id=0, at=at))
    region = Region.open(encode_region(generation, 10, home).folder)
    reference, codec = tokenizers.Tokenizer.from_file(str(folder / CodecFiles.VOCABULARY)), Codec.load(folder)
    for number, text in enumerate(texts):
        bare = reference.encode(text, add_special_tokens=False).ids
        assert region.tokens(number)[0].tolist() == ([0, *bare] if at == "start" else [*bare, 0])
        assert region.document(number, codec) == text
    assert (len(region.cases), int(region.cases.max())) == (len(region.ids), 0)
