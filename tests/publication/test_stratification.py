"""The report as a file of a frontier version: versions, score columns, the pinned tolerances, and its table form."""

from __future__ import annotations

import dataclasses
import re
import shutil
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from casebits_dagster.publication.frontier import advance_frontier
from casebits_dagster.publication.stratification import write_stratification
from casebits_dagster.records.digests import sha256_file
from casebits_dagster.records.errors import RecordError, Refused
from casebits_dagster.records.layout import ADMISSION, DOCUMENTS, Home
from casebits_dagster.records.pins import generation_names, load_generation
from casebits_dagster.records.record import micro
from casebits_dagster.records.stratification import Earlier, StratificationReport, Table
from casebits_dagster.records.tolerances import Tolerances, pinned_tolerances, tolerances_path
from tests.sample import NOW


@pytest.fixture
def copy(sample_home: Home, tmp_path: Path) -> Home:
    """The sample without its report."""
    home = Home(tmp_path / "copy")
    shutil.copytree(sample_home.generation("sample").root, home.generation("sample").root)
    shutil.rmtree(home.generation("sample").root / "stratification")
    return home


def test_the_sample_is_what_its_gate_says(copy: Home, sample_home: Home) -> None:
    written = write_stratification("sample", copy)
    assert (written.published, written.report.documents, written.report.earlier) == (True, 933, None)
    assert written.path.read_bytes() == sample_home.generation("sample").stratification(1).read_bytes()
    # The policy keeps fewer chess games (cluster 20) than the source has, and cluster 19 is too small to be validated.
    assert (written.gate.state, written.gate.why) == (
        "closed",
        "not a fair picture: cluster_share_error 0.168260 (max_cluster_share_error 0.050000); "
        "validation_documents 0 (min_validation_documents 1)",
    )
    (evidence,) = written.gate.evidence
    assert (evidence.path, evidence.sha256) == ("stratification/00000001.json", sha256_file(written.path))
    again = write_stratification("sample", copy)
    assert again == dataclasses.replace(written, published=False)


def test_a_version_says_what_changed_since_the_one_before(copy: Home, pins: Path) -> None:
    generation, folder = load_generation(pins, "sample"), copy.generation("sample")
    shutil.rmtree(folder.root / "frontier")
    folder.latest.unlink()
    kept = folder.region(5) / ADMISSION
    kept.rename(kept.with_name("kept"))
    assert advance_frontier(generation, copy, now=NOW).manifest.count == 5
    first = write_stratification("sample", copy).report
    kept.with_name("kept").rename(kept)
    advance_frontier(generation, copy, now=NOW)
    second = write_stratification("sample", copy).report
    assert (first.version, first.regions, first.documents, first.earlier) == (1, 5, 374, None)
    assert (second.version, second.regions, second.documents) == (2, 14, 933)
    assert second.earlier == Earlier(version=1, regions=5, documents=374, tokens=first.tokens)
    changes = {(row["dimension"], row["stratum"]): row for row in second.tables["changes"].records()}
    for name, by in (("by_cluster", "cluster"), ("by_length", "tokens"), ("by_case_class", "case_class")):
        for row in first.tables[name].records():
            before = row["train_documents"] + row["validation_documents"]
            assert changes.get((by, row[by]), {"documents_before": 0})["documents_before"] == before
    # No report of an earlier version is needed: what changed follows from the index.
    shutil.rmtree(folder.root / "stratification")
    assert write_stratification("sample", copy).report == second


def test_kept_score_columns_are_read_and_a_missing_one_is_made_of_a_verified_region(copy: Home) -> None:
    folder = copy.generation("sample")
    before = write_stratification("sample", copy)
    lines = folder.region(3) / DOCUMENTS
    lines.write_bytes(lines.read_bytes().replace(b'"digit_share":"0.0', b'"digit_share":"0.9', 1))
    assert write_stratification("sample", copy) == dataclasses.replace(before, published=False)
    folder.index(3).with_suffix(".digit_share.npy").unlink()
    with pytest.raises(Refused, match=r"FILE_HASH regions/00003/documents\.jsonl"):
        write_stratification("sample", copy)


def test_a_report_beside_other_expected_counts_takes_the_place_of_the_one_before(copy: Home, tmp_path: Path) -> None:
    """What a gate rests on is kept beside the gates, by its content."""
    first = write_stratification("sample", copy, pins_folder=tmp_path)
    again = write_stratification("sample", copy, pins_folder=tmp_path)
    assert (again.published, again.gate.why) == (False, "no tolerances are pinned for sample")
    other = write_stratification("sample", copy)
    assert (other.published, other.sha256 == first.sha256, other.path) == (True, False, first.path)
    assert sha256_file(other.path) == other.sha256


