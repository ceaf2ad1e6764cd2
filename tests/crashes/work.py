"""The work that crashes interrupt: two tiny regions from source to frontier, saying what was acknowledged.

    python -m tests.crashes.work PINS HOME

The work is done in a fork, so that whoever counts its system calls does not count those of the imports.
"""

from __future__ import annotations

import os
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path

from casebits_dagster.admission import admit_region
from casebits_dagster.filters.region import filter_region
from casebits_dagster.publication.frontier import advance_frontier
from casebits_dagster.records.errors import CasebitsError
from casebits_dagster.records.layout import Home
from casebits_dagster.records.pins import default_pins_folder, load_generation
from casebits_dagster.regions.encode import encode_region

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GOLDEN_PINS = Path(__file__).resolve().parents[1] / "golden" / "pins"


def golden_pins(folder: Path) -> Path:
    """Return a pins folder that has the golden generation."""
    pins = folder / "pins"
    shutil.copytree(default_pins_folder(), pins)
    shutil.copytree(GOLDEN_PINS, pins, dirs_exist_ok=True)
    return pins


def publish(pins: Path, root: Path) -> None:
    """Take both regions through all stages, each on a frontier of its own; a line on stdout acknowledges each step."""
    generation, home = load_generation(pins, "golden"), Home(root)
    for region in generation.plan:
        filter_region(generation, region.index, home)
        encode_region(generation, region.index, home)
        acknowledge(f"region {region.index} published")
        admit_region(generation, region.index, home, run_id="run")
        acknowledge(f"region {region.index} admitted")
        advance_frontier(generation, home, now=NOW)
        acknowledge(f"frontier of {region.index + 1}")


def acknowledge(text: str) -> None:
    os.write(1, f"ack {text}\n".encode())


def main() -> int:
    """Fork, work in the child, and return its status: 1 for a named error, that of a shell for a signal."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        publish(Path(sys.argv[1]), Path(sys.argv[2]))
    except (CasebitsError, OSError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
