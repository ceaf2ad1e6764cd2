from __future__ import annotations

from pathlib import Path

from casebits_dagster.lineage.tree import difference, snapshot, tree_digest
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.layout import Home


def _write(home: Home, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        path = home.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def test_a_snapshot_leaves_out_what_is_outside_identity(home: Home) -> None:
    inside = {"generations/g/regions/00000/ids": b"1", "mixes/m/README.md": b"2", "mixes/runs/x": b"3"}
    outside = {
        "generations/g/LATEST.json": b"",
        "generations/g/runs/00000/a.json": b"",
        "generations/g/rejections/00000/a.json": b"",
        "generations/g/verdicts/00000.parquet": b"",
        "dagster/runs.db": b"",
        ".staging/x/ids": b"",
    }
    _write(home, inside | outside)
    assert snapshot(home) == {name: sha256(content) for name, content in inside.items()}


def test_a_home_that_is_not_there_has_no_files(tmp_path: Path) -> None:
    assert snapshot(Home(tmp_path / "none")) == {}


def test_the_digest_is_that_of_paths_and_contents() -> None:
    files = {"a": "1", "b": "2"}
    assert tree_digest(files) == tree_digest(dict(reversed(files.items()))) == sha256(b"1  a\n2  b\n")
    assert len({tree_digest(files), tree_digest({"a": "1", "c": "2"}), tree_digest({"a": "2", "b": "2"})}) == 3


def test_a_difference_is_said_in_words() -> None:
    before = {"a": "1", "b": "2"}
    assert difference({}, before) == "2 new; first: a new"
    assert difference(before, before) == "no byte changed: the 2 files are what they were before"
    assert difference(before, {"a": "1", "b": "3", "c": "4"}) == "1 new, 1 changed; first: b changed"
    assert difference(before, {"b": "2"}) == "1 gone; first: a gone"
