"""A dataset of the Hugging Face Hub at one pinned revision, read by ranges.

Guarantees: a read returns exactly the bytes that were asked for, of the file as it stands at that revision, or raises;
a whole file is hashed, which the client never does, and nothing is kept of what was read.
A connection that breaks goes on at the byte where it broke; 408, 429 and 5xx are asked again, with growing pauses. A
server that ignores a range, answers with another one, or tells of another revision, tag or size than before is refused.

Cost: one HEAD a file, then one GET a read (and its redirect to where the bytes lie). Memory: the range that is read.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeVar

import httpx2
from huggingface_hub import HfApi, RepoFile, constants, get_hf_file_metadata, get_session, hf_hub_url
from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled
from huggingface_hub.utils import build_hf_headers, hf_raise_for_status, parse_ratelimit_headers  # type: ignore[attr-defined]

from casebits_dagster.records.digests import sha256_file
from casebits_dagster.records.errors import Absent, CasebitsError, Refused
from casebits_dagster.stores.base import safe_path

_BLOCK = 64 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Patience:
    """When to give up: after `attempts` in a row that brought no byte. In seconds: the first `pause`, which doubles up
    to `longest_pause` (that also bounds what a Retry-After may ask), and how long a connection may be silent."""

    attempts: int = 6
    pause: float = 1.0
    longest_pause: float = 300.0
    timeout: float = 30.0


@dataclass(frozen=True, slots=True)
class HubFile:
    """What the Hub says of a file: its size in bytes and its tag, which is its SHA-256 where it is stored as large, and
    else the SHA-1 by which git knows it."""

    size: int
    tag: str

    @property
    def sha256(self) -> str | None:
        return self.tag if _SHA256.fullmatch(self.tag) else None

    def holds(self, content: Path | bytes, sha256: str = "") -> bool:
        """Return whether the file has just these bytes, whose SHA-256 may be known."""
        if self.size != (len(content) if isinstance(content, bytes) else content.stat().st_size):
            return False
        if self.sha256 and isinstance(content, Path):
            return (sha256 or sha256_file(content)) == self.tag
        raw = content if isinstance(content, bytes) else content.read_bytes()
        digest = hashlib.sha256(raw) if self.sha256 else hashlib.sha1(b"blob %d\0" % len(raw) + raw)
        return digest.hexdigest() == self.tag


def _may_help(status: int) -> bool:
    """Whether asking again may bring another answer."""
    return status in (408, 429) or status >= 500


def hub_endpoint() -> str:
    """Return the Hub's address: `$HF_ENDPOINT`, or the public one."""
    return (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")


class HubDataset:
    """One dataset: how it is asked, and asked again. `$HF_TOKEN`, or what `hf auth login` left, is sent to the endpoint
    and to no other."""

    RIGHT: ClassVar[str] = "read it; a gated dataset also asks you to accept its terms at {url}"

    def __init__(self, repo: str, endpoint: str = "", patience: Patience | None = None) -> None:
        self.repo, self.endpoint = repo, endpoint or hub_endpoint()
        self.patience = patience or Patience()
        self._api = HfApi(endpoint=self.endpoint)

    def tree(self, revision: str, folder: str | None = None) -> dict[str, HubFile]:
        """Return all files, or those below a folder, at a revision. Raises Absent when either is not there."""

        def listed() -> list[RepoFile]:
            entries = self._api.list_repo_tree(
                self.repo, folder, recursive=True, revision=revision, repo_type="dataset"
            )
            return [entry for entry in entries if isinstance(entry, RepoFile)]

        return told(self._persist(f"{self.repo}@{revision[:8]}/{folder or ''}", listed))

    def _persist(self, where: str, step: Callable[[], T], received: Sequence[bytes] = ()) -> T:
        """Return what a step returns, taking it again while that may help; one that brought bytes starts afresh."""
        failures = 0
        while True:
            before = len(received)
            try:
                return step()
            except OfflineModeIsEnabled as error:
                raise self._unreachable(where, "HF_HUB_OFFLINE is set", "unset it") from error
            except UnicodeEncodeError as error:
                problem = "the token is not of ASCII characters, as every token of the Hub is"
                raise Refused("STORE_FORBIDDEN", where, problem, remedy="set HF_TOKEN anew") from error
            except (httpx2.RequestError, HfHubHTTPError, RuntimeError, json.JSONDecodeError) as caught:
                # The client wraps what happened to an upload.
                cause = caught.__cause__ if isinstance(caught, RuntimeError) and caught.__cause__ else caught
                response = cause.response if isinstance(cause, HfHubHTTPError) else None
                if response is not None and not _may_help(response.status_code):
                    raise self._answer(where, response) from caught
                failures = 0 if len(received) > before else failures + 1
                if failures >= self.patience.attempts:
                    said = f"status {response.status_code}" if response is not None else str(cause)
                    remedy = "check the network, the proxy and HF_ENDPOINT, then run it again"
                    problem = f"{said or type(cause).__name__}, {failures} times in a row"
                    raise self._unreachable(where, problem, remedy) from caught
            time.sleep(self._pause(failures, response))

    def _pause(self, failures: int, response: httpx2.Response | None) -> float:
        """Return the seconds to wait: as long as the server asks for, or twice the last pause."""
        headers = response.headers if response is not None else {}
        limit, asked = parse_ratelimit_headers(headers), headers.get("Retry-After", "")
        pause = float(asked) if asked.isdecimal() else self.patience.pause * 2 ** (failures - 1)
        if limit and limit.remaining == 0:
            pause = max(pause, limit.reset_in_seconds)
        return min(pause, self.patience.longest_pause)

    def _unreachable(self, where: str, problem: str, remedy: str) -> Refused:
        problem = f"{self.endpoint} cannot be reached: {problem}"
        return Refused("STORE_UNREACHABLE", where, problem, remedy=remedy)

    def _answer(self, where: str, response: httpx2.Response) -> CasebitsError:
        """Return the error of an answer that would be the same a second time."""
        said = response.headers.get("X-Error-Message") or response.headers.get("X-Error-Code") or "no reason given"
        problem = f"{self.endpoint} answers {response.status_code}: {said}"
        if response.status_code == 404:
            return Absent("FILE_MISSING", where, problem)
        if response.status_code in (401, 403):
            right = self.RIGHT.format(url=f"{self.endpoint}/datasets/{self.repo}")
            remedy = f"log in with `hf auth login` or set HF_TOKEN to a token that may {right}"
            return Refused("STORE_FORBIDDEN", where, problem, remedy=remedy)
        return Refused("STORE_PROTOCOL", where, problem)


class HubStore(HubDataset):
    """A `Store` to read from: a dataset at one full revision."""

    def __init__(self, repo: str, revision: str, endpoint: str = "", patience: Patience | None = None) -> None:
        if not re.fullmatch(r"[0-9a-f]{40}", revision):
            expected = "a full revision of 40 lower-case hex digits, not a branch or tag"
            raise Refused("REVISION_NOT_PINNED", repo, expected=expected, read=revision)
        super().__init__(repo, endpoint, patience)
        self.revision = revision
        self._files: dict[str, HubFile] = {}

    def read_range(self, path: str, begin: int, end: int) -> bytes:
        file, received = self.file(path), list[bytes]()
        end = min(end, file.size)
        if begin < end:
            self._persist(self._where(path), lambda: self._receive(path, file, begin, end, received), received)
        return b"".join(received)

    def size(self, path: str) -> int:
        return self.file(path).size

    def get(self, path: str) -> bytes:
        file, content = self.file(path), self.read_range(path, 0, self.size(path))
        if not file.holds(content):
            problem, remedy = "the Hub sent other bytes than it tells of", "run it again"
            read = f"sha256 {hashlib.sha256(content).hexdigest()}"
            raise Refused("FILE_HASH", self._where(path), problem, expected=f"tag {file.tag}", read=read, remedy=remedy)
        return content

    def fetch(self, path: str, target: Path) -> str:
        """Stream a file to a new local one, which is there only when it is whole, and return its SHA-256 in hex."""
        digest = hashlib.sha256()
        with target.open("xb") as file, contextlib.ExitStack() as undone:
            undone.callback(target.unlink)
            for begin in range(0, self.size(path), _BLOCK):
                block = self.read_range(path, begin, begin + _BLOCK)
                digest.update(block)
                file.write(block)
            undone.pop_all()
        return digest.hexdigest()

    def sha256(self, path: str) -> str | None:
        """Return the SHA-256 that the Hub publishes of a file; None where it was small enough for git itself."""
        return self.file(path).sha256

    def file(self, path: str) -> HubFile:
        """Return what the Hub says of a file, asked once. Raises Absent when it is not there at this revision."""
        if path not in self._files:
            self._files[path] = self._persist(self._where(path), lambda: self._look_up(path))
        return self._files[path]

    def _look_up(self, path: str) -> HubFile:
        found = get_hf_file_metadata(self._url(path), timeout=self.patience.timeout)
        if found.commit_hash is None or found.size is None or found.size < 0 or found.etag is None:
            read = f"revision {found.commit_hash}, {found.size} bytes, tag {found.etag}"
            problem = f"{self.endpoint} does not answer as the Hub does"
            raise Refused("STORE_PROTOCOL", self._where(path), problem, expected="revision, size and tag", read=read)
        self._require_revision(path, found.commit_hash)
        return HubFile(found.size, found.etag)

    def _receive(self, path: str, file: HubFile, begin: int, end: int, received: list[bytes]) -> None:
        """Append the rest of the range to what was received of it; what arrives before an error stays."""
        begin += sum(map(len, received))
        headers = build_hf_headers() | {"Range": f"bytes={begin}-{end - 1}", "Accept-Encoding": "identity"}
        stream = get_session().stream("GET", self._url(path), headers=headers, timeout=self.patience.timeout)
        with stream as response:
            hf_raise_for_status(response)
            for hop in (*response.history, response):
                self._require_same(path, file, hop)
            length = response.headers.get("Content-Length", str(end - begin))
            answer = f"{response.status_code} {response.headers.get('Content-Range')}, {length} bytes"
            expected = f"206 bytes {begin}-{end - 1}/{file.size}, {end - begin} bytes"
            if answer != expected:
                raise Refused("STORE_PROTOCOL", self._where(path), expected=expected, read=answer)
            if (coding := response.headers.get("Content-Encoding", "identity")) != "identity":
                raise Refused("STORE_PROTOCOL", self._where(path), expected="bytes as they are", read=coding)
            for piece in response.iter_raw():
                received.append(piece)
                begin += len(piece)
                if begin > end:
                    raise Refused("STORE_PROTOCOL", self._where(path), "the answer is longer than the range")
        if begin < end:
            raise httpx2.RemoteProtocolError(f"the answer ended {end - begin} bytes early")

    def _require_same(self, path: str, file: HubFile, hop: httpx2.Response) -> None:
        """Compare what an answer tells of the file with what the Hub told first; the storage behind it tells none."""
        if revision := hop.headers.get(constants.HUGGINGFACE_HEADER_X_REPO_COMMIT):
            self._require_revision(path, revision)
            own = None if hop.is_redirect else hop.headers.get("ETag")  # a redirect's own tag is not the file's
            tag = hop.headers.get(constants.HUGGINGFACE_HEADER_X_LINKED_ETAG) or own or file.tag
            size = hop.headers.get(constants.HUGGINGFACE_HEADER_X_LINKED_SIZE) or file.size
            expected = f"{file.size} bytes, tag {file.tag}"
            read = f"{size} bytes, tag {tag.removeprefix('W/').strip(chr(34))}"
            if expected != read:
                problem = "the file changed between two reads of one revision"
                raise Refused("SOURCE_PIN", self._where(path), problem, expected=expected, read=read)

    def _require_revision(self, path: str, read: str) -> None:
        if read != self.revision:
            problem = "the Hub answers with another revision"
            raise Refused("REVISION_NOT_PINNED", self._where(path), problem, expected=self.revision, read=read)

    def _url(self, path: str) -> str:
        url = hf_hub_url(
            self.repo, safe_path(path), repo_type="dataset", revision=self.revision, endpoint=self.endpoint
        )
        return str(url)

    def _where(self, path: str) -> str:
        return f"{self.repo}@{self.revision[:8]}/{path}"

    def list(self, prefix: str) -> list[str]:
        """Return the paths of all files below the folder `prefix`, sorted."""
        with contextlib.suppress(Absent):
            return sorted(self.tree(self.revision, safe_path(prefix)))
        return []


def told(entries: Iterable[RepoFile]) -> dict[str, HubFile]:
    """Return by path what the Hub says of files in a listing."""
    return {entry.path: HubFile(entry.size, entry.lfs.sha256 if entry.lfs else entry.blob_id) for entry in entries}


@functools.cache
def hub_store(repo: str, revision: str, endpoint: str) -> HubStore:
    """Return the one store of this process, which remembers what the Hub said of each file."""
    return HubStore(repo, revision, endpoint)
