"""A region whose range lies inside one line of its file: it has no rows, and is made and proven like any other."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

from casebits_dagster.admission import admit_region
from casebits_dagster.filters.region import filter_region
from casebits_dagster.publication.consume import open_frontier
from casebits_dagster.publication.frontier import advance_frontier
from casebits_dagster.records.layout import Home
from casebits_dagster.records.pins import SourceFile, load_generation
from casebits_dagster.records.plan import RegionSpec
from casebits_dagster.regions.encode import encode_region
from tests.crashes.work import NOW

LINE = b'{"cluster_id": 2, "tokens": [%b], "token_count": 400}\n' % b", ".join([b"262"] * 400)


def test_a_short_tail_inside_a_line_is_a_region_without_rows(tmp_path: Path, pins: Path, home: Home) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.jsonl").write_bytes(LINE * 2)
    digest = hashlib.sha256(LINE * 2).hexdigest()
    sample = load_generation(pins, "sample")
    file = SourceFile(path="a.jsonl", bytes=len(LINE) * 2, sha256=digest)
    moved = sample.source.at(source, file)
    cuts = [0, len(LINE) + 1, len(LINE) * 2]
    generation = dataclasses.replace(
        sample,
        source=dataclasses.replace(moved, pin=dataclasses.replace(moved.pin, format="climbmix_jsonl")),
        plan=tuple(RegionSpec(k, "a.jsonl", "bytes", *cuts[k : k + 2]) for k in range(2)),
    )
    read = []
    for region in generation.plan:
        read.append(filter_region(generation, region.index, home).rows_read)
        encode_region(generation, region.index, home)
        admit_region(generation, region.index, home, run_id="run")
    assert read == [2, 0]
    assert advance_frontier(generation, home, now=NOW).manifest.count == 2
    frontier = open_frontier(home.root, "sample")
    frontier.verify_all()
    assert frontier.region(1).receipt.source.range_sha256 == hashlib.sha256((LINE * 2)[cuts[1] :]).hexdigest()
