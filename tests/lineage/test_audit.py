"""An audit proves an untouched corpus, and names the link where one was tampered with."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from casebits_dagster.lineage.audit import audit_window
from casebits_dagster.lineage.records import WindowAudit
from casebits_dagster.lineage.render import audit_markdown, audit_text
from casebits_dagster.records.digests import proven_root, sha256
from casebits_dagster.records.errors import Absent, Refused
from casebits_dagster.records.frontier import Manifest
from casebits_dagster.records.layout import Home
from casebits_dagster.records.mix import MANIFEST, SEGMENTS
from casebits_dagster.records.pins import Generation
from tests.sample import mix_reports


def test_every_window_of_every_mix_is_proven(sample_home: Home, generations: dict[str, Generation]) -> None:
    for name, report in mix_reports(sample_home).items():
        for number in range(0, report.train.windows, 11):
            audit = audit_window(sample_home, name, number, generations=generations)
            assert (audit.failures, audit.proven) == ((), True)
            assert sum(segment.length for segment in audit.segments) == report.recipe.sequence_length
            assert {s.document for s in audit.segments} == {d.id for d in audit.documents}


def test_the_chain_ends_at_the_source_row(
    sample_home: Home, mix: str, window: int, generations: dict[str, Generation]
) -> None:
    """Document, row and text hash are those that the sample's own notices give for that row."""
    audit = audit_window(sample_home, mix, window, generations=generations)
    notices = (generations["sample"].source.folder / "documents.jsonl").read_bytes().splitlines()
    for document in audit.documents:
        assert json.loads(notices[document.source_position])["sha256"] == document.text_sha256
        assert document.id == str(document.text_sha256)[:32]
    assert [region.source.repo for region in audit.regions] == ["sample/pd-mix"] * len(audit.regions)


def test_the_inclusion_proof_leads_to_the_tree_root(sample_home: Home, mix: str, window: int) -> None:
    audit = audit_window(sample_home, mix, window)
    manifest = Manifest.parse(sample_home.generation("sample").manifest(1).read_bytes(), "m")
    for region in audit.regions:
        entry = manifest.regions[region.entry].to_bytes()
        assert proven_root(region.entry, region.entries, entry, region.inclusion_proof) == manifest.tree_root


def test_an_audit_is_deterministic_and_one_canonical_record(sample_home: Home, mix: str, window: int) -> None:
    audit = audit_window(sample_home, mix, window)
    assert WindowAudit.parse(audit.to_bytes(), "audit") == audit
    assert audit_window(sample_home, mix, window).to_bytes() == audit.to_bytes()


def test_what_was_recomputed_and_what_was_not(
    sample_home: Home, mix: str, window: int, generations: dict[str, Generation]
) -> None:
    def trusted(audit: WindowAudit) -> set[str]:
        return {one.link for one in audit.evidence if one.state == "not_recomputed"}

    alone = audit_window(sample_home, mix, window)
    slices = audit_window(sample_home, mix, window, generations=generations)
    everything = audit_window(sample_home, mix, window, generations=generations, recompute="all")
    files = {"file of the mix", "file of the region", "source file, as its source publishes it"}
    source = files | {"source range"}
    assert (trusted(alone), trusted(slices), trusted(everything)) == (source, source, set())
    assert [len(audit.limits) for audit in (alone, slices, everything)] == [5, 4, 2]


def test_with_nothing_recomputed_nothing_is_proven(sample_home: Home, mix: str, window: int) -> None:
    audit = audit_window(sample_home, mix, window, recompute="none")
    assert (audit.proven, audit.failures) == (False, ())
    assert {one.text_sha256 for one in audit.documents} == {None}
    slices = audit_window(sample_home, mix, window)
    assert [one.id for one in audit.documents] == [one.id for one in slices.documents]
    assert audit.segments == slices.segments
    assert audit_text(audit).splitlines()[0] == (
        f"window {window} of mix {mix} (aligned): not proven, as nothing was recomputed."
    )


