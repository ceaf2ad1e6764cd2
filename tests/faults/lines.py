"""Faults of a region of lines: a byte range of ClimbMix's layout that begins and ends inside a line.

The lines of the region: 0 fox, 1 ended by CRLF, 2 with a space too many, 3 empty, 4 miscounted, 5 cut inside a
character, 6 with a trailing separator, 7 last one, which ends behind the range. One line crosses the range's
beginning, one follows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from casebits_dagster.records.layout import Home
from casebits_dagster.records.pins import Generation
from tests.faults import mutations as m
from tests.faults.build import Made, choose, judge, read, scores, seal
from tests.faults.catalogue import Fault
from tests.faults.world import SEPARATOR, Row, document_id, generation_over, good

LINES = "tiny.jsonl"


def make_lines(root: Path, pins: Path) -> tuple[Generation, Home, list[Row]]:
    """Write the lines and return a generation of one region in the middle of them."""
    rows = [
        (good("A line that crosses the beginning.", 1), b"\n"),
        (good("The Quick Brown Fox jumps over THE lazy dog.", 1), b"\n"),
        (good("Ended by CR and LF, which are NOT text.", 2), b"\r\n"),
        (Row([], 0, -1, b"", "malformed_line"), b"\n"),
        (Row([], 0, -1, b"", "malformed_line"), b"\n"),
        (Row([10, 11, 12], 2, 3, b"", "count_mismatch", 3), b"\n"),
        (Row([64, 447], 2, 3, b"", "truncated_utf8", 1), b"\n"),
        (good("A separator at the end is no text.", 3), b"\n"),
        (good("The last one, whose end is behind the range.", 1), b"\n"),
        (good("A line of the NEXT region.", 2), b""),
    ]
    with_separator = rows[7][0]
    with_separator.tokens = [*(with_separator.tokens or []), SEPARATOR]
    with_separator.count = len(with_separator.tokens)
    spelled = [line_of(row) for row, _ in rows]
    spelled[3], spelled[4] = spelled[1].replace(b", ", b",  ", 1), b""
    content = b""
    for line, (row, end) in zip(spelled, rows, strict=True):
        row.position = len(content)
        content += line + end
    folder = root / "source"
    folder.mkdir(parents=True)
    (folder / LINES).write_bytes(content)
    cuts = (rows[0][0].position + 9, rows[8][0].position + 9)
    generation = generation_over(folder / LINES, "climbmix_jsonl", cuts, pins)
    return generation, Home(root / "home"), [row for row, _ in rows]


def line_of(row: Row) -> bytes:
    """Return the line as Python writes it."""
    return json.dumps({"cluster_id": row.cluster, "tokens": row.tokens, "token_count": row.count}).encode()


def neighbour_taken(made: Made) -> None:
    made.rows.insert(0, replace(made.file_rows[0]))


def last_left(made: Made) -> None:
    made.rows.pop()


def range_shifted(made: Made) -> None:
    neighbour_taken(made)
    last_left(made)


def next_taken(made: Made) -> None:
    made.rows.append(replace(made.file_rows[9]))


def skipped(number: int) -> Callable[[Made], object]:
    return lambda made: made.rows.pop(number)


def covered(begin: int, end: int) -> Callable[[Made], object]:
    """Hash another range: so many bytes later at either side."""

    def mutate(made: Made) -> None:
        spec, content = made.generation.plan[0], source_of(made).read_bytes()
        hashed = content[spec.begin + begin : spec.end + end]
        made.source["range_sha256"] = hashlib.sha256(hashed).hexdigest()

    return mutate


def whole_file_covered(made: Made) -> None:
    made.source["range_sha256"] = hashlib.sha256(source_of(made).read_bytes()).hexdigest()


def read_as(number: int, **fields: object) -> Callable[[Made], None]:
    """Read a row otherwise."""

    def mutate(made: Made) -> None:
        made.rows[number] = replace(made.rows[number], **fields)  # type: ignore[arg-type]

    return mutate


def judged_as(number: int, **fields: object) -> Callable[[Made], None]:
    """Record something else of a row."""

    def mutate(made: Made) -> None:
        made.verdicts[number] = replace(made.verdicts[number], **fields)  # type: ignore[arg-type]

    return mutate


def repaired(made: Made) -> None:
    """Keep the malformed line, as what it must have meant, and record nothing else than a malformed line has."""
    text = b"What the malformed line meant."
    made.rows[2] = replace(made.rows[2], text=text)
    judged_as(2, verdict="dropped:cluster", document_id=document_id(text), scores=scores(text))(made)


def positions_in_lines(made: Made) -> None:
    for number, verdict in enumerate(made.verdicts):
        verdict.position = number


def position_behind_feed(made: Made) -> None:
    made.verdicts[2].position -= 1


def source_of(made: Made) -> Path:
    return made.generation.source.folder / LINES


def byte_changed(number: int) -> Callable[[Made], None]:
    """Write another last digit into the list of a line of the file."""

    def mutate(made: Made) -> None:
        content = bytearray(source_of(made).read_bytes())
        at = content.index(b"]", made.file_rows[number].position) - 1
        content[at] ^= 1
        source_of(made).write_bytes(content)

    return mutate


def tail_lost(made: Made) -> None:
    source_of(made).write_bytes(source_of(made).read_bytes()[:-1])


TABLE, RECEIPT = "00000.parquet", "receipt.json: source"
LINE_FAULTS = (
    Fault("line of the region before taken over", read, neighbour_taken, "L4_VERDICTS", f"{TABLE}: rows"),
    Fault("line of the region behind taken over", read, next_taken, "L4_VERDICTS", f"{TABLE}: rows"),
    Fault("line across the end left out", read, last_left, "L4_VERDICTS", f"{TABLE}: rows"),
    Fault("lines owned by their last byte", read, range_shifted, "L4_VERDICTS", f"{TABLE}: position"),
    Fault("malformed line left out", read, skipped(2), "L4_VERDICTS", f"{TABLE}: rows"),
    Fault("empty line left out", read, skipped(3), "L4_VERDICTS", f"{TABLE}: rows"),
    Fault("range hashed from one byte late", read, covered(1, 0), "L4_SOURCE_RANGE", f"{RECEIPT}.range_sha256"),
    Fault("range hashed to one byte early", read, covered(0, -1), "L4_SOURCE_RANGE", f"{RECEIPT}.range_sha256"),
    Fault("range hashed to its last line's end", read, covered(0, 99), "L4_SOURCE_RANGE", f"{RECEIPT}.range_sha256"),
    Fault("whole file hashed", read, whole_file_covered, "L4_SOURCE_RANGE", f"{RECEIPT}.range_sha256"),
    Fault("CR read as text", read, read_as(1, text=b"Ended by CR and LF\r"), "L4_VERDICT_IDS", f"{TABLE}: document_id"),
    Fault(
        "line with CR called malformed",
        judge,
        judged_as(1, verdict="quarantined:malformed_line", document_id=bytes(16), scores=None),
        "L4_QUARANTINE",
        f"{TABLE}: verdict",
    ),
    Fault("line cut at the range's end", read, read_as(7, text=b"The last"), "L4_VERDICT_IDS", f"{TABLE}: document_id"),
    Fault("malformed line repaired", judge, repaired, "L4_QUARANTINE", f"{TABLE}: verdict"),
    Fault(
        "tokens of a malformed line counted", judge, judged_as(2, source_tokens=9), "L4_ROWS", f"{TABLE}: source_tokens"
    ),
    Fault("cluster of a malformed line taken", judge, judged_as(2, cluster=1), "L4_ROWS", f"{TABLE}: cluster"),
    Fault(
        "malformed line called too long",
        judge,
        judged_as(2, verdict="quarantined:line_too_long"),
        "L4_QUARANTINE",
        f"{TABLE}: verdict",
    ),
    Fault("unknown reason", judge, judged_as(2, verdict="quarantined:odd"), "L4_QUARANTINE", f"{TABLE}: verdict"),
    Fault("place in a malformed line", judge, judged_as(2, problem_at=0), "L4_QUARANTINE", f"{TABLE}: problem_at"),
    Fault("separator not counted", judge, judged_as(6, source_tokens=9), "L4_ROWS", f"{TABLE}: source_tokens"),
    Fault("positions counted in lines", choose, positions_in_lines, "L4_VERDICTS", f"{TABLE}: position"),
    Fault("position at the line feed before", choose, position_behind_feed, "L4_VERDICTS", f"{TABLE}: position"),
    Fault("position of a document wrong", choose, m.document_moved, "L4_KEPT", "documents.jsonl", 1),
    Fault("bit rot in the range", seal, byte_changed(1), "L4_SOURCE_RANGE", f"{RECEIPT}.range_sha256"),
    Fault("bit rot behind the range", seal, byte_changed(8), "L4_VERDICT_IDS", f"{TABLE}: document_id"),
    Fault("last byte of the file lost", seal, tail_lost, "L4_SOURCE_RANGE", f"{RECEIPT}.file_bytes"),
)
