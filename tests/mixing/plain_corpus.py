"""A published corpus of a plain codec: that of `corpus` with ids alone, a separator before every document."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from casebits_dagster.records.digests import sha256
from casebits_dagster.records.frontier import FrontierEntry, Manifest
from casebits_dagster.records.layout import ARRAY_NAMES, RECEIPT, Home
from casebits_dagster.records.region import CodecPin, Receipt, Separator, StoredFile
from tests.mixing.corpus import HEX, Arrays, TinySource, corpus

EOT = 50_256
CASEBITS, PLAIN = ARRAY_NAMES["casebits-1"], ARRAY_NAMES["plain-1"]


def plain_corpus(home: Home, generation: str = "tiny", documents: int = 240, seed: int = 1) -> TinySource:
    """Return `corpus` as a plain codec publishes it: the separator 50256 stands first in every document."""
    source = corpus(home, generation, documents, seed)
    path = home.generation(generation).manifest(1)
    manifest = Manifest.parse(path.read_bytes(), path.name)
    manifest = replace(manifest, regions=tuple(_plain(home, generation, entry) for entry in manifest.regions))
    path.write_bytes(manifest.to_bytes())
    return replace(
        source,
        manifest_sha256=sha256(manifest.to_bytes()),
        vocabulary_size=EOT + 1,
        format="plain-1",
        separator_id=EOT,
        separator_position="start",
        region=lambda number: _arrays(home, generation, number),
    )


def _plain(home: Home, generation: str, entry: FrontierEntry) -> FrontierEntry:
    folder = home.generation(generation).region(entry.index)
    ids, offsets = (
        np.fromfile(folder / name, dtype) for name, dtype in ((CASEBITS.ids, "<u2"), (CASEBITS.offsets, "<u8"))
    )
    ids = np.roll(ids, 1)
    ids[offsets[:-1].astype(np.int64)] = EOT
    ids.tofile(folder / PLAIN.ids)
    (folder / CASEBITS.offsets).rename(folder / PLAIN.offsets)
    for name in (CASEBITS.ids, str(CASEBITS.cases)):
        (folder / name).unlink()
    receipt = Receipt.parse((folder / RECEIPT).read_bytes(), RECEIPT)
    codec = CodecPin(vocab_sha256=HEX, mixture_sha256=None, format="plain-1", separator=Separator(id=EOT, at="start"))
    (folder / RECEIPT).write_bytes(replace(receipt, pins=replace(receipt.pins, codec=codec)).to_bytes())
    found = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    files = tuple(StoredFile(name=name, bytes=len(raw), sha256=sha256(raw)) for name, raw in found.items())
    return replace(entry, files=files)


def _arrays(home: Home, generation: str, number: int) -> Arrays:
    folder = home.generation(generation).region(number)
    ids = np.memmap(folder / PLAIN.ids, "<u2", "r") if (folder / PLAIN.ids).stat().st_size else np.empty(0, "<u2")
    return Arrays(ids, np.broadcast_to(np.uint16(0), len(ids)), np.fromfile(folder / PLAIN.offsets, "<u8"))
