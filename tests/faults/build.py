"""A tiny producer, independent of the real one, that can go wrong at any stage.

`Made` carries one region through the stages read, judge, choose, encode, render and seal, as columns small enough to
edit by hand. A fault edits what one stage made; the stages after it go on as if nothing had happened, so every hash of
a faulty region agrees with its bytes. Plain Python throughout: nothing here is imported by the product.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer

from casebits_dagster.records.canonical import canonical
from casebits_dagster.records.layout import ARRAY_NAMES, DOCUMENTS, RECEIPT, ArrayNames, Home
from casebits_dagster.records.pins import Generation
from casebits_dagster.records.plan import RegionSpec
from tests.faults.world import SEPARATOR, Row, document_id, range_sha256, side, unspell


@dataclass
class Verdict:
    position: int
    verdict: str
    document_id: bytes
    cluster: int
    source_tokens: int
    problem_at: int
    scores: dict[str, int] | None


@dataclass
class Document:
    """A document as the producer has it in hand: `text` is what it encodes, `tokens` what it keeps, the rest what it
    declares."""

    position: int
    text: bytes
    tokens: list[int]
    document_id: bytes
    cluster: int
    scores: dict[str, int]
    split: str


@dataclass
class Made:
    """One region of a file of `file_rows` in the making; `folder` and `verdict_file` are where it goes."""

    generation: Generation
    index: int
    home: Home
    rows: list[Row]
    file_rows: list[Row]
    source: dict[str, Any] = field(default_factory=dict)
    verdicts: list[Verdict] = field(default_factory=list)
    documents: list[Document] = field(default_factory=list)
    encode_with: Callable[[bytes], tuple[list[int], list[int]]] | None = None
    ids: list[int] = field(default_factory=list)
    cases: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    raw_bytes: list[int] = field(default_factory=list)
    lines: list[dict[str, Any]] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)
    items: dict[str, int] = field(default_factory=dict)
    receipt: dict[str, Any] = field(default_factory=dict)

    @property
    def names(self) -> ArrayNames:
        return ARRAY_NAMES[self.generation.pins.codec.format]

    @property
    def folder(self) -> Path:
        return self.home.generation(self.generation.name).region(self.index)

    @property
    def verdict_file(self) -> Path:
        return self.home.generation(self.generation.name).verdicts(self.index)


def scores(text: bytes) -> dict[str, int]:
    """Return the three metrics of the tiny policy."""
    characters, words = len(text.decode()), text.split()
    digits = sum(byte in b"0123456789" for byte in text)
    stops = sum(word.lower().decode() in ["the", "be", "to", "of", "and", "that", "have", "with"] for word in words)
    return {
        "characters": characters * 10**6,
        "digit_share": digits * 10**6 // characters if characters else 0,
        "stop_word_share": stops * 10**6 // len(words) if words else 0,
    }


def read(made: Made) -> None:
    """Say what was read."""
    pin, spec = made.generation.source.pin, made.generation.plan[made.index]
    file = pin.files[0]
    made.source = {
        "repo": pin.repo,
        "repo_type": pin.repo_type,
        "revision": pin.revision,
        "path": spec.path,
        "file_bytes": file.bytes,
        "file_sha256": file.sha256,
        "unit": spec.unit,
        "begin": spec.begin,
        "end": spec.end,
        "range_sha256": _covered((made.generation.source.folder / spec.path).read_bytes(), spec),
        "licence_spdx": pin.licence_spdx,
    }


def _covered(content: bytes, spec: RegionSpec) -> str:
    if spec.unit == "rows":
        return range_sha256(content, spec.begin, spec.end)
    return hashlib.sha256(content[spec.begin : spec.end]).hexdigest()


def judge(made: Made) -> None:
    """Give every row its verdict by the tiny policy, written out by hand."""
    seen: set[bytes] = set()
    for row in made.rows:
        cluster, length = -1 if row.cluster is None else row.cluster, len(row.tokens or [])
        if row.reason:
            verdict = Verdict(
                row.position, f"quarantined:{row.reason}", bytes(16), cluster, length, row.problem_at, None
            )
        else:
            found, name = scores(row.text), document_id(row.text)
            verdict = Verdict(row.position, _decide(found, name in seen, cluster), name, cluster, length, -1, found)
            seen |= {name} if verdict.verdict == "keep" else set()
        made.verdicts.append(verdict)


def _decide(found: dict[str, int], repeated: bool, cluster: int) -> str:
    if found["characters"] < 10_000_000:
        return "dropped:too_short"
    if found["digit_share"] > 500_000:
        return "dropped:too_many_digits"
    if repeated:
        return "dropped:repeated"
    return "keep" if cluster in (-1, 1, 2, 3) else "dropped:cluster"


def choose(made: Made) -> None:
    """Take the kept rows as documents."""
    for row, verdict in zip(made.rows, made.verdicts, strict=True):
        if verdict.verdict == "keep":
            made.documents.append(document_of(row, verdict))


def document_of(row: Row, verdict: Verdict) -> Document:
    name, found = verdict.document_id, dict(verdict.scores or {})
    return Document(verdict.position, row.text, row.tokens or [], name, verdict.cluster, found, side(name))


def encode(made: Made) -> None:
    """Encode each document with the reference tokenizer, masks one byte at a time; or keep its ids."""
    separator = made.generation.pins.codec.separator
    made.offsets.append(0)
    for document in made.documents:
        ids, cases = _encoded(made, document)
        if separator and separator.at == "start":
            made.ids += [separator.id, *ids]
        else:
            made.ids += [*ids, separator.id if separator else 0]
        made.cases += [*cases, 0]
        made.offsets.append(len(made.ids))
        made.raw_bytes.append(len(document.text))


def _encoded(made: Made, document: Document) -> tuple[list[int], list[int]]:
    """Return ids and masks, without a separator; what the masks of a plain codec are is nobody's business."""
    if made.encode_with:
        return made.encode_with(document.text)
    if made.generation.keeps_ids:
        return [number for number in document.tokens if number != SEPARATOR], []
    if made.generation.pins.codec.separator:
        encoder = tokenizer(made.generation.vocabulary)[0]
        return encoder.encode(document.text.decode(), add_special_tokens=False).ids, []
    return encode_text(made.generation.vocabulary, document.text)


