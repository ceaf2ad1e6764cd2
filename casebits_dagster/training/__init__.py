"""What a trainer needs of a mix: windows, masks and an order that resumes exactly. Numpy first; PyTorch is an extra."""

from __future__ import annotations

from casebits_dagster.training.order import WindowOrder
from casebits_dagster.training.packed_mix import PackedMix, Windows

__all__ = ["PackedMix", "WindowOrder", "Windows"]
