"""How a region gets onto its name, at home and in the store that several machines share.

At home, what is published stays, byte for byte, unless it is known to be bad: files that are not what the region's own
receipt says are mended by a rerun that makes them again, and a claim that the verifier refused gives way to another.
What is moved out of the way lies in `rejections/<id>/files`, the last time's only.

In a shared store, below the same names, a region's files lie under their content, `regions/<id>/<content id[:16]>/`, so
that no two claims can mix; the receipt is put last, and makes them complete. `regions/<id>/admission.json` is created
once: of all claims it admits one. The homes are caches of it; what enters one is hashed on the way in.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from casebits_dagster.records.canonical import canonical
from casebits_dagster.records.digests import sha256, sha256_file
from casebits_dagster.records.errors import Absent, CasebitsError, Conflict, RecordError, Refused
from casebits_dagster.records.layout import ADMISSION, RECEIPT, Home, region_id
from casebits_dagster.records.pins import Generation
from casebits_dagster.records.region import Admission, Receipt, Rejection
from casebits_dagster.stores.base import WritableStore
from casebits_dagster.stores.local import LocalStore, differing, fsync_folder, make_folder

if TYPE_CHECKING:
    from casebits_dagster.stores.object import ObjectStore


def publish_region(staged: Path, receipt: Receipt, home: Home) -> bool:
    """Publish the finished folder of a region. True when bytes were published, False when all of them were there.

    Raises NONDETERMINISTIC_REGION when an admitted region, or one that nobody refused, has another claim.
    """
    folder, index = home.generation(receipt.generation), receipt.region.index
    store, target = LocalStore(home.root, home.staging), folder.region(index)
    path = home.name(target)
    if target.is_symlink() or target.is_file():
        move_aside(target, folder.set_aside(index))
    try:
        return store.publish_folder(staged, path, added_later=(ADMISSION,))
    except Conflict as error:
        conflict = error
    with store.exclusive():
        if _claimed(target) == receipt.content_id:
            _mend(staged, target, folder.set_aside(index))
            return True
        if not may_be_replaced(home, receipt.generation, index):
            problem = "a rerun made other bytes than the published ones"
            raise CasebitsError("NONDETERMINISTIC_REGION", conflict.where, problem) from conflict
        move_aside(target, folder.set_aside(index))
        fsync_folder(target.parent)
    return store.publish_folder(staged, path, added_later=(ADMISSION,))


def may_be_replaced(home: Home, generation: str, index: int) -> bool:
    """Return whether the verifier refused just the claim that is published at home, and none was admitted."""
    folder = home.generation(generation)
    receipt, rejections = folder.region(index) / RECEIPT, home.name(folder.rejections(index))
    found = sha256_if_there(receipt)
    refused = _refused(LocalStore(home.root, home.staging), rejections)
    if shared := shared_store(home):
        refused |= _refused(shared, rejections)
    return found in refused and not (folder.region(index) / ADMISSION).exists()


def _refused(store: WritableStore, rejections: str) -> set[str]:
    """Return the hashes of the receipts that were refused."""
    refused = set()
    for name in store.list(rejections):
        # What was set aside lies in folders below.
        if name.count("/") == rejections.count("/") + 1:
            with contextlib.suppress(CasebitsError, OSError):
                refused.add(Rejection.parse(store.get(name), name).receipt_sha256)
    return refused


def _claimed(region: Path) -> str | None:
    """Return the content id that a published region was admitted with or, before that, claims."""
    for name, kind in ((ADMISSION, Admission), (RECEIPT, Receipt)):
        with contextlib.suppress(OSError, RecordError):
            return kind.parse((region / name).read_bytes(), name).content_id
    return None


def _mend(staged: Path, region: Path, aside: Path) -> None:
    """Replace, one by one, the files that are not as they were made, and move away what does not belong there."""
    _emptied(aside)
    for name in differing(staged, region, added_later=(ADMISSION,)):
        if os.path.lexists(region / name):
            (region / name).rename(aside / name)
        if (staged / name).exists():
            (staged / name).rename(region / name)
    fsync_folder(region)


def move_aside(path: Path, aside: Path) -> None:
    """Move what is in the way into a folder, whose earlier content goes."""
    path.rename(_emptied(aside) / path.name)


def _emptied(aside: Path) -> Path:
    shutil.rmtree(aside, ignore_errors=True)
    make_folder(aside)
    return aside


def sha256_if_there(receipt: Path) -> str:
    """Return the hash that a refusal names the receipt by: of the file as it is found, empty where there is none."""
    return sha256_file(receipt) if receipt.is_file() else ""


def shared_store(home: Home) -> ObjectStore | None:
    """Return the shared store of a home, probed once a process; None when the home stands alone."""
    return _opened(home.shared, os.getpid()) if home.shared else None


@functools.cache
def _opened(url: str, process: int) -> ObjectStore:
    # The client takes 0.1 s to import, and a home that stands alone needs none of it.
    from casebits_dagster.stores.object import object_store

    return object_store(url)


def require_same_pins(home: Home, generation: Generation) -> None:
    """Refuse to work in a shared store with other pins than the first machine's; nothing when the home stands alone."""
    if (store := shared_store(home)) is None:
        return
    pins = {"plan_sha256": generation.plan_sha256, "source": generation.source.pin.revision}
    path = home.name(home.generation(generation.name).root / "pins.json")
    try:
        store.put_new(path, canonical({**pins, "pins": generation.pins.to_dict()}))
    except Conflict as error:
        problem, remedy = "the store was made from other pins", "use the pins that it was made from, or a new name"
        raise Refused("GENERATION_MISMATCH", f"{store.url}/{path}", problem, remedy=remedy) from error


