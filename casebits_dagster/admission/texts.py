"""Layers 4 and 5 on texts: those of the source, their scores, and the ids that the reference tokenizer gives them.

Encoding costs about 2 MB of text a second, hence a sample; every document on request.
"""

from __future__ import annotations

import functools

import numpy as np
from tokenizers import Tokenizer

from casebits_dagster.admission.checks import Array, Proof, first_difference
from casebits_dagster.admission.files import RegionFiles
from casebits_dagster.admission.scores import METRICS
from casebits_dagster.admission.selection import Selection, VerdictTable
from casebits_dagster.admission.source import SourceRange, SourceRows
from casebits_dagster.admission.tables import CaseTable, decode
from casebits_dagster.records.layout import IDS


def check_texts(
    region: RegionFiles, table: CaseTable, digests: Array, source: SourceRange, selection: Selection, proof: Proof
) -> None:
    """Compare the decoded texts with those of the source, by SHA-256; a refusal names the first byte that differs."""
    differs = (digests != selection.digests).any(axis=1)
    for document in np.flatnonzero(differs)[:1].tolist():
        tokens = slice(*region.offsets[document : document + 2].tolist())
        read = table.decode(region.ids[tokens], region.cases[tokens])[0].tobytes()
        expected = source.text(int(selection.rows[document]))
        at = first_difference(expected, read)
        problem = "the decoded text is not that of the source"
        shown = {"expected": expected[at : at + 16], "read": read[at : at + 16]}
        raise proof.rejected("L4_TEXT", IDS, problem, **shown, document=document, position=at)
    proof.passed("L4_TEXT", len(differs))


def check_scores(table: VerdictTable, source: SourceRows, metrics: tuple[str, ...], proof: Proof) -> None:
    """Compare the recorded scores of the sampled rows with those measured on the source text."""
    for metric in sorted(set(metrics) - METRICS.keys()):
        where = f"{table.where}: score_{metric}"
        raise proof.rejected("L4_SCORES", where, "this verifier does not know the metric")
    for row, measured in source.scores.items():
        for metric, expected in measured.items():
            read = int(table.columns[f"score_{metric}"][row])
            if read != expected:
                where, position = f"{table.where}: score_{metric}", int(table.columns["position"][row])
                raise proof.rejected("L4_SCORES", where, expected=expected, read=read, position=position)
    proof.passed("L4_SCORES", int(table.scored.sum()), len(source.scores))


def check_segmentation(region: RegionFiles, table: CaseTable, vocabulary: bytes, proof: Proof) -> None:
    """Encode the sampled documents again and compare every id. Their text must have been proven."""
    documents = len(region.raw_bytes)
    sample = proof.sample("L5_SEGMENTATION", documents)
    for document in sample:
        begin, end = int(region.offsets[document]), int(region.offsets[document + 1]) - 1
        read = region.ids[begin:end]
        lower = decode(table.lower, read)[0].tobytes().decode()
        expected = _tokenizer(vocabulary).encode(lower, add_special_tokens=False).ids
        if expected != read.tolist():
            problem = "the reference tokenizer cuts this text otherwise"
            at = first_difference(expected, read.tolist())
            shown = {"expected": expected[at : at + 4], "read": read[at : at + 4].tolist()}
            raise proof.rejected("L5_SEGMENTATION", IDS, problem, **shown, document=document, position=begin + at)
    proof.passed("L5_SEGMENTATION", documents, len(sample))


@functools.lru_cache(maxsize=2)
def _tokenizer(vocabulary: bytes) -> Tokenizer:
    return Tokenizer.from_str(vocabulary.decode())
