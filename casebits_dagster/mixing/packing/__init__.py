"""Packing strategies: `plan(lengths, layout)` -> WindowPlan. A planner sees lengths only."""

from __future__ import annotations

from casebits_dagster.mixing.packing.aligned import plan as plan_aligned
from casebits_dagster.mixing.packing.concatenated import plan as plan_concatenated
from casebits_dagster.mixing.packing.interleaved import plan as plan_interleaved

PLANNERS = {"aligned": plan_aligned, "concatenated": plan_concatenated, "interleaved": plan_interleaved}
