"""Token files: of plain codecs, by several processes, and after a crash."""

from __future__ import annotations

import os
import signal
from concurrent.futures import BrokenExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from casebits_dagster.mixing import write
from casebits_dagster.mixing.build import build_mix
from casebits_dagster.mixing.sources import MixSource
from casebits_dagster.mixing.unfinished import syncing
from casebits_dagster.mixing.verify import verify_mix
from casebits_dagster.mixing.write import TokenRuns, write_tokens
from casebits_dagster.processes import process_pool
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.errors import CasebitsError
from casebits_dagster.records.layout import Home
from casebits_dagster.records.recipe import Aligned
from tests.mixing.corpus import control, corpus, recipe
from tests.mixing.mix_mutations import seal
from tests.mixing.plain_corpus import EOT, plain_corpus
from tests.mixing.test_build import contents

INT = np.int64


def runs(**changes: Any) -> TokenRuns:
    """Return ten tokens: [7, 10, 11, 7, 7, 21, 22, 23, 7, 7], of which the first five are counted."""
    fields: dict[str, Any] = {
        "name": "train_000000.bin",
        "tokens": 10,
        "fill": 7,
        "counted": 5,
        "places": np.array([1, 5]),
        "lengths": np.array([2, 3]),
        "starts": np.array([0, 1]),
        "regions": np.array([0, 4]),
        "streams": {0: np.array([10, 11, 12], "<u2"), 4: np.array([20, 21, 22, 23], "<u2")},
    }
    return TokenRuns(**(fields | changes))


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    made = tmp_path / "files", tmp_path / "done"
    for folder in made:
        folder.mkdir()
    return made


