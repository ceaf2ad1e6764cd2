"""Faults of a plain region: GPT-2's ids kept from the source, its separator at either side of each document.

Documents of the region are those of the tiny world; the ids of the source are greedy, not what GPT-2's BPE would make.
"""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

from casebits_dagster.records.codec import CodecFiles
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.layout import ARRAY_NAMES, CASES, DOCUMENTS, IDS, OFFSETS, RAW_BYTES, RECEIPT, Home
from casebits_dagster.records.pins import Generation, default_pins_folder, load_generation
from casebits_dagster.records.region import CodecPin, Separator
from casebits_dagster.records.vocabulary import GPT2_FILES
from tests.faults import mutations as m
from tests.faults.build import Made, choose, claim, encode, judge, make_region, scores, seal
from tests.faults.catalogue import Fault
from tests.faults.disk import missing, write_receipt
from tests.faults.world import SEPARATOR, Row, document_id, gpt2_ids, make_world

Side = Literal["start", "end"]
NAMES = ARRAY_NAMES["plain-1"]
TABLE = "verdicts/00000.parquet"
GPT2 = CodecPin(
    vocab_sha256=GPT2_FILES["encoder.json"],
    mixture_sha256=None,
    format="plain-1",
    separator=Separator(id=SEPARATOR, at="end"),
)


def make_plain(
    root: Path, pins: Path, at: Side = "end", vocabulary: bytes | None = None
) -> tuple[Generation, Home, list[Row]]:
    """Return the tiny world with a plain codec: GPT-2's ids, kept, or the text encoded with a tokenizer of its own,
    whose separator is id 0."""
    generation, home, rows = make_world(root, pins)
    codec = replace(GPT2, separator=Separator(id=SEPARATOR, at=at))
    if vocabulary is not None:
        (root / CodecFiles.VOCABULARY).write_bytes(vocabulary)
        codec = replace(GPT2, vocab_sha256=sha256(vocabulary), separator=Separator(id=0, at=at))
    plain = replace(generation, codec_folder=root, pins=replace(generation.pins, codec=codec))
    return plain, home, rows


@functools.cache
def _spelled() -> dict[int, bytes]:
    return {number: token for token, number in gpt2_ids().items()}


def bare(made: Made, document: int) -> range:
    """Return where the ids of a document stand, its separator aside."""
    begin, end = made.offsets[document : document + 2]
    return range(begin + 1, end) if at_start(made) else range(begin, end - 1)


def at_start(made: Made) -> bool:
    return made.generation.pins.codec.separator == Separator(id=SEPARATOR, at="start")


def separator_of(made: Made, document: int) -> int:
    return made.offsets[document] if at_start(made) else made.offsets[document + 1] - 1


def same_length(made: Made) -> None:
    """Change an id to one that spells other letters, as many as before."""
    at = bare(made, 0)[1]
    token = _spelled()[made.ids[at]]
    made.ids[at] = next(
        number
        for number, other in _spelled().items()
        if len(other) == len(token) and other.isascii() and other != token
    )


def swapped(made: Made) -> None:
    one, two = bare(made, 0)[1:3]
    made.ids[one], made.ids[two] = made.ids[two], made.ids[one]


def wrapped(size: int) -> Callable[[Made], None]:
    """Take the ids of every document modulo a size, and measure the text that they spell then."""

    def mutate(made: Made) -> None:
        for document in range(len(made.raw_bytes)):
            for at in bare(made, document):
                made.ids[at] %= size
            made.raw_bytes[document] = sum(len(_spelled()[made.ids[at]]) for at in bare(made, document))

    return mutate


def wrapped_row(made: Made) -> None:
    """Keep the row with an id outside the vocabulary, after taking it modulo the number of ids."""
    at = next(number for number, row in enumerate(made.rows) if row.reason == "id_out_of_range")
    row, verdict = made.rows[at], made.verdicts[at]
    row.tokens = [number % 50_257 for number in row.tokens or []]
    row.text = b"".join(_spelled()[number] for number in row.tokens)
    found = scores(row.text)
    made.verdicts[at] = replace(verdict, verdict="keep", document_id=document_id(row.text), scores=found, problem_at=-1)


