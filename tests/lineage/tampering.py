"""Everything along the chain that somebody could change, how an audit is asked, and the link that fails then."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from casebits_dagster.records.layout import ADMISSION, CASES, DOCUMENTS, IDS, OFFSETS, RECEIPT, Home
from casebits_dagster.records.mix import REPORT, SEGMENTS, TABLE
from casebits_dagster.records.pins import Generation
from casebits_dagster.records.region import Receipt


@dataclasses.dataclass
class Scene:
    """What a fault may touch: the home, the pins with a copy of the source, the mix, and the window's first segment."""

    home: Home
    generation: Generation
    mix: str
    window: int
    length: int
    segment: Any
    document: Any

    @property
    def region(self) -> Path:
        return self.home.generation("sample").region(int(self.document["region"]))

    @property
    def row(self) -> int:
        """Return the source row of the document."""
        line = (self.region / DOCUMENTS).read_bytes().splitlines()[int(self.document["index"])]
        return int(json.loads(line)["source_position"])

    def flip(self, path: Path, at: int) -> None:
        content = bytearray(path.read_bytes())
        content[at] ^= 1
        path.write_bytes(content)

    def token(self) -> int:
        """Return the place of the segment's first token in its region."""
        offsets = np.fromfile(self.region / OFFSETS, "<u8")
        return int(offsets[self.document["index"]]) + int(self.segment["document_start"])


