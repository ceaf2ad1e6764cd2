"""Every fault of the catalogue is refused by the one check that must refuse it, at the place it was made."""

from __future__ import annotations

import contextlib
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from casebits_dagster.admission import check_table, verify_region
from casebits_dagster.records.errors import Rejected
from tests.faults.build import make_region, seal
from tests.faults.catalogue import DISK_FAULTS, FAULTS, Fault
from tests.faults.world import make_world

ALL = (*FAULTS, *DISK_FAULTS)


@pytest.mark.parametrize("fault", ALL, ids=lambda fault: fault.name)
def test_fault_is_refused_by_its_check(fault: Fault, tmp_path: Path, pins: Path) -> None:
    generation, home, rows = make_world(tmp_path, pins)
    made = make_region(generation, home, rows, 0, after=fault.after, mutate=fault.mutate)
    with pytest.raises(Rejected) as caught:
        verify_region(made.folder, generation)
    error = caught.value
    assert (error.code, error.where.startswith("00000/")) == (fault.check, True), str(error)
    assert error.where.endswith(fault.where), str(error)
    if fault.document is not None or fault.position is None:
        assert error.document == fault.document, str(error)
    if fault.position is not None:
        assert error.position == fault.position, str(error)


def test_every_field_of_a_receipt_is_checked_but_the_workers_own_name(tmp_path: Path, pins: Path) -> None:
    generation, home, rows = make_world(tmp_path, pins)
    made = make_region(generation, home, rows, 0)
    del made.receipt["content_id"]
    admitted = []
    for path in leaves(made.receipt):
        shutil.rmtree(home.root)
        seal(replace(made, receipt=changed(made.receipt, path)))
        with contextlib.suppress(Rejected):
            verify_region(made.folder, generation)
            admitted.append(path)
    assert admitted == [("worker", "name"), ("worker", "version")]


def leaves(value: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every number and text."""
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from ((key, *rest) for rest in leaves(item))
    else:
        yield ()


def changed(value: Any, path: tuple[Any, ...]) -> Any:
    """Return a copy with the leaf at `path` changed, in type and form as before."""
    if path:
        copy = value.copy()
        copy[path[0]] = changed(value[path[0]], path[1:])
        return copy
    return value + 1 if isinstance(value, int) else ("1" if value[0] == "0" else "0") + value[1:]


def test_without_a_fault_the_region_is_admitted(tmp_path: Path, pins: Path) -> None:
    generation, home, rows = make_world(tmp_path, pins)
    made = make_region(generation, home, rows, 0)
    assert verify_region(made.folder, generation).verdict == "admitted"


def test_names_are_unique_and_every_check_has_a_fault() -> None:
    assert [name for name, count in Counter(fault.name for fault in ALL).items() if count > 1] == []
    assert [check.id for check in check_table() if check.id not in {fault.check for fault in ALL}] == ["L2_VOCABULARY"]


def test_the_catalogue_is_as_large_as_promised() -> None:
    assert (len(FAULTS) >= 30, len(DISK_FAULTS) >= 12) == (True, True)
    layers = Counter(fault.layer for fault in ALL)
    print("\n".join(f"{fault.layer}  {fault.check:<20} {fault.name}" for fault in ALL))
    print(dict(sorted(layers.items())), len(FAULTS), "before hashing,", len(DISK_FAULTS), "after")
