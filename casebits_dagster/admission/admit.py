"""Admission as a commit: prove a region where it is published, then sign off with one exclusive create.

Guarantees: `admission.json` appears complete or not at all, and only after the whole proof; a refusal leaves a record
under `rejections/` and no admission. An admission is deterministic, so a rerun changes no byte.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace
from pathlib import Path

from casebits_dagster.admission.verify import verify_region
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.errors import CasebitsError, Conflict, RecordError, Rejected
from casebits_dagster.records.layout import ADMISSION, RECEIPT, Home, region_id
from casebits_dagster.records.pins import Generation
from casebits_dagster.records.region import Admission, RegionName, Rejection
from casebits_dagster.stores.base import WritableStore
from casebits_dagster.stores.local import LocalStore
from casebits_dagster.stores.regions import (
    move_aside,
    pull_region,
    require_pushed,
    require_same_pins,
    sha256_if_there,
    shared_store,
)

AT_HOME = frozenset({"L1_FILES", "L1_RECEIPT", "L1_SIZES", "L1_HASH", "L4_PINS"})
"""Checks that fail for the copy or the pins of one machine, which say nothing to the others."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """The admission as published; `published` is True when this call made it."""

    admission: Admission
    admission_sha256: str
    published: bool


def admit_region(generation: Generation, index: int, home: Home, *, run_id: str, full: bool = False) -> Admitted:
    """Return the region's admission, published. Raises Rejected after writing `rejections/<region>/<run_id>.json`.

    Raises REGION_CHANGED when a rerun replaced the region's claim while it was proven.
    """
    name, place = generation.name, home.generation(generation.name)
    store, shared = LocalStore(home.root, home.staging), shared_store(home)
    require_same_pins(home, generation)
    pull_region(home, name, index)
    folder = place.region(index)
    _set_aside_nonsense(folder / ADMISSION, name, index, place.set_aside(index))
    receipt_sha256 = sha256_if_there(folder / RECEIPT)
    try:
        found = verify_region(folder, generation, index=index, verdicts=place.verdicts(index), full=full)
    except Rejected as error:
        rejection, path = _rejection(name, index, error, receipt_sha256), home.name(place.rejections(index) / run_id)
        _record(rejection, store, path)
        if shared and error.code not in AT_HOME:
            _record(rejection, shared, path)
        raise
    path = home.name(folder / ADMISSION)
    if shared:
        require_pushed(home, found)
        admitted = _publish(found, shared, path)
    with store.exclusive():
        _require_still(folder / RECEIPT, found, home)
        if shared is None:
            return _publish(found, store, path)
        store.put_new(path, admitted.admission.to_bytes())
        return admitted


def _require_still(receipt: Path, found: Admission, home: Home) -> None:
    if (read := sha256_if_there(receipt)) != found.receipt_sha256:
        where, expected = home.name(receipt), f"sha256 {found.receipt_sha256}"
        problem, remedy = "while it was proven", "prove it again"
        raise CasebitsError("REGION_CHANGED", where, problem, expected=expected, read=read or "nothing", remedy=remedy)


def _set_aside_nonsense(path: Path, generation: str, index: int, aside: Path) -> None:
    """Move away an admission that is none of this region: it proves nothing to anyone."""
    if not os.path.lexists(path):
        return
    with contextlib.suppress(OSError, RecordError):
        found = Admission.parse(path.read_bytes(), path.name)
        if not path.is_symlink() and (found.generation, found.region.index) == (generation, index):
            return
    move_aside(path, aside)


def _rejection(generation: str, index: int, error: Rejected, receipt_sha256: str) -> Rejection:
    # A foreign file may have a name that is no text.
    problem = error.args[0].removeprefix(f"{error.code} {error.where}: ")
    where, problem = (text.encode("utf-8", "backslashreplace").decode() for text in (error.where, problem))
    return Rejection(
        generation=generation,
        region=RegionName(index=index, id=region_id(index)),
        receipt_sha256=receipt_sha256,
        check=error.code,
        where=where,
        problem=problem,
        document=error.document,
        position=error.position,
    )


def _record(rejection: Rejection, store: WritableStore, name: str) -> None:
    """Write a refusal under the run's name; others of the same run get a number behind it."""
    number = 1
    while True:
        try:
            store.put_new(f"{name}.json" if number == 1 else f"{name}.{number}.json", rejection.to_bytes())
            return
        except Conflict:
            number += 1


def _publish(found: Admission, store: WritableStore, path: str) -> Admitted:
    raw = found.to_bytes()
    try:
        return Admitted(found, sha256(raw), store.put_new(path, raw))
    except Conflict:
        # A full proof after a sampled one, or one by a newer verifier, proves the same facts: what stands, stays.
        stands = store.get(path)
        published = Admission.parse(stands, path)
        whole = [check.id for check in published.checks] == [check.id for check in found.checks]
        done = all(check.mode == "sample" or check.examined == check.population for check in published.checks)
        if not (whole and done) or replace(published, checks=found.checks, verifier=found.verifier) != found:
            raise
        return Admitted(published, sha256(stands), False)
