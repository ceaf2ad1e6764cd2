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
from casebits_dagster.records.errors import CasebitsError, RecordError, Rejected
from casebits_dagster.records.layout import ADMISSION, RECEIPT, GenerationFolder, Home, region_id
from casebits_dagster.records.pins import Generation
from casebits_dagster.records.region import Admission, RegionName, Rejection
from casebits_dagster.stores.local import LocalStore, make_folder


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
    place = home.generation(generation.name)
    store = LocalStore(home.root, home.staging)
    try:
        found = verify_region(place.region(index), generation, index=index, verdicts=place.verdicts(index), full=full)
    except Rejected as error:
        _record(generation.name, index, error, place, store, run_id)
        raise
    receipt = place.region(index) / RECEIPT
    with store.exclusive():
        if (read := sha256_file(receipt)) != found.receipt_sha256:
            where, remedy = _name(receipt, store), "prove it again"
            expected = f"sha256 {found.receipt_sha256}"
            raise CasebitsError(
                "REGION_CHANGED", where, "while it was proven", expected=expected, read=read, remedy=remedy
            )
        return _publish(found, store, place.region(index) / ADMISSION, place.set_aside(index))


def _record(
    generation: str, index: int, error: Rejected, place: GenerationFolder, store: LocalStore, run_id: str
) -> None:
    """Write the refusal under the run's name; other refusals of the same run get a number behind it."""
    receipt, folder = place.region(index) / RECEIPT, place.rejections(index)
    rejection = Rejection(
        generation=generation,
        region=RegionName(index=index, id=region_id(index)),
        receipt_sha256=sha256_file(receipt) if receipt.is_file() else "",
        check=error.code,
        where=error.where,
        problem=error.args[0].removeprefix(f"{error.code} {error.where}: "),
        document=error.document,
        position=error.position,
    )
    for number in itertools.count(1):
        path = folder / (f"{run_id}.json" if number == 1 else f"{run_id}.{number}.json")
        try:
            store.put_new(_name(path, store), rejection.to_bytes())
            return
        except CasebitsError as conflict:
            if conflict.code != "STORE_CONFLICT":
                raise


def _publish(found: Admission, store: LocalStore, path: Path, aside: Path) -> Admitted:
    raw, name = found.to_bytes(), _name(path, store)
    try:
        return Admitted(found, sha256(raw), store.put_new(name, raw))
    except CasebitsError as conflict:
        stands = store.get(name)
        try:
            published = Admission.parse(stands, name)
        except RecordError:
            # What is no record proves nothing to anyone.
            make_folder(aside)
            path.rename(aside / path.name)
            return Admitted(found, sha256(raw), store.put_new(name, raw))
        # A full proof after a sampled one, or one by a newer verifier, proves the same facts: what stands, stays.
        whole = [check.id for check in published.checks] == [check.id for check in found.checks]
        done = all(check.mode == "sample" or check.examined == check.population for check in published.checks)
        if not (whole and done) or replace(published, checks=found.checks, verifier=found.verifier) != found:
            raise conflict
        return Admitted(published, sha256(stands), False)


def _name(path: Path, store: LocalStore) -> str:
    return path.relative_to(store.root).as_posix()
