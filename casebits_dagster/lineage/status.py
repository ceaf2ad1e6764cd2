"""What there is of all that is pinned, as lines for people. A record that cannot be read does not hide the rest."""

from __future__ import annotations

from pathlib import Path

from casebits_dagster.lineage.mix_summary import mix_lines, read_report
from casebits_dagster.lineage.summary import broken_line, generation_lines, summarise
from casebits_dagster.records.errors import CasebitsError
from casebits_dagster.records.layout import Home
from casebits_dagster.records.mix import REPORT
from casebits_dagster.records.pins import generation_names, load_generation


def status_lines(home: Home, pins_folder: Path) -> tuple[list[str], bool]:
    """Return the lines over all generations and mixes, and whether every record on the way could be read."""
    lines, whole = [f"home {home.root}"], True
    if not home.root.exists():
        lines.append("  does not exist yet: `casebits demo` builds the sample corpus there; --home names another place")
    for name in generation_names(pins_folder):
        told, read = _generation(name, home, pins_folder)
        lines, whole = lines + told, whole and read
    declared = {path.stem for path in (pins_folder / "mixes").glob("*.toml")}
    built = {path.parent.name for path in (home.root / "mixes").glob(f"*/{REPORT}")}
    for name in sorted(declared | built):
        if name in built:
            told, read = _mix(name, home.mix(name))
        else:
            told, read = [f"mix {name}: missing: declared, but not built"], True
        lines, whole = lines + told, whole and read
    return lines, whole


def _generation(name: str, home: Home, pins_folder: Path) -> tuple[list[str], bool]:
    try:
        summary = summarise(load_generation(pins_folder, name), home)
    except (CasebitsError, OSError) as error:
        return [f"generation {name}", broken_line(error)], False
    return generation_lines(summary), not summary.broken


def _mix(name: str, folder: Path) -> tuple[list[str], bool]:
    try:
        return mix_lines(read_report(folder)), True
    except (CasebitsError, OSError) as error:
        return [f"mix {name}", broken_line(error)], False
