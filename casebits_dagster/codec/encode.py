"""Text to CaseBits: lower-case BPE ids and, beside each, the mask of its ASCII capitals.

`text -> lower A-Z only -> byte-level BPE -> uint16 ids`; bit b of a token's mask says that byte b was A-Z. Tokens have
at most 16 bytes, so the mask is complete and the text comes back byte for byte. `fastokens` encodes; where it is not
installed `tokenizers` gives the same ids, about 50 times slower.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import tokenizers
from numpy.typing import NDArray

from casebits_dagster.codec.bytetable import END_MARKER, Bytes, ByteTable, Cuts, Ids, read_vocabulary
from casebits_dagster.records.errors import RecordError

try:
    import fastokens  # type: ignore[import-untyped]
except ImportError:  # pragma: no cover - a platform without its wheel
    fastokens = None

Masks: TypeAlias = "NDArray[np.uint16]"
MAX_TOKEN_BYTES = 16
_LOWER = bytes(range(256)).lower()


@dataclass(frozen=True, slots=True)
class EncodedDocuments:
    """Documents as columns: `ids` "<u2" (n,), `cases` "<u2" (n,), `offsets` "<u8" (D + 1,) token cuts, `raw_bytes`
    "<u8" (D,) bytes of text. Every document ends in one EOD (id 0, mask 0), which `raw_bytes` does not count."""

    ids: Ids
    cases: Masks
    offsets: NDArray[np.uint64]
    raw_bytes: NDArray[np.uint64]


class Encoder:
    """A CaseBits encoder for one pinned vocabulary. `engine` names what tokenises, with its version."""

    def __init__(self, vocabulary: Path) -> None:
        tokens = read_vocabulary(vocabulary)
        _require_vocabulary(tokens, vocabulary)
        self.table = ByteTable.of(tokens)
        self._fast = fastokens.Tokenizer.from_file(str(vocabulary)) if fastokens else None
        self._reference = tokenizers.Tokenizer.from_file(str(vocabulary))
        self.engine = f"fastokens {_version('fastokens')}" if self._fast else f"tokenizers {tokenizers.__version__}"

    def encode(self, text: Bytes, cuts: Cuts) -> EncodedDocuments:
        """Return the documents `text[cuts[i]:cuts[i+1]]` (valid UTF-8, uint8) encoded."""
        count = len(cuts) - 1
        lowered = text.tobytes().translate(_LOWER)
        bare, bare_cuts = self._tokenise([lowered[cuts[i] : cuts[i + 1]].decode() for i in range(count)])
        places = np.arange(len(bare)) + np.repeat(np.arange(count), np.diff(bare_cuts))
        ids = np.zeros(len(bare) + count, "<u2")
        cases = np.zeros(len(ids), "<u2")
        ids[places] = bare
        cases[places] = case_masks(text, self.table.cuts(bare))
        offsets = (bare_cuts + np.arange(count + 1)).astype("<u8")
        return EncodedDocuments(ids, cases, offsets, np.diff(cuts).astype("<u8"))

    def _tokenise(self, texts: list[str]) -> tuple[Ids, Cuts]:
        if self._fast:
            flat, offsets = self._fast.encode_batch_flat(texts)
            return np.frombuffer(flat, "<u4").astype("<u2"), np.frombuffer(offsets, "<u8").astype("<i8")
        return tokenise_reference(self._reference, texts)


def tokenise_reference(tokenizer: tokenizers.Tokenizer, texts: list[str]) -> tuple[Ids, Cuts]:
    """Return ids and cuts of the texts as the `tokenizers` library gives them."""
    found = [encoding.ids for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
    cuts = np.zeros(len(texts) + 1, "<i8")
    np.cumsum([len(ids) for ids in found], out=cuts[1:])
    flat = np.fromiter((token for ids in found for token in ids), "<u2", int(cuts[-1]))
    return flat, cuts


def case_masks(text: Bytes, cuts: Cuts) -> Masks:
    """Return the mask of every token `text[cuts[i]:cuts[i+1]]`: bit b set = byte b is one of A-Z."""
    bits = np.packbits((text - np.uint8(0x41)) < 26, bitorder="little")
    # A mask spans at most 16 + 7 bits, so one unaligned 4-byte word at its first byte holds all of it.
    padded = np.concatenate([bits, np.zeros(4, np.uint8)])
    words: NDArray[np.uint32] = np.ndarray((len(bits) + 1,), "<u4", padded, 0, (1,))
    starts = cuts[:-1]
    shifted = words[starts >> 3] >> (starts & 7).astype("<u4")
    within = (np.uint32(1) << np.diff(cuts).astype("<u4")) - np.uint32(1)
    masks: Masks = (shifted & within).astype("<u2")
    return masks


def _require_vocabulary(tokens: list[bytes], path: Path) -> None:
    """Refuse a vocabulary that cannot carry CaseBits: the rules that make the code reversible."""
    longest = max(map(len, tokens))
    if longest > MAX_TOKEN_BYTES:
        raise RecordError("CODEC_PIN", str(path), expected=f"tokens of at most {MAX_TOKEN_BYTES} bytes", read=longest)
    if len(tokens) > 65_536 or tokens[0]:
        problem = f"id 0 must be {END_MARKER} and nothing else, and ids must fit 16 bits"
        raise RecordError("CODEC_PIN", str(path), problem)
    if missing := sorted(set(range(256)) - {token[0] for token in tokens if len(token) == 1}):
        raise RecordError("CODEC_PIN", str(path), expected="all 256 single bytes", read=f"without {missing}")
    if capitals := [token for token in tokens if len(token) > 1 and token != token.lower()]:
        raise RecordError("CODEC_PIN", str(path), expected="no token with A-Z", read=capitals[0])


def _version(package: str) -> str:
    from importlib.metadata import version

    return version(package)
