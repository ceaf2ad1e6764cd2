"""Read a region as memory maps. Shapes are checked here; hashes are the consumer's to verify first."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.codec.bytetable import Ids
from casebits_dagster.codec.decode import Codec
from casebits_dagster.codec.encode import EOD, Masks
from casebits_dagster.records.errors import Absent, RecordError
from casebits_dagster.records.layout import ARRAY_NAMES, DOCUMENTS, RECEIPT
from casebits_dagster.records.region import Receipt


@dataclass(frozen=True, slots=True)
class Region:
    """A region's arrays: `ids` "<u2" (n,), `cases` "<u2" (n,), `offsets` "<u8" (D + 1,), `raw_bytes` "<u8" (D,).

    A plain codec has no masks: its `cases` are zeros that take no memory."""

    folder: Path
    receipt: Receipt
    ids: Ids
    cases: Masks
    offsets: NDArray[np.uint64]
    raw_bytes: NDArray[np.uint64]

    @classmethod
    def open(cls, folder: Path) -> Region:
        """Map a region's arrays. Raises Absent when a file is missing, RecordError when the lengths disagree."""
        receipt_path = folder / RECEIPT
        if not receipt_path.exists():
            raise Absent("FILE_MISSING", str(receipt_path), "no region is published here")
        receipt = Receipt.parse(receipt_path.read_bytes(), str(receipt_path))
        names = ARRAY_NAMES[receipt.pins.codec.format]
        arrays = {name: _mapped(folder / name, dtype) for name, dtype in names.dtypes.items()}
        ids, offsets, raw_bytes = arrays[names.ids], arrays[names.offsets], arrays[names.raw_bytes]
        cases = arrays[names.cases] if names.cases else np.broadcast_to(np.uint16(0), len(ids))
        region = cls(folder, receipt, ids, cases, offsets, raw_bytes)
        if len(ids) != len(cases):
            raise RecordError("FILE_SIZE", f"{folder}/{names.cases}", expected=len(ids), read=len(cases))
        if len(offsets) != len(raw_bytes) + 1:
            expected = len(raw_bytes) + 1
            raise RecordError("FILE_SIZE", str(folder / names.offsets), expected=expected, read=len(offsets))
        if int(offsets[-1]) != len(ids):
            raise RecordError("FILE_SIZE", str(folder / names.ids), expected=int(offsets[-1]), read=len(ids))
        return region

    def __len__(self) -> int:
        return len(self.raw_bytes)

    def tokens(self, document: int) -> tuple[Ids, Masks]:
        """Return ids and masks of one document, its separator included. Raises Absent beyond the last document."""
        if not 0 <= document < len(self):
            where = f"{self.folder}: document {document}"
            raise Absent("NO_SUCH_DOCUMENT", where, f"the region has {len(self)} documents")
        begin, end = int(self.offsets[document]), int(self.offsets[document + 1])
        return self.ids[begin:end], self.cases[begin:end]

    def document(self, document: int, codec: Codec) -> str:
        """Return the text of one document. Raises Absent beyond the last one."""
        ids, masks = self.tokens(document)
        separator = self.receipt.pins.codec.separator or EOD
        bare = slice(0, -1) if separator.at == "end" else slice(1, None)
        return codec.text(ids[bare], masks[bare])

    def documents(self) -> list[dict[str, Any]]:
        """Return the lines of documents.jsonl as records."""
        return [json.loads(line) for line in (self.folder / DOCUMENTS).read_bytes().splitlines()]


def _mapped(path: Path, dtype: str) -> NDArray[Any]:
    if not path.exists():
        raise Absent("FILE_MISSING", str(path), "a file of the region is missing")
    # A zero-byte file cannot be mapped, and empty arrays are legitimate.
    return np.memmap(path, dtype, mode="r") if path.stat().st_size else np.empty(0, dtype)