def push_region(home: Home, generation: Generation, receipt: Receipt) -> None:
    """Put a published region and its verdict table where the other machines find them; nothing when home is alone."""
    if (store := shared_store(home)) is None:
        return
    require_same_pins(home, generation)
    folder, index = home.generation(receipt.generation), receipt.region.index
    place = _content(home, receipt)
    for name in (*(file.name for file in receipt.files), RECEIPT):
        try:
            store.put_file(f"{place}/{name}", folder.region(index) / name)
        except Conflict as error:
            raise _rotten(f"{place}/{name}", "the bytes at home", "others") from error
    with contextlib.suppress(Conflict):
        # Another library may write the same verdicts as other bytes: one table is as good as the other.
        store.put_file(_verdicts(home, receipt), folder.verdicts(index))


def require_pushed(home: Home, admission: Admission) -> None:
    """Hash every file of a region where it is published in the shared store. Raises FILE_HASH."""
    if (store := shared_store(home)) is None:
        return
    place = _content(home, admission)
    for file in admission.files:
        if (read := store.digest(f"{place}/{file.name}")) != file.sha256:
            raise _rotten(f"{place}/{file.name}", f"sha256 {file.sha256}", read)


def pull_region(home: Home, generation: str, index: int) -> None:
    """Bring the admitted claim of a region home, or the one that was not refused; nothing when home is alone.

    Raises REGION_MISSING when there is none, NONDETERMINISTIC_REGION when there are several.
    """
    if (store := shared_store(home)) is None:
        return
    folder = home.generation(generation)
    target, path = folder.region(index), home.name(folder.region(index))
    admission = store.get(f"{path}/{ADMISSION}") if store.exists(f"{path}/{ADMISSION}") else None
    mine = (target / RECEIPT).read_bytes() if (target / RECEIPT).is_file() else b""
    raw = _claim(store, path, home.name(folder.rejections(index)), admission, mine)
    receipt = Receipt.parse(raw, f"{path}/{RECEIPT}")
    if (receipt.generation, receipt.region.index) != (generation, index):
        raise _rotten(f"{path}/{RECEIPT}", f"{generation}/{index:05d}", f"{receipt.generation}/{receipt.region.id}")
    local = LocalStore(home.root, home.staging)
    if mine != raw or not folder.verdicts(index).exists():
        with local.staged(f"pull.{generation}.{index:05d}") as staging:
            _fetch(store, home, receipt, raw, staging)
            publish_region(staging / "region", receipt, home)
            make_folder(folder.verdicts(index).parent)
            (staging / "verdicts").rename(folder.verdicts(index))
    if admission is not None:
        local.put_new(f"{path}/{ADMISSION}", admission)


def admitted_regions(home: Home, generation: str, planned: int) -> list[int]:
    """Return which of the planned regions have an admission in the shared store, or in a home that stands alone."""
    folder = home.generation(generation)
    store = shared_store(home) or LocalStore(home.root, home.staging)
    found = set(store.list(home.name(folder.root / "regions")))
    return [index for index in range(planned) if home.name(folder.region(index) / ADMISSION) in found]


def _claim(store: ObjectStore, path: str, rejections: str, admission: bytes | None, mine: bytes) -> bytes:
    """Return the receipt of the claim to bring home; `mine` is the one that is here, or nothing."""
    receipts = {name: store.get(name) for name in store.list(path) if name.endswith(f"/{RECEIPT}")}
    if admission is not None:
        wanted = Admission.parse(admission, f"{path}/{ADMISSION}").receipt_sha256
        claims = {name: raw for name, raw in receipts.items() if sha256(raw) == wanted}
    else:
        refused = _refused(store, rejections)
        claims = {name: raw for name, raw in receipts.items() if sha256(raw) not in refused}
        if not claims:
            # All were refused: the verifier looks again at what was made here last.
            claims = {name: raw for name, raw in receipts.items() if raw == mine} or receipts
    if not claims:
        raise Absent("REGION_MISSING", path, f"no claim is in {store.url}", remedy="encode the region first")
    if len(claims) > 1:
        problem, remedy = "two runs made different bytes", "find out why, and delete one of them in the store"
        raise CasebitsError("NONDETERMINISTIC_REGION", " and ".join(claims), problem, remedy=remedy)
    return next(iter(claims.values()))


def _fetch(store: ObjectStore, home: Home, receipt: Receipt, raw: bytes, staging: Path) -> None:
    """Download a region, and its verdict table, into a staging folder; every byte of the region is hashed."""
    work, place = staging / "region", _content(home, receipt)
    work.mkdir()
    for file in receipt.files:
        if (read := store.fetch(f"{place}/{file.name}", work / file.name)) != file.sha256:
            raise _rotten(f"{place}/{file.name}", f"sha256 {file.sha256}", read)
    (work / RECEIPT).write_bytes(raw)
    # The verifier derives the verdicts again, and compares them with this table.
    store.fetch(_verdicts(home, receipt), staging / "verdicts")


def _rotten(path: str, expected: str, read: str) -> Refused:
    remedy = "delete this object in the store, and run the partition of its region again"
    return Refused("FILE_HASH", path, expected=expected, read=read, remedy=remedy)


def _content(home: Home, claim: Receipt | Admission) -> str:
    folder = home.generation(claim.generation).region(claim.region.index)
    return f"{home.name(folder)}/{claim.content_id[:16]}"


def _verdicts(home: Home, receipt: Receipt) -> str:
    folder = home.generation(receipt.generation).root / "verdicts" / region_id(receipt.region.index)
    return f"{home.name(folder)}/{receipt.verdicts_digest[:16]}.parquet"
