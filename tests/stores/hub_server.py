"""A small server that speaks the Hub's protocol as far as the real client needs it, with scripted faults.

`GET` and `HEAD /datasets/<repo>/resolve/<revision>/<path>` answer as the Hub does: a large file with its facts in the
headers and a redirect to the storage, which is another host (`localhost`) and serves ranges; a small one by itself.
The rest of the API is in `hub_repo`. A fault may also end a connection before a request is acted on, or after it.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal, TypeAlias

from huggingface_hub import close_session

from tests.stores.hub_repo import Answer, Commit, Hub, HubFile, Repo, refusal

# HEAD at the Hub, GET at the Hub, GET at the storage, and what `hub_repo` answers.
Stage: TypeAlias = Literal[
    "look", "read", "storage", "create", "yaml", "info", "preupload", "batch", "upload", "verify", "commit", "tree",
    "paths", "commits", "refs", "tag", "any",
]  # fmt: skip
_REPO = r"(?P<repo>[^/]+/[^/]+?)"
_ROUTES: list[tuple[str, Stage, str]] = [
    ("HEAD", "look", rf"/datasets/{_REPO}/resolve/(?P<revision>[^/]+)/(?P<path>.+)"),
    ("GET", "read", rf"/datasets/{_REPO}/resolve/(?P<revision>[^/]+)/(?P<path>.+)"),
    ("GET", "storage", r"/storage/(?P<oid>\w+)"),
    ("PUT", "upload", r"/storage/(?P<oid>\w+)"),
    ("POST", "create", "/api/repos/create"),
    ("POST", "yaml", "/api/validate-yaml"),
    ("GET", "info", rf"/api/datasets/{_REPO}(/revision/(?P<revision>[^/]+))?"),
    ("POST", "preupload", rf"/api/datasets/{_REPO}/preupload/(?P<revision>[^/]+)"),
    ("POST", "commit", rf"/api/datasets/{_REPO}/commit/(?P<revision>[^/]+)"),
    ("GET", "tree", rf"/api/datasets/{_REPO}/tree/(?P<revision>[^/]+)(/(?P<path>.+))?"),
    ("POST", "paths", rf"/api/datasets/{_REPO}/paths-info/(?P<revision>[^/]+)"),
    ("GET", "commits", rf"/api/datasets/{_REPO}/commits/(?P<revision>[^/]+)"),
    ("GET", "refs", rf"/api/datasets/{_REPO}/refs"),
    ("POST", "tag", rf"/api/datasets/{_REPO}/tag/(?P<revision>[^/]+)"),
    ("POST", "batch", rf"/datasets/{_REPO}\.git/info/lfs/objects/batch"),
    ("POST", "verify", rf"/datasets/{_REPO}\.git/info/lfs/objects/verify"),
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """What goes wrong with the next request of a stage: any mixture of these."""

    stage: Stage = "any"
    status: int = 0  # answer with this status and no body
    headers: Mapping[str, str] = field(default_factory=dict)  # in place of the true ones; "" leaves one out
    cut: int | None = None  # close the connection after so many bytes of the body
    ignore_range: bool = False  # 200 and the whole file
    chunked: int | None = None  # no Content-Length, and so many bytes more (or fewer) than the range
    corrupt: bool = False  # as many bytes, but others
    closed: Literal["", "before", "after"] = ""  # close the connection before acting, or after it without an answer
    acted: int = 0  # act, and answer with this status for all that
    body: bytes | None = None  # in place of the true one
    then: Callable[[], None] | None = None  # called when the server has acted, and before it answers


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it came in."""

    stage: Stage
    path: str
    range: str | None
    authorization: str | None


