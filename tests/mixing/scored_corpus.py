"""A published corpus with recorded scores and a codec: that of `corpus`, its regions as the product opens them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import Any

import numpy as np

from casebits_dagster.codec.decode import Codec
from casebits_dagster.codec.mixture import Mixture
from casebits_dagster.records.canonical import canonical
from casebits_dagster.records.codec import CodecFiles
from casebits_dagster.records.digests import sha256, sha256_file
from casebits_dagster.records.frontier import FrontierEntry, Manifest
from casebits_dagster.records.layout import ARRAY_NAMES, DOCUMENTS, RECEIPT, Home
from casebits_dagster.records.pins import default_pins_folder
from casebits_dagster.records.record import micro_text
from casebits_dagster.records.region import CodecPin, Receipt, StoredFile
from casebits_dagster.regions.index import index_region
from casebits_dagster.regions.read import Region
from tests.mixing.corpus import TinySource, corpus

METRIC = "quality"
NAMES = ARRAY_NAMES["casebits-1"]


def scored_corpus(home: Home, generation: str = "scored") -> TinySource:
    """Return `corpus` with a score of 0 to 0.99 a document, and the codec of the sample."""
    source, folder = corpus(home, generation), home.generation(generation)
    shutil.copytree(default_pins_folder() / "codecs" / "sample-lower-8192", folder.codec)
    path = folder.manifest(1)
    manifest = Manifest.parse(path.read_bytes(), path.name)
    manifest = replace(manifest, regions=tuple(_scored(home, generation, entry) for entry in manifest.regions))
    path.write_bytes(manifest.to_bytes())
    mixture = Mixture.load(folder.codec / CodecFiles.MIXTURE, Codec.load(folder.codec).table)
    regions = [Region.open(folder.region(number)) for number in range(source.regions)]
    index = source.index.copy()
    index["case_class"] = np.concatenate([index_region(region, mixture)["case_class"] for region in regions])
    return replace(
        source,
        manifest_sha256=sha256(manifest.to_bytes()),
        vocabulary_sha256=sha256_file(folder.codec / CodecFiles.VOCABULARY),
        index=index,
        rows=lambda number: index[index["region"] == number],
        region=lambda number: regions[number],
    )


def _scored(home: Home, generation: str, entry: FrontierEntry) -> FrontierEntry:
    folder, codec = home.generation(generation).region(entry.index), home.generation(generation).codec
    lines: list[dict[str, Any]] = [json.loads(line) for line in (folder / DOCUMENTS).read_bytes().splitlines()]
    for number, line in enumerate(lines):
        line |= {"scores": {METRIC: micro_text(10_000 * (37 * number % 100))}, "split": "train"}
    (folder / DOCUMENTS).write_bytes(b"".join(canonical(line) for line in lines))
    np.zeros(len(lines), "<u8").tofile(folder / NAMES.raw_bytes)
    receipt = Receipt.parse((folder / RECEIPT).read_bytes(), RECEIPT)
    digests = [sha256_file(codec / name) for name in (CodecFiles.VOCABULARY, CodecFiles.MIXTURE)]
    pin = CodecPin(vocab_sha256=digests[0], mixture_sha256=digests[1], format="casebits-1")
    (folder / RECEIPT).write_bytes(replace(receipt, pins=replace(receipt.pins, codec=pin)).to_bytes())
    found = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    files = tuple(StoredFile(name=name, bytes=len(raw), sha256=sha256(raw)) for name, raw in found.items())
    return replace(entry, files=files)
