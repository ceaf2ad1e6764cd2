"""Layer 5: the ids of a document are those that the reference tokenizer gives for its lower-cased text.

Costs about 2 MB of text a second, hence a sample; every document on request.
"""

from __future__ import annotations

import functools

import numpy as np
from tokenizers import Tokenizer

from casebits_dagster.admission.checks import Proof
from casebits_dagster.admission.files import RegionFiles
from casebits_dagster.admission.tables import CaseTable
from casebits_dagster.records.layout import IDS


def check_segmentation(region: RegionFiles, table: CaseTable, vocabulary: bytes, proof: Proof) -> None:
    """Encode the sampled documents again and compare every id. Their text must have been proven."""
    count = len(region.raw_bytes)
    sample = proof.sample("L5_SEGMENTATION", count)
    for document in sample:
        begin, end = int(region.offsets[document]), int(region.offsets[document + 1]) - 1
        read = region.ids[begin:end]
        lower = table.lower.decode(read)[0].tobytes().decode()
        expected = np.array(_tokenizer(vocabulary).encode(lower, add_special_tokens=False).ids, "<i8")
        if not np.array_equal(expected, read):
            shared = min(len(expected), len(read))
            at = int(np.append(expected[:shared] != read[:shared], True).argmax())
            raise proof.rejected(
                "L5_SEGMENTATION",
                IDS,
                "the reference tokenizer cuts this text otherwise",
                expected=expected[at : at + 4].tolist(),
                read=read[at : at + 4].tolist(),
                document=document,
                position=begin + at,
            )
    proof.passed("L5_SEGMENTATION", count, len(sample))


@functools.lru_cache(maxsize=2)
def _tokenizer(vocabulary: bytes) -> Tokenizer:
    return Tokenizer.from_str(vocabulary.decode())
