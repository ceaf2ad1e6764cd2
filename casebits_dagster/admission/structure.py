"""Layers 2 and 3: the arrays against the rules of the format, and the decoded text against the declared ids.

Guarantees: after this, every document decodes, in one way, to the text whose hash is its id. Works in blocks of about
`BLOCK` tokens, so memory stays bounded however large the region; costs one decode and two hashes of the text.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from casebits_dagster.admission.checks import Array, Proof, owner
from casebits_dagster.admission.documents import DeclaredDocuments
from casebits_dagster.admission.files import RegionFiles
from casebits_dagster.admission.tables import CAPITALS, LONGEST, CaseTable, spelled_bytes
from casebits_dagster.records.digests import sha256, sha256_file
from casebits_dagster.records.layout import CASES, DOCUMENTS, EOD_ID, IDS, OFFSETS, RAW_BYTES, RECEIPT
from casebits_dagster.records.pins import Generation

BLOCK = 1 << 18


@dataclass(frozen=True, slots=True)
class DecodedTexts:
    """`digests` "u1" (D, 32): the SHA-256 of each document's text; `text_sha256` is over all of them in order."""

    digests: Array
    text_sha256: str


def check_codec(region: RegionFiles, generation: Generation, proof: Proof) -> tuple[CaseTable, bytes]:
    """Return the byte table of the pinned vocabulary, and the vocabulary file that it was built from."""
    raw, pin, claimed = generation.vocabulary.read_bytes(), generation.pins.codec, region.receipt.pins.codec
    where = f"{RECEIPT}: pins.codec"
    proof.require_equal("L2_CODEC_PIN", f"{where}.format", pin.format, claimed.format)
    proof.require_equal("L2_CODEC_PIN", f"{where}.vocab_sha256", pin.vocab_sha256, claimed.vocab_sha256)
    proof.require_equal("L2_CODEC_PIN", f"{where}.vocab_sha256", sha256(raw), claimed.vocab_sha256)
    proof.require_equal("L2_CODEC_PIN", f"{where}.mixture_sha256", pin.mixture_sha256, claimed.mixture_sha256)
    mixture = sha256_file(generation.mixture)
    proof.require_equal("L2_CODEC_PIN", f"{where}.mixture_sha256", mixture, claimed.mixture_sha256)
    proof.passed("L2_CODEC_PIN", 2)
    try:
        table = read_vocabulary(raw)
    except ValueError as error:
        raise proof.rejected("L2_VOCABULARY", generation.vocabulary.name, str(error)) from error
    proof.passed("L2_VOCABULARY", len(table.inside))
    return table, raw


@functools.lru_cache(maxsize=4)
def read_vocabulary(raw: bytes) -> CaseTable:
    """Return the table of a lower-BPE vocabulary file, or raise ValueError saying which rule it breaks."""
    try:
        found: Any = json.loads(raw)
        added, vocabulary = found["added_tokens"], dict(found["model"]["vocab"])
        texts = {token_id: text for text, token_id in vocabulary.items()}
        if sorted(texts) != list(range(len(vocabulary))):
            raise ValueError("ids are not 0 .. V-1, each once")
        tokens = [b"" if number == EOD_ID else spelled_bytes(texts[number]) for number in range(len(texts))]
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a byte-level vocabulary: {error!r}") from error
    if added:
        raise ValueError("tokens are added to the vocabulary, so text could become a structural id")
    if missing := sorted(set(range(256)) - {token[0] for token in tokens if len(token) == 1}):
        raise ValueError(f"byte {missing[0]} is no token")
    for number, token in enumerate(tokens):
        if len(token) > LONGEST:
            raise ValueError(f"token {number} has {len(token)} bytes, more than a mask has bits")
        if len(token) > 1 and not CAPITALS.isdisjoint(token):
            raise ValueError(f"token {number} has a capital letter")
    return CaseTable.of(tokens)


def check_structure(region: RegionFiles, table: CaseTable, declared: DeclaredDocuments, proof: Proof) -> DecodedTexts:
    """Return the digests of the decoded texts after the checks of layer 2 on arrays, ids and lines, and layer 3."""
    _check_cuts(region, len(table.inside), proof)
    decoded = _decode_documents(region, table, proof)
    _check_lines(region, declared, proof)
    wrong = (decoded.digests[:, :16] != declared.ids).any(axis=1)
    proof.require_none(
        "L3_DOCUMENT_IDS",
        f"{DOCUMENTS}: id",
        wrong,
        "the decoded text has another id",
        lambda at: {
            "expected": decoded.digests[at, :16].tobytes().hex(),
            "read": declared.ids[at].tobytes().hex(),
            "document": at,
        },
    )
    proof.passed("L3_DOCUMENT_IDS", len(wrong))
    return decoded


def _check_cuts(region: RegionFiles, vocabulary_size: int, proof: Proof) -> None:
    ids, offsets = region.ids, region.offsets
    proof.require_equal("L2_OFFSETS", f"{OFFSETS}: first", 0, int(offsets[0]))
    falling = offsets[1:] <= offsets[:-1]
    problem = "a document has no end: cuts do not rise"
    proof.require_none(
        "L2_OFFSETS", OFFSETS, falling, problem, lambda at: {"document": at, "position": int(offsets[at])}
    )
    proof.require_equal("L2_OFFSETS", f"{OFFSETS}: last", len(ids), int(offsets[-1]))
    proof.passed("L2_OFFSETS", len(offsets))
    _require_tokens(region, proof, "L2_ID_RANGE", IDS, ids >= vocabulary_size, f"below {vocabulary_size}", ids)
    proof.passed("L2_ID_RANGE", len(ids))
    ends, expected = np.flatnonzero(ids == EOD_ID), offsets[1:].astype("<i8") - 1
    if not np.array_equal(ends, expected):
        lost, odd = np.setdiff1d(expected, ends), np.setdiff1d(ends, expected)
        at = int(min([*lost[:1], *odd[:1]]))
        problem = "end of document is missing" if at in lost[:1] else "end of document inside a document"
        raise proof.rejected("L2_EOD", IDS, problem, document=owner(offsets, at), position=at)
    proof.passed("L2_EOD", len(expected))


