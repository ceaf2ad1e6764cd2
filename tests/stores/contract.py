"""`StoreContract`: what every store must do. A store's test is a subclass that says how to make one."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from casebits_dagster.records.errors import Absent, CasebitsError, Refused
from casebits_dagster.stores.base import RangedFile, Store

UNSAFE = ["", "/a", "..", "../a", "a/..", "a/../b", ".", "./a", "a/./b", "a//b", "a\\b", "a\0b"]


class StoreContract(ABC):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return self.make(tmp_path / "root")

    @abstractmethod
    def make(self, root: Path) -> Store:
        """Return an empty store below a folder that does not exist yet."""

    def test_what_was_put_is_read_back(self, store: Store) -> None:
        assert store.put_new("a/b.bin", b"0123456789") is True
        assert store.get("a/b.bin") == b"0123456789"
        assert store.size("a/b.bin") == 10
        assert (store.exists("a/b.bin"), store.exists("a/c.bin")) == (True, False)

    def test_an_empty_file_is_a_file(self, store: Store) -> None:
        assert store.put_new("empty", b"") is True
        assert store.put_new("empty", b"") is False
        assert (store.get("empty"), store.size("empty"), store.exists("empty")) == (b"", 0, True)
        assert store.read_range("empty", 0, 5) == b""

    def test_equal_bytes_are_adopted_and_other_bytes_refused(self, store: Store) -> None:
        store.put_new("a", b"one")
        assert store.put_new("a", b"one") is False
        with pytest.raises(CasebitsError) as caught:
            store.put_new("a", b"two")
        assert str(caught.value) == (
            "STORE_CONFLICT a: other bytes are published "
            "(what is published is never overwritten; a change is a new name)"
        )
        assert store.get("a") == b"one"

    def test_one_of_many_writers_wins_and_the_others_learn_it(self, store: Store) -> None:
        def write(number: int) -> str:
            try:
                store.put_new("a", str(number % 4).encode())
            except CasebitsError as error:
                return error.code
            return str(number % 4)

        with ThreadPoolExecutor(8) as pool:
            answers = set(pool.map(write, range(32)))
        assert answers == {"STORE_CONFLICT", store.get("a").decode()}

    @pytest.mark.parametrize(
        ("begin", "end", "expected"),
        [(0, 10, b"0123456789"), (3, 5, b"34"), (8, 20, b"89"), (10, 12, b""), (4, 4, b"")],
    )
    def test_ranges_are_half_open_and_stop_at_the_end(
        self, store: Store, begin: int, end: int, expected: bytes
    ) -> None:
        store.put_new("a", b"0123456789")
        assert store.read_range("a", begin, end) == expected

    def test_a_file_that_is_not_there_is_absent(self, store: Store) -> None:
        for read in (store.get, store.size, lambda path: store.read_range(path, 0, 1)):
            with pytest.raises(Absent) as caught:
                read("a/none")
            assert (caught.value.code, caught.value.where) == ("FILE_MISSING", "a/none")

    def test_list_is_sorted_and_below_its_folder(self, store: Store) -> None:
        for path in ("b/2", "b/1/x", "a", "bb/3"):
            store.put_new(path, b"")
        assert store.list("b") == ["b/1/x", "b/2"]
        assert store.list("none") == []

    @pytest.mark.parametrize("path", UNSAFE)
    def test_names_that_leave_the_root_are_refused(self, store: Store, path: str) -> None:
        for use in (store.get, store.size, store.exists, store.list, lambda name: store.put_new(name, b"x")):
            with pytest.raises(Refused) as caught:
                use(path)
            assert str(caught.value) == (
                f"PATH_UNSAFE {path}: name would leave its root, expected a relative path, read {path}"
            )

    def test_a_ranged_file_reads_like_a_file(self, store: Store) -> None:
        content = bytes(range(256))
        store.put_new("a", content)
        file, plain = RangedFile(store, "a"), io.BytesIO(content)
        for offset, whence, size in (
            (0, 0, 4),
            (10, 0, 0),
            (-6, 2, 4),
            (1, 1, -1),
            (300, 0, 5),
            (250, 0, 100),
            (2, 0, None),
        ):
            assert file.seek(offset, whence) == plain.seek(offset, whence)
            assert file.read(size) == plain.read(size)
            assert file.tell() == plain.tell()
        assert (file.readable(), file.seekable(), file.writable()) == (True, True, False)
