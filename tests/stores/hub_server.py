"""A small server that speaks the Hub's protocol as far as the real client needs it, with scripted faults.

`GET` and `HEAD /datasets/<repo>/resolve/<revision>/<path>` answer as the Hub does: a large file with its facts in the
headers and a redirect to the storage, which is another host (`localhost`) and serves ranges; a small one by itself.
"""

from __future__ import annotations

import functools
import hashlib
import re
import sys
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal, TypeAlias

from huggingface_hub import close_session

Stage: TypeAlias = Literal["look", "read", "storage"]  # HEAD at the Hub, GET at the Hub, GET at the storage
_RESOLVE = re.compile(r"/datasets/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """What goes wrong with the next request of a stage: any mixture of these."""

    stage: Stage
    status: int = 0  # answer with this status and no body
    headers: Mapping[str, str] = field(default_factory=dict)  # in place of the true ones; "" leaves one out
    cut: int | None = None  # close the connection after so many bytes of the body
    ignore_range: bool = False  # 200 and the whole file
    chunked: int | None = None  # no Content-Length, and so many bytes more (or fewer) than the range


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it came in."""

    stage: Stage
    path: str
    range: str | None
    authorization: str | None


@dataclass(frozen=True)
class HubFile:
    content: bytes
    large: bool

    @functools.cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @functools.cached_property
    def git_sha1(self) -> str:
        return hashlib.sha1(b"blob %d\0" % len(self.content) + self.content).hexdigest()


class HubServer(ThreadingHTTPServer):
    """Files by (repo, revision, path); `faults` are used up in order, each by the next request of its stage."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.endpoint = f"http://127.0.0.1:{self.server_port}"
        self.storage = f"http://localhost:{self.server_port}/storage"
        self.clear()

    def clear(self) -> None:
        """Begin anew: no files, no faults, nothing asked."""
        self.files: dict[tuple[str, str, str], HubFile] = {}
        self.faults: list[Fault] = []
        self.asked: list[Asked] = []
        self.token = ""  # when set, a repository is gated: only this token may read

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that refuses an answer goes away in the middle of it; all else is a fault of the server."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]

    def put(self, repo: str, revision: str, path: str, content: bytes, *, large: bool = True) -> None:
        self.files[repo, revision, path] = HubFile(content, large)

    def next_fault(self, stage: Stage) -> Fault:
        fault = next((fault for fault in self.faults if fault.stage == stage), None)
        if fault is None:
            return Fault(stage=stage)
        self.faults.remove(fault)
        return fault

    def count(self, stage: Stage) -> int:
        return sum(asked.stage == stage for asked in self.asked)


@contextmanager
def hub_server() -> Iterator[HubServer]:
    """Serve until the end of the block."""
    with HubServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            close_session()
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: HubServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None:
        """Say nothing: tests read `asked`."""

    def do_HEAD(self) -> None:
        self._answer("look")

    def do_GET(self) -> None:
        self._answer("storage" if self.path.startswith("/storage/") else "read")

    def _answer(self, stage: Stage) -> None:
        header = self.headers.get
        self.server.asked.append(Asked(stage, self.path, header("Range"), header("Authorization")))
        fault = self.server.next_fault(stage)
        if fault.status:
            self._send(fault.status, {}, b"", fault)
        elif stage == "storage":
            sha256 = self.path.removeprefix("/storage/")
            self._send_content(next(f for f in self.server.files.values() if f.sha256 == sha256), {}, fault)
        else:
            self._resolve(fault)

    def _resolve(self, fault: Fault) -> None:
        match = _RESOLVE.fullmatch(urllib.parse.unquote(self.path))
        repo, revision, path = match.groups() if match else ("", "", "")
        known = {(repo, revision) for repo, revision, _ in self.server.files}
        file = self.server.files.get((repo, revision, path))
        if self.server.token and self.headers.get("Authorization") != f"Bearer {self.server.token}":
            self._refuse(401, "GatedRepo", f"Access to dataset {repo} is restricted.", fault)
        elif repo not in {repo for repo, _ in known}:
            self._refuse(401, "RepoNotFound", "Repository not found", fault)
        elif (repo, revision) not in known:
            self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}", fault)
        elif file is None:
            self._refuse(404, "EntryNotFound", "Entry not found", fault)
        elif file.large:
            facts = {"X-Linked-Size": str(len(file.content)), "X-Linked-Etag": f'"{file.sha256}"'}
            location = {"Location": f"{self.server.storage}/{file.sha256}"}
            self._send(302, {"X-Repo-Commit": revision, **facts, **location}, b"", fault)
        else:
            self._send_content(file, {"X-Repo-Commit": revision, "ETag": f'W/"{file.git_sha1}"'}, fault)

    def _refuse(self, status: int, code: str, message: str, fault: Fault) -> None:
        self._send(status, {"X-Error-Code": code, "X-Error-Message": message}, b"", fault)

    def _send_content(self, file: HubFile, headers: dict[str, str], fault: Fault) -> None:
        asked, size = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")), len(file.content)
        if asked is None or fault.ignore_range:
            self._send(200, headers, file.content, fault)
        else:
            begin, end = int(asked[1]), min(int(asked[2]) + 1, size)
            headers["Content-Range"] = f"bytes {begin}-{end - 1}/{size}"
            self._send(206, headers, file.content[begin:end], fault)

    def _send(self, status: int, headers: dict[str, str], body: bytes, fault: Fault) -> None:
        if fault.chunked is not None:
            body = (body + bytes(max(0, fault.chunked)))[: len(body) + fault.chunked]
            headers["Transfer-Encoding"] = "chunked"
            framed = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
        else:
            headers["Content-Length"], framed = str(len(body)), body
        self.send_response(status)
        for name, value in (headers | dict(fault.headers)).items():
            if value:
                self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(framed[: fault.cut])
            self.close_connection |= fault.cut is not None
