"""A real `dagster dev` and a real chromium: start them on a free port and a home, stop them, leave nothing behind."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect, sync_playwright

from casebits_dagster.orchestration.instance import prepare_instance
from casebits_dagster.records.layout import Home

CHECKOUT = Path(__file__).resolve().parents[2]
CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]

needs_chromium = pytest.mark.skipif(
    shutil.which(CHROMIUM) is None, reason=f"no browser: {CHROMIUM} is missing (apt-get install chromium)"
)


@contextmanager
def dagster_dev(home: Home, log: Path) -> Iterator[str]:
    """Yield the address of web server and daemon over a home. Stopped by SIGINT; no process may be left."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "dagster", "dev", "-w", "workspace.yaml", "-h", "127.0.0.1", "-p", str(port)]
    environment = {**os.environ, "CASEBITS_HOME": str(home.root), "DAGSTER_HOME": str(prepare_instance(home))}
    with log.open("wb") as output:
        server = subprocess.Popen(
            command,
            cwd=CHECKOUT,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            # A test run in a shell's background ignores SIGINT, and so would its children.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
    try:
        _wait_until_served(server, port, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        _stop(server, log)


@contextmanager
def browser_page(size: tuple[int, int], folder: Path) -> Iterator[Page]:
    """Yield a page of a new browser. When the test fails, what it saw last is in `folder`/failure.png."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            page = browser.new_page(viewport={"width": size[0], "height": size[1]})
            page.set_default_timeout(60_000)
            expect.set_options(timeout=60_000)
            yield page
        except Exception:
            page.screenshot(path=folder / "failure.png")
            raise
        finally:
            browser.close()


def screenshot(page: Page, name: str, otherwise: Path) -> None:
    """Write a picture of the page into the folder that CASEBITS_SCREENSHOTS names, else into `otherwise`."""
    page.wait_for_timeout(1_000)
    page.screenshot(path=Path(os.environ.get("CASEBITS_SCREENSHOTS") or otherwise) / f"{name}.png")


def reload_until(page: Page, wanted: str | Locator, seconds: float = 240) -> None:
    """Reload the page until it shows this, a text exactly: a page in the background does not refresh by itself."""
    shown = (page.get_by_text(wanted, exact=True) if isinstance(wanted, str) else wanted).locator("visible=true")
    end = time.monotonic() + seconds
    while True:
        page.wait_for_timeout(3_000)
        if shown.count():
            return
        if time.monotonic() > end:
            raise AssertionError(f"{page.url} did not show {wanted!r} within {seconds} s")
        page.reload()


def _wait_until_served(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        if server.poll() is not None:
            break
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/server_info", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise AssertionError(f"dagster dev did not start:\n{log.read_text()[-3000:]}")


def _stop(server: subprocess.Popen[bytes], log: Path) -> None:
    server.send_signal(signal.SIGINT)
    try:
        server.wait(60)
        end = time.monotonic() + 30
        while _group_lives(server.pid):
            if time.monotonic() > end:
                raise AssertionError(f"dagster dev left processes behind:\n{log.read_text()[-3000:]}")
            time.sleep(0.5)
    finally:
        if _group_lives(server.pid):
            os.killpg(server.pid, signal.SIGKILL)


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
