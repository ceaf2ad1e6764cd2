"""documents.jsonl: reading its lines with a grammar of our own, and rendering the lines that must stand there.

Costs about 2 us a document to read and 5 us to render; no JSON library, no record class of the writer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from casebits_dagster.admission.checks import Array, Proof, first_difference
from casebits_dagster.admission.files import RegionFiles
from casebits_dagster.admission.selection import Selection
from casebits_dagster.records.layout import DOCUMENTS

_NUMBER = rb"0|[1-9][0-9]{0,15}"


def read_lines(raw: bytes, metrics: Sequence[str], proof: Proof) -> dict[str, Array]:
    """Return the columns of documents.jsonl, refusing the first line that is not in canonical form.

    `id` is "u1" (D, 16), `validation` a flag, and `byte_offset`, `index`, `source_position`, `token_offset` are "<i8".
    """
    grammar = _grammar(metrics)
    found: list[tuple[bytes, ...]] = grammar.findall(raw)
    lines = raw.splitlines(keepends=True)
    if len(found) != len(lines):
        at = next(number for number, line in enumerate(lines) if not grammar.fullmatch(line))
        raise proof.rejected("L2_DOCUMENTS", DOCUMENTS, "line is not in its form", document=at, position=at)
    names = grammar.groupindex
    columns = {name: np.array([line[group - 1] for line in found], "S") for name, group in names.items()}
    ids = np.frombuffer(bytes.fromhex(columns.pop("id").tobytes().decode()), "u1").reshape(-1, 16)
    validation = columns.pop("split") == b"validation"
    return {"id": ids, "validation": validation} | {name: column.astype("<i8") for name, column in columns.items()}


def _grammar(metrics: Sequence[str]) -> re.Pattern[bytes]:
    scores = b",".join(rb'"%s":"[0-9]+\.[0-9]{6}"' % name.encode() for name in sorted(metrics))
    return re.compile(
        rb'(?m)^\{"byte_offset":(?P<byte_offset>%s),"cluster":(?:-?[0-9]+|null),"id":"(?P<id>[0-9a-f]{32})",'
        rb'"index":(?P<index>%s),"scores":\{%s\},"source_position":(?P<source_position>%s),'
        rb'"split":"(?P<split>train|validation)","token_offset":(?P<token_offset>%s)\}\n'
        % (_NUMBER, _NUMBER, scores, _NUMBER, _NUMBER)
    )


def check_lines(region: RegionFiles, selection: Selection, proof: Proof) -> None:
    """Compare documents.jsonl with the lines it must hold, and name the first wrong one."""
    expected = _render(selection, region.offsets, region.raw_bytes)
    if region.lines != b"".join(expected):
        read = region.lines.splitlines(keepends=True)
        at = first_difference(expected, read)
        wanted, found = expected[at].decode().rstrip(), read[at].decode().rstrip()
        raise proof.rejected("L4_DOCUMENTS", DOCUMENTS, expected=wanted, read=found, document=at, position=at)
    proof.passed("L4_DOCUMENTS", len(expected))


def _render(selection: Selection, offsets: Array, raw_bytes: Array) -> list[bytes]:
    names = sorted(selection.scores)
    form = ",".join(f'"{name}":"%d.%06d"' for name in names)
    parts = [part.tolist() for name in names for part in np.divmod(selection.scores[name], 1_000_000)]
    count = len(raw_bytes)
    rows = zip(
        (np.cumsum(raw_bytes, dtype="<i8") - raw_bytes.astype("<i8")).tolist(),
        ("null" if cluster == -1 else cluster for cluster in selection.clusters.tolist()),
        (document_id.hex() for document_id in selection.ids.tolist()),
        range(count),
        (form % row for row in zip(*parts, strict=True)) if names else [""] * count,
        selection.positions.tolist(),
        ("validation" if side else "train" for side in selection.validation.tolist()),
        offsets[:-1].tolist(),
        strict=True,
    )
    line = (
        '{"byte_offset":%s,"cluster":%s,"id":"%s","index":%s,"scores":{%s},'
        '"source_position":%s,"split":"%s","token_offset":%s}\n'
    )
    return [(line % row).encode() for row in rows]