def test_tables_are_frames(copy: Home) -> None:
    report = write_stratification("sample", copy).report
    frame = report.tables["by_cluster"].frame().set_index("cluster")
    assert frame["train_documents"].to_dict()["20"] == 230
    assert int(frame["train_documents"].sum() + frame["validation_documents"].sum()) == report.documents


class TestTolerances:
    def test_those_that_are_pinned_are_of_the_clusters_that_the_policy_accepts(self, pins: Path) -> None:
        pinned = {path.stem for path in (pins / "stratification").glob("*.toml")}
        assert pinned == {"sample", "climbmix-lower32k-v1"}
        for name in sorted(pinned & {*generation_names(pins)}):
            (rule,) = (rule for rule in load_generation(pins, name).policy.rules if rule.kind == "clusters")
            found = pinned_tolerances(pins, name)
            assert found is not None
            assert sorted(found.expected) == list(rule.accept)

    def test_the_sample_expects_what_its_source_has(self, pins: Path) -> None:
        clusters = pq.read_table(pins / "sample" / "pd_mix.parquet", columns=["cluster_id"])["cluster_id"]
        found = pinned_tolerances(pins, "sample")
        assert found is not None
        assert found.expected == Counter(clusters.to_pylist())
        assert Tolerances.parse(found.to_bytes(), "t") == found

    @pytest.mark.parametrize(
        ("change", "problem"),
        [
            (("sample", "other"), "PIN_INVALID {path}: generation: expected sample, read other"),
            (("max_cluster_share_error = 0.05", ""), "PIN_INVALID {path}: expected_documents: expected counts and "),
            (
                ("\n2 = 38", "\n02 = 38"),
                "PIN_INVALID {path}: expected_documents: expected clusters as numbers, read 02",
            ),
            (
                ("\n2 = 38", "\ntwo = 38"),
                "PIN_INVALID {path}: expected_documents: expected clusters as numbers, read two",
            ),
            (("\n2 = 38", "\n2 = 0"), "JSON_INVALID {path}: line 17: expected_documents.2: expected at least 1, read"),
            (("max_outlier_regions = 0", ""), "JSON_INVALID {path}: max_outlier_regions: field is missing"),
        ],
    )
    def test_a_wrong_pin_is_refused(self, pins: Path, tmp_path: Path, change: tuple[str, str], problem: str) -> None:
        path = tolerances_path(tmp_path, "sample")
        path.parent.mkdir()
        path.write_text(tolerances_path(pins, "sample").read_text().replace(*change, 1))
        with pytest.raises(RecordError, match="^" + re.escape(problem.format(path=path))):
            pinned_tolerances(tmp_path, "sample")


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ([], "JSON_INVALID t: expected an object, read list"),
        ({"columns": ["a"], "rows": [["x"], ["y", 1]]}, "JSON_INVALID t.rows[1]: expected 1 cells, read 2"),
        ({"columns": ["a"], "rows": [[True]]}, "JSON_INVALID t: rows[0][0]: expected an integer, read bool True"),
        ({"columns": [1], "rows": []}, "JSON_INVALID t: columns[0]: expected text, read int 1"),
        ({"columns": ["a"], "rows": ["x"]}, "JSON_INVALID t: rows[0]: expected a list, read str 'x'"),
        ({"columns": ["a"], "rows": [], "more": 1}, "JSON_INVALID t: more: unknown field (known here: columns, rows)"),
        ({"columns": ["a"]}, "JSON_INVALID t: rows: field is missing"),
    ],
)
def test_a_malformed_table_is_refused_where_it_is_wrong(value: object, problem: str) -> None:
    with pytest.raises(RecordError) as refused:
        Table.from_dict(value, "t")
    assert str(refused.value) == problem


def test_a_report_of_the_format_before_is_refused(copy: Home) -> None:
    raw = write_stratification("sample", copy).path.read_bytes().replace(b"stratification/2", b"stratification/1")
    with pytest.raises(RecordError, match="SCHEMA_UNKNOWN r: schema: expected casebits/stratification/2"):
        StratificationReport.parse(raw, "r")


def test_shares_of_the_gate_are_decimals(copy: Home) -> None:
    numbers = write_stratification("sample", copy).gate.numbers
    shares = {name: micro(str(numbers[name])) for name in ("cluster_share_error", "validation_share_error")}
    assert shares == {"cluster_share_error": 168_260, "validation_share_error": 84_696}
