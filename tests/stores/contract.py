"""What every store must do: `StoreContract` to be read, `WritableStoreContract` to be published to as well.

A store's test is a subclass that says how to make one.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from casebits_dagster.records.errors import Absent, CasebitsError, Refused
from casebits_dagster.stores.base import RangedFile, Store, WritableStore

UNSAFE = ["", "/a", "..", "../a", "a/..", "a/../b", ".", "./a", "a/./b", "a//b", "a\\b", "a\0b", "a\nb", "\x7f"]
ODD = [
    "sp ace ",
    "\u00fc",
    "e\u0301",
    "日本",
    "p%41",
    "%2F",
    "a+b",
    "a#b",
    "a?b=c",
    "a&b",
    "~a",
    "*",
    "[a]",
    "{a}",
    "a|b^`",
    "<a>",
]
ODD += ["'\"", "a=b,c;d:e", "@a", "$a", "!a", "(a)", "..a", "a.", ".a"]
UNSAFE_SAID = "PATH_UNSAFE {path}: name would leave its root, expected a relative path, read {path}"


class StoreContract(ABC):
    """A store that holds files from the start."""

    @pytest.fixture
    def root(self, tmp_path: Path) -> Any:
        """Where stores of this kind are made."""
        return tmp_path / "root"

    @abstractmethod
    def holding(self, root: Any, files: dict[str, bytes]) -> Store:
        """Return a store that holds these files and no other."""

    @pytest.mark.parametrize(
        ("begin", "end", "expected"),
        [(0, 10, b"0123456789"), (3, 5, b"34"), (8, 20, b"89"), (10, 12, b""), (12, 14, b""), (4, 4, b"")],
    )
    def test_ranges_are_half_open_and_stop_at_the_end(self, root: Any, begin: int, end: int, expected: bytes) -> None:
        assert self.holding(root, {"a": b"0123456789"}).read_range("a", begin, end) == expected

    def test_a_whole_file_and_its_size(self, root: Any) -> None:
        store = self.holding(root, {"a/b ü.bin": b"0123456789", "empty": b""})
        assert (store.get("a/b ü.bin"), store.size("a/b ü.bin")) == (b"0123456789", 10)
        assert (store.get("empty"), store.size("empty"), store.read_range("empty", 0, 5)) == (b"", 0, b"")

    def test_a_file_that_is_not_there_is_absent(self, root: Any) -> None:
        store = self.holding(root, {"a/b": b""})
        for read in (store.get, store.size, lambda path: store.read_range(path, 0, 1)):
            with pytest.raises(Absent) as caught:
                read("a/none")
            assert (caught.value.code, caught.value.where.endswith("a/none")) == ("FILE_MISSING", True)

    @pytest.mark.parametrize("path", UNSAFE)
    def test_names_that_leave_the_root_are_not_read(self, root: Any, path: str) -> None:
        store = self.holding(root, {})
        for read in (store.get, store.size, lambda name: store.read_range(name, 0, 1)):
            with pytest.raises(Refused) as caught:
                read(path)
            assert str(caught.value) == UNSAFE_SAID.format(path=path)

    def test_a_ranged_file_reads_like_a_file(self, root: Any) -> None:
        content = bytes(range(256))
        file, plain = RangedFile(self.holding(root, {"a": content}), "a"), io.BytesIO(content)
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


class WritableStoreContract(StoreContract):
    @abstractmethod
    def make(self, root: Any) -> WritableStore:
        """Return an empty store below a folder that does not exist yet."""

    def holding(self, root: Any, files: dict[str, bytes]) -> Store:
        store = self.make(root)
        for path, content in files.items():
            store.put_new(path, content)
        return store

    @pytest.fixture
    def store(self, root: Any) -> WritableStore:
        return self.make(root)

    def test_what_was_put_is_read_back(self, store: WritableStore) -> None:
        assert store.put_new("a/b.bin", b"0123456789") is True
        assert store.get("a/b.bin") == b"0123456789"
        assert (store.exists("a/b.bin"), store.exists("a/c.bin")) == (True, False)

    def test_an_empty_file_is_a_file(self, store: WritableStore) -> None:
        assert store.put_new("empty", b"") is True
        assert store.put_new("empty", b"") is False
        assert store.exists("empty") is True

    def test_put_file_creates_adopts_and_compares_to_the_last_byte(self, store: WritableStore, tmp_path: Path) -> None:
        content, file = bytes(range(256)) * 40, tmp_path / "file"
        file.write_bytes(content)
        assert [store.put_file("a/b", file), store.put_file("a/b", file), store.put_new("a/b", content)] == [
            True,
            False,
            False,
        ]
        for other in (content[:-1], content + b"\0", content[:-1] + b"\0", b""):
            file.write_bytes(other)
            with pytest.raises(CasebitsError, match="STORE_CONFLICT a/b: other bytes are published"):
                store.put_file("a/b", file)
        assert store.get("a/b") == content

    def test_equal_bytes_are_adopted_and_other_bytes_refused(self, store: WritableStore) -> None:
        store.put_new("a", b"one")
        assert store.put_new("a", b"one") is False
        with pytest.raises(CasebitsError) as caught:
            store.put_new("a", b"two")
        assert str(caught.value) == (
            "STORE_CONFLICT a: other bytes are published "
            "(what is published is never overwritten; a change is a new name)"
        )
        assert store.get("a") == b"one"

    def test_one_of_many_writers_wins_and_the_others_learn_it(self, store: WritableStore) -> None:
        def write(number: int) -> str:
            try:
                store.put_new("a", str(number % 4).encode())
            except CasebitsError as error:
                return error.code
            return str(number % 4)

        with ThreadPoolExecutor(8) as pool:
            answers = set(pool.map(write, range(32)))
        assert answers == {"STORE_CONFLICT", store.get("a").decode()}

    def test_list_is_sorted_and_below_its_folder(self, store: WritableStore) -> None:
        for path in ("b/2", "b/1/x", "a", "bb/3"):
            store.put_new(path, b"")
        assert store.list("b") == ["b/1/x", "b/2"]
        assert store.list("none") == []

    def test_odd_names_are_kept_as_they_are(self, store: WritableStore) -> None:
        for name in ODD:
            store.put_new(f"a/{name}/{name}", name.encode())
        assert store.list("a") == sorted(f"a/{name}/{name}" for name in ODD)
        assert [store.get(f"a/{name}/{name}").decode() for name in ODD] == ODD

    def test_replace_compares_and_swaps(self, store: WritableStore) -> None:
        assert store.replace("a/LATEST", b"0", b"1") is False
        assert store.exists("a/LATEST") is False
        assert store.replace("a/LATEST", None, b"") is True
        assert store.replace("a/LATEST", None, b"") is False
        assert store.replace("a/LATEST", b"0", b"") is False
        assert store.get("a/LATEST") == b""
        assert store.replace("a/LATEST", b"", b"2") is True
        assert store.get("a/LATEST") == b"2"

    @pytest.mark.parametrize("start", [None, b"start"])
    def test_of_many_replacements_of_one_state_one_succeeds(self, store: WritableStore, start: bytes | None) -> None:
        if start:
            store.replace("LATEST", None, start)
        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(lambda number: store.replace("LATEST", start, b"%d" % (number % 4)), range(32)))
        assert won.count(True) == 1
        assert store.get("LATEST") == b"%d" % (won.index(True) % 4)

    @pytest.mark.parametrize("path", UNSAFE)
    def test_names_that_leave_the_root_are_refused(self, store: WritableStore, path: str) -> None:
        uses: list[Callable[[str], object]] = [store.exists, store.list]
        uses += [lambda name: store.put_new(name, b"x"), lambda name: store.replace(name, None, b"x")]
        for use in uses:
            with pytest.raises(Refused) as caught:
                use(path)
            assert str(caught.value) == UNSAFE_SAID.format(path=path)
