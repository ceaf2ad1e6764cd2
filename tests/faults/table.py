"""The catalogue as a table, fault x layer: `docs/faults.md`. As a command, write it anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from casebits_dagster.admission import check_table
from tests.faults.catalogue import DISK_FAULTS, FAULTS, Fault
from tests.faults.lines import LINE_FAULTS
from tests.faults.plain import OFFERED_FAULTS, PLAIN_FAULTS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "faults.md"
EVERY = (*FAULTS, *DISK_FAULTS, *LINE_FAULTS, *PLAIN_FAULTS, *OFFERED_FAULTS)
LAYERS = ("L1", "L2", "L3", "L4", "L5")
KINDS = (
    ("Made before hashing: all hashes of the region agree", FAULTS),
    ("Made after hashing, by a disk or a stranger", DISK_FAULTS),
    ("In a region of lines", LINE_FAULTS),
    ("In a region of a plain codec", PLAIN_FAULTS),
    ("A region of another format, offered as one", OFFERED_FAULTS),
)
_HEAD = """\
# What a wrong region is refused with

Every fault of the catalogue in `tests/faults/`, and the one check that must refuse it: a fault that any other check
refuses fails the tests, since that would be luck. Layers: L1 the files' shape, L2 the format's rules, L3 the declared
ids, L4 the source, L5 the encoder. `stage` is the one whose result is spoiled; what follows it goes on as if nothing
had happened.

This page is written by `python -m tests.faults.table`, and a test compares it.
"""


def page() -> str:
    """Return the whole page."""
    parts = [_HEAD, "## In numbers\n", *summary(Counter(fault.check for fault in EVERY)), ""]
    for title, faults in KINDS:
        parts += [f"## {title}: {len(faults)}\n", "| fault | stage | L1 | L2 | L3 | L4 | L5 | refused by |"]
        parts += ["|---|---|---|---|---|---|---|---|", *map(_row, faults), ""]
    return "\n".join(parts).rstrip() + "\n"


def summary(refused: Counter[str]) -> list[str]:
    """Return a small table of how many faults each layer refuses, from the number of refusals by check."""
    layers = [sum(count for check, count in refused.items() if check.startswith(layer)) for layer in LAYERS]
    upto = [f"{sum(layers[: at + 1])}" for at in range(len(LAYERS))]
    checks = [sum(check.layer == layer for check in check_table()) for layer in LAYERS]
    return [
        "| | L1 | L2 | L3 | L4 | L5 |",
        "|---|---|---|---|---|---|",
        _line("checks", checks),
        _line("faults refused by the layer", layers),
        _line(f"of {sum(layers)} faults, refused up to the layer", upto),
    ]


def _line(name: str, cells: Iterable[object]) -> str:
    return f"| {name} | {' | '.join(map(str, cells))} |"


def _row(fault: Fault) -> str:
    at: Sequence[str] = ["·" if layer < fault.layer else "✗" if layer == fault.layer else "" for layer in LAYERS]
    stage = "disk" if fault.after.__name__ == "seal" else fault.after.__name__
    name = fault.name.replace("|", "\\|")
    return _line(name, [stage, *at, f"`{fault.check}`"])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(page())
