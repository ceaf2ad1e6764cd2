"""documents.jsonl: the lines that must stand there, and reading others with a grammar of our own.

Costs about 1 us a document to render, and 2 us to read where the lines are not the expected ones; no JSON library, no
record class of the writer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from casebits_dagster.admission.checks import Array, Proof, first_difference
from casebits_dagster.admission.files import RegionFiles
from casebits_dagster.admission.selection import Selection
from casebits_dagster.records.layout import DOCUMENTS

_NUMBER = rb"0|[1-9][0-9]{0,15}"


def read_lines(region: RegionFiles, selection: Selection, expected: pa.StringArray, proof: Proof) -> dict[str, Array]:
    """Return the columns of documents.jsonl, refusing the first line that is not in canonical form.

    `id` is "u1" (D, 16), `validation` a flag, and `byte_offset`, `index`, `source_position`, `token_offset` are "<i8".
    Lines that are byte for byte the `expected` ones say what those say, and are not parsed.
    """
    if len(expected) == len(region.raw_bytes) and content(expected) == region.lines:
        starts, count = np.cumsum(region.raw_bytes, dtype="<i8") - region.raw_bytes.astype("<i8"), len(expected)
        return {
            "id": selection.ids.view("u1").reshape(-1, 16),
            "validation": selection.validation,
            "byte_offset": starts,
            "index": np.arange(count),
            "source_position": selection.positions,
            "token_offset": region.offsets[:-1].astype("<i8"),
        }
    return parse_lines(region.lines, sorted(selection.scores), proof)


def parse_lines(raw: bytes, metrics: Sequence[str], proof: Proof) -> dict[str, Array]:
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
    scores = b",".join(rb'"%s":"-?[0-9]+\.[0-9]{6}"' % name.encode() for name in sorted(metrics))
    return re.compile(
        rb'(?m)^\{"byte_offset":(?P<byte_offset>%s),"cluster":(?:-?[0-9]+|null),"id":"(?P<id>[0-9a-f]{32})",'
        rb'"index":(?P<index>%s),"scores":\{%s\},"source_position":(?P<source_position>%s),'
        rb'"split":"(?P<split>train|validation)","token_offset":(?P<token_offset>%s)\}\n'
        % (_NUMBER, _NUMBER, scores, _NUMBER, _NUMBER)
    )


def check_lines(region: RegionFiles, expected: pa.StringArray, proof: Proof) -> None:
    """Compare documents.jsonl with the lines it must hold, and name the first wrong one."""
    if region.lines != content(expected):
        wanted, read = expected.to_pylist(), region.lines.decode().splitlines(keepends=True)
        at = first_difference(wanted, read)
        shown = {"expected": wanted[at].rstrip(), "read": read[at].rstrip()}
        raise proof.rejected("L4_DOCUMENTS", DOCUMENTS, **shown, document=at, position=at)
    proof.passed("L4_DOCUMENTS", len(expected))


def render_lines(region: RegionFiles, selection: Selection) -> pa.StringArray:
    """Return the lines that the region must have; arrays of another number of documents have none."""
    count = len(selection.rows)
    if count != len(region.raw_bytes):
        return pa.array([], pa.string())
    starts = np.cumsum(region.raw_bytes, dtype="<i8") - region.raw_bytes.astype("<i8")
    hexes = pa.py_buffer(selection.ids.tobytes().hex().encode())
    sides = pc.if_else(pa.array(selection.validation), "validation", "train")
    parts = [
        '{"byte_offset":',
        _numbers(starts),
        ',"cluster":',
        pc.replace_with_mask(_numbers(selection.clusters), pa.array(selection.clusters == -1), "null"),
        ',"id":"',
        pa.StringArray.from_buffers(count, pa.py_buffer(np.arange(count + 1, dtype="<i4") * np.int32(32)), hexes),
        '","index":',
        _numbers(np.arange(count)),
        ',"scores":{',
        *_scores(selection.scores),
        '},"source_position":',
        _numbers(selection.positions),
        ',"split":"',
        sides,
        '","token_offset":',
        _numbers(region.offsets[:-1]),
        "}\n",
    ]
    return pc.binary_join_element_wise(*parts, "")


def _numbers(column: Array) -> pa.StringArray:
    return pa.array(column).cast(pa.string())


def _scores(scores: dict[str, Array]) -> list[object]:
    """Return the pieces of text that spell the scores of each document: whole part, point, six digits."""
    pieces: list[object] = []
    for name in sorted(scores):
        whole, rest = np.divmod(np.abs(scores[name]), 1_000_000)
        sign = pc.if_else(pa.array(scores[name] < 0), "-", "")
        comma = "," if pieces else ""
        pieces += [f'{comma}"{name}":"', sign, _numbers(whole), ".", pc.utf8_lpad(_numbers(rest), 6, "0"), '"']
    return pieces


def content(lines: pa.StringArray) -> bytes:
    """Return the bytes of all lines, end to end."""
    return bytes(lines.buffers()[2]) if len(lines) else b""
