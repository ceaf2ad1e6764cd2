"""Layers 4 and 5 on texts: those of the source, their scores and kept ids, and the ids that the reference tokenizer
gives them.

Encoding costs about 2 MB of text a second, hence a sample; every document on request.
"""

from __future__ import annotations

import functools

import numpy as np
from tokenizers import Tokenizer

from casebits_dagster.admission.checks import Array, Proof, first_difference, slice_digests
from casebits_dagster.admission.files import RegionFiles
from casebits_dagster.admission.selection import Selection, VerdictTable
from casebits_dagster.admission.source import SourceRange, SourceRows
from casebits_dagster.admission.structure import bare_cuts
from casebits_dagster.admission.tables import Table
from casebits_dagster.records.errors import Rejected


def check_texts(
    region: RegionFiles, table: Table, digests: Array, source: SourceRange, selection: Selection, proof: Proof
) -> None:
    """Compare the decoded texts with those of the source, by SHA-256; a refusal names the first byte that differs."""
    differs = (digests != selection.digests).any(axis=1)
    for document in np.flatnonzero(differs)[:1].tolist():
        tokens = slice(*region.offsets[document : document + 2].tolist())
        read = table.decode(region.ids[tokens], region.cases[tokens])[0].tobytes()
        block, row = source.find(int(selection.rows[document]))
        expected = block.text_of(row)
        at = first_difference(expected, read)
        problem = "the decoded text is not that of the source"
        shown = {"expected": expected[at : at + 16], "read": read[at : at + 16]}
        raise proof.rejected("L4_TEXT", region.names.ids, problem, **shown, document=document, position=at)
    proof.passed("L4_TEXT", len(differs))


def check_scores(table: VerdictTable, source: SourceRows, metrics: tuple[str, ...], proof: Proof) -> None:
    """Compare the recorded scores of the sampled rows with those measured on the source text."""
    for row, measured in source.scores.items():
        for metric in sorted(set(metrics) - measured.keys()):
            where = f"{table.where}: score_{metric}"
            raise proof.rejected("L4_SCORES", where, "this verifier does not know the metric")
        for metric, expected in measured.items():
            read = int(table.columns[f"score_{metric}"][row])
            if read != expected:
                where, position = f"{table.where}: score_{metric}", int(table.columns["position"][row])
                raise proof.rejected("L4_SCORES", where, expected=expected, read=read, position=position)
    proof.passed("L4_SCORES", int(table.scored.sum()), len(source.scores))


def check_ids(
    region: RegionFiles, table: Table, kept: Array, source: SourceRange, selection: Selection, proof: Proof
) -> None:
    """Compare each document's ids with those of its source row, by SHA-256: `kept` has that of every row."""
    begins, ends = bare_cuts(region, table)
    differs = (slice_digests(region.ids, begins, ends) != kept[selection.rows]).any(axis=1)
    for document in np.flatnonzero(differs)[:1].tolist():
        block, row = source.find(int(selection.rows[document]))
        ids, cuts = block.bare_ids()
        begin, expected = int(begins[document]), ids[cuts[row] : cuts[row + 1]].tolist()
        read = region.ids[begin : ends[document]].tolist()
        raise _other_ids("L4_IDS", "the source row has other ids", expected, read, region, document, begin, proof)
    proof.passed("L4_IDS", len(differs))


def check_segmentation(region: RegionFiles, table: Table, vocabulary: bytes, proof: Proof) -> None:
    """Encode the sampled documents again and compare every id. Their text must have been proven."""
    documents, (begins, ends) = len(region.raw_bytes), bare_cuts(region, table)
    sample, problem = proof.sample("L5_SEGMENTATION", documents), "the reference tokenizer cuts this text otherwise"
    for document in sample:
        begin, end = int(begins[document]), int(ends[document])
        read = region.ids[begin:end]
        text = table.spelling.decode(read)[0].tobytes().decode()
        expected = _tokenizer(vocabulary).encode(text, add_special_tokens=False).ids
        if expected != read.tolist():
            raise _other_ids("L5_SEGMENTATION", problem, expected, read.tolist(), region, document, begin, proof)
    proof.passed("L5_SEGMENTATION", documents, len(sample))


def _other_ids(
    check: str,
    problem: str,
    expected: list[int],
    read: list[int],
    region: RegionFiles,
    document: int,
    begin: int,
    proof: Proof,
) -> Rejected:
    """Return the refusal of a document whose ids, from `begin` on, are not as expected, at the first that differs."""
    at = first_difference(expected, read)
    shown = {"expected": expected[at : at + 4], "read": read[at : at + 4]}
    return proof.rejected(check, region.names.ids, problem, **shown, document=document, position=begin + at)


@functools.lru_cache(maxsize=2)
def _tokenizer(vocabulary: bytes) -> Tokenizer:
    return Tokenizer.from_str(vocabulary.decode())
