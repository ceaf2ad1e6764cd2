"""The page of a mix in a real browser, on a desk and on a phone, without a network."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from casebits_dagster.lineage.mix_page import write_mix_page
from casebits_dagster.records.layout import Home
from casebits_dagster.records.pins import load_generation
from tests.slow.dagster_ui import browser_page, needs_chromium

pytestmark = [pytest.mark.slow, needs_chromium]


@pytest.mark.parametrize("size", [(1280, 900), (360, 740)], ids=["desk", "phone"])
def test_the_page_is_read_without_a_network(
    sample_home: Home, pins: Path, tmp_path: Path, size: tuple[int, int]
) -> None:
    out, generations = tmp_path / "page.html", {"sample": load_generation(pins, "sample")}
    write_mix_page(sample_home, "sample_aligned", out, generations=generations)
    with browser_page(size, tmp_path) as page:
        asked: list[str] = []
        problems: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(out.as_uri())
        expect(page.locator("h1")).to_have_text("Mix sample_aligned")
        for title in ("Shares", "Lengths", "Context", "Sources and licences", "Attribution", "Audits"):
            expect(page.get_by_role("heading", name=title, exact=True)).to_be_visible()
        expect(page.get_by_role("heading", name="Window", exact=False)).to_have_count(10 + 20)
        # The page itself never scrolls sideways; a table that is too wide does, in its own box.
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
        assert page.evaluate("parseFloat(getComputedStyle(document.body).fontSize)") == 16
        page.screenshot(path=tmp_path / "page.png", full_page=True)
    assert (asked, problems) == ([out.as_uri()], [])
