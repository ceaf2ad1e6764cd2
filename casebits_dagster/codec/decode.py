"""CaseBits to text: exactly the bytes that were encoded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from casebits_dagster.codec.bytetable import Bytes, ByteTable, Ids, read_vocabulary
from casebits_dagster.codec.encode import Masks


@dataclass(frozen=True, slots=True)
class Codec:
    """What a reader needs: the bytes of every token of a pinned vocabulary."""

    table: ByteTable

    @classmethod
    def load(cls, folder: Path) -> Codec:
        """Return the codec of a folder that holds `vocabulary.json`."""
        return cls(ByteTable.of(read_vocabulary(folder / "vocabulary.json")))

    def decode(self, ids: Ids, masks: Masks) -> bytes:
        """Return the text bytes of ids "<u2" (n,) and masks "<u2" (n,); EOD is no text."""
        return decode(self.table, ids, masks).tobytes()

    def text(self, ids: Ids, masks: Masks) -> str:
        """Return the text of whole documents. Raises UnicodeDecodeError on a cut inside a character."""
        return self.decode(ids, masks).decode()


def decode(table: ByteTable, ids: Ids, masks: Masks) -> Bytes:
    """Return the text bytes, uint8: token bytes with 0x20 cleared wherever a mask bit is set."""
    text, cuts = table.spell(ids)
    out = text.copy()
    capitals = np.flatnonzero(masks)
    bits = np.unpackbits(np.ascontiguousarray(masks[capitals]).view(np.uint8), bitorder="little").reshape(-1, 16)
    token, byte = np.nonzero(bits)
    out[cuts[capitals[token]] + byte] -= np.uint8(0x20)
    return out
