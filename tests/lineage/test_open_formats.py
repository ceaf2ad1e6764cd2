"""Audits that others read: W3C PROV by its own library, inclusion proofs by a script that imports nothing of ours."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from prov.model import ProvDocument, ProvEntity

from casebits_dagster.lineage.ask import Question, audit
from casebits_dagster.lineage.prov import audit_prov
from casebits_dagster.lineage.runs import audited_runs
from casebits_dagster.records.layout import Home
from casebits_dagster.records.pins import Generation
from casebits_dagster.records.run import RunRecord, StageRun
from casebits_dagster.records.withdrawal import SourceRow

SCRIPT = Path(__file__).parents[2] / "docs/inclusion_proof.py"
QUESTIONS = {
    "window": Question(mix="sample_aligned", window=0),
    "mix": Question(mix="sample_aligned"),
    "region": Question(region=("sample", 3)),
    "row": Question(source_row=SourceRow(generation="sample", path="pd_mix.parquet", position=2)),
    "dropped row": Question(source_row=SourceRow(generation="sample", path="pd_mix.parquet", position=0)),
}
RUN = "4f0c1a52-0000-4000-8000-000000000001"


def record_run(home: Home, region: int) -> None:
    """Write the run record of a region, as a run through Dagster does."""
    begin, middle, end = (f"2026-01-02T03:04:0{second}.000Z" for second in (5, 6, 7))
    stages = (
        StageRun(stage="encoded_arrays", version=3, started_at=begin, finished_at=middle, outcome="done"),
        StageRun(stage="admission_proof", version=3, started_at=middle, finished_at=end, outcome="done"),
    )
    record = RunRecord(
        generation="sample",
        region=region,
        run_id=RUN,
        job="sample_regions",
        host="a",
        python="3.11.0",
        package="casebits-dagster",
        package_version="0.1.0",
        stages=stages,
    )
    path = home.generation("sample").runs(region) / f"{RUN}.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(record.to_bytes())


@pytest.fixture(scope="module")
def recorded(sample_home: Home, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """The sample home, with a run record of every region."""
    home = Home(tmp_path_factory.mktemp("recorded") / "home")
    shutil.copytree(sample_home.root, home.root)
    for region in range(14):
        record_run(home, region)
    return home


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_audit_is_prov(recorded: Home, generations: dict[str, Generation], name: str) -> None:
    found = audit(recorded, QUESTIONS[name], generations=generations)
    document = ProvDocument.deserialize(content=audit_prov(found), format="json")
    assert document == ProvDocument.deserialize(content=document.serialize(format="json"), format="json")
    told = {
        str(one.identifier): {str(key): value for key, value in one.attributes}
        for one in document.get_records(ProvEntity)
    }
    read, places = document.get_provn(), {}
    for region in found.regions:
        places[region.region] = f"sha256:{region.content_id}"
        source = told[f"casebits:source-sample-{region.region}"]
        assert told[places[region.region]]["casebits:region"] == f"sample/{region.region}"
        assert (source["casebits:licence"], source["casebits:end"]) == (region.source.licence_spdx, region.source.end)
        assert f"wasGeneratedBy({places[region.region]}, run:{RUN}, -)" in read
        assert f"wasDerivedFrom({places[region.region]}, casebits:source-sample-{region.region}" in read
    for one in found.documents:
        assert f"wasDerivedFrom(casebits:document-{one.id}, {places[one.region]}" in read
    assert f"wasAssociatedWith(run:{RUN}, casebits:casebits-dagster-0.1.0, -)" in read


def test_the_runs_of_a_region_are_told(recorded: Home, tmp_path: Path) -> None:
    (run,) = audit(recorded, QUESTIONS["region"]).regions[0].run_records or ()
    assert (run.run_id, run.package, run.package_version) == (RUN, "casebits-dagster", "0.1.0")
    stages = ("encoded_arrays 3: done", "admission_proof 3: done")
    assert (run.finished_at, run.stages) == ("2026-01-02T03:04:07.000Z", stages)
    (tmp_path / "broken.json").write_bytes(b"[]")
    (run,) = audited_runs(tmp_path)
    assert (run.run_id, run.job, run.stages) == ("broken", "unreadable", ())


def checked(path: Path, *more: str) -> tuple[int, str]:
    command = [sys.executable, "-I", "-S", str(SCRIPT), str(path), *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_the_script_is_short_and_stands_alone() -> None:
    lines = SCRIPT.read_text(encoding="utf-8").splitlines()
    imported = {line.split()[1] for line in lines if line.startswith(("import ", "from "))}
    assert (len(lines), imported) == (30, {"hashlib", "json", "pathlib", "sys"})


def test_the_script_proves_every_region_of_an_audit(sample_home: Home, tmp_path: Path) -> None:
    path = tmp_path / "audit.json"
    for index in range(14):
        found = audit(sample_home, Question(region=("sample", index)))
        path.write_bytes(found.to_bytes())
        assert checked(path, found.regions[0].tree_root) == (0, f"sample/{index:05d}: included\n")
    assert checked(path, "0" * 64) == (1, "sample/00013: NOT INCLUDED\n")


@pytest.mark.parametrize("field", ["manifest_entry", "inclusion_proof", "entry", "tree_root"])
def test_the_script_finds_what_was_changed(sample_home: Home, tmp_path: Path, field: str) -> None:
    said = json.loads(audit(sample_home, Question(region=("sample", 3))).to_bytes())
    region = said["regions"][0]
    region[field] = {
        "manifest_entry": {**region["manifest_entry"], "tokens": 1},
        "inclusion_proof": region["inclusion_proof"][:-1],
        "entry": 4,
        "tree_root": "0" * 64,
    }[field]
    path = tmp_path / "audit.json"
    path.write_text(json.dumps(said))
    assert checked(path) == (1, "sample/00003: NOT INCLUDED\n")
