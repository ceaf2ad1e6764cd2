"""What a store can do, and a seekable file over ranged reads."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Protocol

from casebits_dagster.records.errors import Conflict, Refused

_UNSAFE = re.compile(r"^/|(^|/)\.\.?(/|$)|//|[\\\0-\x1f\x7f]")


class Store(Protocol):
    """Named byte strings below one root, to be read. Paths are relative, with `/`, and never leave it (PATH_UNSAFE)."""

    def read_range(self, path: str, begin: int, end: int) -> bytes:
        """Return bytes [begin, end); fewer only when the file ends there."""

    def size(self, path: str) -> int:
        """Return the size in bytes, or raise Absent."""

    def get(self, path: str) -> bytes:
        """Return the whole file, or raise Absent."""


class WritableStore(Store, Protocol):
    """A store that is also published to."""

    def put_new(self, path: str, content: bytes) -> bool:
        """Create the file durably. True when this call made it, False when equal bytes were there already.

        A call whose answer was lost, and that then finds equal bytes, takes them for its own: of several writers of the
        same bytes more than one may then be told True.

        Raises CasebitsError STORE_CONFLICT when other bytes stand under that name; they are left as they are.
        """

    def put_file(self, path: str, file: Path) -> bool:
        """Create the file as `put_new` does, with the content of a local one, which is never held in memory."""

    def replace(self, path: str, expected: bytes | None, content: bytes) -> bool:
        """Compare and swap: set the file to `content` if it now holds `expected` (None: is absent), durably.

        Returns False, having changed nothing, when it holds something else.
        """

    def exists(self, path: str) -> bool: ...

    def list(self, prefix: str) -> list[str]:
        """Return the paths of all files below the folder `prefix`, sorted."""


def safe_path(path: str) -> str:
    """Return a name as it is, refusing one that would leave the root."""
    if not path or _UNSAFE.search(path):
        raise Refused("PATH_UNSAFE", path, "name would leave its root", expected="a relative path", read=path)
    return path


def conflict(path: str) -> Conflict:
    """Return the error of a publication that found other bytes under its name."""
    remedy = "what is published is never overwritten; a change is a new name"
    return Conflict("STORE_CONFLICT", path, "other bytes are published", remedy=remedy)


class RangedFile(io.RawIOBase):
    """A read-only, seekable file whose reads are a store's ranged reads (what pyarrow needs to read Parquet)."""

    def __init__(self, store: Store, path: str) -> None:
        self._store, self._path, self._position = store, path, 0
        self._size = store.size(path)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        end = self._size if size is None or size < 0 else min(self._size, self._position + size)
        found = self._store.read_range(self._path, self._position, end) if end > self._position else b""
        self._position += len(found)
        return found
