"""The page of a mix that a person can mail, and the verbs `audit` and `report`."""

from __future__ import annotations

import argparse
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import NoReturn

import pytest

from casebits_dagster.auditing import FORMATS, audit, report
from casebits_dagster.commands import OK, REFUSED, UNDECIDED
from casebits_dagster.lineage.mix_page import write_mix_page
from casebits_dagster.lineage.pages import Bar, Page, Part, html_page, markdown
from casebits_dagster.records.errors import Absent
from casebits_dagster.records.layout import IDS, Home
from casebits_dagster.records.pins import Generation
from tests.lineage.test_open_formats import RUN, record_run
from tests.sample import mix_reports


class Elements(HTMLParser):
    """Collects elements with their attributes, and text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_tells_the_mix_and_needs_nothing_else(
    sample_home: Home, generations: dict[str, Generation], tmp_path: Path
) -> None:
    out = tmp_path / "page.html"
    assert write_mix_page(sample_home, "sample_aligned", out, generations=generations, seed="a") is True
    page = Elements(out.read_text(encoding="utf-8"))
    loading = {"src", "href", "action", "data", "srcset"}
    assert [element for element in page.elements if loading & {*element[1]}] == []
    assert {tag for tag, _ in page.elements} & {"script", "link", "img", "iframe", "object"} == set()
    made = mix_reports(sample_home)["sample_aligned"]
    wanted = [made.licences[0], "10 of 10 windows, picked at random, are proven back to their source rows"]
    wanted += [margin.name for margin in (*made.selection.domains, *made.selection.lengths)]
    wanted += [f"{margin.achieved_tokens:,}" for margin in (*made.selection.domains, *made.selection.lengths)]
    wanted += [f"{100 * float(row.share):.2f} %" for row in made.context]
    assert [text for text in wanted if text not in page.text] == []


def test_the_seed_picks_the_windows(sample_home: Home, generations: dict[str, Generation], tmp_path: Path) -> None:
    pages = []
    for seed in ("a", "a", "b"):
        write_mix_page(sample_home, "sample_aligned", tmp_path / "page.html", generations=generations, seed=seed)
        pages.append((tmp_path / "page.html").read_bytes())
    assert pages[0] == pages[1] != pages[2]


def test_a_broken_mix_is_told_as_one(tampered: Home, generations: dict[str, Generation], tmp_path: Path) -> None:
    for region in range(14):
        path = tampered.generation("sample").region(region) / IDS
        path.write_bytes(bytes(byte ^ 1 for byte in path.read_bytes()))
    out = tmp_path / "page.html"
    assert write_mix_page(tampered, "sample_aligned", out, generations=generations) is False
    page = Elements(out.read_text(encoding="utf-8"))
    wanted = ["0 of 10 windows, picked at random, are proven", "Links that failed"]
    assert [text for text in wanted if text not in page.text] == []
    with pytest.raises(Absent, match=r"^FILE_MISSING .*no mix is published here"):
        write_mix_page(tampered, "none", out, generations=generations)


def test_a_page_is_escaped() -> None:
    digest = "ab" * 32
    part = Part("<b>", "a & b", ["x|y"], [("<i>|", 1234567, Bar(0.5)), (digest, True, "")])
    page = Page("A <title>", "it is.", True, [part])
    text = html_page(page)
    assert "<h1>A &lt;title&gt;</h1>\n<p class=bad>it is.</p>\n<h2>&lt;b&gt;</h2>\n<p>a &amp; b</p>" in text
    assert "<td>&lt;i&gt;|</td><td class=number>1,234,567</td><td>50.00 %<span class=bar" in text
    assert f"<td><code>{digest}</code></td><td>True</td>" in text
    assert markdown(page).splitlines()[-4:] == [
        "| x\\|y |",
        "| --- |",
        "| <i>\\| | 1,234,567 | 50.00 % |",
        f"| `{digest}` | True |  |",
    ]


def options(home: Home, **given: object) -> argparse.Namespace:
    def usage(message: object) -> NoReturn:
        raise SystemExit(str(message))

    names = ("mix", "window", "shard", "tokens", "region", "document", "source_row", "pins", "out")
    fixed = {"home": home.root, "withdrawn": False, "format": "text", "recompute": "slices", "seed": ""}
    return argparse.Namespace(**{**dict.fromkeys(names), **fixed, **given}, usage_error=usage)


BEGINS = {"text": "region sa", "json": '{"documen', "markdown": "# Region ", "html": "<!doctype", "prov": '{\n "activ'}


@pytest.mark.parametrize("form", FORMATS)
def test_the_verb_writes_every_format(tampered: Home, capsys: pytest.CaptureFixture[str], form: str) -> None:
    record_run(tampered, 3)
    assert audit(options(tampered, region="sample/00003", format=form)) == OK
    told = capsys.readouterr().out
    assert told[:9] == BEGINS[form]
    if form in ("json", "prov"):
        assert {*json.loads(told)} >= ({"regions", "evidence"} if form == "json" else {"prefix", "entity"})


def test_the_status_says_what_is_proven(tampered: Home, capsys: pytest.CaptureFixture[str]) -> None:
    record_run(tampered, 3)
    assert audit(options(tampered, region="sample/3", recompute="none")) == UNDECIDED
    assert audit(options(tampered, region="sample/3", format="markdown")) == OK
    assert f"| run {RUN} | casebits-dagster 0.1.0, job sample_regions: " in capsys.readouterr().out
    with (tampered.generation("sample").region(3) / "documents.jsonl").open("ab") as lines:
        lines.write(b"{}\n")
    assert audit(options(tampered, region="sample/3")) == REFUSED
    assert "  FAILED file of the region, sample/00003/documents.jsonl: expected " in capsys.readouterr().out


def test_a_question_that_is_none_is_a_usage_error(sample_home: Home) -> None:
    with pytest.raises(SystemExit) as caught:
        audit(options(sample_home, window=3))
    assert str(caught.value)[:44] == "QUESTION_INVALID audit: expected one of: a m"


def test_the_report_verb(sample_home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "page.html"
    assert report(options(sample_home, mix="sample_aligned", out=out)) == OK
    assert capsys.readouterr().out == f"{out}: {out.stat().st_size:,} bytes, proven\n"