def _replace(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert content.count(old) >= 1
    path.write_bytes(content.replace(old, new, 1))


def _shard(scene: Scene, stream: str) -> Path:
    return scene.home.mix(scene.mix) / f"train_000000.{stream}.u16le"


def _table(name: str, field: str, bits: int = 1) -> Callable[[Scene], None]:
    def tamper(scene: Scene) -> None:
        path = scene.home.mix(scene.mix) / name
        rows = np.load(path)
        rows[field][
            scene.segment["document"] if name == TABLE else np.flatnonzero(rows["window"] == scene.window)[0]
        ] ^= bits
        np.save(path, rows)

    return tamper


def _other_region(scene: Scene) -> None:
    """Receipt and admission are those of another region, whole and well-formed."""
    other = scene.region.parent / ("00001" if scene.region.name != "00001" else "00002")
    for name in (RECEIPT, ADMISSION):
        shutil.copy(other / name, scene.region / name)


def _resealed_receipt(scene: Scene) -> None:
    """A receipt that claims another licence, with its content id made good again."""
    path = scene.region / RECEIPT
    receipt = Receipt.parse(path.read_bytes(), "receipt")
    source = dataclasses.replace(receipt.source, licence_spdx="MIT")
    path.write_bytes(dataclasses.replace(receipt, source=source, content_id="").sealed().to_bytes())


def _vocabulary(scene: Scene) -> Path:
    return scene.home.generation("sample").codec / "vocabulary.json"


def _other_policy(scene: Scene) -> None:
    policy = dataclasses.replace(scene.generation.policy, rules=scene.generation.policy.rules[1:])
    scene.generation = dataclasses.replace(scene.generation, policy=policy)


def _verdicts(column: str, value: object) -> Callable[[Scene], None]:
    """The verdict table says something else of the first row, which was dropped."""

    def tamper(scene: Scene) -> None:
        path = scene.home.generation("sample").verdicts(0)
        table = pq.read_table(path)
        values = [value, *table[column].to_pylist()[1:]]
        place = table.schema.get_field_index(column)
        pq.write_table(table.set_column(place, column, pa.array(values, table.schema.field(column).type)), path)

    return tamper


def _source(scene: Scene) -> None:
    """One token more in the document's row, in a well-formed file."""
    path = scene.generation.source.folder / "pd_mix.parquet"
    table = pq.read_table(path)
    tokens = table["tokens"].to_pylist()
    tokens[scene.row].append(13)
    counts = [len(row) for row in tokens]
    for name, values in (("tokens", tokens), ("token_count", counts)):
        column = pa.array(values, table.schema.field(name).type)
        table = table.set_column(table.schema.get_field_index(name), name, column)
    pq.write_table(table, path)


@dataclasses.dataclass(frozen=True)
class Fault:
    """A change, the question (a window, or the first source row), and the link and place that fail."""

    change: Callable[[Scene], None]
    link: str
    where: str
    asked: str = "window"


_AT = "sample_aligned: window 0, segment at 0"
FAULTS = {
    "a token of the shard": Fault(
        lambda s: s.flip(_shard(s, "ids"), 2 * s.window * s.length), "tokens of the segment", f"{_AT}, ids"
    ),
    "a mask of the shard": Fault(
        lambda s: s.flip(_shard(s, "case"), 2 * s.window * s.length), "tokens of the segment", f"{_AT}, cases"
    ),
    "the shard is gone": Fault(lambda s: _shard(s, "ids").unlink(), "shard", "sample_aligned/train_000000.ids.u16le"),
    "a segment begins elsewhere": Fault(
        _table(SEGMENTS, "document_start"), "file of the mix", "sample_aligned/segments.npy"
    ),
    "a segment is longer": Fault(
        _table(SEGMENTS, "length"), "segments fill the window", "sample_aligned/segments.npy: window 0"
    ),
    "a segment of no document": Fault(
        _table(SEGMENTS, "document", 1 << 20),
        "segments name what is there",
        "sample_aligned/segments.npy: window 0",
    ),
    "a segment of no kind": Fault(
        _table(SEGMENTS, "kind", 64), "segments name what is there", "sample_aligned/segments.npy: window 0"
    ),
    "a document of the mix is another": Fault(
        _table(TABLE, "index"), "file of the mix", "sample_aligned/documents.npy"
    ),
    "a document of no generation": Fault(
        _table(TABLE, "generation", 64), "segments name what is there", "sample_aligned/segments.npy: window 0"
    ),
    "a document of no region": Fault(_table(TABLE, "region", 1 << 20), "region of the segment", _AT),
    "a document beyond its region": Fault(_table(TABLE, "index", 1 << 20), "region of the segment", _AT),
    "the report of the mix": Fault(
        lambda s: _replace(s.home.mix(s.mix) / REPORT, b'"generation":"sample"', b'"generation":"simple"'),
        "file of the mix",
        "sample_aligned/mix_report.json",
    ),
    "a token of the region": Fault(
        lambda s: s.flip(s.region / IDS, 2 * s.token()), "text of the document", "sample/{region} document {index}"
    ),
    "a mask of the region": Fault(
        lambda s: s.flip(s.region / CASES, 2 * s.token()), "text of the document", "sample/{region} document {index}"
    ),
    "a cut of the region": Fault(
        lambda s: s.flip(s.region / OFFSETS, 8 * int(s.document["index"]) + 8),
        "text of the document",
        "sample/{region} document {index}",
    ),
    "a line of documents.jsonl": Fault(
        lambda s: _replace(s.region / DOCUMENTS, b'"split":"train"', b'"split":"trail"'),
        "file of the region",
        "sample/{region}/documents.jsonl",
    ),
    "the receipt, sealed again": Fault(_resealed_receipt, "receipt", "sample/{region}/receipt.json"),
    "receipt and admission of another region": Fault(_other_region, "region that the receipt names", "sample/{region}"),
    "the admission": Fault(
        lambda s: _replace(s.region / ADMISSION, b'"result":"passed"', b'"result":"passes"'),
        "admission",
        "sample/{region}/admission.json",
    ),
    "the admission is gone": Fault(lambda s: (s.region / ADMISSION).unlink(), "region of the segment", _AT),
    "the manifest": Fault(
        lambda s: _replace(s.home.generation("sample").manifest(1), b'"documents":', b'"documants":'),
        "manifest",
        "generations/sample/frontier/manifests/00000001.json",
    ),
    "the vocabulary": Fault(lambda s: s.flip(_vocabulary(s), -3), "codec", "sample/codec/vocabulary.json"),
    "the mask model": Fault(
        lambda s: s.flip(_vocabulary(s).with_name("mixture.npz"), -1), "codec", "sample/codec/mixture.npz"
    ),
    "the filter policy": Fault(_other_policy, "filter policy", "sample/{region}: sample-1"),
    "the row of the source": Fault(_source, "source row", "sample/{region} document {index}"),
    "the verdict of a dropped row": Fault(
        _verdicts("verdict", "dropped:too_short"), "verdicts of the region", "sample/00000 row 0", "row"
    ),
    "a score of a dropped row": Fault(
        _verdicts("score_digit_share", 900_000), "filter run again", "sample/00000 row 0", "row"
    ),
}


def table_lines() -> list[str]:
    """Return the table of docs/audits.md."""
    rows = [
        (name, fault.link, fault.where.replace("{region}", "REGION").replace("{index}", "INDEX"))
        for name, fault in FAULTS.items()
    ]
    return [f"| {' | '.join(row)} |" for row in (("what was changed", "link that fails", "where"), ("---",) * 3, *rows)]
