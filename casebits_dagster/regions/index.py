"""The document index: one fixed-width row a document, rebuilt from a region whenever its cache is missing.

One mechanism for selection, stratification, duplicates across regions, exclusions and take-down.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.codec.bytetable import ByteTable
from casebits_dagster.codec.mixture import COMPONENTS, Mixture
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.errors import RecordError
from casebits_dagster.records.layout import DOCUMENTS, GenerationFolder
from casebits_dagster.records.record import micro
from casebits_dagster.records.region import Receipt
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


def kept_index(folder: GenerationFolder, index: int, receipt: Receipt) -> NDArray[np.void] | None:
    """Return the index rows that were made of the region with this receipt; None when they are not there or rotten."""
    raw = _stamped(folder.index(index), _made_from(receipt))
    return None if raw is None else np.load(io.BytesIO(raw))


def _made_from(receipt: Receipt) -> str:
    return f"{_VERSION} {receipt.content_id} {receipt.pins.codec.mixture_sha256}"


def cached_index(folder: GenerationFolder, index: int, region: Region, table: ByteTable) -> NDArray[np.void]:
    """Return the index rows of a region, from `index/<id>.npy` where the stamp beside it fits, else made anew.

    The stamp names what the rows were made from and their own hash: rot, a truncated file and another region's rows are
    all just a cache that is remade.
    """
    if (kept := kept_index(folder, index, region.receipt)) is not None:
        return kept
    mixture = Mixture.load(folder.codec / "mixture.npz", table) if region.receipt.pins.codec.mixture_sha256 else None
    rows = index_region(region, mixture)
    content = io.BytesIO()
    np.save(content, rows)
    _keep_stamped(folder.index(index), _made_from(region.receipt), content.getvalue())
    return rows


def cached_scores(region: Region, metrics: Sequence[str]) -> NDArray[np.int64]:
    """Return what a region recorded of its documents, in millionths, "<i8" (len(metrics), D).

    Each metric is a column of its own beside the index, `index/<id>.<metric>.npy`, with a stamp as the index has; only
    those that are asked for are read. Raises RecordError on a metric that the region did not record.
    """
    folder = GenerationFolder(region.folder.parents[1])
    scores, lines = np.empty((len(metrics), len(region)), "<i8"), list[dict[str, Any]]()
    for number, name in enumerate(metrics):
        path = folder.index(region.receipt.region.index).with_suffix(f".{name}.npy")
        made_from = f"{_VERSION} {region.receipt.content_id} {name}"
        raw = _stamped(path, made_from)
        if raw is None:
            lines = lines or region.documents()
            raw = _column(region, lines, name)
            _keep_stamped(path, made_from, raw)
        scores[number] = np.load(io.BytesIO(raw))
    return scores


def recorded_metrics(region: Region) -> tuple[str, ...]:
    """Return the metrics that a region recorded, sorted; none when it has no document."""
    with (region.folder / DOCUMENTS).open("rb") as lines:
        first = lines.readline()
    return tuple(sorted(json.loads(first)["scores"])) if first else ()


def _column(region: Region, lines: list[dict[str, Any]], name: str) -> bytes:
    """Return the scores of one metric as a `.npy`."""
    for line in lines[:1]:
        if name not in line["scores"]:
            where, expected = f"{region.folder / DOCUMENTS}: scores.{name}", ", ".join(sorted(line["scores"]))
            raise RecordError("JSON_INVALID", where, expected=f"one of {expected}", read=name)
    content = io.BytesIO()
    np.save(content, np.array([micro(line["scores"][name]) for line in lines], "<i8"))
    return content.getvalue()


def _stamped(path: Path, made_from: str) -> bytes | None:
    """Return a cache file whose stamp says that it was made from this, and not changed since."""
    stamp = path.with_suffix(".stamp")
    if path.is_file() and stamp.is_file():
        raw = path.read_bytes()
        if stamp.read_bytes() == _stamp(made_from, raw):
            return raw
    return None


def _stamp(made_from: str, raw: bytes) -> bytes:
    return f"{made_from} {sha256(raw)}\n".encode()


def _keep_stamped(path: Path, made_from: str, raw: bytes) -> None:
    _keep({path: raw, path.with_suffix(".stamp"): _stamp(made_from, raw)})


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
