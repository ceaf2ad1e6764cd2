"""The page of a stratification report: its verdict, its tables, and plots that show what strays."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from casebits_dagster.definitions import build
from casebits_dagster.orchestration.describe_strata import fair_picture, stratification
from casebits_dagster.orchestration.jobs import corpus_job_name
from casebits_dagster.publication.frontier import advance_frontier
from casebits_dagster.publication.stratification import WrittenReport, write_stratification
from casebits_dagster.records.layout import ADMISSION, Home
from casebits_dagster.records.pins import load_generation
from casebits_dagster.records.tolerances import tolerances_path
from tests.orchestration.conftest import Graph
from tests.sample import NOW

PLOTS = ("control_chart_plot", "cluster_shares_plot", "by_region_plot", "cluster_by_length_plot")


@pytest.fixture
def second(sample_home: Home, pins: Path, tmp_path: Path) -> Home:
    """The sample in two versions, the second of all regions."""
    home, generation = Home(tmp_path / "second"), load_generation(pins, "sample")
    shutil.copytree(sample_home.generation("sample").root, home.generation("sample").root)
    folder = home.generation("sample")
    for left in ("frontier", "stratification"):
        shutil.rmtree(folder.root / left)
    folder.latest.unlink()
    waits = folder.region(5) / ADMISSION
    waits.rename(waits.with_name("waits"))
    advance_frontier(generation, home, now=NOW)
    waits.with_name("waits").rename(waits)
    advance_frontier(generation, home, now=NOW)
    return home


def written(home: Home, pins: Path, tmp_path: Path, *changes: tuple[str, str]) -> WrittenReport:
    """Return the report beside tolerances that are changed."""
    path = tolerances_path(tmp_path / "pins", "sample")
    path.parent.mkdir(parents=True)
    text = tolerances_path(pins, "sample").read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)
    return write_stratification("sample", home, tmp_path / "pins")


def rows(page: dict[str, Any], name: str) -> list[dict[str, Any]]:
    assert isinstance(page[name], dg.TableMetadataValue)
    return [dict(record.data) for record in page[name].records]


def test_the_page_of_the_sample(second: Home, pins: Path, tmp_path: Path) -> None:
    page = stratification(written(second, pins, tmp_path))
    assert page["gate"].startswith("closed: not a fair picture: cluster_share_error 0.168260 (max_")
    assert rows(page, "tolerances")[:2] == [
        {"measure": "documents", "read": "933", "limit": "at least 500"},
        {"measure": "cluster share error", "read": "0.16826", "limit": "at most 0.05"},
    ]
    assert {"measure": "validation documents", "read": "0", "limit": "at least 1"} in rows(page, "tolerances")
    assert rows(page, "regions_that_stray_most")[0] == {
        "region": "00001",
        "documents": "77",
        "strays in": "cluster 11",
        "standard errors": "+2.4",
        "outlier": "no",
        "repeats": "0",
    }
    assert rows(page, "beside_the_source")[-1] == {
        "cluster": "20",
        "expected": "42.12 %",
        "in the prefix": "25.29 %",
        "error": "-16.83 points",
        "standard errors": "-10.4",
    }
    assert rows(page, "validation_beside_train")[0] == {
        "stratum": "cluster 2",
        "train": "27",
        "validation": "2",
        "of train": "3.01 %",
        "of validation": "5.71 %",
        "standard errors": "+0.9",
    }
    assert (len(rows(page, "scores")), len(rows(page, "effective_sizes"))) == (14, 8)
    assert (page["duplicates"], page["largest_duplicates"]) == (0, "none")
    assert page["since"] == "version 1, of 5 regions"
    assert rows(page, "what_changed")[0]["stratum"] == "cluster 11"
    for plot in (*PLOTS, "validation_by_score_plot"):
        assert page[plot].value.startswith("![plot](data:image/png;base64,")


def test_outliers_are_marked(second: Home, pins: Path, tmp_path: Path) -> None:
    strict = ("outlier_standard_errors = 5", "outlier_standard_errors = 2")
    done = written(second, pins, tmp_path, strict)
    page = stratification(done)
    outliers = [row["region"] for row in rows(page, "regions_that_stray_most") if row["outlier"] == "yes"]
    assert outliers == ["00001", "00003"]
    assert {"measure": "outlier regions", "read": "2", "limit": "at most 0"} in rows(page, "tolerances")
    plain = stratification(write_stratification("sample", second, tmp_path / "pins"))
    assert plain["control_chart_plot"] == page["control_chart_plot"]


def test_a_page_without_tolerances_and_without_an_earlier_version(sample_home: Home, tmp_path: Path) -> None:
    home = Home(tmp_path / "copy")
    shutil.copytree(sample_home.generation("sample").root, home.generation("sample").root)
    shutil.rmtree(home.generation("sample").root / "stratification")
    done = write_stratification("sample", home, tmp_path)
    page = stratification(done)
    assert page["gate"] == "closed: no tolerances are pinned for sample"
    assert (page["tolerances"], page["beside_the_source"], page["what_changed"]) == ("none", "none", "none")
    assert page["since"] == "this is the first version"
    check = fair_picture(done.gate)
    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.WARN)


@pytest.mark.parametrize("fair", [True, False])
def test_the_check_warns_and_blocks_nothing(
    sample_home: Home, sample_pins: Path, pins: Path, tmp_path: Path, fair: bool
) -> None:
    home, folder = Home(tmp_path / "home"), tmp_path / "pins"
    shutil.copytree(sample_home.root, home.root)
    shutil.rmtree(home.generation("sample").root / "stratification")
    shutil.copytree(sample_pins, folder, symlinks=True)
    path = tolerances_path(folder, "sample")
    path.parent.mkdir(exist_ok=True)
    text = tolerances_path(pins, "sample").read_text()
    if fair:
        text = text.replace("share_error = 0.05", "share_error = 0.5").replace("documents = 1\n", "documents = 0\n")
    path.unlink(missing_ok=True)
    path.write_text(text)
    with dg.DagsterInstance.ephemeral() as instance:
        graph = Graph(build(folder, home), instance, home)
        result = graph.run(corpus_job_name("sample"), ["sample/frontier_manifest", "sample/stratification_report"])
    (check,) = (check for check in result.get_asset_check_evaluations() if check.check_name == "fair_picture")
    assert (result.success, check.passed, check.blocking) == (True, fair, False)
    assert check.severity == dg.AssetCheckSeverity.WARN
    assert check.metadata["state"].value == ("open" if fair else "closed")
    assert check.metadata["max_cluster_share_error"].value == ("0.500000" if fair else "0.050000")
