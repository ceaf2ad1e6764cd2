"""Whatever is changed along the chain fails at its own link, which names the place."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest

from casebits_dagster.lineage.ask import Question, audit
from casebits_dagster.lineage.render import audit_text
from casebits_dagster.records.layout import Home
from casebits_dagster.records.mix import SEGMENTS, TABLE
from casebits_dagster.records.pins import Generation
from casebits_dagster.records.withdrawal import SourceRow
from tests.lineage.tampering import FAULTS, Scene, table_lines
from tests.sample import mix_reports

DOCS = Path(__file__).parents[2] / "docs/audits.md"


@pytest.fixture
def scene(tampered: Home, tmp_path: Path, mix: str, window: int, generations: dict[str, Generation]) -> Scene:
    generation = generations["sample"]
    shutil.copytree(generation.source.folder, tmp_path / "source")
    moved = dataclasses.replace(generation, source=generation.source.at(tmp_path / "source"))
    rows = np.load(tampered.mix(mix) / SEGMENTS)
    segment = rows[np.flatnonzero(rows["window"] == window)[0]]
    document = np.load(tampered.mix(mix) / TABLE)[segment["document"]]
    length = mix_reports(tampered)[mix].recipe.sequence_length
    return Scene(tampered, moved, mix, window, length, segment, document)


def asked(scene: Scene, form: str) -> Question:
    row = SourceRow(generation="sample", path="pd_mix.parquet", position=0)
    return Question(source_row=row) if form == "row" else Question(mix=scene.mix, window=scene.window)


@pytest.mark.parametrize("form", ["window", "row"])
def test_what_nobody_touched_is_proven(scene: Scene, form: str) -> None:
    found = audit(scene.home, asked(scene, form), generations={"sample": scene.generation}, recompute="all")
    assert (found.failures, found.proven) == ((), True)


@pytest.mark.parametrize("name", FAULTS)
def test_tampering_fails_at_its_link(scene: Scene, name: str) -> None:
    fault = FAULTS[name]
    place = {"region": scene.region.name, "index": scene.document["index"]}
    fault.change(scene)
    found = audit(scene.home, asked(scene, fault.asked), generations={"sample": scene.generation})
    assert found.proven is False
    assert (fault.link, fault.where.format(**place)) in [(one.link, one.where) for one in found.failures]
    assert f"{found.question}{' (aligned)' * (fault.asked == 'window')}: UNPROVEN" in audit_text(found)


def test_the_documentation_has_the_whole_table() -> None:
    lines = DOCS.read_text(encoding="utf-8").splitlines()
    first = lines.index(table_lines()[0])
    assert lines[first : first + len(FAULTS) + 2] == table_lines()
