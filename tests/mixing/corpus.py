"""A small published corpus of random tokens: region files, receipts and one manifest, written by hand."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.mixing.sources import MixSource
from casebits_dagster.records.canonical import canonical
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.frontier import FrontierEntry, Manifest, PlanPin, SplitTotal, SplitTotals
from casebits_dagster.records.layout import ADMISSION, CASES, DOCUMENTS, IDS, OFFSETS, RECEIPT, Home
from casebits_dagster.records.recipe import Aligned, Domain, Lengths, Recipe, Selection
from casebits_dagster.records.region import (
    CodecPin,
    Counts,
    FilterPin,
    Pins,
    Receipt,
    RegionName,
    SourceSlice,
    SplitPin,
    Stage,
    StoredFile,
)

INDEX_DTYPE = [
    ("id", "V16"),
    ("region", "<u4"),
    ("index", "<u4"),
    ("tokens", "<u4"),
    ("raw_bytes", "<u8"),
    ("cluster", "<i4"),
    ("split", "u1"),
    ("case_class", "u1"),
]
SPLIT = SplitPin(rule="sha256-salt-id", salt="test", share=Decimal("0.1"))
VOCABULARY = 200
HEX = "ab" * 32


@dataclass(frozen=True, kw_only=True)
class TinySource(MixSource):
    """A source with all its index rows at hand."""

    index: NDArray[Any]


@dataclass(frozen=True)
class Arrays:
    ids: NDArray[np.uint16]
    cases: NDArray[np.uint16]
    offsets: NDArray[np.uint64]


def region_arrays(lengths: Sequence[int], seed: int) -> Arrays:
    """Return random documents of these lengths, each with the separator 0 (mask 0) at its end."""
    drawn = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype("<u8")
    ids = drawn.integers(1, VOCABULARY, int(offsets[-1])).astype("<u2")
    cases = drawn.integers(0, 2, int(offsets[-1])).astype("<u2")
    ends = offsets[1:].astype(np.int64) - 1
    ids[ends] = cases[ends] = 0
    return Arrays(ids, cases, offsets)


def is_validation(document_id: bytes) -> bool:
    digest = hashlib.sha256(SPLIT.salt.encode() + b"\0" + document_id).digest()
    return int.from_bytes(digest[:8], "big") < SPLIT.threshold


def publish(home: Home, generation: str, regions: Sequence[Sequence[tuple[int, int]]]) -> TinySource:
    """Write a generation whose regions hold documents (length, cluster) and return it as a source.

    A cluster of 100 or more repeats the text (the id) of document 0 of region 0, under the cluster less 100.
    """
    rows, entries, opened = [], [], []
    for number, documents in enumerate(regions):
        arrays = region_arrays([length for length, _ in documents], number)
        names = [(number, k) if cluster < 100 else (0, 0) for k, (_, cluster) in enumerate(documents)]
        ids = [hashlib.sha256(f"{generation} {name}".encode()).digest()[:16] for name in names]
        clusters = [cluster % 100 for _, cluster in documents]
        entries.append(_write_region(home, generation, number, arrays, ids, clusters))
        opened.append(arrays)
        for k, (length, _) in enumerate(documents):
            rows.append((ids[k], number, k, length, 4 * length, clusters[k], is_validation(ids[k]), 0))
    manifest = _manifest(generation, entries)
    path = home.generation(generation).manifest(1)
    path.parent.mkdir(parents=True)
    path.write_bytes(manifest.to_bytes())
    index = np.array(rows, INDEX_DTYPE)
    return TinySource(
        generation=generation,
        manifest_version=1,
        manifest_sha256=sha256(manifest.to_bytes()),
        vocabulary_sha256=HEX,
        vocabulary_size=VOCABULARY,
        licences=("CC0-1.0",),
        documents=len(index),
        regions=len(regions),
        rows=lambda number: index[index["region"] == number],
        region=lambda number: opened[number],
        index=index,
    )


def corpus(home: Home, generation: str = "tiny", documents: int = 240, seed: int = 1) -> TinySource:
    """Return a corpus of three regions and three clusters with lengths from 2 to 200 tokens; one region is empty."""
    drawn = np.random.default_rng(seed)
    lengths = np.exp(drawn.uniform(np.log(2), np.log(200), documents)).astype(int)
    pairs = [
        (int(length), int(cluster)) for length, cluster in zip(lengths, drawn.integers(0, 3, documents), strict=True)
    ]
    return publish(home, generation, [pairs[: documents // 2], [], pairs[documents // 2 :]])


def recipe(**changes: Any) -> Recipe:
    """Return an aligned recipe over `corpus` with some fields of it, or of its selection, changed."""
    selection: dict[str, Any] = {
        "windows": 80,
        "domains": (
            Domain(name="a", generation="tiny", clusters=(0,), share=Decimal("0.4")),
            Domain(name="b", generation="tiny", clusters=(1, 2), share=Decimal("0.6")),
        ),
        "lengths": Lengths(edges=(16, 64), profile=(Decimal("0.1"), Decimal("0.3"), Decimal("0.6"))),
        "validation_windows": 4,
    }
    selection |= {key: changes.pop(key) for key in list(changes) if key in Selection.__slots__}
    fields: dict[str, Any] = {
        "mix": "tiny_aligned",
        "description": "a test",
        "strategy": "aligned",
        "sequence_length": 64,
        "windows_per_shard": 32,
        "seed": "test",
        "selection": Selection(**selection),
        "aligned": Aligned(),
    }
    return Recipe(**(fields | changes))


def control(of: Recipe) -> Recipe:
    """Return the concatenated control of a recipe's mix."""
    return recipe(
        mix=f"{of.mix}_control",
        strategy="concatenated",
        documents_of=of.mix,
        selection=None,
        aligned=None,
        seed="order",
    )