def separator_lost(made: Made) -> None:
    at = separator_of(made, 2)
    del made.ids[at]
    made.offsets = [cut - (number > 2) for number, cut in enumerate(made.offsets)]


def separator_doubled(made: Made) -> None:
    made.ids.insert(separator_of(made, 2), SEPARATOR)
    made.offsets = [cut + (number > 2) for number, cut in enumerate(made.offsets)]


def separator_inside(made: Made) -> None:
    """Put a separator in the place of an id: the number of separators is kept by one that is lost."""
    separator_lost(made)
    made.ids[bare(made, 5)[1]] = SEPARATOR


def other_side(made: Made) -> None:
    for document in range(len(made.raw_bytes)):
        body = [made.ids[at] for at in bare(made, document)]
        made.ids[slice(*made.offsets[document : document + 2])] = (
            [*body, SEPARATOR] if at_start(made) else [SEPARATOR, *body]
        )


def encoded_again(made: Made) -> None:
    """Spell a document by its bytes instead of keeping its ids: the text is the same."""
    single = {token: number for number, token in _spelled().items() if len(token) == 1}
    document = made.documents[7]
    document.tokens = [single[bytes([byte])] for byte in document.text]


def id_outside(made: Made) -> None:
    made.ids[bare(made, 3)[0]] = 50_257


def cut_short(made: Made) -> None:
    """Keep a document without its last id, and say so everywhere."""
    document = made.documents[0]
    document.text = document.text[: -len(_spelled()[document.tokens[-1]])]
    document.tokens = document.tokens[:-1]
    document.document_id = document_id(document.text)


def pinned_other_side(made: Made) -> None:
    made.receipt["pins"]["codec"]["separator"]["at"] = "end" if at_start(made) else "start"


no_mixture = m.receipt("pins", "codec", "mixture_sha256", value=None)


def offered(codec: CodecPin, folder: Path) -> Callable[[Made], None]:
    """Put the region of a generation of the same name with another codec in the place of this one."""

    def mutate(made: Made) -> None:
        other = replace(made.generation, codec_folder=folder, pins=replace(made.generation.pins, codec=codec))
        shutil.rmtree(made.folder)
        make_region(other, made.home, made.file_rows, made.index)

    return mutate


def casebits_offered(made: Made) -> None:
    sample = load_generation(default_pins_folder(), "sample")
    offered(sample.pins.codec, sample.codec_folder)(made)


def plain_offered(made: Made) -> None:
    offered(GPT2, made.home.root)(made)


def relabelled(made: Made, names: dict[str, str], codec: CodecPin | None = None) -> None:
    """Give files other names (none: away with it) and the receipt another codec; all hashes agree."""
    claimed = json.loads((made.folder / RECEIPT).read_bytes())
    for name, new in names.items():
        (made.folder / name).rename(made.folder / new) if new else (made.folder / name).unlink()
    files = [file | {"name": names.get(file["name"], file["name"])} for file in claimed["files"]]
    claimed["files"] = sorted((file for file in files if file["name"]), key=lambda file: str(file["name"]))
    if codec:
        claimed["pins"]["codec"] = codec.to_dict()
    del claimed["content_id"]
    write_receipt(made.folder, claimed)


def casebits_renamed(made: Made) -> None:
    casebits_offered(made)
    relabelled(made, {IDS: NAMES.ids, OFFSETS: NAMES.offsets, CASES: ""})


def casebits_claimed_plain(made: Made) -> None:
    casebits_offered(made)
    codec = made.generation.pins.codec
    relabelled(made, {IDS: NAMES.ids, OFFSETS: NAMES.offsets, CASES: ""}, codec)


def plain_renamed(made: Made) -> None:
    """Plain ids under the names of CaseBits, with masks of zeros."""
    plain_offered(made)
    masks = bytes((made.folder / NAMES.ids).stat().st_size)
    relabelled(made, {NAMES.ids: IDS, NAMES.offsets: OFFSETS})
    (made.folder / CASES).write_bytes(masks)
    claimed = json.loads((made.folder / RECEIPT).read_bytes())
    ids = next(file for file in claimed["files"] if file["name"] == IDS)
    claimed["files"].append(ids | {"name": CASES, "sha256": sha256(masks)})
    claimed["files"].sort(key=lambda file: str(file["name"]))
    del claimed["content_id"]
    write_receipt(made.folder, claimed)


