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
from casebits_dagster.records.layout import Home
from casebits_dagster.records.pins import Generation
from tests.faults.build import make_region, seal
from tests.faults.catalogue import DISK_FAULTS, FAULTS, Fault
from tests.faults.lines import LINE_FAULTS, make_lines
from tests.faults.plain import OFFERED_FAULTS, PLAIN_FAULTS, Side, make_plain
from tests.faults.table import EVERY, PAGE, page
from tests.faults.world import Row, make_world

ALL = (*FAULTS, *DISK_FAULTS)
REFUSED: dict[str, str] = {}
"""Which check has refused each fault in this session, for the summary at its end."""


@pytest.mark.parametrize("fault", ALL, ids=lambda fault: fault.name)
def test_fault_is_refused_by_its_check(fault: Fault, tmp_path: Path, pins: Path) -> None:
    require_refused(fault, *make_world(tmp_path, pins))


@pytest.mark.parametrize("fault", LINE_FAULTS, ids=lambda fault: fault.name)
def test_fault_of_lines_is_refused_by_its_check(fault: Fault, tmp_path: Path, pins: Path) -> None:
    require_refused(fault, *make_lines(tmp_path, pins))


@pytest.mark.parametrize("at", ["start", "end"])
@pytest.mark.parametrize("fault", PLAIN_FAULTS, ids=lambda fault: fault.name)
def test_fault_of_a_plain_region_is_refused_by_its_check(fault: Fault, at: Side, tmp_path: Path, pins: Path) -> None:
    require_refused(fault, *make_plain(tmp_path, pins, at))


@pytest.mark.parametrize("fault", OFFERED_FAULTS, ids=lambda fault: fault.name)
def test_a_region_of_another_format_is_refused(fault: Fault, tmp_path: Path, pins: Path) -> None:
    require_refused(fault, *make_world(tmp_path, pins))


def require_refused(fault: Fault, generation: Generation, home: Home, rows: list[Row]) -> None:
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
    REFUSED[fault.name] = error.code


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


def test_without_a_fault_the_region_of_lines_is_admitted(tmp_path: Path, pins: Path) -> None:
    generation, home, rows = make_lines(tmp_path, pins)
    made = make_region(generation, home, rows, 0)
    assert verify_region(made.folder, generation).verdict == "admitted"
    assert len(made.documents) == 4


@pytest.mark.parametrize("at", ["start", "end"])
def test_without_a_fault_the_plain_region_is_admitted(at: Side, tmp_path: Path, pins: Path) -> None:
    generation, home, rows = make_plain(tmp_path, pins, at)
    for index in range(4):
        assert verify_region(make_region(generation, home, rows, index).folder, generation).verdict == "admitted"


def test_names_are_unique_and_every_check_has_a_fault() -> None:
    names = Counter(fault.name for fault in EVERY)
    assert [name for name, count in names.items() if count > 1] == []
    unbroken = [check.id for check in check_table() if check.id not in {fault.check for fault in EVERY}]
    assert unbroken == ["L2_VOCABULARY"]


def test_the_page_of_faults_is_the_catalogue() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()
