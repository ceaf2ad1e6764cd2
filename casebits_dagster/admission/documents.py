"""documents.jsonl: reading its lines with a grammar of our own, and rendering the lines that must stand there.

Costs about 2 us a document to read and 5 us to render; no JSON library, no record class of the writer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from casebits_dagster.admission.checks import Array, Proof
from casebits_dagster.records.layout import DOCUMENTS

_NUMBER = rb"(0|[1-9][0-9]{0,15})"


@dataclass(frozen=True, slots=True)
class DeclaredDocuments:
    """The columns that the lines declare: `ids` "u1" (D, 16), the others "<i8" (D,)."""

    byte_offset: Array
    ids: Array
    index: Array
    source_position: Array
    token_offset: Array
    validation: Array


def read_lines(raw: bytes, metrics: Sequence[str], proof: Proof) -> DeclaredDocuments:
    """Return the columns of documents.jsonl, refusing the first line that is not in canonical form."""
    grammar = _grammar(metrics)
    found: list[tuple[bytes, ...]] = grammar.findall(raw)
    lines = raw.splitlines(keepends=True)
    if len(found) != len(lines):
        at = next(number for number, line in enumerate(lines) if not grammar.fullmatch(line))
        raise proof.rejected("L2_DOCUMENTS", DOCUMENTS, "line is not in its form", document=at, position=at)
    columns = list(zip(*found, strict=True)) or [()] * 6
    byte_offset, hexes, index, position, split, token_offset = columns
    return DeclaredDocuments(
        byte_offset=np.array(byte_offset, "S").astype("<i8"),
        ids=np.frombuffer(bytes.fromhex(b"".join(hexes).decode()), "u1").reshape(-1, 16),
        index=np.array(index, "S").astype("<i8"),
        source_position=np.array(position, "S").astype("<i8"),
        token_offset=np.array(token_offset, "S").astype("<i8"),
        validation=np.array(split, "S10") == b"validation",
    )


def _grammar(metrics: Sequence[str]) -> re.Pattern[bytes]:
    scores = b",".join(rb'"%s":"[0-9]+\.[0-9]{6}"' % name.encode() for name in sorted(metrics))
    return re.compile(
        rb'(?m)^\{"byte_offset":%s,"cluster":(?:-?[0-9]+|null),"id":"([0-9a-f]{32})","index":%s,"scores":\{%s\},'
        rb'"source_position":%s,"split":"(train|validation)","token_offset":%s\}\n'
        % (_NUMBER, _NUMBER, scores, _NUMBER, _NUMBER)
    )


def render_lines(
    *,
    ids: Array,
    clusters: Array,
    positions: Array,
    validation: Array,
    scores: dict[str, Array],
    offsets: Array,
    raw_bytes: Array,
) -> list[bytes]:
    """Return the lines that documents.jsonl must hold; `scores` are micro-units by metric, all columns have D rows."""
    names = sorted(scores)
    form = ",".join(f'"{name}":"%d.%06d"' for name in names)
    parts = [part.tolist() for name in names for part in np.divmod(scores[name], 1_000_000)]
    scored = [form % row for row in zip(*parts, strict=True)] if names else [""] * len(ids)
    starts = (np.cumsum(raw_bytes, dtype="<i8") - raw_bytes.astype("<i8")).tolist()
    hexes = ids.tobytes().hex()
    rows = zip(
        starts,
        ("null" if cluster == -1 else cluster for cluster in clusters.tolist()),
        (hexes[at : at + 32] for at in range(0, len(hexes), 32)),
        range(len(ids)),
        scored,
        positions.tolist(),
        ("validation" if side else "train" for side in validation.tolist()),
        offsets[:-1].tolist(),
        strict=True,
    )
    line = (
        '{"byte_offset":%s,"cluster":%s,"id":"%s","index":%s,"scores":{%s},'
        '"source_position":%s,"split":"%s","token_offset":%s}\n'
    )
    return [(line % row).encode() for row in rows]


def check_lines(raw: bytes, expected: list[bytes], proof: Proof) -> None:
    """Compare documents.jsonl with the lines it must hold, and name the first wrong one."""
    if raw != b"".join(expected):
        read = raw.splitlines(keepends=True)
        at = next(number for number, (want, got) in enumerate(zip(expected, read, strict=True)) if want != got)
        wanted, found = expected[at].decode().rstrip(), read[at].decode().rstrip()
        raise proof.rejected("L4_DOCUMENTS", DOCUMENTS, expected=wanted, read=found, document=at, position=at)
    proof.passed("L4_DOCUMENTS", len(expected))
