"""The faults a producer, a disk or a stranger can make, and the one check that must refuse each.

Faults of a stage are made before anything is hashed, so that all hashes agree; `disk` faults come after.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import NamedTuple

from casebits_dagster.records.layout import CASES, DOCUMENTS, IDS, OFFSETS, RAW_BYTES, RECEIPT
from tests.faults import disk
from tests.faults import mutations as m
from tests.faults.build import Made, choose, claim, encode, judge, pack, render, seal

VERDICTS = "verdicts/00000.parquet"


class Fault(NamedTuple):
    """`after` is the stage whose result is spoiled; `where` ends the place that the refusal names."""

    name: str
    after: Callable[[Made], None]
    mutate: Callable[[Made], object]
    check: str
    where: str
    document: int | None = None
    position: int | None = None

    @property
    def layer(self) -> str:
        return self.check[:2]


FAULTS = (
    Fault("bit flipped in an id", encode, m.flip_id_bit, "L3_DOCUMENT_IDS", "documents.jsonl: id", 0),
    Fault("mask bit on a non-letter", encode, m.mask_bit(0, False), "L2_MASK_LETTERS", CASES, 0),
    Fault("mask bit beyond the token", encode, m.mask_beyond, "L2_MASK_LENGTH", CASES, 0, 0),
    Fault("mask on an end of document", encode, m.mask_on_end, "L2_MASK_EOD", CASES, 0),
    Fault("mask bit invented on a letter", encode, m.mask_bit(1, True), "L3_DOCUMENT_IDS", "documents.jsonl: id", 0),
    Fault("mask bit lost", encode, m.mask_lost, "L3_DOCUMENT_IDS", "documents.jsonl: id", 0),
    Fault("masks bit-reversed", encode, m.masks_bit_reversed, "L2_MASK_LENGTH", CASES, 0),
    Fault("older export: masks by letter", encode, m.masks_of_letters_in_order, "L2_MASK_LETTERS", CASES, 0),
    Fault("older export: inline case markers", choose, m.inline_case_markers, "L2_RAW_BYTES", RAW_BYTES, 0),
    Fault("capital byte as an id", encode, m.capital_id, "L2_CAPITALS", IDS, 0),
    Fault("end of document missing", encode, m.end_lost, "L2_EOD", IDS, 1),
    Fault("end of document doubled", encode, m.end_doubled, "L2_EOD", IDS, 1),
    Fault("end of document inside a document", encode, m.end_inside, "L2_EOD", IDS, 3),
    Fault("offset off by one", encode, m.offset_off_by_one, "L2_EOD", IDS, 3),
    Fault("offsets do not start at 0", encode, m.offsets_start_late, "L2_OFFSETS", "offsets.u64le: first"),
    Fault("offsets fall", encode, m.offsets_fall, "L2_OFFSETS", OFFSETS, 3),
    Fault("offsets end early", encode, m.offsets_end_early, "L2_OFFSETS", "offsets.u64le: last"),
    Fault("id outside the vocabulary", encode, m.id_outside, "L2_ID_RANGE", IDS, 0, 5),
    Fault("raw_bytes with end of document counted", encode, m.raw_bytes_with_end, "L2_RAW_BYTES", RAW_BYTES, 0),
    Fault("raw_bytes of two documents swapped", encode, m.raw_bytes_swapped, "L2_RAW_BYTES", RAW_BYTES, 0),
    Fault("tokens scrambled inside a document", encode, m.scrambled, "L3_DOCUMENT_IDS", "documents.jsonl: id", 8),
    Fault("tokens of two documents swapped", encode, m.bodies_swapped, "L3_DOCUMENT_IDS", "documents.jsonl: id", 7),
    Fault("segmentation not canonical", encode, m.cut_finer, "L5_SEGMENTATION", IDS, 0),
    Fault(
        "wrong vocabulary under the pinned name",
        encode,
        m.other_vocabulary,
        "L3_DOCUMENT_IDS",
        "documents.jsonl: id",
        0,
    ),
    Fault("lower-casing beyond ASCII", choose, m.rewrite(4, str.lower, declare=False), "L3_DOCUMENT_IDS", ": id", 4),
    Fault("lower-casing beyond ASCII, declared", choose, m.rewrite(4, str.lower, declare=True), "L4_TEXT", IDS, 4, 0),
    Fault(
        "CRLF repaired",
        choose,
        m.rewrite(1, lambda text: text.replace("\r\n", "\n"), declare=True),
        "L4_TEXT",
        IDS,
        1,
        16,
    ),
    Fault("BOM repaired", choose, m.rewrite(2, lambda text: text[1:], declare=True), "L4_TEXT", IDS, 2, 0),
    Fault(
        "NFC repaired",
        choose,
        m.rewrite(3, lambda text: unicodedata.normalize("NFC", text), declare=True),
        "L4_TEXT",
        IDS,
        3,
        3,
    ),
    Fault("last character cut", choose, m.cut_short, "L4_TEXT", IDS, 0, 43),
    Fault("trailing line feed stripped", choose, m.rewrite(9, str.strip, declare=False), "L3_DOCUMENT_IDS", ": id", 9),
    Fault("documents swapped", choose, m.documents_swapped, "L4_ORDER", "documents.jsonl: source_position", 2),
    Fault("two texts swapped", choose, m.texts_swapped, "L4_TEXT", IDS, 7, 0),
    Fault("split leak", choose, m.split_leak, "L4_SPLIT", "documents.jsonl: split validation", 0),
    Fault("document dropped", choose, m.document_dropped, "L4_KEPT", DOCUMENTS),
    Fault("document added", choose, m.document_added, "L4_KEPT", DOCUMENTS, 10),
    Fault("document duplicated", choose, m.document_doubled, "L2_IDS_UNIQUE", "documents.jsonl: id", 10),
    Fault("row served twice", choose, m.row_served_twice, "L4_KEPT", "documents.jsonl: documents"),
    Fault("cluster of a document changed", choose, m.cluster_changed, "L4_DOCUMENTS", DOCUMENTS, 1, 1),
    Fault("score of a document changed", choose, m.score_changed, "L4_DOCUMENTS", DOCUMENTS, 1, 1),
    Fault("threshold > for >=", judge, m.strict_threshold, "L4_SELECTION", "00000.parquet: verdict"),
    Fault("later rule named first", judge, m.later_rule_first, "L4_SELECTION", "00000.parquet: verdict"),
    Fault("second copy kept", judge, m.second_copy_kept, "L4_SELECTION", "00000.parquet: verdict", None, 0),
    Fault("bad UTF-8 replaced and kept", judge, m.replacement_character, "L4_QUARANTINE", "00000.parquet: verdict"),
    Fault("wrong reason of quarantine", judge, m.quarantine_reason, "L4_QUARANTINE", "00000.parquet: verdict"),
    Fault("wrong place of a problem", judge, m.quarantine_place, "L4_QUARANTINE", "00000.parquet: problem_at"),
    Fault("sound row quarantined", judge, m.sound_row_quarantined, "L4_QUARANTINE", "00000.parquet: verdict", None, 0),
    Fault("scores of a row not recorded", choose, m.score_lost, "L4_QUARANTINE", "00000.parquet: scores", None, 2),
    Fault("verdict row missing", choose, m.verdict_missing, "L4_VERDICTS", "00000.parquet: rows"),
    Fault("verdict rows swapped", choose, m.verdicts_swapped, "L4_VERDICTS", "00000.parquet: position", None, 1),
    Fault("stored length changed", choose, m.length_changed, "L4_ROWS", "00000.parquet: source_tokens", None, 4),
    Fault("cluster of a row changed", judge, m.row_cluster_changed, "L4_ROWS", "00000.parquet: cluster", None, 2),
    Fault("id of a dropped row changed", judge, m.row_id_changed, "L4_VERDICT_IDS", "00000.parquet: document_id"),
    Fault("score invented, consistently", judge, m.score_invented, "L4_SCORES", "00000.parquet: score_characters"),
    Fault("index of a line wrong", render, m.line("index", 2), "L2_DOCUMENTS", "documents.jsonl: index", 1),
    Fault("byte offset wrong", render, m.line("byte_offset", 1), "L2_DOCUMENTS", "documents.jsonl: byte_offset", 1),
    Fault("token offset wrong", render, m.line("token_offset", 1), "L2_DOCUMENTS", "documents.jsonl: token_offset", 1),
    Fault("unknown field in a line", render, m.line("url", "x"), "L2_DOCUMENTS", DOCUMENTS, 1, 1),
    Fault("line not canonical", pack, m.line_with_space, "L2_DOCUMENTS", DOCUMENTS, 3, 3),
    Fault("piece of a line at the end", pack, m.line_not_ended, "L2_DOCUMENTS", DOCUMENTS, 10, 10),
    Fault("more lines than documents", pack, m.lines_doubled, "L1_SHAPE", "documents.jsonl: lines"),
    Fault("lines miscounted", pack, m.lines_miscounted, "L1_SIZES", "documents.jsonl: items"),
    Fault("u32 for u64", pack, m.offsets_as_u32, "L1_SIZES", f"{OFFSETS}: items in bytes"),
    Fault("u32 for u64, recounted", pack, m.offsets_as_u32_recounted, "L1_SHAPE", f"{OFFSETS}: items"),
    Fault("one mask short", pack, m.cases_one_short, "L1_SHAPE", f"{CASES}: items"),
    Fault("dtype misnamed", pack, m.dtype_misnamed, "L1_SIZES", f"{RAW_BYTES}: dtype"),
    Fault("file not in the receipt", claim, m.file_not_listed, "L1_SIZES", "receipt.json: files"),
    Fault(
        "other codec format",
        claim,
        m.receipt("pins", "codec", "format", value="plain-1"),
        "L2_CODEC_PIN",
        "codec.format",
    ),
    Fault(
        "other vocabulary",
        claim,
        m.receipt("pins", "codec", "vocab_sha256", value="0" * 64),
        "L2_CODEC_PIN",
        "codec.vocab_sha256",
    ),
    Fault(
        "other mixture",
        claim,
        m.receipt("pins", "codec", "mixture_sha256", value="0" * 64),
        "L2_CODEC_PIN",
        "codec.mixture_sha256",
    ),
    Fault("other generation", claim, m.receipt("generation", value="other"), "L4_PINS", "receipt.json: generation"),
    Fault(
        "other policy",
        claim,
        m.receipt("pins", "filter", "sha256", value="0" * 64),
        "L4_PINS",
        "receipt.json: pins.filter",
    ),
    Fault(
        "other split salt", claim, m.receipt("pins", "split", "salt", value="x"), "L4_PINS", "receipt.json: pins.split"
    ),
    *(
        Fault(
            f"other source {name}",
            claim,
            m.receipt("source", name, value=value),
            "L4_PINS",
            f"receipt.json: source.{name}",
        )
        for name, value in (
            ("repo", "other/repo"),
            ("repo_type", "dataset"),
            ("revision", "0" * 40),
            ("path", "other.parquet"),
            ("file_bytes", 1),
            ("file_sha256", "0" * 64),
            ("unit", "bytes"),
            ("begin", 1),
            ("end", 24),
            ("licence_spdx", "MIT"),
        )
    ),
    Fault(
        "range of another revision",
        claim,
        m.receipt("source", "range_sha256", value="0" * 64),
        "L4_SOURCE_RANGE",
        "receipt.json: source.range_sha256",
    ),
    *(
        Fault(f"count of {name} wrong", claim, m.receipt("counts", name, value=value), "L4_COUNTS", f"counts.{name}")
        for name, value in (
            ("rows_read", 24),
            ("documents", 11),
            ("tokens", 169),
            ("raw_bytes", 0),
            ("train_documents", 10),
            ("validation_documents", 0),
            ("dropped", {"too_short": 5}),
            ("quarantined", {}),
        )
    ),
    Fault(
        "stale digest of verdicts",
        claim,
        m.receipt("verdicts_digest", value="0" * 64),
        "L4_VERDICTS_DIGEST",
        "verdicts_digest",
    ),
    Fault("region id is not its index", claim, m.receipt("region", "id", value="00007"), "L1_RECEIPT", "region.id"),
)

DISK_FAULTS = (
    *(
        Fault(f"bit rot in {name}", seal, disk.rot(name), "L1_HASH", name)
        for name in (IDS, CASES, OFFSETS, RAW_BYTES, DOCUMENTS)
    ),
    *(
        Fault(f"{name} truncated", seal, disk.shorter(name), "L1_SIZES", f"{name}: bytes")
        for name in (IDS, OFFSETS, DOCUMENTS)
    ),
    *(Fault(f"{name} missing", seal, disk.missing(name), "L1_FILES", name) for name in (CASES, RECEIPT)),
    Fault("foreign file", seal, disk.foreign, "L1_FILES", "casebits_mixture.ids.u16le.tmp"),
    Fault("symbolic link", seal, disk.link, "L1_FILES", IDS),
    Fault("two files swapped", seal, disk.files_swapped, "L1_HASH", CASES),
    Fault("stale receipt", seal, disk.stale_receipt, "L1_HASH", IDS),
    Fault("receipt edited", seal, disk.receipt_edited, "L1_RECEIPT", "receipt.json: content_id"),
    Fault("receipt not canonical", seal, disk.receipt_pretty, "L1_RECEIPT", RECEIPT),
    Fault("receipt truncated", seal, disk.shorter(RECEIPT), "L1_RECEIPT", RECEIPT),
    Fault("verdict table missing", seal, lambda made: made.verdict_file.unlink(), "L4_VERDICTS", VERDICTS),
    Fault("verdict table truncated", seal, disk.verdicts_rotten, "L4_VERDICTS", VERDICTS),
    Fault("verdict text not UTF-8", seal, disk.verdict_text_not_utf8, "L4_VERDICTS", VERDICTS),
    Fault("verdict column missing", seal, disk.verdicts_without_column, "L4_VERDICTS", VERDICTS),
    Fault("verdict column with a null", seal, disk.verdicts_with_null, "L4_VERDICTS", f"{VERDICTS}: cluster nulls"),
    Fault("bit rot in the source", seal, disk.source_rotten, "L4_SOURCE_RANGE", "receipt.json: source.path"),
    Fault("source truncated", seal, disk.source_shorter, "L4_SOURCE_RANGE", "receipt.json: source.file_bytes"),
    Fault(
        "footer of the source rotten", seal, disk.source_footer_rotten, "L4_SOURCE_RANGE", "receipt.json: source.path"
    ),
)
