"""`MANIFEST.txt`: every other file of a mix with its hash and size, one a line, and their count and sum at the end."""

from __future__ import annotations

import re

from casebits_dagster.records.errors import CasebitsError
from casebits_dagster.records.mix import MANIFEST_HEAD
from casebits_dagster.records.region import StoredFile

_LINE = re.compile(r"([0-9a-f]{64})  (0|[1-9][0-9]*)  ([A-Za-z0-9_][A-Za-z0-9_.-]*)")


def manifest_bytes(files: list[StoredFile]) -> bytes:
    """Return the manifest of some files. A cut at the edge of a line does not go unseen: the last line counts them."""
    lines = sorted(f"{file.sha256}  {file.bytes}  {file.name}" for file in files)
    end = f"# end {len(files)} {sum(file.bytes for file in files)}"
    return "\n".join([MANIFEST_HEAD, *lines, end, ""]).encode()


def parse_manifest(raw: bytes, where: str) -> dict[str, StoredFile]:
    """Return the files by name. Raises CasebitsError MIX_MANIFEST for anything but what `manifest_bytes` writes."""
    matched = [_LINE.fullmatch(line) for line in raw.decode("utf-8", "replace").split("\n")[1:-2]]
    files = [StoredFile(name=line[3], bytes=int(line[2]), sha256=line[1]) for line in matched if line]
    # Names that differ by case alone are one file on some systems.
    if raw != manifest_bytes(files) or len({file.name.lower() for file in files}) != len(files):
        raise CasebitsError("MIX_MANIFEST", where, "is not a complete, sorted list of safe names")
    return {file.name: file for file in files}
