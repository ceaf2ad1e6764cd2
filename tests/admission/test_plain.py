"""Plain regions: proven from end to end, with the ids of the source kept and with ids made from text."""

from __future__ import annotations

import hashlib
import json
import random
import re
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow.parquet as pq
import pytest

from casebits_dagster.admission import admit_region, check_table, verify_region
from casebits_dagster.admission.checks import CASEBITS, PLAIN
from casebits_dagster.admission.lines import read_text
from casebits_dagster.admission.vocabulary import read_plain
from casebits_dagster.cli import main
from casebits_dagster.codec.train import train_codec, train_vocabulary
from casebits_dagster.filters.region import filter_region
from casebits_dagster.publication.consume import Frontier, open_frontier
from casebits_dagster.publication.frontier import advance_frontier
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.errors import Rejected
from casebits_dagster.records.layout import ADMISSION, Home
from casebits_dagster.records.pins import Generation, SourceFile, load_generation
from casebits_dagster.records.plan import RegionSpec
from casebits_dagster.records.region import Admission, Separator
from casebits_dagster.records.vocabulary import GPT2_SEPARATOR, gpt2_file
from casebits_dagster.regions.encode import encode_region
from tests.admission.reading import MemoryStore, source, spelling
from tests.admission.test_against_producer import file_of, messy_row, messy_world, produce_and_admit, world_of
from tests.admission.test_vocabulary import vocabulary
from tests.faults.build import Made, choose, make_region
from tests.faults.plain import GPT2, Side, make_plain
from tests.faults.world import Format

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TRICKY = "\ufeffCaf\u00e9, NA\u00cfVE \U0001f468\u200d\U0001f469\r\n<|endoftext|> \0 "
PROSE = [f"{TRICKY}Document {number} of the Many, " + "to be or NOT to be. " * (15 + number) for number in range(9)]


def declare(
    pins: Path,
    name: str,
    codec: str,
    kind: Literal["parquet_tokens", "jsonl_text"],
    folder: Path,
    file: SourceFile,
    cuts: list[int],
) -> Generation:
    """Write the pin of a generation over one file, under the sample's policy, and load it."""
    sample = load_generation(pins, "sample").pin
    pin = replace(sample.source, location=str(folder), format=kind, files=(file,))
    fields = pin.to_dict() | {"revision": pin.expected_revision()}
    told = [f"{key} = {json.dumps(value)}" for key, value in fields.items() if isinstance(value, str)]
    filed = [f"{key} = {json.dumps(value)}" for key, value in file.to_dict().items() if value is not None]
    filtered = [f"{key} = {json.dumps(value)}" for key, value in sample.filter.to_dict().items()]
    lines = [f'generation = "{name}"', 'description = "A plain one."', f'codec = "{codec}"', "[filter]", *filtered]
    lines += ["[source]", *told, "[[source.files]]", *filed, "[split]", 'rule = "sha256-salt-id"', 'salt = "plain"']
    lines += ["share = 0.3", "[[regions]]", f'path = "{file.path}"', f"cuts = {cuts}"]
    (pins / "generations" / f"{name}.toml").write_text("\n".join(lines) + "\n")
    return load_generation(pins, name)


@pytest.fixture
def own_pins(tmp_path: Path, pins: Path) -> Path:
    return shutil.copytree(pins, tmp_path / "pins")


def published(generation: Generation, home: Home) -> Frontier:
    """Return the verified frontier after every stage."""
    for region in generation.plan:
        filter_region(generation, region.index, home)
        encode_region(generation, region.index, home)
        done = admit_region(generation, region.index, home, run_id="run", full=True)
        listed = [check.id for check in done.admission.checks]
        assert listed == [check.id for check in check_table() if PLAIN in check.formats]
    advance_frontier(generation, home, now=NOW)
    frontier = open_frontier(home.root, generation.name)
    frontier.verify_all()
    return frontier


def populations(frontier: Frontier) -> set[tuple[bool, bool]]:
    """Return, of every region, whether L4_IDS and L5_SEGMENTATION examined anything."""
    found = set()
    for index in range(frontier.manifest.count):
        raw = (frontier.folder.region(index) / ADMISSION).read_bytes()
        examined = {check.id: check.examined > 0 for check in Admission.parse(raw, ADMISSION).checks}
        found.add((examined["L4_IDS"], examined["L5_SEGMENTATION"]))
    return found


