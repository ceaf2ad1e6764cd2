"""Text to CaseBits: lower-case BPE ids and, beside each, the mask of its ASCII capitals.

`text -> lower A-Z only -> byte-level BPE -> uint16 ids`; bit b of a token's mask says that byte b was A-Z. Tokens have
at most 16 bytes, so the mask is complete and the text comes back byte for byte. A plain codec encodes the text as it is
and has no masks. `fastokens` encodes; where it is not installed `tokenizers` gives the same ids, about 50 times slower.
Cost with `fastokens`: about 10 ns a byte of text, of which 2 are not its own; memory: some 20 bytes a byte of a block.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import tokenizers
from numpy.typing import NDArray

from casebits_dagster.codec.bytetable import END_MARKER, Bytes, ByteTable, Cuts, Ids, read_vocabulary
from casebits_dagster.records.errors import CasebitsError, RecordError
from casebits_dagster.records.layout import EOD_ID
from casebits_dagster.records.region import Separator

try:
    import fastokens  # type: ignore[import-untyped]
except ImportError:  # pragma: no cover - a platform without its wheel
    fastokens = None

Masks: TypeAlias = "NDArray[np.uint16]"
TokenIds: TypeAlias = "NDArray[np.uint32]"
Tokenise: TypeAlias = Callable[[list[str]], tuple["TokenIds", Cuts]]
Engine: TypeAlias = Literal["fastokens", "tokenizers"]
MAX_TOKEN_BYTES = 16
EOD = Separator(id=EOD_ID, at="end")
_PART = 1 << 15
_LENGTH = 31


@dataclass(frozen=True, slots=True)
class EncodedDocuments:
    """Documents as columns: `ids` "<u2" (n,), `cases` "<u2" (n,), `offsets` "<u8" (D + 1,) token cuts, `raw_bytes`
    "<u8" (D,) bytes of text. Every document has one separator (in CaseBits it ends in EOD: id 0, mask 0), which
    `raw_bytes` does not count. The masks of a plain codec are 0 and take no memory."""

    ids: Ids
    cases: Masks
    offsets: NDArray[np.uint64]
    raw_bytes: NDArray[np.uint64]


class Encoder:
    """An encoder for one pinned vocabulary: of CaseBits, or of a plain codec when a `separator` is named.

    `engine` names what tokenises, with its version. Raises RecordError (CODEC_PIN) on a vocabulary that cannot do it.
    """

    def __init__(self, vocabulary: Path, separator: Separator | None = None, engine: Engine | None = None) -> None:
        tokens = read_vocabulary(vocabulary, separator.id if separator else None)
        _require_ids(tokens, separator, vocabulary)
        if separator is None:
            _require_casebits(tokens, vocabulary)
        self._separator, self._plain = separator or EOD, separator is not None
        self.table = ByteTable.of(tokens)
        # What a mask depends on, in one number a token: its length, and above that the bits that it may have.
        lengths = self.table.lengths.clip(0, MAX_TOKEN_BYTES).astype("<u4")
        self._shapes = lengths | ((np.uint64(1) << lengths) - np.uint64(1)).astype("<u4") << np.uint32(16)
        name = engine or ("fastokens" if fastokens else "tokenizers")
        self.engine = f"{name} {version(name)}"
        self._open, self._vocabulary = _fastokens if name == "fastokens" else _tokenizers, vocabulary

    @functools.cached_property
    def tokenise(self) -> Tokenise:
        """Texts to bare ids end to end, "<u4" (n,), and where each text begins, "<i8" (D + 1,).

        Raises RecordError (CODEC_PIN) on a file that spells ids and says nothing of how text becomes them.
        """
        found = json.loads(self._vocabulary.read_bytes())
        model = found.get("model")
        if not isinstance(model, dict) or "merges" not in model:
            problem = "it spells ids, and cannot encode text: only ids of its own source can be kept"
            raise RecordError("CODEC_PIN", str(self._vocabulary), problem)
        # Either would turn text into something that does not spell it: a marker into an id, a letter into another.
        for key in ("added_tokens", "normalizer"):
            if found.get(key):
                raise RecordError("CODEC_PIN", f"{self._vocabulary}: {key}", expected="none", read=str(found[key])[:80])
        return self._open(self._vocabulary)

    def encode(self, text: Bytes, cuts: Cuts) -> EncodedDocuments:
        """Return the documents `text[cuts[i]:cuts[i+1]]` (uint8) encoded. Raises NOT_UTF8 on text that is not UTF-8."""
        capital = (text - np.uint8(0x41)) < 26
        lowered = text if self._plain else text | capital.view(np.uint8) * np.uint8(0x20)
        view = memoryview(lowered)  # type: ignore[arg-type]  # an array is a buffer
        texts: list[str] = []
        try:
            texts.extend(str(view[begin:end], "utf-8") for begin, end in itertools.pairwise(cuts.tolist()))
        except UnicodeDecodeError as error:
            raise CasebitsError("NOT_UTF8", "text", f"document {len(texts)}: only UTF-8 is encoded") from error
        bare, bare_cuts = self.tokenise(texts)
        require_ids(bare, bare_cuts, len(self.table.lengths), "text")
        masks = np.broadcast_to(np.uint16(0), len(bare)) if self._plain else self._masks(capital, bare)
        return parted(bare.astype("<u2"), masks, bare_cuts, np.diff(cuts).astype("<u8"), self._separator)

    def keep(self, ids: Ids, cuts: Cuts, raw_bytes: NDArray[np.uint64], where: str, first: int) -> EncodedDocuments:
        """Return documents whose bare ids "<u2" `ids[cuts[i]:cuts[i+1]]` are a plain codec's own already.

        Raises ID_OUT_OF_RANGE on an unknown id, with `where` and the document, counted from `first`.
        """
        require_ids(ids, cuts, len(self.table.lengths), where, first)
        return parted(ids, np.broadcast_to(np.uint16(0), len(ids)), cuts, raw_bytes, self._separator)

    def _masks(self, capital: NDArray[np.bool_], ids: TokenIds) -> Masks:
        """Return the mask of every token of a text, "<u2" (n,), from its ids and its capitals, one flag a byte."""
        bits = np.concatenate([np.packbits(capital, bitorder="little"), np.zeros(4, np.uint8)])
        masks, begin = np.empty(len(ids), "<u2"), 0
        # In parts whose temporaries stay in the cache.
        for first in range(0, len(ids), _PART):
            shapes = self._shapes.take(ids[first : first + _PART].astype(np.intp), mode="clip")
            places = np.empty(len(shapes) + 1, np.intp)
            places[0] = begin % 8
            np.cumsum(shapes & np.uint32(_LENGTH), out=places[1:])
            places[1:] += begin % 8
            end = begin - begin % 8 + int(places[-1])
            # A mask spans at most 16 + 7 bits, so the 4-byte word at its first byte holds all of it. The words overlap;
            # spelled out once, they are taken several times faster than by their unaligned places.
            overlapping = np.ndarray((end // 8 - begin // 8 + 1,), "<u4", bits, begin // 8, (1,))
            words = np.ascontiguousarray(overlapping).take(places[:-1] >> 3, mode="clip")
            words >>= places[:-1].astype(np.uint8) & np.uint8(7)
            masks[first : first + _PART] = words & shapes >> np.uint32(16)
            begin = end
        return masks


def parted(ids: Ids, masks: Masks, cuts: Cuts, raw_bytes: NDArray[np.uint64], separator: Separator) -> EncodedDocuments:
    """Return documents of bare ids and masks `[cuts[i]:cuts[i+1]]`, each opened or closed by the separator."""
    offsets = cuts + np.arange(len(cuts))
    bare = np.ones(int(offsets[-1]), bool)
    bare[offsets[1:] - 1 if separator.at == "end" else offsets[:-1]] = False
    spread = np.full(len(bare), separator.id, "<u2")
    spread[bare] = ids
    return EncodedDocuments(spread, _spread(masks, bare), offsets.astype("<u8"), raw_bytes)


def require_ids(ids: Ids | TokenIds, cuts: Cuts, size: int, where: str, first: int = 0) -> None:
    """Refuse an id outside a vocabulary of `size` entries, naming document and position: it would be cut to 16 bits."""
    if int(ids.max(initial=0)) >= size:
        at = int((ids >= size).argmax())
        document = int(np.searchsorted(cuts, at, "right")) - 1
        place = f"{where}: document {first + document}, position {at - int(cuts[document])}"
        raise CasebitsError("ID_OUT_OF_RANGE", place, expected=f"an id below {size}", read=int(ids[at]))


def _spread(masks: Masks, bare: NDArray[np.bool_]) -> Masks:
    if masks.strides == (0,):
        return np.broadcast_to(np.uint16(0), len(bare))
    spread = np.zeros(len(bare), "<u2")
    spread[bare] = masks
    return spread


def _fastokens(vocabulary: Path) -> Tokenise:
    # Asked once a process, at the first batch. A stage has one core; a caller who gives it more says so there.
    os.environ.setdefault("FASTOKENS_BPE_THREADS", "1")
    tokenizer = fastokens.Tokenizer.from_file(str(vocabulary))

    def tokenise(texts: list[str]) -> tuple[TokenIds, Cuts]:
        ids, cuts = tokenizer.encode_batch_flat(texts)
        return np.frombuffer(ids, "<u4"), np.frombuffer(cuts, "<u8").astype("<i8")

    return tokenise


def _tokenizers(vocabulary: Path) -> Tokenise:
    tokenizer = tokenizers.Tokenizer.from_file(str(vocabulary))

    def tokenise(texts: list[str]) -> tuple[TokenIds, Cuts]:
        found = [encoding.ids for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
        cuts = np.zeros(len(texts) + 1, "<i8")
        np.cumsum([len(ids) for ids in found], out=cuts[1:])
        return np.fromiter(itertools.chain.from_iterable(found), "<u4", int(cuts[-1])), cuts

    return tokenise


def _require_ids(tokens: list[bytes], separator: Separator | None, path: Path) -> None:
    """Refuse a vocabulary whose ids do not fit 16 bits or that lacks the separator."""
    if len(tokens) > 65_536:
        raise RecordError("CODEC_PIN", str(path), expected="ids that fit 16 bits", read=f"{len(tokens)} entries")
    if separator and separator.id >= len(tokens):
        raise RecordError("CODEC_PIN", str(path), expected=f"separator {separator.id}", read=f"{len(tokens)} entries")


def _require_casebits(tokens: list[bytes], path: Path) -> None:
    """Refuse a vocabulary that cannot carry CaseBits: the rules that make the code reversible."""
    longest = max(map(len, tokens))
    if longest > MAX_TOKEN_BYTES:
        raise RecordError("CODEC_PIN", str(path), expected=f"tokens of at most {MAX_TOKEN_BYTES} bytes", read=longest)
    if tokens[0]:
        raise RecordError("CODEC_PIN", str(path), f"id 0 must be {END_MARKER} and nothing else")
    if missing := sorted(set(range(256)) - {token[0] for token in tokens if len(token) == 1}):
        raise RecordError("CODEC_PIN", str(path), expected="all 256 single bytes", read=f"without {missing}")
    if capitals := [token for token in tokens if len(token) > 1 and token != token.lower()]:
        raise RecordError("CODEC_PIN", str(path), expected="no token with A-Z", read=capitals[0])
