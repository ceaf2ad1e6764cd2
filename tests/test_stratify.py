"""The tables of a report by hand: buckets, repeats across regions, and documents without a cluster."""

from __future__ import annotations

import numpy as np

from casebits_dagster.regions.index import INDEX_DTYPE
from casebits_dagster.stratify import length_name, tabulate


def test_a_small_report_as_literals() -> None:
    rows = np.array(
        [
            (b"a" * 16, 0, 0, 255, 900, 3, 0, 0),
            (b"b" * 16, 0, 1, 256, 901, -1, 1, 1),
            (b"a" * 16, 1, 0, 255, 900, 3, 0, 4),
            (b"a" * 16, 2, 0, 40_000, 90_000, 7, 0, 2),
        ],
        INDEX_DTYPE,
    )
    scores = {"characters": np.array([5, 6, 7, -8_000_000], "<i8")}
    report = tabulate("g", 3, "0" * 64, rows, scores)
    assert (report.documents, report.tokens) == (4, 40_766)
    assert report.tables["by_cluster"].rows == (
        ("none", 0, 0, 0, 1, 256, 901),
        ("3", 2, 510, 1_800, 0, 0, 0),
        ("7", 1, 40_000, 90_000, 0, 0, 0),
    )
    assert report.tables["by_length"].rows[0] == ("0-255", 2, 510, 1_800, 0, 0, 0)
    assert report.tables["by_length"].rows[1] == ("256-511", 0, 0, 0, 1, 256, 901)
    assert report.tables["by_length"].rows[-1] == ("32768+", 1, 40_000, 90_000, 0, 0, 0)
    assert [row[0] for row in report.tables["by_case_class"].rows] == [
        "lower",
        "capitalised",
        "upper",
        "mixed",
        "no letters",
    ]
    assert report.tables["duplicates"].rows == (
        ("61" * 16, "00001", 0, 255),
        ("61" * 16, "00002", 0, 40_000),
    )
    assert report.tables["scores"].rows == (
        ("characters", "train", 3, *["-8.000000"] * 2, *["-8.000000"], *["0.000005"] * 3, "0.000007"),
        ("characters", "validation", 1, *["0.000006"] * 7),
    )
    assert report.tables["by_region"].columns == (
        "region",
        "documents",
        "tokens",
        "cluster_none_micro",
        "cluster_3_micro",
        "cluster_7_micro",
    )
    assert report.tables["by_region"].rows[0] == ("00000", 2, 511, 500_978, 499_021, 0)


def test_an_empty_prefix_has_empty_tables() -> None:
    report = tabulate("g", 1, "0" * 64, np.empty(0, INDEX_DTYPE), {})
    assert (report.documents, report.tables["by_cluster"].rows, report.tables["duplicates"].rows) == (0, (), ())


def test_buckets_have_names() -> None:
    assert [length_name(rank) for rank in (0, 1, 8)] == ["0-255", "256-511", "32768+"]
