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

import numpy as np

from casebits_dagster.admission.checks import Array, Proof, owner, whole_ids
from casebits_dagster.admission.files import RegionFiles
from casebits_dagster.admission.tables import CAPITALS, LONGEST, CaseTable, spelled_tokens
from casebits_dagster.records.digests import sha256, sha256_file
from casebits_dagster.records.layout import CASES, DOCUMENTS, EOD_ID, IDS, OFFSETS, RAW_BYTES, RECEIPT
from casebits_dagster.records.pins import Generation

BLOCK = 1 << 18


def check_codec(region: RegionFiles, generation: Generation, proof: Proof) -> tuple[CaseTable, bytes]:
    """Return the byte table of the pinned vocabulary, and the vocabulary file that it was built from."""
    raw, pin, where = generation.vocabulary.read_bytes(), generation.pins.codec, f"{RECEIPT}: pins.codec"
    mixture = sha256_file(generation.mixture) if generation.mixture else None
    found = {"vocab_sha256": sha256(raw), "mixture_sha256": mixture}
    pinned = {"format": pin.format, "vocab_sha256": pin.vocab_sha256, "mixture_sha256": pin.mixture_sha256}
    for expected in (pinned, found):
        proof.require_fields("L2_CODEC_PIN", where, expected, region.receipt.pins.codec)
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
        found = json.loads(raw)
        added, vocabulary = found["added_tokens"], dict(found["model"]["vocab"])
        if sorted(vocabulary.values()) != list(range(len(vocabulary))):
            raise ValueError("ids are not 0 .. V-1, each once")
        tokens = spelled_tokens(vocabulary, EOD_ID)
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


def check_structure(
    region: RegionFiles, table: CaseTable, declared: dict[str, Array], proof: Proof
) -> tuple[Array, str]:
    """Check layer 2 on arrays, ids and lines, and layer 3.

    Returns the SHA-256 of each document's text, "u1" (D, 32), and the one of all texts in order.
    """
    _check_cuts(region, len(table.inside), proof)
    digests, text_sha256 = _decode_documents(region, table, proof)
    _check_lines(region, declared, proof)
    rows, problem = range(len(digests)), "the decoded text has another id"
    proof.require_columns(
        "L3_DOCUMENT_IDS", f"{DOCUMENTS}: id", digests[:, :16], declared["id"], problem, document=rows
    )
    proof.passed("L3_DOCUMENT_IDS", len(digests))
    return digests, text_sha256


def _check_cuts(region: RegionFiles, vocabulary_size: int, proof: Proof) -> None:
    ids, offsets = region.ids, region.offsets
    documents, problem = range(len(offsets) - 1), "a document has no end: cuts do not rise"
    falling = offsets[1:] <= offsets[:-1]
    proof.require_equal("L2_OFFSETS", f"{OFFSETS}: first", 0, int(offsets[0]))
    proof.require_columns("L2_OFFSETS", OFFSETS, None, None, problem, bad=falling, document=documents, position=offsets)
    proof.require_equal("L2_OFFSETS", f"{OFFSETS}: last", len(ids), int(offsets[-1]))
    proof.passed("L2_OFFSETS", len(offsets))
    _require_tokens(region, proof, 0, "L2_ID_RANGE", IDS, ids >= vocabulary_size, f"below {vocabulary_size}")
    proof.passed("L2_ID_RANGE", len(ids))
    for at in np.setxor1d(np.flatnonzero(ids == EOD_ID), offsets[1:].astype("<i8") - 1)[:1].tolist():
        problem = "end of document inside a document" if ids[at] == EOD_ID else "end of document is missing"
        raise proof.rejected("L2_EOD", IDS, problem, document=int(owner(offsets, at)), position=at)
    proof.passed("L2_EOD", len(documents))


