from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from casebits_dagster.records.errors import CasebitsError, Refused
from casebits_dagster.stores import local
from casebits_dagster.stores.base import WritableStore
from casebits_dagster.stores.local import LocalStore, make_folder, write_durably
from tests.stores.contract import UNSAFE, WritableStoreContract


class TestLocalStore(WritableStoreContract):
    def make(self, root: Any) -> WritableStore:
        return LocalStore(root)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "root", tmp_path / "staging")


def _staged(store: LocalStore, name: str, files: dict[str, bytes]) -> Path:
    folder = store.staging / name
    folder.mkdir(parents=True)
    for file, content in files.items():
        write_durably(folder / file, content)
    return folder


def _tree(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_staging_is_below_the_root_when_not_named(tmp_path: Path) -> None:
    assert LocalStore(tmp_path).staging == tmp_path / ".staging"


def test_nothing_stays_in_staging(store: LocalStore) -> None:
    store.put_new("a", b"one")
    with pytest.raises(CasebitsError):
        store.put_new("a", b"two")
    store.replace("b", None, b"one")
    assert _tree(store.staging) == {"lock": b""}
    assert [path.name for path in store.staging.iterdir()] == ["lock"]


def test_a_folder_is_published_by_one_rename(store: LocalStore) -> None:
    files = {"ids": b"\1\0", "empty": b""}
    staged = _staged(store, "one", files)
    assert store.publish_folder(staged, "regions/00000") is True
    assert _tree(store.root / "regions/00000") == files
    assert staged.exists() is False


def test_a_folder_with_the_same_bytes_is_adopted_with_what_may_be_added_later(store: LocalStore) -> None:
    files = {"ids": b"\1\0", "receipt.json": b"{}\n"}
    store.publish_folder(_staged(store, "one", files), "regions/00000")
    store.put_new("regions/00000/admission.json", b"{}\n")
    assert store.publish_folder(_staged(store, "two", files), "regions/00000", ["admission.json"]) is False
    assert _tree(store.root / "regions/00000") == files | {"admission.json": b"{}\n"}
    with pytest.raises(CasebitsError, match=r"^STORE_CONFLICT regions/00000/admission.json: other bytes"):
        store.publish_folder(_staged(store, "three", files), "regions/00000")


@pytest.mark.parametrize(
    ("second", "where"),
    [({"ids": b"\2\0", "x": b""}, "ids"), ({"ids": b"\1\0", "x": b"", "y": b""}, "y"), ({"ids": b"\1"}, "ids")],
)
def test_a_folder_with_other_bytes_is_refused_and_the_first_stays(
    store: LocalStore, second: dict[str, bytes], where: str
) -> None:
    first = {"ids": b"\1\0", "x": b""}
    store.publish_folder(_staged(store, "one", first), "regions/00000")
    with pytest.raises(CasebitsError) as caught:
        store.publish_folder(_staged(store, "two", second), "regions/00000")
    assert str(caught.value) == (
        f"STORE_CONFLICT regions/00000/{where}: other bytes are published "
        "(what is published is never overwritten; a change is a new name)"
    )
    assert _tree(store.root / "regions/00000") == first
    assert _tree(store.staging / "two") == second


def test_of_many_publishers_of_one_folder_one_wins_and_the_rest_adopt(store: LocalStore) -> None:
    folders = [_staged(store, str(number), {"ids": b"\1\0"}) for number in range(16)]
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda folder: store.publish_folder(folder, "regions/00000"), folders))
    assert won.count(True) == 1


def test_what_a_dead_process_published_is_made_durable_by_who_adopts_it(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is there was not made by this process, which cannot know whether its maker lived to the fsync.
    (store.root / "regions/00000").mkdir(parents=True)
    (store.root / "regions/00000/ids").write_bytes(b"1")
    (store.root / "a").write_bytes(b"1")
    synced: list[Path] = []
    monkeypatch.setattr(local, "_fsync", synced.append)
    assert store.put_new("a", b"1") is False
    assert store.publish_folder(_staged(store, "one", {"ids": b"1"}), "regions/00000") is False
    assert {store.root, store.root / "regions", store.root.parent} <= set(synced)


def test_another_fault_of_the_rename_is_not_taken_for_a_lost_race(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged = _staged(store, "one", {"ids": b""})

    def full(self: Path, target: Path) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(OSError, match="No space left on device"):
        store.publish_folder(staged, "regions/00000")


@pytest.mark.parametrize("path", UNSAFE)
def test_unsafe_names_are_refused_for_folders_and_replacements(store: LocalStore, path: str) -> None:
    staged = _staged(store, "one", {"ids": b""})
    with pytest.raises(Refused, match=r"^PATH_UNSAFE"):
        store.publish_folder(staged, path)
    with pytest.raises(Refused, match=r"^PATH_UNSAFE"):
        store.replace(path, None, b"")


def test_staged_folder_is_new_empty_and_removed(store: LocalStore) -> None:
    with store.staged("x") as one, store.staged("x") as two:
        write_durably(one / "file", b"content")
        assert (one != two, list(two.iterdir())) == (True, [])
    assert list(store.staging.iterdir()) == []


def test_write_durably_never_overwrites(tmp_path: Path) -> None:
    write_durably(tmp_path / "file", b"one")
    with pytest.raises(FileExistsError):
        write_durably(tmp_path / "file", b"two")
    assert (tmp_path / "file").read_bytes() == b"one"


def test_make_folder_makes_the_parents_and_accepts_what_is_there(tmp_path: Path) -> None:
    make_folder(tmp_path / "a/b/c")
    make_folder(tmp_path / "a/b/c")
    assert (tmp_path / "a/b/c").is_dir() is True
