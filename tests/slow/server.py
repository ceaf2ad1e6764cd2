"""A web server and a daemon over a home, as processes of their own."""

from __future__ import annotations

import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from casebits_dagster.orchestration.instance import ONE_PERSON, prepare_instance
from casebits_dagster.records.layout import Home
from tests.cluster.machines import Machine
from tests.cluster.servers import free_port
from tests.slow.graphql import Dagster, wait_for


class Server(Machine):
    """One machine with a web server and a daemon, which can die by itself."""

    def __init__(self, home: Home, environment: Mapping[str, str] | None = None, kind: str = ONE_PERSON) -> None:
        path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
        plain = {"PATH": path, "HOME": str(home.root), "DAGSTER_HOME": str(home.dagster)}
        super().__init__("server", home.root, {**plain, **(environment or {})})
        prepare_instance(home, kind)
        self.port = free_port()
        self.dagster = Dagster(f"http://127.0.0.1:{self.port}")

    def start_web(self) -> None:
        self.start(["dagster-webserver", "-w", "workspace.yaml", "-h", "127.0.0.1", "-p", str(self.port)])
        wait_for("the web server", self._served, 120)

    def start_daemon(self) -> None:
        self.start(["dagster-daemon", "run", "-w", "workspace.yaml"])

    def kill_daemon(self) -> None:
        """Kill the daemon alone, without a word to what it started."""
        found = [pid for pid in self.processes() if b"dagster-daemon" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        assert len(found) == 1
        subprocess.run(["kill", "-9", str(found[0])], check=True)

    def _served(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.dagster.url}/server_info", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False
