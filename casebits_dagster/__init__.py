"""casebits-dagster: proven, packed pre-training corpora from pinned text sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from casebits_dagster.publication.consume import open_frontier
    from casebits_dagster.publication.open_mix import open_mix

__all__ = ["open_frontier", "open_mix"]
_PLACES = {"open_frontier": "consume", "open_mix": "open_mix"}


def __getattr__(name: str) -> Any:
    """Import what a reader asks for when it is asked for: the verifier's process must not load any of it."""
    import importlib

    if name in _PLACES:
        return getattr(importlib.import_module(f"casebits_dagster.publication.{_PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