def encode_text(vocabulary: Path, text: bytes) -> tuple[list[int], list[int]]:
    """Return ids and masks of a text."""
    encoder, spelled = tokenizer(vocabulary)
    ids: list[int] = encoder.encode(text.lower().decode(), add_special_tokens=False).ids
    return ids, masks_of(text, [len(spelled[number]) for number in ids])


def masks_of(text: bytes, lengths: list[int]) -> list[int]:
    masks, at = [], 0
    for length in lengths:
        masks.append(sum(1 << bit for bit in range(length) if 65 <= text[at + bit] <= 90))
        at += length
    return masks


@functools.cache
def tokenizer(vocabulary: Path) -> tuple[Tokenizer, list[bytes]]:
    """Return the reference tokenizer and the bytes of each id."""
    vocab = json.loads(vocabulary.read_bytes())["model"]["vocab"]
    return Tokenizer.from_file(str(vocabulary)), [unspell(text) for text in sorted(vocab, key=vocab.__getitem__)]


def render(made: Made) -> None:
    """Write the lines and files out of the columns."""
    byte_offset = 0
    for index, document in enumerate(made.documents):
        made.lines.append(
            {
                "byte_offset": byte_offset,
                "cluster": None if document.cluster == -1 else document.cluster,
                "id": document.document_id.hex(),
                "index": index,
                "scores": {name: f"{value // 10**6}.{value % 10**6:06d}" for name, value in document.scores.items()},
                "source_position": document.position,
                "split": document.split,
                "token_offset": made.offsets[index],
            }
        )
        byte_offset += made.raw_bytes[index]


