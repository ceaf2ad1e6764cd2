"""Orders of windows in which every training step has the mix's shares. Costs some microseconds a window."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from casebits_dagster.mixing.seeds import I64, shuffled


@dataclass(frozen=True, slots=True)
class Deviation:
    """How many tokens of a source any prefix, and any step, has at most beyond or below its share."""

    prefix: int
    step: int


def stratified(tokens: I64, seed: str) -> I64:
    """Return an order of windows in which every prefix has each source's share as nearly as whole windows allow.

    `tokens` are those of each source in each window, (W, K). Error diffusion: the next window is one of the source that
    lags furthest behind its share, and what the window holds of every source is paid off by those that follow. A window
    counts as one of the source it has most of; those of one source stand in a uniform seeded order.

    >>> stratified(np.array([[4, 0], [4, 0], [4, 0], [0, 4]]), "seed").tolist()
    [0, 1, 3, 2]
    """
    windows, sources = tokens.shape
    order = shuffled(windows, f"{seed}/stratified")
    most = tokens.argmax(axis=1)[order]
    queues = [order[most == source].tolist()[::-1] for source in range(sources)]
    waiting = np.array([source for source in range(sources) if queues[source]], np.int64)
    behind, due, paid, found = np.zeros(sources, np.int64), tokens.sum(axis=0), tokens * windows, list[int]()
    while len(waiting):
        behind += due
        source = waiting[behind[waiting].argmax()]
        found.append(queues[source].pop())
        behind -= paid[found[-1]]
        if not queues[source]:
            waiting = waiting[waiting != source]
    return np.array(found, np.int64)


def deviation(tokens: I64, windows_per_step: int) -> Deviation:
    """Return how far windows in this order stray from the shares of all; `tokens` as for `stratified`, W >= 1.

    A last step that is not full is none.
    """
    windows = len(tokens)
    # In tokens times windows, so that nothing is rounded.
    straying = np.cumsum(tokens * windows - tokens.sum(axis=0), axis=0)
    steps = np.diff(straying[windows_per_step - 1 :: windows_per_step], axis=0, prepend=0)
    return Deviation(*(int(np.abs(part).max(initial=0)) // windows for part in (straying, steps)))
