"""Admission: an independent proof that a region is what its receipt claims and its source holds.

Independence is the point. This room reads the source range itself, parses rows itself, builds its byte tables from the
vocabulary files and re-derives every decision; it shares only `records` and the stores' ranged reads with the producer
(an import rule enforces it), and runs in another process. `check_table()` says what is proven, and in which layer.
"""

from casebits_dagster.admission.admit import Admitted, admit_region
from casebits_dagster.admission.checks import Check, check_table
from casebits_dagster.admission.process import admit_apart
from casebits_dagster.admission.verify import VERIFIER, verify_region

__all__ = ["VERIFIER", "Admitted", "Check", "admit_apart", "admit_region", "check_table", "verify_region"]
