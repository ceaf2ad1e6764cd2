"""Admission as a commit: prove a region where it is published, then sign off with one exclusive create.

Guarantees: `admission.json` appears complete or not at all, and only after the whole proof; a refusal leaves a record
under `rejections/` and no admission. An admission is deterministic, so a rerun changes no byte.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from pathlib import Path

from casebits_dagster.admission.verify import verify_region
from casebits_dagster.records.digests import sha256, sha256_file
from casebits_dagster.records.errors import CasebitsError, Conflict, RecordError, Rejected
from casebits_dagster.records.layout import ADMISSION, RECEIPT, Home, region_id
from casebits_dagster.records.pins import Generation
from casebits_dagster.records.region import Admission, RegionName, Rejection
from casebits_dagster.stores.base import WritableStore
from casebits_dagster.stores.local import LocalStore, make_folder
from casebits_dagster.stores.regions import pull_region, require_pushed, shared_store


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
    place, name = home.generation(generation.name), generation.name
    store, shared = LocalStore(home.root, home.staging), shared_store(home)
    pull_region(home, name, index)
    folder = place.region(index)
    try:
        found = verify_region(folder, generation, index=index, verdicts=place.verdicts(index), full=full)
    except Rejected as error:
        rejection = _rejection(name, index, error, folder / RECEIPT)
        for target in (store, shared):
            if target:
                _record(rejection, target, _name(place.rejections(index) / run_id, store))
        raise
    require_pushed(home, found)
    with store.exclusive():
        _require_still(folder / RECEIPT, found, store)
        _set_aside_nonsense(folder / ADMISSION, place.set_aside(index))
        path = _name(folder / ADMISSION, store)
        if shared is None:
            return _publish(found, store, path)
        admitted = _publish(found, shared, path)
        store.put_new(path, admitted.admission.to_bytes())
        return admitted


def _require_still(receipt: Path, found: Admission, store: LocalStore) -> None:
    if (read := sha256_file(receipt)) != found.receipt_sha256:
        where, expected = _name(receipt, store), f"sha256 {found.receipt_sha256}"
        problem, remedy = "while it was proven", "prove it again"
        raise CasebitsError("REGION_CHANGED", where, problem, expected=expected, read=read, remedy=remedy)


def _set_aside_nonsense(path: Path, aside: Path) -> None:
    """Move away an admission that is no record: it proves nothing to anyone."""
    if path.exists():
        try:
            Admission.parse(path.read_bytes(), path.name)
        except RecordError:
            make_folder(aside)
            path.rename(aside / path.name)


def _rejection(generation: str, index: int, error: Rejected, receipt: Path) -> Rejection:
    return Rejection(
        generation=generation,
        region=RegionName(index=index, id=region_id(index)),
        receipt_sha256=sha256_file(receipt) if receipt.is_file() else "",
        check=error.code,
        where=error.where,
        problem=error.args[0].removeprefix(f"{error.code} {error.where}: "),
        document=error.document,
        position=error.position,
    )


def _record(rejection: Rejection, store: WritableStore, name: str) -> None:
    """Write a refusal under the run's name; others of the same run get a number behind it."""
    for number in itertools.count(1):
        try:
            store.put_new(f"{name}.json" if number == 1 else f"{name}.{number}.json", rejection.to_bytes())
            return
        except Conflict:
            continue


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


def _name(path: Path, store: LocalStore) -> str:
    return path.relative_to(store.root).as_posix()
