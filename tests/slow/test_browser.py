"""Dagster's pages in a real browser, over real runs: what a person clicks, and what a person sees of it.

Pictures go to the test's folder, or to the one that CASEBITS_SCREENSHOTS names (`docs` to renew those of the README).
Only one server runs at a time: that of the demo starts with the first test that wants it, and they are the last ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from casebits_dagster.definitions import build
from casebits_dagster.orchestration.demo import run_demo
from casebits_dagster.orchestration.instance import open_instance
from casebits_dagster.records.layout import ADMISSION, IDS, Home, region_id
from tests.orchestration.conftest import Graph
from tests.slow.dagster_ui import browser_page, dagster_dev, needs_chromium, reload_until, screenshot

STAGES = ["filtered_documents", "encoded_arrays", "admission_proof"]
MIXES = ["sample_aligned", "sample_concatenated", "sample_interleaved", "sample_stratified"]
ASSETS = [*STAGES, "frontier_manifest", "stratification_report", "gates", "publication", *MIXES]
MIX_PLOTS = ("domains_plot", "lengths_plot", "cells_plot", "windows_plot", "context_plot", "order_plot")
AUTOMATIONS = [
    *(
        f"{generation}_{name}"
        for generation in ("casebits_nvidia5eaa64_v1", "climbmix_lower32k_v1", "sample")
        for name in ("frontier_follows", "next_regions", "prove_again_weekly")
    ),
    "default_automation_condition_sensor",
    "missed_retries",
]
STARTED = "sample_frontier_follows"
RANGE = [region_id(index) for index in range(12)]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), needs_chromium]


@dataclass(frozen=True, slots=True)
class Demo:
    """The server over what the demo made."""

    url: str
    folder: Path

    @contextmanager
    def page(self, width: int = 1600, height: int = 1000) -> Iterator[Page]:
        with browser_page((width, height), self.folder) as page:
            yield page


@pytest.fixture(scope="module")
def demo(pins: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    folder = tmp_path_factory.mktemp("demo")
    home = Home(folder / "home")
    assert run_demo(home.root, pins, print, build).failures == {}
    with dagster_dev(home, folder / "dev.log") as url:
        yield Demo(url, folder)


def test_a_person_makes_regions_and_sees_a_refusal(pins: Path, home: Home, tmp_path: Path) -> None:
    broken = break_region(pins, home, 13)
    assert not (broken / ADMISSION).exists()
    with dagster_dev(home, tmp_path / "dev.log") as url, browser_page((1600, 1000), tmp_path) as page:
        look_at_launchpad(page, url, tmp_path)
        materialize(page, url, "filtered_documents", "00008")
        reload_until(page, "Materialized")
        assert home.generation("sample").verdicts(8).is_file()

        materialize(page, url, "admission_proof", "00013")
        reload_until(page, "Failed (1)")
        page.goto(f"{url}/assets/sample/admission_proof?view=checks")
        page.get_by_text("L1_shape", exact=True).locator("visible=true").first.click()
        for shown in ("L1_HASH", f"00013/{IDS}"):
            seen(page, shown)
        screenshot(page, "failed_check", tmp_path)

        watch_backfill(page, url, tmp_path)
        for stage, failed in zip(STAGES, (0, 0, 1), strict=True):
            page.goto(f"{url}/assets/sample/{stage}?view=partitions")
            for shown in (f"Materialized ({13 - failed})", f"Failed ({failed})", "Materializing (0)"):
                seen(page, shown)
    admitted = sorted(path.parent.name for path in home.generation("sample").root.glob(f"regions/*/{ADMISSION}"))
    assert admitted == RANGE
    assert [path.suffix for path in home.generation("sample").rejections(13).iterdir()] == [".json"]


def test_the_pages_of_what_is_made_from_the_source(demo: Demo) -> None:
    with demo.page() as page:
        page.goto(f"{demo.url}/assets/sample/filtered_documents?view=partitions&partition=00003")
        seen(page, "Materialized")
        with opened_plot(page, "lengths_plot"):
            screenshot(page, "region_plot", demo.folder)
        for shown in ("verdicts on rows [330, 440) of pd_mix.parquet", "why_not", "dropped: too_many_digits", "next"):
            seen(page, shown)
        screenshot(page, "region_page", demo.folder)
        page.goto(f"{demo.url}/assets/sample/encoded_arrays?view=overview")
        for shown in (
            "source_position",
            "row of the source file, or the byte where its line begins",
            "corpus",
            "NumPy",
        ):
            seen(page, shown)
        page.goto(f"{demo.url}/assets/sample/admission_proof?view=partitions&partition=00003")
        for shown in ("admitted", "L4_SCORES: 32 of 110", "made_from"):
            seen(page, shown)
        page.goto(f"{demo.url}/assets/sample/frontier_manifest?view=overview")
        seen(page, "14 of 14")
        with opened_plot(page, "prefix_plot"):
            pass
        page.goto(f"{demo.url}/assets/sample/stratification_report?view=overview")
        for plot in ("control_chart_plot", "cluster_shares_plot", "cluster_by_length_plot"):
            with opened_plot(page, plot):
                if plot == "control_chart_plot":
                    screenshot(page, "control_chart", demo.folder)


def test_the_pages_of_what_is_given_to_others(demo: Demo) -> None:
    with demo.page() as page:
        page.goto(f"{demo.url}/assets/sample/gates?view=overview")
        for shown in ("coverage, packing", "frontier_version", "next"):
            seen(page, shown)
        page.goto(f"{demo.url}/assets/sample/gates?view=checks")
        page.get_by_text("production", exact=True).locator("visible=true").first.click()
        seen(page, "no person has signed this version")
        screenshot(page, "gates", demo.folder)
        page.goto(f"{demo.url}/assets/sample/publication?view=overview")
        for shown in ("destination", "LATEST.json names this version now", "sent_files"):
            seen(page, shown)
        screenshot(page, "publication", demo.folder)


def test_the_pages_of_mixes(demo: Demo) -> None:
    with demo.page(1500, 1200) as page:
        page.goto(f"{demo.url}/assets/mixes/sample_interleaved?view=overview")
        for plot in ("sources_plot", "windows_plot", "context_plot", "order_plot"):
            with opened_plot(page, plot):
                pass
        page.goto(f"{demo.url}/assets/mixes/sample_stratified?view=overview")
        for plot in MIX_PLOTS:
            with opened_plot(page, plot):
                pass
        with opened_plot(page, "steps_plot"):
            screenshot(page, "mix_plot", demo.folder)
        page.get_by_text("lengths_plot", exact=True).last.scroll_into_view_if_needed()
        screenshot(page, "mix_page", demo.folder)


def test_the_graph(demo: Demo) -> None:
    # Names are cut short where the whole graph would not fit.
    with demo.page(3200, 1500) as page:
        open_graph(page, demo.url, "global@global:sample,global@global:mixes")
        for asset in ASSETS:
            seen(page, asset)
        expect(page.get_by_text("Loading...")).to_have_count(0)
        screenshot(page, "asset_graph", demo.folder)


def test_a_person_audits_a_window(demo: Demo) -> None:
    with demo.page() as page:
        page.goto(f"{demo.url}/locations/casebits/jobs/audit/playground")
        for shown in ("source_row", "withdrawn"):
            page.locator(".CodeMirror-line", has_text=shown).first.wait_for()
        page.locator(".CodeMirror-line").first.click()
        page.keyboard.press("Control+a")
        page.keyboard.insert_text("ops: {follow_window: {config: {mix: sample_stratified, window: 7}}}\n")
        seen(page, "No errors")
        page.get_by_role("button", name="Launch Run").click()
        page.wait_for_url("**/runs/*")
        seen(page, "Success", seconds=120)
        page.goto(f"{demo.url}/assets/mixes/sample_stratified?view=events")
        page.get_by_text("window 7 of mix sample_stratified: ").wait_for()
        for shown in ("proven", "documents", "file of the mix"):
            seen(page, shown)
        screenshot(page, "audit", demo.folder)


def test_automation_is_off_until_a_person_switches_it_on(demo: Demo) -> None:
    with demo.page() as page:
        switches = automations(page, demo.url)
        assert {name: switch.is_checked() for name, switch in switches.items()} == dict.fromkeys(AUTOMATIONS, False)
        switches[STARTED].click()
        expect(switches[STARTED]).to_be_checked()
        page.locator("[data-index]", has_text="climbmix_lower32k_v1_next_regions").get_by_label("info").hover()
        page.get_by_text("Asks for the next missing regions in order").locator("visible=true").first.wait_for()
        screenshot(page, "automation", demo.folder)

        page.goto(f"{demo.url}/locations/casebits/sensors/{STARTED}")
        tick = page.get_by_role("button", name="0 runs requested")
        reload_until(page, tick)
        tick.first.click()
        page.get_by_text("the frontier has 14 of 14 regions and is complete").wait_for()
        switches = automations(page, demo.url)
        # The page shows first what it knew before.
        for name, switch in switches.items():
            expect(switch).to_be_checked(checked=name == STARTED)
        switches[STARTED].click()
        for switch in automations(page, demo.url).values():
            expect(switch).not_to_be_checked()


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


def look_at_launchpad(page: Page, url: str, folder: Path) -> None:
    """Open the configuration of the step that makes regions, and see what its fields are for."""
    page.goto(f"{url}/assets/sample/filtered_documents?view=partitions")
    seen(page, "00000")
    page.locator("button", has=page.get_by_label("arrow_drop_down")).first.click()
    page.get_by_text("Open launchpad").click()
    page.get_by_text("stop_after", exact=True).first.click()
    page.get_by_text("Give up after so many regions in a row").first.wait_for()
    for shown in ("again", "full_proof", "stop_after", "workers"):
        seen(page, shown)
    screenshot(page, "launchpad", folder)


def materialize(page: Page, url: str, asset: str, partition: str) -> None:
    """Click what a person clicks to materialise one partition."""
    page.goto(f"{url}/assets/sample/{asset}?view=partitions&partition={partition}")
    page.get_by_role("button", name="Materialize").first.click()
    page.get_by_role("button", name="Launch 1 run").click()
    page.get_by_text("Launched run").wait_for()


def watch_backfill(page: Page, url: str, folder: Path) -> None:
    """Start a backfill of a range from the graph, read the lines of its run while it works, and see it end."""
    open_graph(page, url, "global@global:sample")
    for stage in STAGES:
        page.get_by_text(stage, exact=True).locator("visible=true").first.click(modifiers=["Shift"])
    page.get_by_role("button", name="Materialize selected (3)").click()
    page.get_by_text("Select a partition").click()
    for partition in RANGE:
        page.get_by_text(partition, exact=True).locator("visible=true").last.click()
    page.get_by_text("12 partitions selected").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Launch backfill").click()

    page.goto(f"{url}/runs")
    page.locator("a[href^='/runs/b/']").first.click()
    page.wait_for_url("**/runs/b/*")
    backfill = page.url.split("?")[0]
    page.goto(f"{backfill}?tab=runs")
    # The id of a run has dashes, that of a backfill has none.
    run = page.locator("a[href^='/runs/'][href*='-']")
    reload_until(page, run)
    run.first.click()
    page.get_by_text("Levels (5/6)").click()
    page.get_by_text("event", exact=True).last.click()
    page.keyboard.press("Escape")
    page.get_by_text(" of 12 regions ended, 0 failed; ").first.wait_for(timeout=120_000)
    page.get_by_text(" tokens, admitted (").nth(3).wait_for(timeout=120_000)
    screenshot(page, "backfill_run", folder)
    seen(page, "Success", seconds=240)
    page.goto(backfill)
    reload_until(page, "Succeeded")


def open_graph(page: Page, url: str, unfolded: str) -> None:
    """Open the graph with some groups unfolded: its address is what it becomes when a person unfolds them."""
    page.goto(f"{url}/asset-groups?expanded={unfolded}")
    seen(page, "filtered_documents")


def automations(page: Page, url: str) -> dict[str, Locator]:
    """Return the switch of every schedule and sensor on the page of all of them."""
    page.goto(f"{url}/automation")
    rows = page.locator("[data-index]")
    # Each has one more to be selected by, and all together have one.
    expect(page.locator("input[type=checkbox]")).to_have_count(2 * len(AUTOMATIONS) + 1)
    return {name: rows.filter(has_text=name).locator("label").nth(1) for name in AUTOMATIONS}


def seen(page: Page, text: str, seconds: float = 60) -> None:
    """Wait until this text is visible (Dagster also renders hidden copies, to measure them)."""
    page.get_by_text(text, exact=True).locator("visible=true").first.wait_for(timeout=1_000 * seconds)


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