@pytest.mark.parametrize("block", [1, 2, 3, 6, 10, 100])
def test_a_token_file_is_separators_with_slices_over_them(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr("casebits_dagster.mixing.write.BLOCK", block)
    written = write_tokens(*folders, runs())
    path = folders[0] / "train_000000.bin"
    assert np.fromfile(path, "<u2").tolist() == [7, 10, 11, 7, 7, 21, 22, 23, 7, 7]
    assert {int(k): int(written.counts[k]) for k in np.flatnonzero(written.counts)} == {7: 3, 10: 1, 11: 1}
    assert written.line.split("  ")[1:] == ["20", "train_000000.bin"]


def test_a_finished_file_is_verified_and_kept_and_a_torn_one_is_written_again(folders: tuple[Path, Path]) -> None:
    first = write_tokens(*folders, runs())
    path = folders[0] / "train_000000.bin"
    before = path.stat().st_mtime_ns
    again = write_tokens(*folders, runs())
    assert (again.line, again.counts.tolist(), path.stat().st_mtime_ns) == (first.line, first.counts.tolist(), before)
    whole = path.read_bytes()
    path.write_bytes(whole[:-2] + b"xx")
    assert write_tokens(*folders, runs()).line == first.line
    assert path.read_bytes() == whole


@pytest.mark.parametrize("source", [corpus, plain_corpus])
def test_bytes_do_not_depend_on_the_number_of_processes(tmp_path: Path, source: Any) -> None:
    homes = [Home(tmp_path / name) for name in "ab"]
    heard: list[str] = []
    for home, workers in zip(homes, (1, 2), strict=True):
        build_mix(recipe(windows_per_shard=8), {"tiny": source(home)}, home, workers=workers, say=heard.append)
    one, two = (contents(home.mix("tiny_aligned")) for home in homes)
    assert one == two
    assert heard[: len(heard) // 2] == heard[len(heard) // 2 :]
    assert heard[1:3] == ["80 windows are planned", f"{heard[2].split()[0]} is written"]


def die(told: str) -> None:
    """End this process like a power cut once the third token file is written."""
    if told.startswith("train_000001.ids"):
        os.kill(os.getpid(), signal.SIGKILL)


def test_what_a_killed_build_left_is_kept_and_the_rest_is_written(home: Home) -> None:
    source = {"tiny": corpus(home)}
    with process_pool(1) as pool, pytest.raises(BrokenExecutor):
        pool.submit(build_mix, recipe(), source, home, say=die).result()
    assert not home.mix("tiny_aligned").exists()
    (left,) = home.unfinished("tiny_aligned").glob("*/files")
    whole = {path.name: path.stat() for path in left.iterdir()}
    assert sorted(whole) == ["train_000000.case.u16le", "train_000000.ids.u16le", "train_000001.ids.u16le"]
    (left / "train_000002.ids.u16le").write_bytes(b"torn")
    (left / "train_000000.ids.u16le").write_bytes(b"lost pages")
    built = build_mix(recipe(), source, home)
    verify_mix(built.folder, home)
    kept = [name for name, stat in whole.items() if (built.folder / name).stat().st_mtime_ns == stat.st_mtime_ns]
    assert sorted(kept) == ["train_000000.case.u16le", "train_000001.ids.u16le"]
    assert list(home.unfinished("tiny_aligned").iterdir()) == []


def test_what_another_plan_left_is_not_used(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    source = {"tiny": corpus(home)}
    folder = home.unfinished("tiny_aligned")

    def broken(*_: object) -> None:
        raise RuntimeError("power cut")

    with monkeypatch.context() as patched:
        patched.setattr("casebits_dagster.mixing.build.next_runs", broken)
        left = []
        for seed in "ab":
            with pytest.raises(RuntimeError, match="power cut"):
                build_mix(recipe(seed=seed), source, home)
            left.append([path.name for path in folder.iterdir()])
    assert [len(names) for names in left] == [1, 1]
    assert left[0] != left[1]
    verify_mix(build_mix(recipe(seed="a"), source, home).folder, home)


def test_a_plain_mix_has_one_stream_and_its_separator_before_every_document(home: Home) -> None:
    source = {"tiny": plain_corpus(home)}
    built = build_mix(recipe(aligned=Aligned(tails="float")), source, home)
    other = build_mix(control(recipe()), source, home)
    verified = verify_mix(built.folder, home)
    verify_mix(other.folder, home)
    names = {path.name for path in built.folder.iterdir() if path.suffix in (".bin", ".u16le")}
    assert names == {"train_000000.bin", "train_000001.bin", "train_000002.bin", "val_000000.bin", "next.u16le"}
    assert {check.id for check in verified.checks} & {"MIX_TOKENS", "MIX_CASES"} == {"MIX_TOKENS"}
    assert (verified.report.format, verified.report.conservation.inserted_separators > 0) == ("plain-1", True)
    segments = np.load(built.folder / "segments.npy")
    ids = np.concatenate([np.fromfile(built.folder / f"train_00000{k}.bin", "<u2")[:-1] for k in range(3)])
    begins = segments["window"].astype(INT) * 64 + segments["position"]
    opens = (segments["document_start"] == 0) | (segments["inserted"] == 1)
    assert sorted(np.flatnonzero(ids == EOT).tolist()) == sorted(begins[opens].tolist())
    readme = (built.folder / "README.md").read_text()
    assert "`train_NNNNNN.bin`" in readme
    assert "- Separator: id 50256, at the start of every document." in readme


def test_a_plain_source_under_a_mix_of_masks_is_refused(home: Home) -> None:
    plain: MixSource = plain_corpus(home)
    built = build_mix(recipe(), {"tiny": plain}, home)
    path = built.folder / "mix_report.json"
    path.write_bytes(path.read_bytes().replace(b'"position":"start"', b'"position":"end"'))
    seal(built.folder)
    with pytest.raises(CasebitsError, match=r"CODEC_PIN tiny 00000/receipt\.json: pins\.codec"):
        verify_mix(built.folder, home)


def test_blocks_of_a_long_file_are_hashed_in_their_order(tmp_path: Path) -> None:
    tokens, (folder, done) = 5 * write.BLOCK // 2 + 1, (tmp_path / "files", tmp_path / "done")
    folder.mkdir()
    done.mkdir()
    stream = (np.arange(tokens) % 65_521).astype("<u2")
    none = np.zeros(1, np.int64)
    one = runs(tokens=tokens, counted=tokens - 1, places=none, lengths=none + tokens, starts=none, regions=none)
    written = write_tokens(folder, done, replace(one, streams={0: stream}))
    assert (folder / one.name).read_bytes() == stream.tobytes()
    assert written.line == f"{sha256(stream.tobytes())}  {2 * tokens}  {one.name}"
    assert written.counts.tolist() == np.bincount(stream[:-1], minlength=1 << 16).tolist()


def test_a_file_that_does_not_reach_the_disk_is_told_at_the_end(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing"), syncing() as sync:
        sync(tmp_path / "missing")