def test_what_is_not_there_is_absent(sample_home: Home, mix: str) -> None:
    windows = mix_reports(sample_home)[mix].train.windows
    for number in (-1, windows):
        with pytest.raises(Absent) as caught:
            audit_window(sample_home, mix, number)
        assert str(caught.value) == (f"NO_SUCH_WINDOW {mix}: window {number}: the mix has windows 0 to {windows - 1}")
    with pytest.raises(Absent) as caught:
        audit_window(sample_home, "none", 0)
    assert str(caught.value) == (
        f"FILE_MISSING {sample_home.mix('none') / MANIFEST}: no mix is published here (see `casebits status`)"
    )


def test_a_source_row_that_changed_is_found(
    sample_home: Home, mix: str, window: int, generations: dict[str, Generation], tmp_path: Path
) -> None:
    generation = generations["sample"]
    shutil.copytree(generation.source.folder, tmp_path / "source")
    path = tmp_path / "source/pd_mix.parquet"
    content = bytearray(path.read_bytes())
    content[len(content) // 8] ^= 1
    path.write_bytes(content)
    moved = dataclasses.replace(generation, source=generation.source.at(tmp_path / "source"))
    audit = audit_window(sample_home, mix, window, generations={"sample": moved}, recompute="all")
    assert {"source file"} <= {failure.link for failure in audit.failures}


@pytest.mark.parametrize("content", [b"\x80", b"# head\njunk\n# end\n"])
def test_a_manifest_that_cannot_be_read_is_refused(tampered: Home, mix: str, content: bytes) -> None:
    (tampered.mix(mix) / MANIFEST).write_bytes(content)
    with pytest.raises(Refused, match=r"MANIFEST_HASH .*the manifest cannot be read"):
        audit_window(tampered, mix, 0)


@pytest.mark.parametrize("content", ["[]", "null", '{"model":{"vocab":[1]}}', '{"model":{"vocab":{"a":7}}}', "{"])
def test_a_vocabulary_of_another_structure_fails_at_its_link(tampered: Home, mix: str, content: str) -> None:
    (tampered.generation("sample").codec / "vocabulary.json").write_text(content)
    assert "codec" in {failure.link for failure in audit_window(tampered, mix, 0).failures}


def test_a_mix_that_cannot_be_read_is_refused(tampered: Home, mix: str) -> None:
    path = tampered.mix(mix) / SEGMENTS
    path.write_bytes(b"x")
    with pytest.raises(Refused, match=r"^FILE_HASH .*the mix cannot be read"):
        audit_window(tampered, mix, 0)
    path.unlink()
    with pytest.raises(Refused, match=r"^FILE_MISSING .*a file of the mix is not there"):
        audit_window(tampered, mix, 0)


def test_the_text_names_segments_rows_and_limits(
    sample_home: Home, mix: str, window: int, generations: dict[str, Generation]
) -> None:
    audit = audit_window(sample_home, mix, window, generations=generations)
    text, first = audit_text(audit), audit.documents[0]
    assert text.splitlines()[0] == f"window {window} of mix {mix} (aligned): proven."
    assert f"= row {first.source_position} of pd_mix.parquet, {first.text_bytes:,} bytes of text" in text
    assert f"document {first.id}: sample/{first.region} document {first.index}" in text
    for region in audit.regions:
        assert f"checks, entry {int(region.region) + 1} of 14 in manifest version 1\n" in text
    assert [limit for limit in audit.limits if f"  {limit}\n" not in text] == []


def test_the_markdown_has_every_link(
    sample_home: Home, mix: str, window: int, generations: dict[str, Generation]
) -> None:
    audit = audit_window(sample_home, mix, window, generations=generations)
    page = audit_markdown(audit)
    rows = [line for line in page.split("## Links")[1].splitlines() if line.startswith("| ")]
    assert len(rows) - 2 == len(audit.evidence)
    assert page.count("### sample/") == len(audit.regions)
    assert sha256(page.encode()) == sha256(audit_markdown(audit).encode())
