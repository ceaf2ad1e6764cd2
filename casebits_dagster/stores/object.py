"""An object store (S3 protocol, or memory) as a store, for runs on more than one machine.

Guarantees: a name holds nothing or one whole object; what `put_new` made is never overwritten, whoever writes at the
same time; what was acknowledged was compared with its SHA-256 by the store. All of it rests on what the store does with
conditions and checksums, so a store that ignores one is refused when it is opened (STORE_NO_CAS).

Costs: reads are retried by the client. A write is one request; when its answer is lost, or is a fault of the server,
it is made again, and its own condition tells whether the first one arrived: equal bytes are then taken for its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import MemoryStore, S3Store

from casebits_dagster.records.errors import Absent, Refused
from casebits_dagster.stores.base import conflict, safe_path

if TYPE_CHECKING:
    from obstore import Bytes, PutMode
    from obstore.store import ClientConfig, RetryConfig

Client: TypeAlias = S3Store | MemoryStore
_BLOCK = 4 << 20
# What the client does not check itself, and panics at.
_BUCKET, _ENDPOINT = re.compile(r"[a-z0-9][a-z0-9.-]+[a-z0-9]"), re.compile(r"https?://[\w.:\[\]-]+(/[\w./-]*)?")
_STATUS = re.compile(r"status code: (\d+)(?:.*?<Code>(\w+)</Code>)?", re.DOTALL)
_NO_CAS = "publish to a store that honours If-None-Match, If-Match and x-amz-checksum-sha256"
_REMEDIES = {
    "STORE_FORBIDDEN": "look at the AWS_* credentials, and at what they may do in this bucket",
    "STORE_UNREACHABLE": "look at AWS_ENDPOINT_URL and at the server, then run again: what was acknowledged is kept",
    "STORE_PROTOCOL": "look at the bucket, AWS_REGION and AWS_ENDPOINT_URL",
}


def object_store(url: str, patience: float = 60.0) -> ObjectStore:
    """Open `s3://bucket/prefix` (endpoint, region and credentials as AWS_* say).

    `memory://` is a new and empty one, for tests: no other process sees it.

    An operation is given up when retries have taken `patience` seconds, and a request after five times as many.
    """
    if url == "memory://":
        memory = MemoryStore()
        return ObjectStore(url, memory, memory, None, patience)
    bucket, _, prefix = url.removeprefix("s3://").rstrip("/").partition("/")
    if not url.startswith("s3://") or not _BUCKET.fullmatch(bucket):
        raise Refused("STORE_PROTOCOL", url, expected="s3://bucket/prefix", read=url, remedy="look at CASEBITS_STORE")
    for name, value in sorted(os.environ.items()):
        if name.startswith("AWS_") and not value.isprintable():
            raise Refused("STORE_PROTOCOL", name, expected="printable characters", read="a line feed or the like")
    for name in ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        if not _ENDPOINT.fullmatch(endpoint := os.environ.get(name, "http://default")):
            raise Refused("STORE_PROTOCOL", name, expected="http://host:port or https://host:port", read=endpoint)
    place = partial(S3Store, bucket, prefix=safe_path(prefix) if prefix else "", conditional_put="etag")
    plain: ClientConfig = {"allow_http": True, "timeout": timedelta(seconds=5 * patience)}
    wrong: ClientConfig = {**plain, "default_headers": {"x-amz-checksum-sha256": 43 * "A" + "="}}
    once: RetryConfig = {"max_retries": 0}
    often: RetryConfig = {"max_retries": 1000, "retry_timeout": timedelta(seconds=patience)}
    often["backoff"] = {"max_backoff": timedelta(seconds=1)}
    reads = place(client_options=plain, retry_config=often)
    writes = place(client_options=plain, retry_config=once, checksum_algorithm="SHA256")
    return ObjectStore(url.rstrip("/"), reads, writes, place(client_options=wrong, retry_config=once), patience)


class ObjectStore:
    """A store over clients of one place: `reads` retries, `writes` does not, `wrong` sends a wrong checksum."""

    def __init__(self, url: str, reads: Client, writes: Client, wrong: Client | None, patience: float) -> None:
        self.url, self._reads, self._writes, self._patience = url, reads, writes, patience
        self._settled(".probe", lambda _: self._probe(wrong))

    def read_range(self, path: str, begin: int, end: int) -> bytes:
        try:
            if begin < end:
                with self._told(path):
                    return obstore.get_range(self._reads, safe_path(path), start=begin, end=end).to_bytes()
        except Refused as error:
            # A range that begins at the end, or after it, is an error to object stores.
            if error.code != "STORE_PROTOCOL" or begin < self.size(path):
                raise
        self.size(path)
        return b""

    def size(self, path: str) -> int:
        with self._told(path):
            return obstore.head(self._reads, safe_path(path))["size"]

    def get(self, path: str) -> bytes:
        with self._told(path):
            return obstore.get(self._reads, safe_path(path)).bytes().to_bytes()

    def exists(self, path: str) -> bool:
        with contextlib.suppress(Absent):
            self.size(path)
            return True
        return False

    def list(self, prefix: str) -> list[str]:
        with self._told(prefix):
            return sorted(found["path"] for page in obstore.list(self._reads, safe_path(prefix)) for found in page)

    def fetch(self, path: str, target: Path) -> str:
        """Stream a file to a new local one, which is there only when it is whole, and return its SHA-256 in hex."""
        digest = hashlib.sha256()
        with target.open("xb") as file, contextlib.ExitStack() as undone:
            undone.callback(target.unlink)
            for block in self._blocks(path):
                digest.update(block)
                file.write(block)
            undone.pop_all()
        return digest.hexdigest()

    def digest(self, path: str) -> str:
        """Return the SHA-256 of a file, in hex, holding a block of it at a time."""
        digest = hashlib.sha256()
        for block in self._blocks(path):
            digest.update(block)
        return digest.hexdigest()

    def put_new(self, path: str, content: bytes | mmap.mmap) -> bool:
        def attempt(doubtful: bool) -> bool | None:
            # What is large is looked for before it is sent.
            same = self._same(path, content) if len(content) > _BLOCK else None
            if same is None:
                if self._put(path, content, "create"):
                    return True
                same = self._same(path, content)
            if same is False:
                raise conflict(path)
            return doubtful if same else None

        return self._settled(path, attempt)

    def put_file(self, path: str, file: Path) -> bool:
        with file.open("rb") as opened:
            size = file.stat().st_size
            content = mmap.mmap(opened.fileno(), size, access=mmap.ACCESS_READ) if size else b""
            # A store in memory would keep the mapping, and with it whatever becomes of the local file.
            return self.put_new(path, content[:] if self.url == "memory://" else content)

    def replace(self, path: str, expected: bytes | None, content: bytes) -> bool:
        def attempt(doubtful: bool) -> bool | None:
            found, mode = self._read(path)
            if found != expected:
                return doubtful and found == content
            return self._put(path, content, mode) or None

        return self._settled(path, attempt)

    def _settled(self, path: str, attempt: Callable[[bool], bool | None]) -> bool:
        """Call until it knows, telling it whether an earlier call went without an answer.

        None is a condition that the store refused though it held: it does so while another write is under way.
        """
        problem = Refused("STORE_PROTOCOL", path, f"{self.url}: refuses a condition that holds", remedy=_NO_CAS)
        end, pause, doubtful = time.monotonic() + self._patience, 0.01, False
        while True:
            try:
                if (known := attempt(doubtful)) is not None:
                    return known
            except Refused as error:
                if error.code != "STORE_UNREACHABLE":
                    raise
                doubtful, problem = True, error
            if time.monotonic() > end:
                raise problem
            time.sleep(pause)
            pause = min(2 * pause, 1.0)

    def _put(self, path: str, content: bytes | mmap.mmap, mode: PutMode, wrong: Client | None = None) -> bool:
        """Send once. True when it was acknowledged, False when the condition (or the wrong checksum) did not hold."""
        try:
            obstore.put(wrong or self._writes, safe_path(path), content, mode=mode, use_multipart=False)
        except (AlreadyExistsError, PreconditionError, FileNotFoundError) as error:
            # "Not found" tells an If-Match that there is nothing to match, and a creation that there is no bucket.
            if mode == "create" and isinstance(error, FileNotFoundError):
                raise self._refusal(path, error) from error
        except BaseError as error:
            refusal = self._refusal(path, error)
            if not wrong or refusal.code != "STORE_PROTOCOL":
                raise refusal from error
        else:
            return True
        return False

    def _read(self, path: str) -> tuple[bytes | None, PutMode]:
        """Return what a file holds (None: it is absent), and the condition under which a write replaces just that."""
        try:
            with self._told(path):
                found = obstore.get(self._reads, safe_path(path))
                return found.bytes().to_bytes(), {"e_tag": found.meta["e_tag"]}
        except Absent:
            return None, "create"

    def _same(self, path: str, content: bytes | mmap.mmap) -> bool | None:
        """Return whether the file holds this content, or None when there is no file."""
        begin = 0
        try:
            if self.size(path) != len(content):
                return False
            for block in self._blocks(path):
                if content[begin : begin + len(block)] != block:
                    return False
                begin += len(block)
        except Absent:
            return None
        return begin == len(content)

    def _blocks(self, path: str) -> Iterator[Bytes]:
        with self._told(path):
            yield from obstore.get(self._reads, safe_path(path)).stream(_BLOCK)

    def _probe(self, wrong: Client | None) -> bool:
        """Return True, or raise STORE_NO_CAS, naming the first thing that the store ignores."""
        name = f".probe/{uuid.uuid4().hex}"
        try:
            self._put(name, b"1", "create")
            _, first = self._read(name)
            kept = {
                "a second create": not self._put(name, b"2", "create"),
                "a matching If-Match": self._put(name, b"3", first),
                "an acknowledged write": self._read(name)[0] == b"3",
                "a stale If-Match": not self._put(name, b"4", first),
                "a wrong checksum": wrong is None or not self._put(f"{name}.wrong", b"1", "create", wrong),
            }
        finally:
            with contextlib.suppress(BaseError, FileNotFoundError):
                obstore.delete(self._reads, [name, f"{name}.wrong"])
        if ignored := [what for what, is_kept in kept.items() if not is_kept]:
            raise Refused("STORE_NO_CAS", self.url, f"the store ignores {ignored[0]}", remedy=_NO_CAS)
        return True

    @contextlib.contextmanager
    def _told(self, path: str) -> Iterator[None]:
        """Raise what the client raises as errors of ours."""
        try:
            yield
        except FileNotFoundError as error:
            raise Absent("FILE_MISSING", path, f"there is no such file below {self.url}") from error
        except BaseError as error:
            raise self._refusal(path, error) from error

    def _refusal(self, path: str, error: Exception) -> Refused:
        said = str(error).partition("\n\nDebug source")[0]
        status = _STATUS.search(said)
        answer = " ".join(filter(None, ("answered", *status.groups()))) if status else said.rpartition(" - ")[2].strip()
        if status and status[1] in ("401", "403"):
            code = "STORE_FORBIDDEN"
        else:
            passing = status[1] >= "500" or status[1] in ("408", "429") if status else "HTTP error" in said
            code = "STORE_UNREACHABLE" if passing else "STORE_PROTOCOL"
        return Refused(code, path, f"{self.url}: {answer}", remedy=_REMEDIES[code])
