"""A folder on a local file system as a store.

Guarantees: a name holds either nothing or a complete, durable file or folder, whatever crashes; what was published is
never overwritten. The protocol: stage beside the target on the same file system, fsync every file and the folder,
rename (folders) or link (files, exclusive) onto the final name, fsync the parent.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import filecmp
import os
import shutil
import uuid
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from casebits_dagster.records.errors import Absent
from casebits_dagster.stores.base import conflict, safe_path

_LOCK = ".lock"
_DURABLE: set[Path] = set()


class LocalStore:
    """A store below `root`. `staging` must lie on the same file system; it defaults to `root/.staging`."""

    def __init__(self, root: Path, staging: Path | None = None) -> None:
        self.root, self.staging = root, staging or root / ".staging"

    def local(self, path: str) -> Path:
        """Return the local path of a name, refusing names that would leave the root."""
        return self.root / safe_path(path)

    def read_range(self, path: str, begin: int, end: int) -> bytes:
        parts = []
        with self._open(path) as descriptor:
            # One call returns at most 2 GiB.
            while begin < end and (part := os.pread(descriptor, end - begin, begin)):
                parts.append(part)
                begin += len(part)
        return b"".join(parts)

    def size(self, path: str) -> int:
        with self._open(path) as descriptor:
            return os.fstat(descriptor).st_size

    def get(self, path: str) -> bytes:
        with self._open(path):
            return self.local(path).read_bytes()

    def exists(self, path: str) -> bool:
        return self.local(path).exists()

    def list(self, prefix: str) -> list[str]:
        found = (path for path in self.local(prefix).rglob("*") if path.is_file())
        return sorted(path.relative_to(self.root).as_posix() for path in found)

    def put_new(self, path: str, content: bytes) -> bool:
        return self._create(path, lambda new: write_durably(new, content), lambda old: old.read_bytes() == content)

    def put_file(self, path: str, file: Path) -> bool:
        def copy(new: Path) -> None:
            shutil.copyfile(file, new)
            _fsync(new)

        return self._create(path, copy, lambda old: filecmp.cmp(file, old, shallow=False))

    def _create(self, path: str, write: Callable[[Path], None], same: Callable[[Path], bool]) -> bool:
        target = self.local(path)
        make_folder(target.parent)
        with self.staged("file") as folder:
            write(folder / "content")
            try:
                os.link(folder / "content", target)
            except FileExistsError as error:
                if same(target):
                    # Whoever made it may have died before this.
                    fsync_folder(target.parent)
                    return False
                raise conflict(path) from error
        fsync_folder(target.parent)
        return True

    def replace(self, path: str, expected: bytes | None, content: bytes) -> bool:
        """Compare and swap: set the file to `content` if it now holds `expected` (None: is absent), durably.

        Returns False, having changed nothing, when it holds something else.
        """
        target = self.local(path)
        make_folder(target.parent)
        with self.exclusive():
            if (target.read_bytes() if target.exists() else None) != expected:
                return False
            with self.staged("file") as folder:
                write_durably(folder / "content", content)
                (folder / "content").rename(target)
            fsync_folder(target.parent)
        return True

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the store's one lock: for what takes more than one step, such as compare and swap. Keep it short."""
        make_folder(self.staging)
        with (self.staging / "lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def staged(self, label: str) -> Iterator[Path]:
        """Yield a new, empty staging folder; whatever is left in it at the end is removed.

        What dead processes left in staging is swept first. A lock beside each folder tells whether its owner lives.
        """
        make_folder(self.staging)
        self._sweep()
        with contextlib.ExitStack() as held:
            folder = self.staging / f"{label}.{uuid.uuid4().hex}"
            while not held.enter_context(_locked(_lock_of(folder))):
                folder = self.staging / f"{label}.{uuid.uuid4().hex}"
            folder.mkdir()
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)
                _lock_of(folder).unlink(missing_ok=True)

    def _sweep(self) -> None:
        """Remove the folders whose owner is dead: the lock stands before the folder does, and is removed after it."""
        for path in self.staging.iterdir():
            if path.name.endswith(_LOCK):
                folder = path.with_name(path.name.removesuffix(_LOCK))
                with contextlib.suppress(OSError), _locked(path, wait=False) as dead:
                    if dead:
                        shutil.rmtree(folder, ignore_errors=True)
                        path.unlink(missing_ok=True)
            elif path.is_dir() and not _lock_of(path).exists():
                shutil.rmtree(path, ignore_errors=True)

    def publish_folder(self, staged: Path, path: str, added_later: Collection[str] = ()) -> bool:
        """Move a finished staging folder onto its name, durably. True when this call published it.

        False when a folder with the same files, byte for byte, is there; names of `added_later` may be there as well.
        Raises CasebitsError STORE_CONFLICT, naming the first file that differs, when it is another one; it stays.
        """
        target = self.local(path)
        make_folder(target.parent)
        for file in sorted(staged.iterdir()):
            _fsync(file)
        fsync_folder(staged)
        try:
            # Never create the final folder first: a rename onto an empty folder would succeed silently.
            staged.rename(target)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
            if different := differing(staged, target, added_later):
                raise conflict(f"{path}/{different[0]}") from error
            # Whoever published it may have died before this.
            fsync_folder(target.parent)
            return False
        fsync_folder(target.parent)
        return True

    @contextlib.contextmanager
    def _open(self, path: str) -> Iterator[int]:
        try:
            descriptor = os.open(self.local(path), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise Absent("FILE_MISSING", path, f"there is no such file below {self.root}") from error
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def _lock_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}{_LOCK}")


@contextlib.contextmanager
def _locked(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold the lock of a file, made when it is not there. False when another process holds it, or removed it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            # A sweep may have taken the file between its creation and its lock.
            yield _names(path, descriptor)
    finally:
        os.close(descriptor)


def _names(path: Path, descriptor: int) -> bool:
    """Return whether a path still names an open file."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def differing(made: Path, found: Path, added_later: Collection[str] = ()) -> list[str]:
    """Return the sorted names whose files are not the same, regular and byte for byte, in both flat folders."""
    names, there = ({path.name for path in folder.iterdir()} for folder in (made, found))
    same = (name for name in names & there if not (found / name).is_symlink() and (found / name).is_file())
    equal = [name for name in same if filecmp.cmp(made / name, found / name, shallow=False)]
    return sorted((names | there.difference(added_later)).difference(equal))


def write_durably(path: Path, content: bytes) -> None:
    """Create a file exclusively, write it and fsync it."""
    with path.open("xb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def make_folder(folder: Path) -> None:
    """Create a folder with its parents, each durable in its own parent.

    One that is there is made durable by the first call of a process: whoever made it may have died before that.
    """
    there = folder.is_dir()
    if there and folder in _DURABLE:
        return
    if not there:
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
    # A folder that others made for us may lie where we cannot look.
    with contextlib.suppress(PermissionError) if there else contextlib.nullcontext():
        fsync_folder(folder.parent)
    _DURABLE.add(folder)


def fsync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    _fsync(folder)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
