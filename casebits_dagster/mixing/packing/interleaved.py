"""Interleaving: sources take turns, each with a run of whole documents of about `chunk_tokens`.

By hand, T = 4, chunks of 4 tokens, document lengths 3, 3, 2 of source 0 and 5, 1 of source 1: in source 0 the runs are
documents 0 and 1 (the second begins before token 4), then 2; in source 1 they are 3, then 4. The file holds
documents 0, 1, 3, 2, 4 one after the other.

Guarantees: nothing is lost, cut, inserted or returned, and no source is reordered; when one ends the others go on; the
file holds the sum of the lengths, and its windows are cut wherever T tokens end. Costs O(segments).
"""

from __future__ import annotations

import numpy as np

from casebits_dagster.mixing.packing.concatenated import in_order
from casebits_dagster.mixing.packing.layout import Layout, WindowPlan
from casebits_dagster.mixing.seeds import I64


def plan(lengths: I64, layout: Layout) -> WindowPlan:
    """Return the windows of documents whose sources take turns."""
    return in_order(
        lengths, turns(lengths, layout.sources_of(len(lengths)), layout.chunk_tokens), layout.sequence_length
    )


def turns(lengths: I64, sources: I64, chunk_tokens: int) -> I64:
    """Return the documents in the order of their turns. A run ends with the document that reaches a whole chunk."""
    order = np.argsort(sources, kind="stable")
    source, tokens = sources[order], lengths[order]
    begins = np.cumsum(tokens) - tokens
    first = np.searchsorted(source, source)
    chunk = (begins - begins[first]) // chunk_tokens
    run = np.cumsum(np.diff(chunk, prepend=0) != 0)
    return order[np.lexsort((source, run - run[first]))]
