"""Machines of a cluster: the processes that work in one home, which can be frozen, and die as by a power switch."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]


class Machine:
    """A home, what is started in it, and all that this starts in turn (whatever its parent or its session is)."""

    def __init__(self, name: str, home: Path, environment: Mapping[str, str]) -> None:
        self.name, self.home = name, home
        self.environment = {**environment, "CASEBITS_HOME": str(home), "CASEBITS_WORKER": name}
        self.log = home.with_suffix(".log")
        self._started: list[subprocess.Popen[bytes]] = []
        home.mkdir()

    def start(self, command: Sequence[str]) -> None:
        """Start a command in the checkout; what it says goes to the machine's log."""
        with self.log.open("ab") as log:
            self._started.append(
                subprocess.Popen(
                    guarded(command, signal.SIGTERM),
                    cwd=CHECKOUT,
                    env=self.environment,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def run(self, script: str) -> str:
        """Run a shell script and return what it prints. Raises AssertionError with all of it when it fails."""
        shell = ["bash", "-euo", "pipefail", "-c", script]
        done = subprocess.run(shell, cwd=CHECKOUT, env=self.environment, capture_output=True, text=True, timeout=180)
        if done.returncode:
            raise AssertionError(f"{script}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def processes(self) -> list[int]:
        """Return the processes of this machine that live."""
        mark, found = f"CASEBITS_HOME={self.home}\0".encode(), []
        for process in Path("/proc").iterdir():
            if process.name.isdigit() and int(process.name) != os.getpid():
                with contextlib.suppress(OSError):
                    if mark in (process / "environ").read_bytes() + b"\0":
                        found.append(int(process.name))
        return found

    def signal(self, number: signal.Signals) -> None:
        for process in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)

    def kill(self) -> None:
        """End every process as a power switch does, until there is none."""
        while self.processes():
            self.signal(signal.SIGKILL)
            self._reap()
            time.sleep(0.02)
        for process in self._started:
            process.wait()

    def stop(self, seconds: float) -> list[str]:
        """End it as an operator does (SIGTERM), and return what had not ended in time, which is then killed."""
        for process in self._started:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        end = time.monotonic() + seconds
        while self.processes() and time.monotonic() < end:
            self._reap()
            time.sleep(0.1)
        left = [_command(process) for process in self.processes()]
        self.kill()
        return left

    def _reap(self) -> None:
        for process in self._started:
            process.poll()


def guarded(command: Sequence[str], last: signal.Signals) -> list[str]:
    """Return a command that gets a signal when the tests are gone, however they ended."""
    guard = ["setpriv", "--pdeathsig", last.name.removeprefix("SIG")] if shutil.which("setpriv") else []
    return [*guard, *command]


def _command(process: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return "?"
