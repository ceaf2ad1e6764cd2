"""Real PostgreSQL and Redis servers on free ports, in folders that go with them; installed where there are none."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.machines import guarded


@contextmanager
def postgres() -> Iterator[dict[str, str]]:
    """Yield libpq's variables of a new server, whose database `dagster` is empty."""
    binaries = _program("postgresql", *Path("/usr/lib/postgresql").glob("*/bin/postgres")).parent
    person = pwd.getpwnam("postgres") if os.geteuid() == 0 else None
    with _folder(person) as folder:
        port, password = free_port(), folder / "password"
        password.write_text("dagster")
        password.chmod(0o644)
        made = ["--pgdata=data", "--username=dagster", "--pwfile=password", "--auth=scram-sha-256", "--no-sync"]
        subprocess.run([*_become(person), binaries / "initdb", *made], check=True, capture_output=True, cwd=folder)
        options = {"listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": "", "fsync": "off"}
        settings = [f"--{name}={value}" for name, value in options.items()]
        start = [*_become(person, signal.SIGINT), str(binaries / "postgres"), "-D", "data", *settings]
        variables = {
            "PGHOST": "127.0.0.1",
            "PGPORT": str(port),
            "PGUSER": "dagster",
            "PGPASSWORD": "dagster",
            "PGDATABASE": "dagster",
        }
        with _served(start, folder, signal.SIGINT):
            environment = {**os.environ, **variables}
            create = [str(binaries / "createdb"), "--maintenance-db", "postgres", "dagster"]
            _wait(lambda: subprocess.run(create, env=environment, capture_output=True).returncode == 0, folder)
            yield variables


@contextmanager
def redis() -> Iterator[str]:
    """Yield the URL of a new Redis server."""
    program = _program("redis-server", *map(Path, filter(None, [shutil.which("redis-server")])))
    with _folder(None) as folder:
        port = free_port()
        start = f"{program} --port {port} --bind 127.0.0.1 --dir {folder} --appendonly yes".split()
        with _served(guarded(start, signal.SIGTERM), folder, signal.SIGTERM):
            _wait(lambda: _answers(port), folder)
            yield f"redis://127.0.0.1:{port}/0"


def _program(package: str, *found: Path) -> Path:
    """Return a server's program; install its package where it is missing, or skip, saying so."""
    if found:
        return max(found)
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        pytest.skip(f"no {package}: install it (apt-get install {package})")
    # The packages would start servers of their own; nothing does at run level 1.
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    for arguments in (["update"], ["install", "-y", "--no-install-recommends", package]):
        done = subprocess.run(["apt-get", "-qq", *arguments], env=environment, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"no {package}, and it cannot be installed: {done.stderr.strip()[-300:]}")
    programs = [*Path("/usr/lib/postgresql").glob("*/bin/postgres")] if package == "postgresql" else []
    return max(programs) if programs else Path(shutil.which(package) or package)


@contextmanager
def _folder(owner: pwd.struct_passwd | None) -> Iterator[Path]:
    # Not below pytest's own folder, which no other user may enter.
    with tempfile.TemporaryDirectory(prefix="casebits-", ignore_cleanup_errors=True) as name:
        if owner:
            os.chown(name, owner.pw_uid, owner.pw_gid)
        yield Path(name)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as held:
        return int(held.getsockname()[1])


def _become(person: pwd.struct_passwd | None, last: signal.Signals | None = None) -> list[str]:
    """PostgreSQL refuses to run as root; and who changes its user loses the guard, but for one that is set after it."""
    if person is None:
        return guarded([], last) if last else []
    guard = guarded([], last) if last else ["setpriv"]
    return [*guard, f"--reuid={person.pw_uid}", f"--regid={person.pw_gid}", "--clear-groups"]


@contextmanager
def _served(command: list[str], folder: Path, stop: signal.Signals) -> Iterator[None]:
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, start_new_session=True)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            server.send_signal(stop)
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def _wait(ready: Callable[[], bool], folder: Path) -> None:
    end = time.monotonic() + 60
    while not ready():
        if time.monotonic() > end:
            raise AssertionError((folder / "log").read_text(errors="replace")[-2000:])
        time.sleep(0.1)


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as connection:
        connection.sendall(b"PING\r\n")
        return connection.recv(16).startswith(b"+PONG")
    return False
