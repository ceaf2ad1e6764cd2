"""What a worker process of a run does to one region, and what it tells the run: a data version and a page.

The page is drawn here, beside the others, and not in the one process that writes down what all of them tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import dagster as dg

from casebits_dagster.admission import Admitted
from casebits_dagster.filters.region import filter_region
from casebits_dagster.orchestration import describe_region as describe
from casebits_dagster.orchestration.checks import admitted_layers
from casebits_dagster.orchestration.metadata import Metadata
from casebits_dagster.processes import unpickled
from casebits_dagster.publication.verify_region import verify_region_files
from casebits_dagster.records.canonical import Json
from casebits_dagster.records.layout import ADMISSION, Home, region_id
from casebits_dagster.records.pins import Generation
from casebits_dagster.records.region import Admission
from casebits_dagster.regions.encode import encode_region
from casebits_dagster.stores.regions import require_pushed, shared_store


@dataclass(frozen=True, slots=True)
class Told:
    """What a stage made of a region, to be shown: its content digest, its page, and what its checks found.

    `said` is the same in some words. `upstream` is the digest of what it read of the stage before, as read from disk;
    `made_from` is what it read beside.
    """

    data_version: str
    metadata: Metadata
    said: str
    upstream: str = ""
    made_from: Sequence[Json] = ()
    checks: Sequence[dg.AssetCheckResult] = ()
    tokens: int = 0


def filtered(packed: bytes, home: Home, index: int) -> Told:
    """Filter a region of a pickled generation."""
    generation: Generation = unpickled(packed)
    done = filter_region(generation, index, home)
    return Told(done.verdicts_digest, describe.filtered(generation, done), f"{done.rows_read} rows, {done.kept} kept")


def encoded(packed: bytes, home: Home, index: int) -> Told:
    """Encode a region of a pickled generation."""
    done = encode_region(unpickled(packed), index, home)
    tokens, upstream = done.receipt.counts.tokens, done.receipt.verdicts_digest
    return Told(done.receipt_sha256, describe.encoded(done), f"{tokens:,} tokens", upstream, tokens=tokens)


def admitted(done: Admitted, home: Home) -> Told:
    """Tell of an admission that the verifier's process made."""
    admission, source = done.admission, done.admission.source_recheck.to_dict()
    page, checks = describe.admitted(done, home), admitted_layers(admission)
    return Told(done.admission_sha256, page, "admitted", admission.receipt_sha256, [{"source": source}], checks)


def standing(packed: bytes, home: Home, index: int) -> Admission:
    """Return the admission of a region whose published bytes are still those it admits, every byte hashed.

    They are hashed in the shared store when there is one. Raises CasebitsError where they are not.
    """
    generation: Generation = unpickled(packed)
    folder = home.generation(generation.name).region(index)
    if store := shared_store(home):
        path = f"{home.name(folder)}/{ADMISSION}"
        admission = Admission.parse(store.get(path), path)
        require_pushed(home, admission)
        return admission
    return verify_region_files(folder, f"regions/{region_id(index)}").admission
