"""The document index: one fixed-width row a document, rebuilt from a region whenever its cache is missing.

One mechanism for selection, stratification, duplicates across regions, exclusions and take-down.
"""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.codec.bytetable import ByteTable
from casebits_dagster.codec.mixture import COMPONENTS, Mixture
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.layout import GenerationFolder
from casebits_dagster.regions.read import Region
from casebits_dagster.stores.local import LocalStore

# `tokens` counts the EOD, `raw_bytes` does not; `cluster` is -1 where the source has none; `split` is 0 for train and 1
# for validation; `case_class` is the mixture component of most tokens with letters (4 = no letters).
INDEX_DTYPE = np.dtype(
    [
        ("id", "V16"),
        ("region", "<u4"),
        ("index", "<u4"),
        ("tokens", "<u4"),
        ("raw_bytes", "<u8"),
        ("cluster", "<i4"),
        ("split", "u1"),
        ("case_class", "u1"),
    ]
)
NO_LETTERS = len(COMPONENTS)
_VERSION = 1


def index_region(region: Region, mixture: Mixture | None) -> NDArray[np.void]:
    """Return the index rows of one region, INDEX_DTYPE (D,). Without a mixture no case class is known: NO_LETTERS."""
    rows, documents = np.zeros(len(region), INDEX_DTYPE), region.documents()
    if not documents:
        return rows
    rows["id"] = np.frombuffer(b"".join(bytes.fromhex(str(line["id"])) for line in documents), "V16")
    rows["region"] = region.receipt.region.index
    rows["index"] = np.arange(len(rows))
    rows["tokens"] = np.diff(region.offsets.astype("<i8"))
    rows["raw_bytes"] = region.raw_bytes
    rows["cluster"] = [-1 if line["cluster"] is None else line["cluster"] for line in documents]
    rows["split"] = [line["split"] == "validation" for line in documents]
    rows["case_class"] = _case_classes(region, mixture) if mixture else NO_LETTERS
    return rows


def cached_index(folder: GenerationFolder, index: int, region: Region, table: ByteTable) -> NDArray[np.void]:
    """Return the index rows of a region, from `index/<id>.npy` where the stamp beside it fits, else made anew.

    The stamp names what the rows were made from and their own hash: rot, a truncated file and another region's rows are
    all just a cache that is remade.
    """
    path = folder.index(index)
    stamp, pins = path.with_suffix(".stamp"), region.receipt.pins.codec
    made_from = f"{_VERSION} {region.receipt.content_id} {pins.mixture_sha256}"
    if path.is_file() and stamp.is_file():
        raw = path.read_bytes()
        if stamp.read_bytes() == f"{made_from} {sha256(raw)}\n".encode():
            found: NDArray[np.void] = np.load(io.BytesIO(raw))
            return found
    mixture = Mixture.load(folder.codec / "mixture.npz", table) if pins.mixture_sha256 else None
    rows = index_region(region, mixture)
    content = io.BytesIO()
    np.save(content, rows)
    _keep({path: content.getvalue(), stamp: f"{made_from} {sha256(content.getvalue())}\n".encode()})
    return rows


def _keep(files: dict[Path, bytes]) -> None:
    """Put cache files in place. Not durably, and not at all where nothing can be written: they are made again."""
    for path, raw in files.items():
        with contextlib.suppress(OSError), LocalStore(path.parent).staged("cache") as staging:
            (staging / path.name).write_bytes(raw)
            (staging / path.name).rename(path)


def _case_classes(region: Region, mixture: Mixture) -> NDArray[np.uint8]:
    components = mixture.components(region.ids, region.cases)
    document = np.repeat(np.arange(len(region)), np.diff(region.offsets.astype("<i8")))
    counted = components < NO_LETTERS
    shape = (len(region), NO_LETTERS)
    places = document[counted] * NO_LETTERS + components[counted]
    counts = np.bincount(places, minlength=shape[0] * shape[1]).reshape(shape)
    return np.where(counts.any(axis=1), counts.argmax(axis=1), NO_LETTERS).astype(np.uint8)
