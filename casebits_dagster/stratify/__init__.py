"""Is the admitted prefix a fair picture of the plan? Strata counted, compared, and judged by pinned tolerances.

Pure but for a scratch folder: index rows and scores a region in, a report and a gate out.
"""

from casebits_dagster.stratify.gate import stratification_gate
from casebits_dagster.stratify.report import tabulate
from casebits_dagster.stratify.strata import CASE_CLASSES, Prefix, length_name, split_totals

__all__ = ["CASE_CLASSES", "Prefix", "length_name", "split_totals", "stratification_gate", "tabulate"]