def require_readable(capsysbinary: pytest.CaptureFixture[bytes], pins: Path, frontier: Frontier, text: bytes) -> None:
    """The command line verifies region 0 again, and reads this text as its first document."""
    home, name = str(frontier.folder.root.parents[1]), f"{frontier.generation}/00000"
    assert main(["--home", home, "--pins", str(pins), "verify", "region", name]) == 0
    lines = capsysbinary.readouterr().out.decode().splitlines()
    assert (lines[0], lines[-1]) == (
        f"region {name}: proven from its bytes and its source",
        "  admission.json says what was proven now",
    )
    assert main(["--home", home, "--pins", str(pins), "read", name, "--document", "0"]) == 0
    assert capsysbinary.readouterr().out == text


@pytest.mark.parametrize("at", ["start", "end"])
def test_kept_ids_end_to_end(capsysbinary: pytest.CaptureFixture[bytes], own_pins: Path, home: Home, at: Side) -> None:
    folder = own_pins / "codecs" / f"gpt2-{at}"
    folder.mkdir()
    told = (own_pins / "codecs" / "gpt2" / "codec.toml").read_text()
    (folder / "codec.toml").write_text(told.replace('"gpt2"', f'"gpt2-{at}"').replace('at = "end"', f'at = "{at}"'))
    file = load_generation(own_pins, "sample").source.files[0]
    generation = declare(own_pins, "kept", folder.name, "parquet_tokens", own_pins / "sample", file, [900, 930, 960])
    frontier = published(generation, home)
    assert populations(frontier) == {(True, False)}
    rows = pq.read_table(own_pins / "sample" / file.path)["tokens"]
    for index in range(2):
        region = frontier.region(index)
        assert len(region) > 9
        for number, line in enumerate(region.documents()):
            kept = [token for token in rows[line["source_position"]].as_py() if token != GPT2_SEPARATOR]
            whole = [GPT2_SEPARATOR, *kept] if at == "start" else [*kept, GPT2_SEPARATOR]
            text = b"".join(spelling()[token] for token in kept)
            assert region.tokens(number)[0].tolist() == whole
            assert region.document(number, frontier.codec).encode() == text
    first = frontier.region(0).document(0, frontier.codec).encode()
    require_readable(capsysbinary, own_pins, frontier, first)


