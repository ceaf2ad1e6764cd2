"""The plot that every region has twice: how long its documents are, drawn as SVG in under a millisecond.

matplotlib takes 0.12 CPU-s for the same picture, and 1.2 to be imported by each process that draws one; a region of a
few kilobytes is filtered, encoded and proven in 0.08. Pictures that are drawn once a run are matplotlib's (`plots`).
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping

import dagster as dg
import numpy as np
from numpy.typing import NDArray

from casebits_dagster.orchestration.plots import INK

_WIDTH, _HEIGHT = 700, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 685, 42, 246
"""The place of the bars, in pixels."""

_BINS = 32
_TICKS = 4
"""Lines of the scale above zero, at most."""


def lengths(groups: Mapping[str, NDArray[np.int64]], unit: str) -> dg.MarkdownMetadataValue:
    """Return the document lengths of each group, int64 [documents], stacked over logarithmic bins; `unit` is theirs."""
    known = np.maximum(np.concatenate([*groups.values()]), 1)
    low, high = (int(known.min()), int(known.max())) if len(known) else (1, 1)
    edges = np.geomspace(low, max(2 * low, high), _BINS + 1)
    counts = np.array([np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0] for values in groups.values()])
    named = {f"{name} ({len(values):,})": INK[number] for number, (name, values) in enumerate(groups.items())}
    picture = "".join(_drawn(edges, counts, named, unit)).encode()
    return dg.MetadataValue.md(f"![plot](data:image/svg+xml;base64,{base64.b64encode(picture).decode()})")


def _drawn(edges: NDArray[np.float64], counts: NDArray[np.int64], named: Mapping[str, str], unit: str) -> Iterator[str]:
    yield f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
    yield 'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="#fff"/>'
    tops = np.cumsum(counts, axis=0)
    step = _step(int(tops[-1].max()))
    scale = (_BOTTOM - _TOP) / (step * max(1, -(-int(tops[-1].max()) // step)))
    # The highest first: each covers the lower part of the one before.
    for top, colour in reversed([*zip(tops, named.values(), strict=True)]):
        places = _across(edges, edges)
        outline = "".join(f"V{_BOTTOM - y * scale:.1f}H{x:.1f}" for y, x in zip(top, places[1:], strict=True))
        yield f'<path fill="{colour}" d="M{places[0]:.1f} {_BOTTOM}{outline}V{_BOTTOM}Z"/>'
    yield f'<path stroke="#000" fill="none" d="M{_LEFT} {_TOP}V{_BOTTOM}H{_RIGHT}"/>'
    for number in range(0, int(tops[-1].max()) + step, step):
        y = _BOTTOM - number * scale
        yield f'<path stroke="#000" d="M{_LEFT - 4} {y:.1f}h4"/>'
        yield f'<text x="{_LEFT - 7}" y="{y + 4:.1f}" text-anchor="end">{number:,}</text>'
    ticks = np.array([10**power for power in range(19) if edges[0] <= 10**power <= edges[-1]], float)
    for x, number in zip(_across(ticks, edges), ticks.tolist(), strict=True):
        yield f'<path stroke="#000" d="M{x:.1f} {_BOTTOM}v4"/>'
        yield f'<text x="{x:.1f}" y="{_BOTTOM + 17}" text-anchor="middle">{number:,.0f}</text>'
    yield f'<text x="{(_LEFT + _RIGHT) / 2}" y="{_HEIGHT - 12}" text-anchor="middle">length in {unit}</text>'
    middle = (_TOP + _BOTTOM) / 2
    yield f'<text transform="translate(16 {middle})rotate(-90)" text-anchor="middle">documents</text>'
    for number, (name, colour) in enumerate(named.items()):
        x = 10 + 170 * number
        yield f'<rect x="{x}" y="12" width="11" height="9" fill="{colour}"/><text x="{x + 16}" y="21">{name}</text>'
    yield "</svg>"


def _across(values: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return where values lie on the logarithmic scale from the first to the last edge, in pixels."""
    share: NDArray[np.float64] = np.log(values / edges[0]) / np.log(edges[-1] / edges[0])
    return _LEFT + share * (_RIGHT - _LEFT)


def _step(most: int) -> int:
    """Return the least of 1, 2, 5, 10, 20, ... that cuts a scale up to `most` into few enough steps."""
    power = 1
    while True:
        for step in (power, 2 * power, 5 * power):
            if step * _TICKS >= most:
                return step
        power *= 10