def _require_tokens(
    region: RegionFiles, proof: Proof, check: str, where: str, bad: Array, expected: str, read: Array, begin: int = 0
) -> None:
    """Refuse at the first True of `bad`, which is about the tokens from `begin` on, as is `read`."""
    proof.require_none(
        check,
        where,
        bad,
        "",
        lambda at: {
            "expected": expected,
            "read": int(read[at]),
            "document": owner(region.offsets, begin + at),
            "position": begin + at,
        },
    )


def blocks(offsets: Array, size: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of whole documents of about `size` tokens each: at least one document, all together all of them."""
    first, count = 0, len(offsets) - 1
    while first < count:
        end = int(np.searchsorted(offsets, int(offsets[first]) + size, side="right")) - 1
        end = min(max(end, first + 1), count)
        yield first, end
        first = end


def _decode_documents(region: RegionFiles, table: CaseTable, proof: Proof) -> DecodedTexts:
    digests: list[bytes] = []
    whole = hashlib.sha256()
    for first, end in blocks(region.offsets, BLOCK):
        begin, cuts = int(region.offsets[first]), region.offsets[first : end + 1]
        ids, cases = region.ids[begin : int(cuts[-1])], region.cases[begin : int(cuts[-1])]
        _check_masks(region, table, ids, cases, begin, proof)
        text, starts = decode_cased(table, ids, cases)
        cuts = starts[cuts.astype("<i8") - begin]
        _check_lengths(region, np.diff(cuts), first, proof)
        view = text.data
        digests += [hashlib.sha256(view[a:b]).digest() for a, b in itertools.pairwise(cuts.tolist())]
        whole.update(view)
    for check in ("L2_CAPITALS", "L2_MASK_EOD", "L2_MASK_LENGTH", "L2_MASK_LETTERS"):
        proof.passed(check, len(region.ids))
    proof.passed("L2_RAW_BYTES", len(region.raw_bytes))
    return DecodedTexts(np.frombuffer(b"".join(digests), "u1").reshape(-1, 32), whole.hexdigest())


def _check_masks(region: RegionFiles, table: CaseTable, ids: Array, cases: Array, begin: int, proof: Proof) -> None:
    def require(check: str, where: str, bad: Array, expected: str, read: Array) -> None:
        _require_tokens(region, proof, check, where, bad, expected, read, begin)

    require("L2_CAPITALS", IDS, table.capital.take(ids), "no capital byte", ids)
    wrong = cases & ~table.letters.take(ids)
    if wrong.any():
        # A bit on an end of document or beyond a token is off the letters too: name the narrowest rule it breaks.
        require("L2_MASK_EOD", CASES, (wrong != 0) & (ids == EOD_ID), "0 on an end of document", cases)
        require("L2_MASK_LENGTH", CASES, wrong & ~table.inside.take(ids) != 0, "no bit beyond its token", cases)
        require("L2_MASK_LETTERS", CASES, wrong != 0, "bits on letters only", cases)


def decode_cased(table: CaseTable, ids: Array, cases: Array) -> tuple[Array, Array]:
    """Return the text of ids and masks, and where each token starts in it. The masks must have passed layer 2."""
    shared, starts = table.lower.decode(ids)
    text = shared.copy()
    marked = np.flatnonzero(cases != 0)
    bits = np.flatnonzero(np.unpackbits(cases[marked].view("u1"), bitorder="little").view(bool))
    text[starts[marked[bits >> 4]] + (bits & 15)] -= 0x20
    return text, starts


def _check_lengths(region: RegionFiles, lengths: Array, first: int, proof: Proof) -> None:
    stated = region.raw_bytes[first : first + len(lengths)]
    proof.require_none(
        "L2_RAW_BYTES",
        RAW_BYTES,
        stated != lengths,
        "length is not that of the tokens",
        lambda at: {"expected": int(lengths[at]), "read": int(stated[at]), "document": first + at},
    )


def _check_lines(region: RegionFiles, declared: DeclaredDocuments, proof: Proof) -> None:
    starts = np.concatenate([np.zeros(1, "<u8"), np.cumsum(region.raw_bytes, dtype="<u8")])[:-1]
    columns = {
        "index": (declared.index, np.arange(len(starts))),
        "token_offset": (declared.token_offset, region.offsets[:-1]),
        "byte_offset": (declared.byte_offset, starts),
    }
    for name, (read, expected) in columns.items():
        _require_lines(proof, name, expected, read)
    proof.passed("L2_DOCUMENTS", len(starts))
    ids = declared.ids.copy().view("S16").ravel()
    _, firsts = np.unique(ids, return_index=True)
    again = np.ones(len(ids), bool)
    again[firsts] = False
    proof.require_none(
        "L2_IDS_UNIQUE",
        f"{DOCUMENTS}: id",
        again,
        "a document with this id stands earlier in the region",
        lambda at: {"expected": "an id of its own", "read": declared.ids[at].tobytes().hex(), "document": at},
    )
    proof.passed("L2_IDS_UNIQUE", len(ids))


def _require_lines(proof: Proof, name: str, expected: Array, read: Array) -> None:
    proof.require_none(
        "L2_DOCUMENTS",
        f"{DOCUMENTS}: {name}",
        expected != read,
        "line does not fit the arrays",
        lambda at: {"expected": int(expected[at]), "read": int(read[at]), "document": at},
    )
