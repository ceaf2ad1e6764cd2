"""Real servers of the S3 protocol: SeaweedFS, which keeps conditions, and rclone, which ignores them.

`Wire` stands between a client and a server and makes one request go wrong, as networks and busy servers do.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

BUCKET, KEY, SECRET = "bucket", "writer", "writes"
READER = {"AWS_ACCESS_KEY_ID": "reader", "AWS_SECRET_ACCESS_KEY": "reads"}
_PORTS = [f"{part}.port{kind}" for part in ("s3", "master", "volume", "filer") for kind in ("", ".grpc")]


def aws_environment(port: int) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
    }


class Server:
    """A server process on its folder and port, which can be killed and started again."""

    def __init__(self, name: str, arguments: list[str], folder: Path, port: int) -> None:
        # The server dies with the tests, however they end.
        guard = [setpriv, "--pdeathsig", "KILL"] if (setpriv := shutil.which("setpriv")) else []
        self._command = [*guard, str(Path(sys.executable).with_name(name)), *arguments]
        self.folder, self.port = folder, port
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and return when it takes a write."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(self._command, cwd=self.folder, stdout=log, stderr=log)
        end = time.monotonic() + 60
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() > end:
                self.kill()
                raise RuntimeError((self.folder / "log").read_text(errors="replace")[-2000:])
            time.sleep(0.05)

    def _ready(self) -> bool:
        client = S3Store(
            BUCKET,
            endpoint=f"http://127.0.0.1:{self.port}",
            access_key_id=KEY,
            secret_access_key=SECRET,
            client_options={"allow_http": True},
            retry_config={"max_retries": 0},
        )
        with contextlib.suppress(BaseError, FileNotFoundError):
            obstore.put(client, ".ready", b"")
            return True
        return False

    def kill(self) -> None:
        """End it as a power switch does (kill -9)."""
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def seaweed(folder: Path) -> Iterator[Server]:
    """Run SeaweedFS (master, volumes, filer and S3 in one process) with a writer and a reader, in about 3.5 s."""
    ports = dict(zip(_PORTS, _free_ports(len(_PORTS)), strict=True))
    people = [(KEY, SECRET, ["Admin", "Read", "Write", "List"]), (*READER.values(), ["Read", "List"])]
    identities = [
        {"name": key, "credentials": [{"accessKey": key, "secretKey": secret}], "actions": actions}
        for key, secret, actions in people
    ]
    (folder / "s3.json").write_text(json.dumps({"identities": identities}))
    options = {
        "dir": folder,
        "ip": "127.0.0.1",
        "ip.bind": "127.0.0.1",
        "master.telemetry": "false",
        "master.electionTimeout": "1s",
        "master.volumeSizeLimitMB": 256,
        "volume.max": 32,
        "filer.localSocket": folder / "filer.sock",
        "s3": "true",
        "s3.config": folder / "s3.json",
        "s3.localSocket": folder / "s3.sock",
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        **ports,
    }
    server = Server(
        "weed", ["server", *(f"-{name}={value}" for name, value in options.items())], folder, ports["s3.port"]
    )
    try:
        server.start()
        yield server
    finally:
        server.kill()
        for port in ports.values():
            for left in Path("/tmp").glob(f"seaweedfs-*-grpc-{port}.sock"):
                left.unlink(missing_ok=True)


@contextmanager
def rclone(folder: Path) -> Iterator[Server]:
    """Run rclone's S3 server, which takes every write whatever its conditions are."""
    (port,) = _free_ports(1)
    (folder / "served" / BUCKET).mkdir(parents=True)
    options = ["--addr", f"127.0.0.1:{port}", "--auth-key", f"{KEY},{SECRET}", "--config", "/dev/null"]
    server = Server("rclone", ["serve", "s3", *options, str(folder / "served")], folder, port)
    try:
        server.start()
        yield server
    finally:
        server.kill()


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [found.getsockname()[1] for found in sockets]


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """What goes wrong with the next request of a method for a path that ends so."""

    method: str
    path: str
    status: int = 0  # answer with this in place of the server's answer
    forward: bool = True  # whether the server gets the request
    body: bytes | None = None  # what it gets in place of the content
    cut: int | None = None  # close the connection after so many bytes of the answer's body; 0: without any answer
    stall: float = 0.0  # seconds before the answer


@dataclass(frozen=True, slots=True)
class Exchange:
    method: str
    path: str
    headers: Mapping[str, str]
    status: int


class Wire(ThreadingHTTPServer):
    """A proxy in front of a server. `faults` is what is to go wrong, in any order; `seen` is what went through."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Forward)
        self.behind, self.port = port, self.server_address[1]
        self.faults: list[Fault] = []
        self.seen: list[Exchange] = []

    def fault(self, method: str, path: str) -> Fault | None:
        found = next((one for one in self.faults if one.method == method and path.endswith(one.path)), None)
        if found:
            self.faults.remove(found)
        return found


class _Forward(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer in one piece: in two, it waits for an acknowledgement of the first
    server: Wire

    def log_message(self, format: str, *args: object) -> None: ...

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        fault = self.server.fault(self.command, self.path) or Fault(method="", path="")
        status, headers, answer = 0, dict[str, str](), b""
        if fault.forward:
            status, headers, answer = self._forwarded(body if fault.body is None else fault.body)
        self.server.seen.append(Exchange(self.command, self.path, dict(self.headers), fault.status or status))
        time.sleep(fault.stall)
        if fault.cut == 0:
            self.close_connection = True
            return
        if fault.status:
            status, headers, answer = fault.status, {"etag": '"0"'}, b""
        with contextlib.suppress(ConnectionError):
            self._answer(status, headers, answer[: fault.cut])
        self.close_connection = fault.cut is not None

    do_PUT = do_HEAD = do_POST = do_GET  # noqa: N815

    def _forwarded(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        behind = http.client.HTTPConnection("127.0.0.1", self.server.behind)
        with contextlib.closing(behind):
            behind.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                behind.putheader(name, str(len(body)) if name == "content-length" else value)
            behind.endheaders(body)
            response = behind.getresponse()
            headers = {name.lower(): value for name, value in response.getheaders()}
            return response.status, headers, response.read()

    def _answer(self, status: int, headers: Mapping[str, str], content: bytes) -> None:
        self.send_response_only(status)
        headers = {"content-length": str(len(content)), **headers}
        for name, value in headers.items():
            if name not in ("transfer-encoding", "connection"):
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def wire(port: int) -> Iterator[Wire]:
    """Run a proxy in front of the server of a port."""
    with Wire(port) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            thread.join()
