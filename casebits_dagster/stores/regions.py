"""Publish a region's folder onto its name: new, adopted, mended, or in the place of one that was refused.

What is published stays, byte for byte, unless it is known to be bad: files that are not what the region's own receipt
says are mended by a rerun that makes them again, and a region that the verifier refused gives way to another claim.
What is moved out of the way lies in `rejections/<id>/files`, the last time's only.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from casebits_dagster.filters.region import may_be_replaced
from casebits_dagster.records.errors import CasebitsError, RecordError
from casebits_dagster.records.layout import ADMISSION, RECEIPT, GenerationFolder
from casebits_dagster.records.region import Admission, Receipt
from casebits_dagster.stores.local import LocalStore, differing, fsync_folder, make_folder


def publish_region(staged: Path, receipt: Receipt, folder: GenerationFolder, store: LocalStore) -> bool:
    """Publish the finished folder of a region. True when bytes were published, False when all of them were there.

    Raises NONDETERMINISTIC_REGION when an admitted region, or one that nobody refused, has another claim.
    """
    index = receipt.region.index
    target = folder.region(index)
    path = target.relative_to(store.root).as_posix()
    try:
        return store.publish_folder(staged, path, added_later=(ADMISSION,))
    except CasebitsError as error:
        if error.code != "STORE_CONFLICT":
            raise
        conflict = error
    with store.exclusive():
        if _claim(target) == receipt.content_id:
            _mend(staged, target, folder.set_aside(index))
            return True
        if not may_be_replaced(folder, index):
            problem = "a rerun made other bytes than the published ones"
            raise CasebitsError("NONDETERMINISTIC_REGION", conflict.where, problem) from conflict
        target.rename(_emptied(folder.set_aside(index)) / target.name)
        fsync_folder(target.parent)
    return store.publish_folder(staged, path, added_later=(ADMISSION,))


def _claim(region: Path) -> str | None:
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


def _emptied(aside: Path) -> Path:
    shutil.rmtree(aside, ignore_errors=True)
    make_folder(aside)
    return aside
