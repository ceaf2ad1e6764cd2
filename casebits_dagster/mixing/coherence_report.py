"""What the examination of a token file found: as text, as JSON, and as a plot of order by chunk."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from casebits_dagster.mixing.coherence import FILE_ORDER, LEAST_WINDOWS, ORDER, WINDOW, Coherence

_LISTED = 12
_COLUMNS = 1000
_INK, _WRONG, _PALE = "#2f6fb0", "#c9563c", "#d5d8dc"


def reason(found: Coherence) -> str:
    """Say in one line why the verdict is what it is."""
    without, chunks = int(found.without_order.sum()), len(found.starts)
    if found.verdict == "undecided":
        least = f"{LEAST_WINDOWS} windows of {WINDOW} tokens"
        if found.file.tokens < LEAST_WINDOWS * WINDOW:
            return f"too short to tell: {found.file.tokens:,} tokens, and {least} are needed"
        return f"too little to shuffle: order can show in {found.windows.sum():,} windows, and {least} are needed"
    if found.total_z < FILE_ORDER:
        return "no order anywhere: the tokens were shuffled, or are random"
    if found.verdict == "scrambled":
        return f"no order in {without:,} of {chunks:,} chunks ({without / chunks:.1%})"
    few = f"; {without:,} do not, which passes for tables and passwords in text" if without else ""
    return f"the order of the tokens shows in the chunks{few}"


def text_lines(found: Coherence, observed_loss: float | None = None) -> Iterator[str]:
    """Yield what a reader wants to know."""
    file, points = found.file, found.points
    yield f"{file.path}: {found.verdict}: {reason(found)}"
    yield f"  tokens     {file.tokens:,} ids of {file.dtype.str[1:]}, the largest {found.largest_id:,}"
    if found.separator is not None:
        times = f"{found.separators:,} times" if found.separators else "never: is it another id?"
        yield f"  separator  {found.separator:,} stands here {times}"
    chunks, poor = len(found.z), int(np.isnan(found.z).sum())
    told = f"{chunks - poor - int(found.without_order.sum()):,} of {chunks:,} chunks of {found.chunk_tokens:,} tokens"
    yield f"  order      shows in {told}; {poor:,} hold too little to tell"
    yield from (f"  {'without' if not number else '':<9}  {line}" for number, line in enumerate(_span_lines(found)))
    yield f"  loss       nats a token, knowing nothing ({points.vocabulary_size:,} ids): {points.uniform:.2f}"
    yield f"             knowing token frequencies: {points.unigram:.2f}"
    yield f"             knowing the token before, too: {points.bigram_low:.2f} to {points.bigram_high:.2f}"
    if points.information:
        lags, nats = (", ".join(map(str, points.information)), [f"{nat:.2f}" for nat in points.information.values()])
        yield f"  a token    tells of the one {lags} later, nats over a shuffle: {', '.join(nats)}"
    if observed_loss is not None:
        yield f"  observed   {observed_loss:g}: {points.meaning(observed_loss)}"


def _span_lines(found: Coherence) -> Iterator[str]:
    for first, end in found.spans[:_LISTED]:
        begin, stop = _tokens(found, first, end)
        yield f"tokens {begin:,} to {stop:,} ({end - first:,} chunk{'s' * (end - first > 1)})"
    if (more := len(found.spans) - _LISTED) > 0:
        yield f"and {more:,} more places: --format json lists them"


def _tokens(found: Coherence, first: int, end: int) -> tuple[int, int]:
    stop = found.file.tokens if end == len(found.starts) else int(found.starts[end])
    return int(found.starts[first]), stop


def to_json(found: Coherence, observed_loss: float | None = None) -> str:
    """Return all of it as JSON, numbers rounded to 4 digits. Ranges of tokens end before `end`."""
    points = found.points
    places = [
        {"begin": begin, "end": stop, "chunks": end - first}
        for first, end in found.spans
        for begin, stop in [_tokens(found, first, end)]
    ]
    record: dict[str, Any] = {
        "file": str(found.file.path),
        "verdict": found.verdict,
        "reason": reason(found),
        "dtype": found.file.dtype.str,
        "tokens": found.file.tokens,
        "largest_id": found.largest_id,
        "separator": None if found.separator is None else {"id": found.separator, "times": found.separators},
        "seed": found.seed,
        "chunk_tokens": found.chunk_tokens,
        "chunks": len(found.starts),
        "chunks_too_poor_to_tell": int(np.isnan(found.z).sum()),
        "chunks_without_order": int(found.without_order.sum()),
        "chunks_without_order_for_verdict": found.needed,
        "without_order": places,
        "z": round(found.total_z, 4),
        "nats": {
            "vocabulary_size": points.vocabulary_size,
            "uniform": round(points.uniform, 4),
            "unigram": round(points.unigram, 4),
            "bigram": [round(points.bigram_low, 4), round(points.bigram_high, 4)],
            "information_by_lag": {str(lag): round(nats, 4) for lag, nats in points.information.items()},
        },
    }
    if observed_loss is not None:
        record["observed_loss"] = {"nats": observed_loss, "meaning": points.meaning(observed_loss)}
    return json.dumps(record, indent=2)


def write_plot(found: Coherence, path: Path) -> None:
    """Write the order of each chunk, in nats a pair over its shuffle, against the band where shuffled chunks lie.

    Of more than 1,000 chunks each column shows the least and the most of several.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3), dpi=100)
    axes = figure.add_axes((0.09, 0.18, 0.89, 0.68))
    axes.spines[["top", "right"]].set_visible(False)
    pairs = np.maximum(1, found.windows) * (WINDOW - 1)
    columns = np.arange(0, len(pairs), -(-len(pairs) // _COLUMNS))
    places, excess, band = found.starts[columns], found.excess / pairs, ORDER * found.noise / pairs
    least, most = np.minimum.reduceat(excess, columns), np.maximum.reduceat(excess, columns)
    widest = np.maximum.reduceat(band, columns)
    axes.fill_between(places, -widest, widest, step="post", color=_PALE, linewidth=0, label="shuffled chunks lie here")
    axes.vlines(places, least, np.maximum(most, least + 0.01), color=_INK, linewidth=1, label="chunks")
    wrong = np.flatnonzero(found.without_order)
    label = f"without order ({len(wrong):,})"
    axes.scatter(found.starts[wrong], excess[wrong], s=9, color=_WRONG, zorder=3, label=label)
    axes.set(xlabel="token", ylabel="order, nats a pair", xlim=(0, max(1, found.file.tokens)))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    figure.legend(loc="upper left", ncols=3, frameon=False, fontsize=8, handlelength=1, columnspacing=1.2)
    figure.savefig(path, format="png", metadata={"Software": None})
