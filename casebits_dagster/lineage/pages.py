"""A page of titled parts, written as Markdown or as one HTML file that needs nothing else."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

_HASH = re.compile(r"\b[0-9a-f]{32}\b|\b[0-9a-f]{40}\b|\b[0-9a-f]{64}\b")
_STYLE = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:72rem;margin:0 auto;padding:1rem}
h1{font-size:1.5rem}h2{font-size:1.2rem;margin-top:2rem}h3{font-size:1rem}
div.table{overflow-x:auto}table{border-collapse:collapse;font-size:.875rem}
th,td{text-align:left;vertical-align:top;padding:.25rem .6rem;border-bottom:1px solid #8886}
td.number{text-align:right;font-variant-numeric:tabular-nums}
code{font:.8rem/1.4 ui-monospace,monospace;overflow-wrap:anywhere}
.bar{display:block;height:.6rem;min-width:1px;background:#4a7ebb}
.bad{color:#c00;font-weight:bold}p,li,h1,h2,h3{overflow-wrap:anywhere}
"""


class Bar(float):
    """A share of 1 that HTML draws, and Markdown spells."""

    def __str__(self) -> str:
        return f"{100 * self:.2f} %"


@dataclass(frozen=True, slots=True)
class Part:
    """A title of some level, text, and a table; whatever is empty is not written."""

    title: str
    text: str = ""
    head: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = ()
    level: int = 2


@dataclass(frozen=True, slots=True)
class Page:
    """A title, the verdict (`bad` when it is one), and parts."""

    title: str
    verdict: str
    bad: bool = False
    parts: list[Part] = field(default_factory=list)


def markdown(page: Page) -> str:
    """Return the page in Markdown."""
    blocks = [f"# {_plain(page.title)}", f"**{_coded(_plain(page.verdict))}**"]
    for part in page.parts:
        blocks += [f"{'#' * part.level} {part.title}", *[_coded(part.text)] * bool(part.text)]
        if part.rows:
            lines = [part.head, ["---"] * len(part.head), *part.rows]
            cells = [[_coded(_plain(_text(cell)).replace("|", "\\|")) for cell in line] for line in lines]
            blocks.append("\n".join(f"| {' | '.join(line)} |" for line in cells))
    return "\n\n".join(blocks) + "\n"


def html_page(page: Page) -> str:
    """Return the page as HTML: no script, no asset, readable on a phone (wide tables scroll by themselves)."""
    body = [f"<h1>{_escaped(page.title)}</h1>", f"<p{' class=bad' * page.bad}>{_escaped(page.verdict)}</p>"]
    for part in page.parts:
        body.append(f"<h{part.level}>{_escaped(part.title)}</h{part.level}>")
        body += [f"<p>{_escaped(line.removeprefix('- '))}</p>" for line in part.text.splitlines()]
        if part.rows:
            head = "".join(f"<th>{_escaped(name)}</th>" for name in part.head)
            rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>\n" for row in part.rows)
            body.append(f"<div class=table><table><tr>{head}</tr>\n{rows}</table></div>")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(page.title)}</title>\n<style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _text(cell: object) -> str:
    return f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell)


def _plain(text: str) -> str:
    return " ".join(text.split())


def _coded(text: str) -> str:
    return _HASH.sub(r"`\g<0>`", text)


def _escaped(text: str) -> str:
    return _HASH.sub(r"<code>\g<0></code>", html.escape(text))


def _cell(cell: object) -> str:
    if isinstance(cell, Bar):
        return f'<td>{cell}<span class=bar style="width:{8 * float(cell):.2f}rem"></span></td>'
    number = isinstance(cell, int) and not isinstance(cell, bool)
    return f"<td{' class=number' * number}>{_escaped(_text(cell))}</td>"
