"""The catalogue of wrong mixes as a page: `docs/mix_faults.md`. As a command, write it anew."""

from __future__ import annotations

from pathlib import Path

from tests.mixing.mix_faults import MIX_FAULTS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "mix_faults.md"
_HEAD = """\
# What a wrong mix is refused with

Every fault of the catalogue in `tests/mixing/mix_faults.py`, and the one check of `casebits verify mix` that must
refuse it; another one would be luck, and fails the tests. Where it says *agrees*, MANIFEST.txt was written anew after
the change, so that no hash gives the fault away.

This page is written by `python -m tests.mixing.fault_table`, and a test compares it.
"""


def page() -> str:
    """Return the whole page."""
    rows = (f"| {fault.name} | {'agrees' if fault.sealed else ''} | `{fault.check}` |" for fault in MIX_FAULTS)
    return "\n".join([_HEAD, "| fault | MANIFEST.txt | refused by |", "|---|---|---|", *rows]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(page())
