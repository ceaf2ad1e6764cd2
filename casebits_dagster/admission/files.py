"""Layer 1: the files of a region as they lie in the folder, against the receipt.

Costs one hash of every byte. Arrays are memory maps; a file of zero bytes, which cannot be mapped, is an empty array.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from casebits_dagster.admission.checks import Array, Proof
from casebits_dagster.records.digests import sha256, sha256_file
from casebits_dagster.records.errors import Absent, RecordError
from casebits_dagster.records.layout import ADMISSION, ARRAY_NAMES, DOCUMENTS, RECEIPT, ArrayNames, region_id
from casebits_dagster.records.region import Receipt, StoredFile


@dataclass(frozen=True, slots=True)
class RegionFiles:
    """A region whose files are what its receipt says: `ids`, `cases` "<u2", `offsets` "<u8" (D + 1), `raw_bytes`
    "<u8" (D), and the bytes of documents.jsonl. `names` are those of its arrays; a plain codec has no masks, and its
    `cases` are zeros that take no memory."""

    names: ArrayNames
    receipt: Receipt
    receipt_sha256: str
    files: tuple[StoredFile, ...]
    ids: Array
    cases: Array
    offsets: Array
    raw_bytes: Array
    lines: bytes


def read_files(folder: Path, proof: Proof) -> RegionFiles:
    """Return the region after all checks of layer 1. Raises Absent when there is no such folder."""
    if not folder.is_dir():
        raise Absent("REGION_MISSING", str(folder), "there is no such region", remedy="encode the region first")
    if folder.is_symlink():
        raise proof.rejected("L1_FILES", ".", "is not a folder of its own")
    names = ARRAY_NAMES[proof.format]
    kinds = {**names.dtypes, DOCUMENTS: "jsonl"}
    _check_names(folder, {*kinds, RECEIPT}, proof)
    raw = (folder / RECEIPT).read_bytes()
    receipt, receipt_sha256 = _parse_receipt(raw, proof), sha256(raw)
    proof.seed(receipt_sha256)
    lines = (folder / DOCUMENTS).read_bytes()
    files = _check_files(folder, kinds, receipt, lines.count(b"\n"), proof)
    files.append(StoredFile(name=RECEIPT, bytes=len(raw), sha256=receipt_sha256))
    files.sort(key=lambda file: file.name)
    arrays = {name: _map(folder / name, dtype) for name, dtype in names.dtypes.items()}
    ids, offsets, raw_bytes = arrays[names.ids], arrays[names.offsets], arrays[names.raw_bytes]
    cases = arrays[names.cases] if names.cases else np.broadcast_to(np.uint16(0), len(ids))
    region = RegionFiles(names, receipt, receipt_sha256, tuple(files), ids, cases, offsets, raw_bytes, lines)
    _check_shape(region, proof)
    return region


def _check_names(folder: Path, wanted: set[str], proof: Proof) -> None:
    found = {path.name: path for path in folder.iterdir()}
    held = {format: names.ids for format, names in ARRAY_NAMES.items() if names.ids in found}
    if held and proof.format not in held:
        other, name = next(iter(held.items()))
        raise proof.rejected("L1_FILES", name, "a region of another format", expected=proof.format, read=other)
    for name in sorted(wanted - found.keys()):
        raise proof.rejected("L1_FILES", name, "file is missing")
    for name in sorted(found.keys() - wanted - {ADMISSION}):
        raise proof.rejected("L1_FILES", name, "file does not belong to a region")
    for name, path in sorted(found.items()):
        if path.is_symlink() or not path.is_file():
            raise proof.rejected("L1_FILES", name, "is not a regular file")
    proof.passed("L1_FILES", len(wanted))


def _parse_receipt(raw: bytes, proof: Proof) -> Receipt:
    try:
        receipt = Receipt.parse(raw, RECEIPT)
    except RecordError as error:
        raise proof.rejected("L1_RECEIPT", error.where, str(error)) from error
    proof.require_equal("L1_RECEIPT", f"{RECEIPT}: content_id", receipt.expected_content_id(), receipt.content_id)
    proof.require_equal("L1_RECEIPT", f"{RECEIPT}: region.id", region_id(receipt.region.index), receipt.region.id)
    proof.passed("L1_RECEIPT", 1)
    return receipt


def _check_files(folder: Path, kinds: dict[str, str], receipt: Receipt, lines: int, proof: Proof) -> list[StoredFile]:
    names = tuple(file.name for file in receipt.files)
    proof.require_equal("L1_SIZES", f"{RECEIPT}: files", tuple(sorted(kinds)), names)
    for file in receipt.files:
        proof.require_equal("L1_SIZES", f"{file.name}: dtype", kinds[file.name], file.dtype)
        proof.require_equal("L1_SIZES", f"{file.name}: bytes", file.bytes, (folder / file.name).stat().st_size)
        if file.dtype == "jsonl":
            proof.require_equal("L1_SIZES", f"{file.name}: items", file.items, lines)
        else:
            stated = file.items * np.dtype(file.dtype).itemsize
            proof.require_equal("L1_SIZES", f"{file.name}: items in bytes", stated, file.bytes)
    proof.passed("L1_SIZES", len(names))
    for file in receipt.files:
        proof.require_equal("L1_HASH", file.name, file.sha256, sha256_file(folder / file.name))
    proof.passed("L1_HASH", len(names))
    return [StoredFile(name=file.name, bytes=file.bytes, sha256=file.sha256) for file in receipt.files]


def _map(path: Path, dtype: str) -> Array:
    return np.asarray(np.memmap(path, dtype, mode="r")) if path.stat().st_size else np.empty(0, dtype)


def _check_shape(region: RegionFiles, proof: Proof) -> None:
    documents, names = len(region.raw_bytes), region.names
    proof.require_equal("L1_SHAPE", f"{names.cases}: items", len(region.ids), len(region.cases))
    proof.require_equal("L1_SHAPE", f"{names.offsets}: items", documents + 1, len(region.offsets))
    proof.require_equal("L1_SHAPE", f"{DOCUMENTS}: lines", documents, region.lines.count(b"\n"))
    proof.passed("L1_SHAPE", len(names.dtypes) + 1)
