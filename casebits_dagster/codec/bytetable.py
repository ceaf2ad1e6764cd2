"""Token ids to bytes, for any byte-level vocabulary: GPT-2's for the source, the lower-case BPE's for our own ids.

Cost: about 10 ns a token in batches of a million; Arrow moves the bytes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from casebits_dagster.records.errors import RecordError

Ids: TypeAlias = "NDArray[np.uint16]"
Bytes: TypeAlias = "NDArray[np.uint8]"
Cuts: TypeAlias = "NDArray[np.int64]"
END_MARKER = "<|endoftext|>"


def gpt2_alphabet() -> dict[str, int]:
    """Return the byte that each character of a byte-level vocabulary stands for (the table of GPT-2).

    Printable bytes stand for themselves; the 68 others are mapped, in order, to the characters from U+0100 on.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + rank): byte for rank, byte in enumerate(others)}


@dataclass(frozen=True, slots=True)
class ByteTable:
    """The bytes of every token: `tokens`, an Arrow array of V binary values, and their `lengths` "<u4" (V,)."""

    lengths: NDArray[np.uint32]
    tokens: pa.LargeBinaryArray

    @classmethod
    def of(cls, tokens: list[bytes]) -> ByteTable:
        """Return the table of tokens in id order."""
        return cls(np.array([len(token) for token in tokens], "<u4"), pa.array(tokens, pa.large_binary()))

    def cuts(self, ids: Ids) -> Cuts:
        """Return where each token begins in the decoded bytes: "<i8" (n + 1,), last = number of bytes."""
        cuts = np.zeros(len(ids) + 1, "<i8")
        np.cumsum(self.lengths[ids], out=cuts[1:])
        return cuts

    def spell(self, ids: Ids) -> tuple[Bytes, Cuts]:
        """Return the concatenated bytes of the tokens, uint8 (n,), and their `cuts`."""
        _, offsets, content = self.tokens.take(pa.array(ids)).buffers()
        cuts = np.frombuffer(offsets, "<i8", len(ids) + 1)
        return np.frombuffer(content, np.uint8, int(cuts[-1])), cuts

    def decode(self, ids: Ids) -> Bytes:
        """Return the concatenated bytes of the tokens, uint8 (n,)."""
        return self.spell(ids)[0]


def read_vocabulary(path: Path, separator: int | None = None) -> list[bytes]:
    """Return the bytes of each token of GPT-2's `encoder.json` or a `tokenizers` byte-level BPE file, in id order.

    The separator is no text: its bytes are empty. It is that id or, where none is named, the end marker. Raises
    RecordError (CODEC_PIN) on a file that is none, or whose tokens are not spelled byte by byte.
    """
    try:
        found = json.loads(path.read_bytes())
    except ValueError as error:
        raise RecordError("CODEC_PIN", str(path), f"not JSON: {error}") from error
    model = found.get("model") if isinstance(found, dict) else None
    # In GPT-2's table "model" is one of the tokens.
    named = model.get("vocab") if isinstance(model, dict) else found
    vocabulary: dict[str, int] = named if isinstance(named, dict) else {}
    ids = list(vocabulary.values())
    if not ids or any(type(token_id) is not int for token_id in ids) or set(ids) != set(range(len(ids))):
        raise RecordError("CODEC_PIN", str(path), expected="tokens with ids from 0 on", read="another structure")
    alphabet = gpt2_alphabet()
    tokens = [b""] * len(vocabulary)
    structural = vocabulary.get(END_MARKER) if separator is None else separator
    for text, token_id in vocabulary.items():
        if token_id == structural:
            continue
        if not alphabet.keys() >= set(text):
            raise RecordError("CODEC_PIN", str(path), expected="tokens spelled byte by byte", read=repr(text))
        tokens[token_id] = bytes(alphabet[character] for character in text)
    return tokens
