"""Layers 2 and 3: the arrays against the rules of the format, and the decoded text against the declared ids.

Guarantees: after this, every document decodes, in one way, to the text whose hash is its id. Works in blocks of about
`BLOCK` tokens, so memory stays bounded however large the region; costs one decode and two hashes of the text.
"""

from __future__ import annotations

import functools
import hashlib

import numpy as np

from casebits_dagster.admission.checks import Array, Proof, blocks, numbered, owner, slice_digests, whole_ids
from casebits_dagster.admission.files import RegionFiles
from casebits_dagster.admission.tables import CaseTable, Table
from casebits_dagster.admission.vocabulary import read_plain, read_vocabulary
from casebits_dagster.records.digests import sha256, sha256_file
from casebits_dagster.records.layout import CASES, DOCUMENTS, EOD_ID, RAW_BYTES, RECEIPT
from casebits_dagster.records.pins import Generation

BLOCK = 1 << 17


def check_codec(region: RegionFiles, generation: Generation, proof: Proof) -> tuple[Table, bytes]:
    """Return the byte table of the pinned vocabulary, and the vocabulary file that it was built from."""
    raw, pin, where = generation.vocabulary.read_bytes(), generation.pins.codec, f"{RECEIPT}: pins.codec"
    mixture = sha256_file(generation.mixture) if generation.mixture else None
    found = {"vocab_sha256": sha256(raw), "mixture_sha256": mixture}
    pinned = {name: getattr(pin, name) for name in ("format", "vocab_sha256", "mixture_sha256", "separator")}
    for expected in (pinned, found):
        proof.require_fields("L2_CODEC_PIN", where, expected, region.receipt.pins.codec)
    proof.passed("L2_CODEC_PIN", 2)
    try:
        table = read_plain(raw, pin.separator, generation.keeps_ids) if pin.separator else read_vocabulary(raw)
    except ValueError as error:
        raise proof.rejected("L2_VOCABULARY", generation.vocabulary.name, str(error)) from error
    proof.passed("L2_VOCABULARY", table.size)
    return table, raw


def check_arrays(region: RegionFiles, table: Table, proof: Proof) -> tuple[Array, str]:
    """Check layer 2 on arrays.

    Returns the SHA-256 of each document's text, "u1" (D, 32), and the one of all texts in order.
    """
    _check_cuts(region, table, proof)
    return _decode_documents(region, table, proof)


def check_declared(region: RegionFiles, digests: Array, declared: dict[str, Array], proof: Proof) -> None:
    """Check layer 2 on lines, and layer 3."""
    _check_lines(region, declared, proof)
    rows, problem = range(len(digests)), "the decoded text has another id"
    proof.require_columns(
        "L3_DOCUMENT_IDS", f"{DOCUMENTS}: id", digests[:, :16], declared["id"], problem, document=rows
    )
    proof.passed("L3_DOCUMENT_IDS", len(digests))


def _check_cuts(region: RegionFiles, table: Table, proof: Proof) -> None:
    ids, offsets, names = region.ids, region.offsets, region.names
    documents, problem = range(len(offsets) - 1), "a document has no end: cuts do not rise"
    falling, where = offsets[1:] <= offsets[:-1], names.offsets
    proof.require_equal("L2_OFFSETS", f"{where}: first", 0, int(offsets[0]))
    proof.require_columns("L2_OFFSETS", where, None, None, problem, bad=falling, document=documents, position=offsets)
    proof.require_equal("L2_OFFSETS", f"{where}: last", len(ids), int(offsets[-1]))
    proof.passed("L2_OFFSETS", len(offsets))
    if len(ids) and ids.max() >= table.size:
        _require_tokens(region, proof, 0, "L2_ID_RANGE", names.ids, ids >= table.size, f"below {table.size}")
    proof.passed("L2_ID_RANGE", len(ids))
    _check_separators(region, table, proof)


def _check_separators(region: RegionFiles, table: Table, proof: Proof) -> None:
    separators, (begins, ends) = region.ids == table.separator.id, bare_cuts(region, table)
    places = ends if table.separator.at == "end" else begins - 1
    if np.count_nonzero(separators) != len(places) or not separators[places].all():
        at = int(np.setxor1d(np.flatnonzero(separators), places)[0])
        problem = "a separator that closes or opens no document" if separators[at] else "the separator is missing"
        document = int(owner(region.offsets, at))
        raise proof.rejected("L2_EOD", region.names.ids, problem, document=document, position=at)
    proof.passed("L2_EOD", len(places))


def bare_cuts(region: RegionFiles, table: Table) -> tuple[Array, Array]:
    """Return where each document without its separator begins and ends among the tokens, "<i8" (D,) both."""
    offsets, opens = region.offsets.astype("<i8"), table.separator.at == "start"
    return offsets[:-1] + opens, offsets[1:] - (not opens)


def _require_tokens(
    region: RegionFiles, proof: Proof, begin: int, check: str, where: str, bad: Array, expected: str
) -> None:
    """Refuse at the first True of `bad`, which is about the tokens from `begin` on."""
    if bad.any():
        at = begin + int(bad.argmax())
        read = int((region.ids if where == region.names.ids else region.cases)[at])
        document = int(owner(region.offsets, at))
        raise proof.rejected(check, where, expected=expected, read=read, document=document, position=at)


def _decode_documents(region: RegionFiles, table: Table, proof: Proof) -> tuple[Array, str]:
    digests = [np.empty((0, 32), "u1")]
    whole = hashlib.sha256()
    for first, end in blocks(region.offsets, BLOCK):
        cuts = region.offsets[first : end + 1].astype("<i8")
        tokens = slice(cuts[0], cuts[-1])
        if isinstance(table, CaseTable):
            _check_masks(region, table, tokens, proof)
        text, starts = table.decode(region.ids[tokens], region.cases[tokens])
        cuts = starts[cuts - cuts[0]]
        lengths, problem = np.diff(cuts), "length is not that of the tokens"
        stated = region.raw_bytes[first:end]
        proof.require_columns("L2_RAW_BYTES", RAW_BYTES, lengths, stated, problem, document=range(first, end))
        digests.append(slice_digests(text, cuts[:-1], cuts[1:]))
        whole.update(text.data)
    if isinstance(table, CaseTable):
        for check in ("L2_CAPITALS", "L2_MASK_EOD", "L2_MASK_LENGTH", "L2_MASK_LETTERS"):
            proof.passed(check, len(region.ids))
    proof.passed("L2_RAW_BYTES", len(region.raw_bytes))
    return np.concatenate(digests), whole.hexdigest()


def _check_masks(region: RegionFiles, table: CaseTable, tokens: slice, proof: Proof) -> None:
    ids, require = region.ids[tokens], functools.partial(_require_tokens, region, proof, int(tokens.start))
    wrong = table.forbidden.take(ids) & (region.cases[tokens] | CaseTable.CAPITAL)
    if wrong.any():
        require("L2_CAPITALS", region.names.ids, wrong >= CaseTable.CAPITAL, "no capital byte")
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
    numbers = numbered(whole_ids(declared["id"]))
    again = np.diff(np.maximum.accumulate(numbers), prepend=-1) == 0
    where, problem = f"{DOCUMENTS}: id", "a document with this id stands earlier in the region"
    proof.require_columns(
        "L2_IDS_UNIQUE", where, "an id of its own", declared["id"], problem, bad=again, document=documents
    )
    proof.passed("L2_IDS_UNIQUE", len(documents))