class HubServer(ThreadingHTTPServer):
    """Datasets in `hub`; `faults` are used up in order, each by the next request of its stage, those of `at` by the
    request of that number, counted from 1."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.endpoint = f"http://127.0.0.1:{self.server_port}"
        self.storage = f"http://localhost:{self.server_port}/storage"
        self.acting = threading.Lock()
        self.clear()

    def clear(self) -> None:
        """Begin anew: no files, no faults, nothing asked."""
        self.hub = Hub(self.endpoint, self.storage)
        self.faults: list[Fault] = []
        self.at: dict[int, Fault] = {}
        self.asked: list[Asked] = []
        self.token = ""  # when set, a repository is gated: only this token may read and write

    @property
    def files(self) -> dict[tuple[str, str, str], HubFile]:
        """All files of all times, by repository, commit and path."""
        commits = [(name, commit) for name, repo in self.hub.repos.items() for commit in repo.commits.values()]
        return {(name, commit.id, path): file for name, commit in commits for path, file in commit.tree.items()}

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that refuses an answer goes away in the middle of it; all else is a fault of the server."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]

    def put(self, repo: str, revision: str, path: str, content: bytes, *, large: bool = True) -> None:
        commits, file = self.hub.repos.setdefault(repo, Repo()).commits, HubFile(content, large)
        commits.setdefault(revision, Commit(revision, "put", {})).tree[path] = file
        if large:
            self.hub.objects[file.sha256] = content

    def next_fault(self, asked: Asked) -> Fault:
        """Take down a request, and return what goes wrong with it."""
        self.asked.append(asked)
        fault = next((fault for fault in self.faults if fault.stage in (asked.stage, "any")), None)
        if fault is None:
            return self.at.pop(len(self.asked), Fault())
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
        self._serve()

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def _serve(self) -> None:
        path, _, query = self.path.partition("?")
        decoded = urllib.parse.unquote(path)
        found = ((method, stage, re.fullmatch(pattern, decoded)) for method, stage, pattern in _ROUTES)
        known = [(stage, match) for method, stage, match in found if match and method == self.command]
        if not known:
            raise NotImplementedError(f"{self.command} {self.path}")
        stage, match = known[0]
        body, header = self._body(), self.headers.get
        with self.server.acting:
            fault = self.server.next_fault(Asked(stage, self.path, header("Range"), header("Authorization")))
        acts = not fault.status and fault.closed != "before" and stage not in ("look", "read", "storage")
        if acts:
            if fault.corrupt:
                body = bytes(byte ^ 1 for byte in body)
            with self.server.acting:
                answer = self._act(stage, match, body, urllib.parse.parse_qs(query))
        if fault.then:
            fault.then()
        if fault.closed:
            self.close_connection = True
        elif fault.status:
            self._send(fault.status, {}, b"", fault)
        elif acts:
            raw = b"" if answer.value is None else json.dumps(answer.value).encode()
            headers = {"Content-Type": "application/json", **answer.headers}
            self._send(fault.acted or answer.status, headers, raw if fault.body is None else fault.body, fault)
        else:
            self._read(stage, match, fault)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            size = int(self.headers.get("Content-Length", "0"))
            if len(body := self.rfile.read(size)) < size:
                raise ConnectionAbortedError("the client went away in the middle of a request")
            return body
        chunks = []
        while size := int(self.rfile.readline(), 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def _act(self, stage: Stage, match: re.Match[str], body: bytes, query: dict[str, list[str]]) -> Answer:
        hub, named = self.server.hub, match.groupdict()
        if stage == "upload":
            return hub.upload(named["oid"], body, self.headers.get("Authorization"))
        allowed = f"Bearer {self.server.token}" if self.server.token else self.headers.get("Authorization")
        if self.command == "POST" and self.headers.get("Authorization") not in (allowed or "-",):
            return refusal(401, "Invalid username or password.")
        if stage == "create":
            return hub.create(body)
        if stage == "yaml":
            return hub.yaml(body)
        if isinstance(found := self._found(named["repo"], named.get("revision") or "main"), Answer):
            return found
        repo, commit = found
        name = named["repo"]
        acts: dict[Stage, Callable[[], Answer]] = {
            "info": lambda: hub.info(name, repo, commit),
            "preupload": lambda: hub.preupload(commit, body),
            "batch": lambda: hub.batch(name, body),
            "verify": lambda: hub.verify(body),
            "commit": lambda: hub.commit(name, repo, body),
            "tree": lambda: hub.tree(name, commit, named.get("path") or "", query),
            "paths": lambda: hub.paths(commit, body),
            "commits": lambda: hub.commits(repo, commit),
            "refs": lambda: hub.refs(repo),
            "tag": lambda: hub.tag(repo, commit, body),
        }
        return acts[stage]()

    def _found(self, name: str, revision: str) -> tuple[Repo, Commit] | Answer:
        repo, sent = self.server.hub.repos.get(name), self.headers.get("Authorization")
        if repo is None:
            return refusal(404 if sent else 401, "Repository not found", "RepoNotFound")
        if repo.private and not sent:
            return refusal(401, "Repository not found", "RepoNotFound")
        if self.server.token and sent != f"Bearer {self.server.token}":
            return refusal(401, f"Access to dataset {name} is restricted.", "GatedRepo")
        if (commit := repo.at(revision)) is None:
            return refusal(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return repo, commit

    def _read(self, stage: Stage, match: re.Match[str], fault: Fault) -> None:
        if stage == "storage":
            self._send_content(self.server.hub.objects[match["oid"]], {}, fault)
            return
        found = self._found(match["repo"], match["revision"])
        if not isinstance(found, Answer) and match["path"] not in found[1].tree:
            found = refusal(404, "Entry not found", "EntryNotFound")
        if isinstance(found, Answer):
            self._send(found.status, found.headers, b"", fault)
            return
        commit, file = found[1], found[1].tree[match["path"]]
        if file.large:
            facts = {"X-Linked-Size": str(len(file.content)), "X-Linked-Etag": f'"{file.sha256}"'}
            location = {"Location": f"{self.server.storage}/{file.sha256}"}
            self._send(302, {"X-Repo-Commit": commit.id, **facts, **location}, b"", fault)
        else:
            self._send_content(file.content, {"X-Repo-Commit": commit.id, "ETag": f'W/"{file.git_sha1}"'}, fault)

    def _send_content(self, content: bytes, headers: dict[str, str], fault: Fault) -> None:
        if fault.corrupt:
            content = bytes(byte ^ 1 for byte in content)
        asked, size = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")), len(content)
        if asked is None or fault.ignore_range:
            self._send(200, headers, content, fault)
        else:
            begin, end = int(asked[1]), min(int(asked[2]) + 1, size)
            headers["Content-Range"] = f"bytes {begin}-{end - 1}/{size}"
            self._send(206, headers, content[begin:end], fault)

    def _send(self, status: int, headers: Mapping[str, str], body: bytes, fault: Fault) -> None:
        headers = dict(headers)
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
        if self.command != "HEAD":
            self.wfile.write(framed[: fault.cut])
            self.close_connection |= fault.cut is not None
