"""Admission as a commit: prove a region where it is published, then sign off with one exclusive create.

Guarantees: `admission.json` appears complete or not at all, and only after the whole proof; a refusal leaves a record
under `rejections/` and no admission. Both are deterministic, so a rerun changes no byte.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from casebits_dagster.admission.verify import verify_region
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.errors import CasebitsError, Rejected
from casebits_dagster.records.layout import ADMISSION, Home, region_id
from casebits_dagster.records.pins import Generation
from casebits_dagster.records.region import Admission, RegionName, Rejection
from casebits_dagster.stores.local import LocalStore


@dataclass(frozen=True, slots=True)
class Admitted:
    """The admission as published; `published` is True when this call made it."""

    admission: Admission
    admission_sha256: str
    published: bool


def admit_region(generation: Generation, index: int, home: Home, *, run_id: str, full: bool = False) -> Admitted:
    """Return the region's admission, published. Raises Rejected after writing `rejections/<region>/<run_id>.json`."""
    place = home.generation(generation.name)
    store = LocalStore(home.root, home.staging)
    try:
        found = verify_region(place.region(index), generation, index=index, verdicts=place.verdicts(index), full=full)
    except Rejected as error:
        refusal = place.rejections(index) / f"{run_id}.json"
        store.put_new(refusal.relative_to(home.root).as_posix(), _rejection(generation.name, index, error).to_bytes())
        raise
    return _publish(found, store, (place.region(index) / ADMISSION).relative_to(home.root).as_posix())


def _rejection(generation: str, index: int, error: Rejected) -> Rejection:
    return Rejection(
        generation=generation,
        region=RegionName(index=index, id=region_id(index)),
        check=error.code,
        where=error.where,
        problem=error.args[0].removeprefix(f"{error.code} {error.where}: "),
        document=error.document,
        position=error.position,
    )


def _publish(found: Admission, store: LocalStore, path: str) -> Admitted:
    raw = found.to_bytes()
    try:
        return Admitted(found, sha256(raw), store.put_new(path, raw))
    except CasebitsError:
        # A full proof after a sampled one, or one by a newer verifier, proves the same facts: what stands, stays.
        stands = store.get(path)
        published = Admission.parse(stands, path)
        whole = [check.id for check in published.checks] == [check.id for check in found.checks]
        done = all(check.mode == "sample" or check.examined == check.population for check in published.checks)
        if not (whole and done) or replace(published, checks=found.checks, verifier=found.verifier) != found:
            raise
        return Admitted(published, sha256(stands), False)
