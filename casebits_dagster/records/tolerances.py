"""What counts as a fair picture: the pinned tolerances of a generation's stratification gate."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import ClassVar

from casebits_dagster.records.errors import RecordError
from casebits_dagster.records.record import Count, Name, Positive, Record, Text


@dataclass(frozen=True, kw_only=True, slots=True)
class Tolerances(Record):
    """`stratification/<generation>.toml`. Shares are of 1, all of documents.

    `expected_documents` are the counts that the source publishes, by cluster and only of those that the filter policy
    accepts; with them goes `max_cluster_share_error`. A cluster x length x case class of `judged_train_documents` train
    documents or more must have validation documents.
    """

    LEFT_OUT: ClassVar[frozenset[str]] = frozenset({"max_cluster_share_error"})

    generation: Name
    description: Text
    least_documents: Positive
    min_validation_documents: Count
    judged_train_documents: Positive
    max_validation_share_error: Decimal
    max_duplicate_share: Decimal
    outlier_standard_errors: Decimal
    max_outlier_regions: Count
    max_cluster_share_error: Decimal | None = None
    expected_documents: dict[str, Positive] = field(default_factory=dict)

    @property
    def expected(self) -> dict[int, int]:
        """The expected documents by cluster."""
        return {int(cluster): count for cluster, count in self.expected_documents.items()}


def tolerances_path(pins_folder: Path, generation: str) -> Path:
    """Return where the tolerances of a generation are pinned."""
    return pins_folder / "stratification" / f"{generation}.toml"


def pinned_tolerances(pins_folder: Path, generation: str) -> Tolerances | None:
    """Return the tolerances of a generation, None when none are pinned. Raises RecordError where the pin is wrong."""
    path = tolerances_path(pins_folder, generation)
    if not path.is_file():
        return None
    pin = Tolerances.from_toml(path)
    if pin.generation != generation:
        raise RecordError("PIN_INVALID", f"{path}: generation", expected=generation, read=pin.generation)
    if bool(pin.expected_documents) != (pin.max_cluster_share_error is not None):
        where, problem = f"{path}: expected_documents", "expected counts and max_cluster_share_error go together"
        raise RecordError("PIN_INVALID", where, problem)
    for cluster in pin.expected_documents:
        if not cluster.isdecimal() or str(int(cluster)) != cluster:
            raise RecordError(
                "PIN_INVALID", f"{path}: expected_documents", expected="clusters as numbers", read=cluster
            )
    return pin
