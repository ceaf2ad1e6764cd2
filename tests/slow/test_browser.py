"""Dagster's pages in a real browser, over real runs: what a person sees after `make demo`, and when a region breaks.

Pictures go to the test's folder, or to the one that CASEBITS_SCREENSHOTS names (`docs` to renew those of the README).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page

from casebits_dagster.definitions import build
from casebits_dagster.orchestration.demo import run_demo
from casebits_dagster.orchestration.instance import open_instance
from casebits_dagster.records.layout import ADMISSION, IDS, Home, region_id
from tests.orchestration.conftest import Graph
from tests.slow.dagster_ui import browser_page, dagster_dev, needs_chromium, reload_until, screenshot

ASSETS = [
    "filtered_documents",
    "encoded_arrays",
    "admission_proof",
    "frontier_manifest",
    "stratification_report",
    "sample_aligned",
    "sample_concatenated",
    "sample_interleaved",
    "sample_stratified",
]

MIX_PLOTS = ("domains_plot", "lengths_plot", "cells_plot", "windows_plot", "context_plot", "order_plot")

pytestmark = [pytest.mark.slow, needs_chromium]


def test_the_demo_is_seen_in_the_browser(pins: Path, home: Home, tmp_path: Path) -> None:
    assert run_demo(home.root, pins, print, build).failures == {}
    with dagster_dev(home, tmp_path / "dev.log") as address, browser_page((1500, 1200), tmp_path) as page:
        page.goto(f"{address}/assets/sample/filtered_documents?view=partitions&partition=00003")
        seen(page, "Materialized")
        with opened_plot(page, "document_lengths"):
            screenshot(page, "region_plot", tmp_path)
        for shown in ("rows_read", "why_not", "dropped: too_many_digits", "made_from"):
            seen(page, shown)
        screenshot(page, "region_page", tmp_path)

        page.goto(f"{address}/assets/sample/frontier_manifest?view=overview")
        seen(page, "14 of 14")
        with opened_plot(page, "admitted_prefix"):
            pass
        page.goto(f"{address}/assets/sample/stratification_report?view=overview")
        with opened_plot(page, "cluster_shares_by_region"):
            pass
        page.goto(f"{address}/assets/mixes/sample_interleaved?view=overview")
        for plot in ("sources_plot", "windows_plot", "context_plot", "order_plot"):
            with opened_plot(page, plot):
                pass
        page.goto(f"{address}/assets/mixes/sample_stratified?view=overview")
        for plot in MIX_PLOTS:
            with opened_plot(page, plot):
                pass
        with opened_plot(page, "steps_plot"):
            screenshot(page, "mix_plot", tmp_path)
        page.get_by_text("lengths_plot", exact=True).last.scroll_into_view_if_needed()
        screenshot(page, "mix_page", tmp_path)

        page.set_viewport_size({"width": 2200, "height": 1250})
        # Groups are folded on this page; this is what its address becomes when a person unfolds both.
        page.goto(f"{address}/asset-groups?expanded=global@global:sample,global@global:mixes")
        for asset in ASSETS:
            seen(page, asset)
        page.wait_for_function("!document.body.innerText.includes('Loading...')")
        screenshot(page, "asset_graph", tmp_path)


def test_a_person_makes_a_region_and_sees_a_refusal(pins: Path, home: Home, tmp_path: Path) -> None:
    broken = break_region(pins, home, 13)
    assert not (broken / ADMISSION).exists()
    with dagster_dev(home, tmp_path / "dev.log") as address, browser_page((1500, 1000), tmp_path) as page:
        materialize(page, address, "filtered_documents", "00008")
        reload_until(page, "Materialized")
        assert home.generation("sample").verdicts(8).is_file()

        materialize(page, address, "admission_proof", "00013")
        reload_until(page, "Failed (1)")
        page.goto(f"{address}/assets/sample/admission_proof?view=checks")
        page.get_by_text("L1_shape", exact=True).locator("visible=true").first.click()
        for shown in ("L1_HASH", f"00013/{IDS}"):
            seen(page, shown)
        screenshot(page, "failed_check", tmp_path)
    assert not (broken / ADMISSION).exists()
    assert [path.suffix for path in home.generation("sample").rejections(13).iterdir()] == [".json"]


def break_region(pins: Path, home: Home, index: int) -> Path:
    """Encode a region through its assets, then flip one bit of its published ids; return its folder."""
    with open_instance(home) as instance:
        graph = Graph(build(pins, home), instance, home)
        assert graph.region(region_id(index), "filtered_documents", "encoded_arrays").success
    folder = home.generation("sample").region(index)
    ids = bytearray((folder / IDS).read_bytes())
    ids[200] ^= 4
    (folder / IDS).write_bytes(ids)
    return folder


def seen(page: Page, text: str) -> None:
    """Wait until this text is visible (Dagster also renders hidden copies, to measure them)."""
    page.get_by_text(text, exact=True).locator("visible=true").first.wait_for()


def materialize(page: Page, address: str, asset: str, partition: str) -> None:
    """Click what a person clicks to materialise one partition."""
    page.goto(f"{address}/assets/sample/{asset}?view=partitions&partition={partition}")
    page.get_by_role("button", name="Materialize").first.click()
    page.get_by_role("button", name="Launch 1 run").click()
    page.get_by_text("Launched run").wait_for()


@contextmanager
def opened_plot(page: Page, name: str) -> Iterator[None]:
    """Open the plot of a metadata row, see that it was drawn, and close it at the end."""
    row = page.locator("tr", has=page.get_by_text(name, exact=True)).last
    row.get_by_text("[Show Markdown]").click()
    plot = page.locator("img[alt=plot]")
    plot.wait_for()
    assert plot.evaluate("image => image.naturalWidth") >= 700
    yield
    page.get_by_role("button", name="Close").click()
    plot.wait_for(state="detached")