def _require_tokens(
    region: RegionFiles, proof: Proof, begin: int, check: str, where: str, bad: Array, expected: str
) -> None:
    """Refuse at the first True of `bad`, which is about the tokens from `begin` on."""
    if bad.any():
        at = begin + int(bad.argmax())
        read = int((region.ids if where == IDS else region.cases)[at])
        document = int(owner(region.offsets, at))
        raise proof.rejected(check, where, expected=expected, read=read, document=document, position=at)


def blocks(offsets: Array, size: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of whole documents of about `size` tokens each: at least one document, all together all of them."""
    first, count = 0, len(offsets) - 1
    while first < count:
        end = int(np.searchsorted(offsets, int(offsets[first]) + size, side="right")) - 1
        end = min(max(end, first + 1), count)
        yield first, end
        first = end


def _decode_documents(region: RegionFiles, table: CaseTable, proof: Proof) -> tuple[Array, str]:
    digests: list[bytes] = []
    whole = hashlib.sha256()
    for first, end in blocks(region.offsets, BLOCK):
        cuts = region.offsets[first : end + 1].astype("<i8")
        tokens = slice(cuts[0], cuts[-1])
        _check_masks(region, table, tokens, proof)
        text, starts = table.decode(region.ids[tokens], region.cases[tokens])
        cuts = starts[cuts - cuts[0]]
        lengths, problem = np.diff(cuts), "length is not that of the tokens"
        stated = region.raw_bytes[first:end]
        proof.require_columns("L2_RAW_BYTES", RAW_BYTES, lengths, stated, problem, document=range(first, end))
        digests += [hashlib.sha256(text.data[a:b]).digest() for a, b in itertools.pairwise(cuts.tolist())]
        whole.update(text.data)
    for check in ("L2_CAPITALS", "L2_MASK_EOD", "L2_MASK_LENGTH", "L2_MASK_LETTERS"):
        proof.passed(check, len(region.ids))
    proof.passed("L2_RAW_BYTES", len(region.raw_bytes))
    return np.frombuffer(b"".join(digests), "u1").reshape(-1, 32), whole.hexdigest()


def _check_masks(region: RegionFiles, table: CaseTable, tokens: slice, proof: Proof) -> None:
    ids, require = region.ids[tokens], functools.partial(_require_tokens, region, proof, int(tokens.start))
    require("L2_CAPITALS", IDS, table.capital.take(ids), "no capital byte")
    wrong = region.cases[tokens] & ~table.letters.take(ids)
    if wrong.any():
        # A bit on an end of document or beyond a token is off the letters too: name the narrowest rule it breaks.
        require("L2_MASK_EOD", CASES, (wrong != 0) & (ids == EOD_ID), "0 on an end of document")
        require("L2_MASK_LENGTH", CASES, wrong & ~table.inside.take(ids) != 0, "no bit beyond its token")
        require("L2_MASK_LETTERS", CASES, wrong != 0, "bits on letters only")


def _check_lines(region: RegionFiles, declared: dict[str, Array], proof: Proof) -> None:
    documents = range(len(region.raw_bytes))
    starts = np.cumsum(region.raw_bytes, dtype="<u8") - region.raw_bytes
    columns = {"index": np.array(documents), "token_offset": region.offsets[:-1], "byte_offset": starts}
    for name, expected in columns.items():
        where, problem = f"{DOCUMENTS}: {name}", "line does not fit the arrays"
        proof.require_columns("L2_DOCUMENTS", where, expected, declared[name], problem, document=documents)
    proof.passed("L2_DOCUMENTS", len(documents))
    again = np.ones(len(documents), bool)
    again[np.unique(whole_ids(declared["id"]), return_index=True)[1]] = False
    where, problem = f"{DOCUMENTS}: id", "a document with this id stands earlier in the region"
    proof.require_columns(
        "L2_IDS_UNIQUE", where, "an id of its own", declared["id"], problem, bad=again, document=documents
    )
    proof.passed("L2_IDS_UNIQUE", len(documents))
