"""Check a published region against its own records: what a consumer does before it reads one token."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from casebits_dagster.records.digests import sha256, sha256_file
from casebits_dagster.records.errors import CasebitsError, Refused
from casebits_dagster.records.layout import ADMISSION, ARRAY_NAMES, DOCUMENTS, RECEIPT
from casebits_dagster.records.record import Record
from casebits_dagster.records.region import Admission, Receipt, StoredFile

T = TypeVar("T", bound=Record)


@dataclass(frozen=True, slots=True)
class VerifiedRegion:
    """A region whose seven files are there, hash as listed, and whose receipt and admission speak of each other."""

    receipt: Receipt
    admission: Admission
    files: tuple[StoredFile, ...]


def verify_region_files(folder: Path, where: str) -> VerifiedRegion:
    """Return the region's records, every byte hashed. Raises Refused with the first code that applies.

    `where` names the region in messages (`regions/00017`).
    """
    _require_names(folder, where)
    receipt_bytes, admission_bytes = (folder / RECEIPT).read_bytes(), (folder / ADMISSION).read_bytes()
    receipt = parsed(Receipt, receipt_bytes, f"{where}/{RECEIPT}")
    admission = parsed(Admission, admission_bytes, f"{where}/{ADMISSION}")
    if receipt.content_id != receipt.expected_content_id():
        field = f"{where}/{RECEIPT}: content_id"
        raise Refused("CONTENT_ID", field, expected=receipt.expected_content_id(), read=receipt.content_id)
    if admission.receipt_sha256 != sha256(receipt_bytes):
        field, read = f"{where}/{ADMISSION}: receipt_sha256", admission.receipt_sha256
        raise Refused("RECEIPT_HASH", field, expected=sha256(receipt_bytes), read=read)
    for name, mine, theirs in (
        ("content_id", receipt.content_id, admission.content_id),
        ("generation", receipt.generation, admission.generation),
        ("region", receipt.region, admission.region),
    ):
        if mine != theirs:
            raise Refused("ADMISSION_HASH", f"{where}/{ADMISSION}: {name}", expected=mine, read=theirs)
    short = [check.id for check in admission.checks if check.mode == "full" and check.examined != check.population]
    if short or not admission.checks:
        problem = f"{short[0]} was not done in full" if short else "no check was made"
        raise Refused("ADMISSION_NOT_ADMITTED", f"{where}/{ADMISSION}: checks", problem)
    # Hash what lies there now, never trust a list: the receipt, the admission and the disk must agree.
    claimed = {file.name: (file.bytes, file.sha256) for file in receipt.files}
    proven = {file.name: (file.bytes, file.sha256) for file in admission.files}
    for name, found in claimed.items():
        if proven.get(name) != found:
            raise Refused("ADMISSION_HASH", f"{where}/{ADMISSION}: files {name}", expected=found, read=proven.get(name))
        require_file(folder / name, f"{where}/{name}", *found)
    files = [StoredFile(name=file.name, bytes=file.bytes, sha256=file.sha256) for file in receipt.files]
    for name, content in ((RECEIPT, receipt_bytes), (ADMISSION, admission_bytes)):
        files.append(StoredFile(name=name, bytes=len(content), sha256=sha256(content)))
    return VerifiedRegion(receipt, admission, tuple(sorted(files, key=lambda file: file.name)))


def parsed(kind: type[T], raw: bytes, where: str) -> T:
    """Return a record of a publication: a malformed one is a refusal."""
    try:
        return kind.parse(raw, where)
    except CasebitsError as error:
        raise Refused(error.code, error.where, error.problem, expected=error.expected, read=error.read) from error


def require_file(path: Path, where: str, size: int, digest: str | None) -> None:
    """Check presence, size and, unless it is None, hash of one file. Raises Refused FILE_MISSING, _SIZE or _HASH."""
    remedy = "restore the file from another copy, or make the region again"
    if path.is_symlink():
        raise Refused("PATH_UNSAFE", where, "a published file is never a link", remedy=remedy)
    if not path.is_file():
        raise Refused("FILE_MISSING", where, "a listed file is not there", remedy=remedy)
    if path.stat().st_size != size:
        raise Refused("FILE_SIZE", where, expected=f"{size} bytes", read=path.stat().st_size, remedy=remedy)
    if digest is not None and (read := sha256_file(path)) != digest:
        raise Refused("FILE_HASH", where, expected=f"sha256 {digest}", read=read, remedy=remedy)


def _require_names(folder: Path, where: str) -> None:
    if folder.is_symlink():
        raise Refused("PATH_UNSAFE", where, "a published region is never a link")
    if not folder.is_dir():
        raise Refused("REGION_MISSING", where, f"there is no folder {folder}")
    found = {path.name for path in folder.iterdir()}
    if ADMISSION not in found:
        raise Refused("ADMISSION_MISSING", f"{where}/{ADMISSION}", "the region is not admitted")
    # The receipt says which format this is, and is read only when all is there: the files themselves tell it.
    names = ARRAY_NAMES["plain-1" if ARRAY_NAMES["plain-1"].ids in found else "casebits-1"]
    files = sorted([*names.dtypes, DOCUMENTS, RECEIPT, ADMISSION])
    for name in files:
        if not (folder / name).is_file():
            raise Refused("FILE_MISSING", f"{where}/{name}", "a file of the region is missing")
    if extra := sorted(found - set(files)):
        raise Refused("FILE_EXTRA", f"{where}/{extra[0]}", f"a region of its format has exactly {len(files)} files")