def test_ids_made_from_text_end_to_end(
    capsysbinary: pytest.CaptureFixture[bytes], own_pins: Path, home: Home, tmp_path: Path
) -> None:
    raw = [text.encode() for text in PROSE]
    cuts = np.cumsum([0, *map(len, raw)])
    whole = np.frombuffer(b"".join(raw), "u1")
    train_codec(
        own_pins / "codecs" / "plain-300",
        whole,
        cuts,
        size=300,
        plain=True,
        command="none",
        trained_on="sample",
        progress=lambda said: None,
    )
    lines = [json.dumps({"text": text, "cluster_id": 2}).encode() + b"\n" for text in PROSE]
    (tmp_path / "texts.jsonl").write_bytes(b"".join(lines))
    size = sum(map(len, lines))
    file = SourceFile(path="texts.jsonl", bytes=size, sha256=sha256(b"".join(lines)))
    generation = declare(own_pins, "made", "plain-300", "jsonl_text", tmp_path, file, [0, size // 2, size])
    frontier = published(generation, home)
    assert populations(frontier) == {(False, True)}
    read = [
        region.document(number, frontier.codec)
        for region in map(frontier.region, range(2))
        for number in range(len(region))
    ]
    assert read == PROSE
    require_readable(capsysbinary, own_pins, frontier, raw[0])


@pytest.mark.parametrize(
    ("kind", "at"), [("climbmix_jsonl", None), ("flat_u16", "end"), ("flat_u16", "start"), ("parquet_tokens", None)]
)
def test_kept_ids_of_every_format_of_tokens(tmp_path: Path, pins: Path, kind: Format, at: Side | None) -> None:
    home = Home(tmp_path / "home")
    if kind == "parquet_tokens":
        chance = random.Random(7)
        generation, home = messy_world(tmp_path, pins, [messy_row(chance) for _ in range(300)])
    else:
        content = file_of(kind)
        cuts = (0, len(content) // 4 * 2, len(content))
        generation = world_of(tmp_path, pins, kind, "file", content, cuts, at)
    plain = replace(generation, codec_folder=tmp_path, pins=replace(generation.pins, codec=GPT2))
    assert plain.keeps_ids is True
    produce_and_admit(plain, home)


@pytest.fixture
def trained() -> bytes:
    return train_vocabulary(PROSE, 300, None)


@pytest.mark.parametrize("at", ["start", "end"])
def test_ids_that_the_tokenizer_would_not_make(tmp_path: Path, pins: Path, trained: bytes, at: Side) -> None:
    generation, home, rows = make_plain(tmp_path, pins, at, trained)
    assert verify_region(make_region(generation, home, rows, 0).folder, generation, full=True).verdict == "admitted"
    shutil.rmtree(home.root)
    table = read_plain(trained, Separator(id=0, at=at), False)
    single = {table.spelling.decode(np.array([number]))[0].tobytes(): number for number in range(table.size)}

    def by_bytes(text: bytes) -> tuple[list[int], list[int]]:
        return [single[bytes([byte])] for byte in text], []

    def mutate(made: Made) -> None:
        made.encode_with = by_bytes

    made = make_region(generation, home, rows, 0, after=choose, mutate=mutate)
    with pytest.raises(
        Rejected, match=r"^L5_SEGMENTATION 00000/plain.ids.u16le: the reference tokenizer cuts"
    ) as caught:
        verify_region(made.folder, generation)
    # The first letter is a token of its own either way.
    assert (caught.value.document, caught.value.position) == (0, 2 if at == "start" else 1)


def test_a_table_that_only_spells_ids_proves_no_text(tmp_path: Path, pins: Path) -> None:
    generation, home, rows = make_plain(tmp_path, pins)
    made = make_region(generation, home, rows, 0)
    pin = replace(generation.source.pin, format="parquet_text")
    of_text = replace(generation, source=replace(generation.source, pin=pin))
    message = r"^L2_VOCABULARY 00000/encoder.json: it only spells ids, and the ids are not those of the source$"
    with pytest.raises(Rejected, match=message):
        verify_region(made.folder, of_text)


def table(names: dict[str, int]) -> bytes:
    return json.dumps(names).encode()


@pytest.mark.parametrize(
    ("raw", "separator", "keeps_ids", "message"),
    [
        (table({"a": 0, "b": 2}), 0, True, "ids are not 0 .. V-1, each once"),
        (table({"a": 0, "b": 0}), 0, True, "ids are not 0 .. V-1, each once"),
        (table({"a": 0, "": 1}), 0, True, "token 1 has no bytes"),
        (table({"a": 0, "b": 1}), 2, True, "the separator 2 is none of the 2 ids"),
        (table({"\u4e2d": 0, "b": 1}), 1, True, "not a byte-level vocabulary: KeyError('\u4e2d')"),
        (table({"a": 0, "b": 1}), 1, False, "it only spells ids, and the ids are not those of the source"),
        (table({f"{number:05d}": number for number in range(65_537)}), 0, True, "65537 ids do not fit 16 bits"),
        (vocabulary(lambda found: found.update(th=found.pop("a"), aa=257)), 0, True, "byte 97 is no token"),
        (b"[]", 0, True, "not a byte-level vocabulary: AttributeError(\"'list' object has no attribute 'get'\")"),
    ],
)
def test_a_broken_plain_vocabulary(raw: bytes, separator: int, keeps_ids: bool, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        read_plain(raw, Separator(id=separator, at="end"), keeps_ids)


def test_sound_plain_vocabularies(trained: bytes) -> None:
    gpt2, own = gpt2_file("encoder.json").read_bytes(), Separator(id=0, at="end")
    of_gpt2, of_own = read_plain(gpt2, Separator(id=GPT2_SEPARATOR, at="end"), True), read_plain(trained, own, False)
    for found, separator in ((of_gpt2, GPT2_SEPARATOR), (of_own, 0)):
        ids = np.arange(found.size)
        text, starts = found.decode(ids, ids)
        lengths = np.diff(starts)
        assert np.flatnonzero(lengths == 0).tolist() == [separator]
        assert np.unique(text[starts[:-1][lengths == 1]]).tolist() == list(range(256))
    assert (of_gpt2.size, of_own.size) == (50_257, 300)
    assert read_plain(vocabulary(), own, True).size == 258


def test_an_admission_lists_the_checks_of_its_format() -> None:
    casebits, plain = ({check.id for check in check_table() if kind in check.formats} for kind in (CASEBITS, PLAIN))
    masks = {"L2_CAPITALS", "L2_MASK_EOD", "L2_MASK_LENGTH", "L2_MASK_LETTERS"}
    assert (len(casebits), casebits - plain, plain - casebits) == (34, masks, {"L4_IDS"})


def test_a_source_of_text_has_no_ids() -> None:
    store, spec = MemoryStore(b'{"text": "a"}\n'), RegionSpec(0, "file", "bytes", 0, 14)
    block = next(read_text(store, spec, source("jsonl_text"), hashlib.sha256()))
    with pytest.raises(TypeError, match="a source of text has no ids"):
        block.bare_ids()
