"""What every test may use: the pins, an empty home, and one home that holds the whole sample corpus."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from casebits_dagster.records.layout import Home
from casebits_dagster.records.pins import default_pins_folder

# The Hub's client reads these when it is first imported; the contract server has no Xet, and nobody is to be told.
os.environ.update(HF_HUB_DISABLE_XET="1", HF_HUB_DISABLE_TELEMETRY="1")
_REFUSED: dict[str, str] = {}


@pytest.fixture(scope="session")
def pins() -> Path:
    """The pins folder of the checkout."""
    return default_pins_folder()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """An empty home."""
    return Home(tmp_path / "home")


@pytest.fixture(scope="session")
def sample_home(tmp_path_factory: pytest.TempPathFactory, pins: Path) -> Home:
    """A home with generation `sample` and its mixes. Read it; copy it before you change anything in it."""
    # Imported here, so that a fault in one room does not keep the tests of all others from being collected.
    from tests.sample import build_sample

    home = Home(tmp_path_factory.mktemp("sample") / "home")
    build_sample(home, pins)
    return home


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _refuse_skip(report)
    return report


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """With CASEBITS_NO_SKIP=1, as in CI, a test that did not run is a failure (an expected failure did run)."""
    if os.environ.get("CASEBITS_NO_SKIP") == "1" and report.outcome == "skipped" and not hasattr(report, "wasxfail"):
        report.outcome = "failed"


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell, from a process of several, which layer of the proof refused which faults of those that it ran."""
    module = sys.modules.get("tests.faults.test_faults")
    if module and hasattr(session.config, "workeroutput"):
        session.config.workeroutput["refused"] = dict(module.REFUSED)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    _REFUSED.update(getattr(node, "workeroutput", {}).get("refused", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print which layer of the proof refused how many faults, when the catalogue was run."""
    module = sys.modules.get("tests.faults.test_faults")
    refused = _REFUSED | (module.REFUSED if module else {})
    if refused:
        from tests.faults.table import summary

        terminalreporter.section("faults refused by the proof; one by one in docs/faults.md", "-")
        terminalreporter.write("\n".join(summary(Counter(refused.values()))) + "\n")