def pack(made: Made) -> None:
    """Turn columns into bytes."""
    names = made.names
    columns = {names.ids: made.ids, names.offsets: made.offsets, names.raw_bytes: made.raw_bytes}
    made.dtypes = {names.ids: "<u2", names.offsets: "<u8", names.raw_bytes: "<u8", DOCUMENTS: "jsonl"}
    if names.cases:
        columns[names.cases], made.dtypes[names.cases] = made.cases, "<u2"
    made.files = {name: np.array(column, made.dtypes[name]).tobytes() for name, column in columns.items()}
    made.files[DOCUMENTS] = b"".join(canonical(line) for line in made.lines)
    made.items = {name: len(column) for name, column in columns.items()} | {DOCUMENTS: len(made.lines)}


def claim(made: Made) -> None:
    """Write the receipt, unsealed, over the files as they are."""
    pins = made.generation.pins.to_dict()
    kinds: dict[str, Counter[str]] = {"dropped": Counter(), "quarantined": Counter()}
    for verdict in made.verdicts:
        kind, _, reason = verdict.verdict.partition(":")
        if reason:
            kinds[kind][reason] += 1
    validation = sum(document.split == "validation" for document in made.documents)
    made.receipt = {
        "schema": "casebits/receipt/1",
        "generation": made.generation.name,
        "region": {"index": made.index, "id": f"{made.index:05d}"},
        "source": made.source,
        "worker": {"name": "tiny", "version": 1},
        "pins": pins,
        "counts": {
            "rows_read": len(made.rows),
            "documents": len(made.documents),
            "tokens": len(made.ids),
            "raw_bytes": sum(made.raw_bytes),
            "train_documents": len(made.documents) - validation,
            "validation_documents": validation,
            "dropped": dict(kinds["dropped"]),
            "quarantined": dict(kinds["quarantined"]),
        },
        "verdicts_digest": hashlib.sha256(
            b"".join(verdict.position.to_bytes(8, "little") for verdict in made.verdicts)
            + b"".join(verdict.verdict.encode() + b"\n" for verdict in made.verdicts)
            + b"".join(verdict.document_id for verdict in made.verdicts)
        ).hexdigest(),
        "files": [
            {
                "name": name,
                "dtype": made.dtypes[name],
                "items": made.items[name],
                "bytes": len(content),
                "sha256": hashlib.sha256(content).hexdigest(),
            }
            for name, content in sorted(made.files.items())
        ],
    }


def seal(made: Made) -> None:
    """Write everything where a home has it."""
    made.receipt["content_id"] = hashlib.sha256(canonical(made.receipt)).hexdigest()
    made.folder.mkdir(parents=True)
    for name, content in made.files.items():
        (made.folder / name).write_bytes(content)
    (made.folder / RECEIPT).write_bytes(canonical(made.receipt))
    made.verdict_file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(verdict_table(made), made.verdict_file)


def verdict_table(made: Made) -> pa.Table:
    """Return the verdict table in its columns."""
    found = made.verdicts
    columns = {
        "position": pa.array([verdict.position for verdict in found], pa.int64()),
        "verdict": pa.array([verdict.verdict for verdict in found], pa.string()),
        "document_id": pa.array([verdict.document_id for verdict in found], pa.binary(16)),
        "cluster": pa.array([verdict.cluster for verdict in found], pa.int32()),
        "source_tokens": pa.array([verdict.source_tokens for verdict in found], pa.int64()),
        "problem_at": pa.array([verdict.problem_at for verdict in found], pa.int64()),
    }
    for name in made.generation.policy.metrics:
        values = [None if verdict.scores is None else verdict.scores.get(name, 0) for verdict in found]
        columns[f"score_{name}"] = pa.array(values, pa.int64())
    return pa.table(columns)


STAGES: tuple[Callable[[Made], None], ...] = (read, judge, choose, encode, render, pack, claim, seal)


def make_region(
    generation: Generation,
    home: Home,
    rows: list[Row],
    index: int,
    *,
    after: Callable[[Made], None] | None = None,
    mutate: Callable[[Made], object] | None = None,
) -> Made:
    """Make a region through all stages, calling `mutate` when the stage `after` is done."""
    spec = generation.plan[index]
    mine = [replace(row) for row in rows if spec.begin <= row.position < spec.end]
    made = Made(generation, index, home, mine, rows)
    for stage in STAGES:
        stage(made)
        if stage is after and mutate is not None:
            mutate(made)
    return made