def older_names(made: Made) -> None:
    """An older export, whose masks are independent bits: its files have names without a mixture."""
    relabelled(made, {name: name.replace("_mixture", "") for name in (IDS, CASES, OFFSETS)})


def older_without_masks(made: Made) -> None:
    relabelled(made, {CASES: ""})


def inline_markers_as_plain(made: Made) -> None:
    """An older export, whose case is in the ids: it has the files of a plain region."""
    sample = load_generation(default_pins_folder(), "sample")
    other = replace(
        made.generation, codec_folder=sample.codec_folder, pins=replace(made.generation.pins, codec=sample.pins.codec)
    )
    shutil.rmtree(made.folder)
    make_region(other, made.home, made.file_rows, made.index, after=choose, mutate=m.inline_case_markers)
    relabelled(made, {IDS: NAMES.ids, OFFSETS: NAMES.offsets, CASES: ""})


IDS_OF = f"{DOCUMENTS}: id"
PLAIN_FAULTS = (
    Fault("id of other letters", encode, same_length, "L3_DOCUMENT_IDS", IDS_OF, 0),
    Fault("two ids swapped", encode, swapped, "L3_DOCUMENT_IDS", IDS_OF, 0),
    Fault("id outside a plain vocabulary", encode, id_outside, "L2_ID_RANGE", NAMES.ids, 3),
    Fault("ids taken modulo", encode, wrapped(16_384), "L3_DOCUMENT_IDS", IDS_OF, 0),
    Fault("foreign id wrapped, row kept", judge, wrapped_row, "L4_QUARANTINE", f"{TABLE}: verdict"),
    Fault("separator missing", encode, separator_lost, "L2_EOD", NAMES.ids, 2),
    Fault("separator doubled", encode, separator_doubled, "L2_EOD", NAMES.ids, 2),
    Fault("separator for an id", encode, separator_inside, "L2_EOD", NAMES.ids, 2),
    Fault("separator at the other side", encode, other_side, "L2_EOD", NAMES.ids, 0),
    Fault("kept document encoded again", choose, encoded_again, "L4_IDS", NAMES.ids, 7),
    Fault("raw_bytes with separator counted", encode, m.raw_bytes_with_end, "L2_RAW_BYTES", RAW_BYTES, 0),
    Fault("last character of a kept text cut", choose, cut_short, "L4_TEXT", NAMES.ids, 0, 43),
    Fault("plain offset off by one", encode, m.offset_off_by_one, "L2_EOD", NAMES.ids, 3),
    Fault("separator of another side pinned", claim, pinned_other_side, "L2_CODEC_PIN", "codec.separator"),
    Fault("plain file missing", seal, missing(NAMES.offsets), "L1_FILES", NAMES.offsets),
    Fault("CaseBits region offered", seal, casebits_offered, "L1_FILES", IDS),
    Fault("CaseBits region, renamed", seal, casebits_renamed, "L2_CODEC_PIN", "codec.format"),
    Fault("CaseBits region, renamed and claimed plain", seal, casebits_claimed_plain, "L2_EOD", NAMES.ids, 0),
    Fault("older export: inline markers as plain", seal, inline_markers_as_plain, "L2_CODEC_PIN", "codec.format"),
)
# The same to a CaseBits generation.
OFFERED_FAULTS = (
    Fault("plain region offered", seal, plain_offered, "L1_FILES", NAMES.ids),
    Fault("plain region, renamed", seal, plain_renamed, "L2_CODEC_PIN", "codec.format"),
    Fault("older export: no mixture", claim, no_mixture, "L2_CODEC_PIN", "codec.mixture_sha256"),
    Fault("older export: names without a mixture", seal, older_names, "L1_FILES", CASES),
    Fault("older export: no masks", seal, older_without_masks, "L1_FILES", CASES),
)
