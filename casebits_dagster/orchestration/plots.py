"""One plot where a plot says more than a table: PNGs of 5 to 15 kB inside the metadata, 0.1 s each.

Inside the metadata a page needs no file server, and the event log keeps the picture. The lengths of a region are drawn
in `lengths_plot`.

matplotlib is imported when the first one is drawn, and without pyplot. Layout is fixed and legends are placed by hand:
a layout engine and a legend that looks for its best place draw everything twice more.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg
import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = ("#2f6fb0", "#c9563c", "#8a8f98", "#d9a441", "#5b9a68", "#7d5ba6", "#3aa3a0", "#b5679b")
_PALE = "#d5d8dc"


def bars(values: Mapping[str, Sequence[float]], ticks: Sequence[str], ylabel: str) -> dg.MarkdownMetadataValue:
    """Return groups of bars side by side: one group a tick, one bar a series."""
    figure, axes = _canvas(7)
    width, colours = 0.8 / max(1, len(values)), _colours(len(values))
    for number, (name, heights) in enumerate(values.items()):
        left = np.arange(len(ticks)) + (number - (len(values) - 1) / 2) * width
        axes.bar(left, heights, width, label=name, color=colours[number])
    axes.set_xticks(range(len(ticks)), ticks, fontsize=8)
    axes.set(ylabel=ylabel)
    return _markdown(figure)


def stacked(
    values: Mapping[str, Sequence[float]], ticks: Sequence[str], xlabel: str, ylabel: str
) -> dg.MarkdownMetadataValue:
    """Return bars that stack the series over each tick."""
    figure, axes = _canvas(8)
    _stack(axes, np.arange(len(ticks) + 1) - 0.5, values)
    step = 1 + len(ticks) // 16
    axes.set_xticks(range(0, len(ticks), step), ticks[::step], fontsize=8)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    return _markdown(figure, columns=12)


def lines(values: Mapping[str, Sequence[float]], xlabel: str, ylabel: str) -> dg.MarkdownMetadataValue:
    """Return one line a series over 0, 1, 2, ..."""
    figure, axes = _canvas(8)
    for (name, heights), colour in zip(values.items(), _colours(len(values)), strict=True):
        axes.plot(heights, color=colour, linewidth=1.2, marker="." if len(heights) < 100 else None, label=name)
    axes.set(xlabel=xlabel, ylabel=ylabel, ylim=(0, None))
    return _markdown(figure)


def grid(
    values: Sequence[Sequence[float]], texts: Sequence[Sequence[str]], rows: Sequence[str], columns: Sequence[str]
) -> dg.MarkdownMetadataValue:
    """Return a table of cells with their texts, the larger its value the darker."""
    two_lines = any("\n" in text for row in texts for text in row)
    height = 0.8 + (0.5 if two_lines else 0.3) * max(1, len(rows))
    figure, axes = _canvas(8, height, (0.12, 0.03, 0.86, 1 - 0.45 / height - 0.03))
    axes.imshow(values, cmap="Blues", vmin=0, vmax=2 * max(1e-9, *map(max, values)), aspect="auto")
    for at, row in enumerate(texts):
        for column, text in enumerate(row):
            axes.text(column, at, text, ha="center", va="center", fontsize=8)
    axes.set_xticks(range(len(columns)), columns, fontsize=8)
    axes.set_yticks(range(len(rows)), rows, fontsize=8)
    axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
    axes.spines[:].set_visible(False)
    return _markdown(figure)


def prefix(tokens: Sequence[int], waiting: Sequence[int], total: int) -> dg.MarkdownMetadataValue:
    """Return the tokens of each listed region over a strip that says where every region of the plan stands."""
    from matplotlib.ticker import EngFormatter

    figure, axes = _canvas(8)
    axes.stairs(tokens, np.arange(len(tokens) + 1) - 0.5, fill=True, color=INK[0])
    states = {
        "in the frontier": range(len(tokens)),
        "admitted, waits for the gap": waiting,
        "not admitted": sorted({*range(len(tokens), total)} - {*waiting}),
    }
    strip = -0.06 * max([1, *tokens])
    for (name, regions), colour, above in zip(states.items(), (INK[0], INK[3], _PALE), (2, 3, 1), strict=True):
        label = f"{name} ({len(regions):,})"
        axes.scatter(regions, [strip] * len(regions), marker="s", s=16, color=colour, label=label, zorder=above)
    axes.yaxis.set_major_formatter(EngFormatter())
    axes.set(xlabel="region", ylabel="tokens", xlim=(-0.7, total - 0.3))
    return _markdown(figure)


def _stack(axes: Axes, edges: NDArray[Any], layers: Mapping[str, Sequence[float] | NDArray[Any]]) -> None:
    floor = np.zeros(len(edges) - 1)
    for (name, heights), colour in zip(layers.items(), _colours(len(layers)), strict=True):
        top = floor + np.asarray(heights, dtype=float)
        axes.stairs(top, edges, baseline=floor, fill=True, color=colour, label=name)
        floor = top


def _colours(count: int) -> list[Any]:
    if count <= len(INK):
        return list(INK[:count])
    from matplotlib import colormaps

    return [colormaps["turbo"](number / (count - 1)) for number in range(count)]


def _canvas(
    width: float, height: float = 3, place: tuple[float, float, float, float] | None = None
) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=100)
    axes = figure.add_axes(place or (0.7 / width, 0.18, 1 - 0.85 / width, 0.68))
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _markdown(figure: Figure, columns: int = 4) -> dg.MarkdownMetadataValue:
    from PIL import Image

    if figure.axes[0].get_legend_handles_labels()[1]:
        figure.legend(loc="upper left", ncols=columns, frameon=False, fontsize=8, handlelength=1, columnspacing=1.2)
    pixels, picture = io.BytesIO(), io.BytesIO()
    figure.savefig(pixels, format="raw")
    drawn = Image.frombytes("RGBA", figure.canvas.get_width_height(), pixels.getvalue()).convert("RGB")
    # The event log keeps every picture for ever, and a palette makes it a quarter of the bytes.
    drawn.quantize(64, method=Image.Quantize.MEDIANCUT).save(picture, format="png")
    return dg.MetadataValue.md(f"![plot](data:image/png;base64,{base64.b64encode(picture.getvalue()).decode()})")