def _write_region(
    home: Home, generation: str, number: int, arrays: Arrays, ids: list[bytes], clusters: list[int]
) -> FrontierEntry:
    folder = home.generation(generation).region(number)
    folder.mkdir(parents=True)
    lines: list[dict[str, Any]] = [
        {"id": name.hex(), "cluster": cluster} for name, cluster in zip(ids, clusters, strict=True)
    ]
    content = {
        IDS: arrays.ids.tobytes(),
        CASES: arrays.cases.tobytes(),
        OFFSETS: arrays.offsets.tobytes(),
        DOCUMENTS: b"".join(canonical(line) for line in lines),
        RECEIPT: _receipt(generation, number).to_bytes(),
        ADMISSION: b"admitted by hand\n",
    }
    for name, raw in content.items():
        (folder / name).write_bytes(raw)
    files = tuple(StoredFile(name=name, bytes=len(raw), sha256=sha256(raw)) for name, raw in sorted(content.items()))
    return FrontierEntry(
        index=number,
        path=f"regions/{number:05d}",
        content_id=HEX,
        documents=len(ids),
        tokens=len(arrays.ids),
        files=files,
    )


def _receipt(generation: str, number: int) -> Receipt:
    return Receipt(
        generation=generation,
        region=RegionName(index=number, id=f"{number:05d}"),
        source=SourceSlice(
            repo="r",
            repo_type="folder",
            revision="a" * 40,
            path="p",
            file_bytes=0,
            file_sha256=HEX,
            unit="rows",
            begin=0,
            end=0,
            range_sha256=HEX,
            licence_spdx="CC0-1.0",
        ),
        worker=Stage(name="w", version=1),
        pins=Pins(
            filter=FilterPin(policy_id="f", sha256=HEX),
            codec=CodecPin(vocab_sha256=HEX, mixture_sha256=HEX, format="casebits-1"),
            split=SPLIT,
        ),
        counts=Counts(
            rows_read=0,
            documents=0,
            tokens=0,
            raw_bytes=0,
            train_documents=0,
            validation_documents=0,
            dropped={},
            quarantined={},
        ),
        verdicts_digest=HEX,
        files=(),
    )


def _manifest(generation: str, entries: list[FrontierEntry]) -> Manifest:
    nothing = SplitTotal(documents=0, tokens=0, raw_bytes=0)
    return Manifest(
        generation=generation,
        version=1,
        previous=None,
        plan=PlanPin(total=len(entries), sha256=HEX),
        count=len(entries),
        regions=tuple(entries),
        codec=(),
        splits=SplitTotals(train=nothing, validation=nothing),
        tree_root=HEX,
    )
