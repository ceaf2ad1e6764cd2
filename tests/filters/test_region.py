"""The filter stage: every row is in the table, counts conserve, a rerun writes the same content."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from casebits_dagster.filters.region import KEPT_IDS_SCHEMA, filter_region, gather, verdicts_digest
from casebits_dagster.records.errors import CasebitsError
from casebits_dagster.records.layout import Home
from casebits_dagster.records.pins import load_codec, load_generation
from casebits_dagster.records.policy import FilterPolicy
from casebits_dagster.records.vocabulary import GPT2_SEPARATOR


def test_rows_conserve_and_reruns_agree(pins: Path, home: Home) -> None:
    generation = load_generation(pins, "sample")
    first = filter_region(generation, 9, home)
    assert first.rows_read == first.kept + sum(first.dropped.values()) + sum(first.quarantined.values()) == 103
    assert first.dropped == {"too_few_letters": 1, "too_many_digits": 20, "too_short": 4}
    table = pq.read_table(first.verdicts)
    assert table["position"].to_pylist() == list(range(897, 1000))
    assert table.column_names[6:] == [f"score_{name}" for name in generation.policy.metrics]
    kept = _kept(first.kept_text)
    want = [row["position"] for row in table.to_pylist() if row["verdict"] == "keep"]
    assert kept["position"].to_pylist() == want
    assert filter_region(generation, 9, home) == first
    assert verdicts_digest(table) == first.verdicts_digest


def test_a_region_may_keep_nothing(pins: Path, home: Home) -> None:
    found = filter_region(load_generation(pins, "sample"), 8, home)
    assert (found.rows_read, found.kept, found.dropped) == (4, 0, {"too_many_digits": 4})


def test_duplicates_are_found_across_row_groups(tmp_path: Path, pins: Path, home: Home) -> None:
    # One document stands in two row groups, which are read as two blocks.
    generation = load_generation(pins, "sample")
    table = pq.read_table(generation.source.folder / "pd_mix.parquet", columns=None)
    rows = pa.concat_tables([table.slice(500, 40), table.slice(520, 30)])
    folder = tmp_path / "source"
    folder.mkdir()
    pq.write_table(rows, folder / "pd_mix.parquet", row_group_size=40)
    size = (folder / "pd_mix.parquet").stat().st_size
    twin = _with_source(generation, folder, size, 70)
    found = filter_region(twin, 0, home)
    kept_twice = sum(
        verdict == "dropped:duplicate_in_region" for verdict in pq.read_table(found.verdicts)["verdict"].to_pylist()
    )
    alone = filter_region(dataclasses.replace(twin, plan=(dataclasses.replace(twin.plan[0], end=40),)), 0, home)
    last_twenty = filter_region(
        dataclasses.replace(twin, plan=(dataclasses.replace(twin.plan[0], begin=20, end=40),)), 0, home
    )
    assert alone.dropped.get("duplicate_in_region") is None
    assert kept_twice == last_twenty.kept > 5


def test_a_policy_with_token_models(pins: Path, home: Home) -> None:
    generation = load_generation(pins, "sample")
    policy = FilterPolicy.from_toml(pins / "filters" / "climbmix-reconstruction-1.toml")
    twin = dataclasses.replace(generation, policy=policy)
    found = filter_region(twin, 9, home)
    table = pq.read_table(found.verdicts)
    assert table.column_names[6:] == [f"score_{name}" for name in policy.metrics]
    scores = table["score_advertisement"].to_numpy()
    short = table["source_tokens"].to_numpy() < 64
    assert scores[short].tolist() == [0] * int(short.sum())
    assert 0 < scores[~short].min() < scores.max() < 10**6


def test_ids_of_the_source_travel_where_they_are_kept(pins: Path, home: Home) -> None:
    generation = load_generation(pins, "sample")
    assert _kept(filter_region(generation, 9, home).kept_text).column_names == ["position", "text"]
    codec = load_codec(pins / "codecs" / "gpt2").pin
    twin = dataclasses.replace(generation, pins=dataclasses.replace(generation.pins, codec=codec))
    kept = _kept(filter_region(twin, 9, home).kept_text)
    assert kept.schema == KEPT_IDS_SCHEMA
    rows = pq.read_table(generation.source.folder / "pd_mix.parquet")["tokens"].to_pylist()
    want = [[token for token in rows[at] if token != GPT2_SEPARATOR] for at in kept["position"].to_pylist()]
    assert [np.frombuffer(ids, "<u2").tolist() for ids in kept["tokens"].to_pylist()] == want
    assert 0 < len(want) < 103


def test_gather_copies_only_what_it_must() -> None:
    text, cuts = np.frombuffer(b"abcdefghij", np.uint8), np.array([0, 2, 2, 5, 6, 10])
    for keep, want in (
        ([1, 1, 0, 1, 1], (b"abfghij", [0, 2, 2, 3, 7])),
        ([0] * 5, (b"", [0])),
        ([0, 0, 1, 0, 0], (b"cde", [0, 3])),
    ):
        found, found_cuts = gather(text, cuts, np.array(keep, bool))
        assert (found.tobytes(), found_cuts.tolist()) == want
    whole, _ = gather(text, cuts, np.ones(5, bool))
    assert np.shares_memory(whole, text)


def test_another_source_file_is_refused(tmp_path: Path, pins: Path, home: Home) -> None:
    generation = load_generation(pins, "sample")
    folder = tmp_path / "source"
    shutil.copytree(generation.source.folder, folder)
    target = folder / "pd_mix.parquet"
    raw = bytearray(target.read_bytes())
    raw[1000] ^= 1
    target.write_bytes(bytes(raw))
    moved = dataclasses.replace(generation, source=generation.source.at(folder))
    with pytest.raises(CasebitsError, match=r"SOURCE_PIN .*expected sha256 c485703a"):
        filter_region(moved, 0, home)
    target.write_bytes(bytes(raw[:-1]))
    with pytest.raises(CasebitsError, match=r"SOURCE_PIN .*expected 2718487 bytes, read 2718486"):
        filter_region(moved, 0, home)
    assert not home.root.exists()


def _kept(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all()


def _with_source(generation, folder: Path, size: int, rows: int):  # type: ignore[no-untyped-def]
    from casebits_dagster.records.digests import sha256_file

    file = dataclasses.replace(
        generation.source.files[0], bytes=size, sha256=sha256_file(folder / "pd_mix.parquet"), rows=rows
    )
    plan = (dataclasses.replace(generation.plan[0], begin=0, end=rows),)
    return dataclasses.replace(generation, source=generation.source.at(folder, file), plan=plan)
