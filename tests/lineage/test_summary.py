from __future__ import annotations

import shutil
from pathlib import Path

from casebits_dagster.lineage.summary import generation_lines, summarise
from casebits_dagster.records.layout import ADMISSION, Home
from casebits_dagster.records.pins import load_generation


def test_an_empty_home_has_nothing(pins: Path, home: Home) -> None:
    assert generation_lines(summarise(load_generation(pins, "sample"), home)) == [
        "generation sample",
        "  regions    14 planned, 0 filtered, 0 encoded (0 empty), 0 admitted, 0 refused",
        "  documents  0 rows read = 0 kept + 0 dropped + 0 quarantined",
        "  tokens     0 for 0 bytes of text; 0 documents train, 0 validation",
        "  frontier   none yet: it starts when region 00000 is admitted",
    ]


def test_the_whole_sample(pins: Path, sample_home: Home) -> None:
    summary = summarise(load_generation(pins, "sample"), sample_home)
    assert (summary.planned, summary.filtered, summary.published, summary.admitted) == (14, 14, 14, 14)
    assert (summary.empty, summary.rejected, summary.counts["rows_read"]) == (1, 0, 1358)
    lines = generation_lines(summary)
    assert lines[1] == "  regions    14 planned, 14 filtered, 14 encoded (1 empty), 14 admitted, 0 refused"
    assert lines[2] == "  documents  1,358 rows read = 933 kept + 425 dropped + 0 quarantined"
    assert lines[3] == "             dropped    317  too_many_digits"
    assert lines[-1].startswith("  frontier   version 1, 14 of 14 regions, complete\n             manifest ")


def test_a_refused_region_and_a_gap_are_told(pins: Path, sample_home: Home, home: Home) -> None:
    folder = home.generation("sample")
    shutil.copytree(sample_home.root, home.root)
    (folder.region(3) / ADMISSION).unlink()
    folder.rejections(3).mkdir(parents=True)
    (folder.rejections(3) / "run.json").write_bytes(b"{}\n")
    folder.rejections(4).mkdir(parents=True)
    (folder.rejections(4) / "run.json").write_bytes(b"{}\n")
    lines = generation_lines(summarise(load_generation(pins, "sample"), home))
    assert lines[1] == "  regions    14 planned, 14 filtered, 14 encoded (1 empty), 13 admitted, 1 refused"
