"""Build the golden generation and mix; as a command, replace `tests/golden/expected` with what was built."""

from __future__ import annotations

import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from casebits_dagster.admission import admit_region
from casebits_dagster.filters.region import filter_region
from casebits_dagster.mixing.build import build_mix
from casebits_dagster.publication.frontier import advance_frontier
from casebits_dagster.publication.mix_sources import mix_sources
from casebits_dagster.publication.stratification import write_stratification
from casebits_dagster.records.layout import Home
from casebits_dagster.records.pins import default_pins_folder, load_generation
from casebits_dagster.records.recipe import load_recipe
from casebits_dagster.regions.encode import encode_region

HERE = Path(__file__).resolve().parent
EXPECTED = HERE / "expected"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def build(folder: Path) -> dict[str, bytes]:
    """Build everything below `folder` and return the files that are golden, by path.

    Left out: verdict tables and kept text (their bytes depend on the Parquet library), the index, which is a cache, and
    the codec, which is a copy of its pin.
    """
    pins, home = folder / "pins", Home(folder / "home")
    shutil.copytree(default_pins_folder(), pins)
    shutil.copytree(HERE / "pins", pins, dirs_exist_ok=True)
    generation = load_generation(pins, "golden")
    for region in generation.plan:
        filter_region(generation, region.index, home)
        encode_region(generation, region.index, home)
        admit_region(generation, region.index, home, run_id="golden")
    advance_frontier(generation, home, now=NOW)
    write_stratification("golden", home)
    build_mix(load_recipe(pins / "mixes" / "golden_aligned.toml"), mix_sources(["golden"], home), home)
    files = (path for path in sorted(home.root.rglob("*")) if path.is_file())
    named = {path.relative_to(home.root).as_posix(): path for path in files}
    left_out = ("verdicts", "index", "codec")
    return {
        name: path.read_bytes()
        for name, path in named.items()
        if not name.startswith((".staging", *(f"generations/golden/{part}/" for part in left_out)))
    }


def main() -> None:
    """Replace the expected files and say what changed."""
    with tempfile.TemporaryDirectory() as folder:
        made = build(Path(folder))
    before = read_expected()
    shutil.rmtree(EXPECTED, ignore_errors=True)
    for name, content in made.items():
        path = EXPECTED / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    changed = sorted(name for name in {*before, *made} if before.get(name) != made.get(name))
    print(f"{len(made)} golden files, {len(changed)} changed")
    for name in changed:
        print(f"  {name}")


def read_expected() -> dict[str, bytes]:
    """Return the golden files as they are committed."""
    files = (path for path in sorted(EXPECTED.rglob("*")) if path.is_file())
    return {path.relative_to(EXPECTED).as_posix(): path.read_bytes() for path in files}


if __name__ == "__main__":
    main()
