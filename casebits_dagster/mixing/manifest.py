"""`MANIFEST.txt`: the hash and size of every file of a mix, and the folder writer that makes it while it writes."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.records.digests import sha256
from casebits_dagster.records.errors import Absent, Refused
from casebits_dagster.records.layout import Home
from casebits_dagster.records.mix import MANIFEST, MANIFEST_HEAD, REPORT, MixReport, MixUsed
from casebits_dagster.records.mix_manifest import parse_manifest


class FolderWriter:
    """Writes the files of a mix into a staging folder and remembers what `MANIFEST.txt` says of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines: list[str] = []
        self.bytes = 0

    def put(self, name: str, content: bytes) -> None:
        (self.folder / name).write_bytes(content)
        self.add(f"{sha256(content)}  {len(content)}  {name}")

    def add(self, line: str) -> None:
        """Take up a file that is in the folder, by its line in `MANIFEST.txt`."""
        self.lines.append(line)
        self.bytes += int(line.split("  ")[1])

    def put_npy(self, name: str, array: NDArray[Any]) -> None:
        self.put(name, _npy(array))

    def put_npz(self, name: str, arrays: dict[str, NDArray[Any]]) -> None:
        """Write an uncompressed archive without times, so equal arrays are equal bytes."""
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
            for key, array in arrays.items():
                member = zipfile.ZipInfo(f"{key}.npy")
                member.create_system = 3
                archive.writestr(member, _npy(array))
        self.put(name, stream.getvalue())

    def finish(self) -> str:
        """Write `MANIFEST.txt` and return its hash."""
        body = [MANIFEST_HEAD, *sorted(self.lines), f"# end {len(self.lines)} {self.bytes}"]
        content = ("\n".join(body) + "\n").encode()
        (self.folder / MANIFEST).write_bytes(content)
        return sha256(content)


class EarlierMix:
    """A published mix that another recipe names; what is read of it is checked against its MANIFEST."""

    def __init__(self, home: Home, name: str) -> None:
        self.name, self.folder = name, home.mix(name)
        try:
            raw = (self.folder / MANIFEST).read_bytes()
        except FileNotFoundError as error:
            remedy = f"materialise the mix {name!r} first"
            raise Absent("MANIFEST_MISSING", f"mixes/{name}/{MANIFEST}", "no such mix", remedy=remedy) from error
        self.manifest_sha256 = sha256(raw)
        self.files = parse_manifest(raw, f"mixes/{name}/{MANIFEST}")

    def read(self, name: str) -> bytes:
        path, where = self.folder / name, f"mixes/{self.name}/{name}"
        if name not in self.files or not path.is_file():
            raise Refused("FILE_MISSING", where, "the mix is not whole")
        raw, expected = path.read_bytes(), self.files[name].sha256
        if sha256(raw) != expected:
            raise Refused("FILE_HASH", where, expected=expected, read=sha256(raw))
        return raw

    def load(self, name: str) -> Any:
        """Return the array of a `.npy`, or the arrays of a `.npz` by name."""
        return np.load(io.BytesIO(self.read(name)), allow_pickle=False)

    def used(self, role: Literal["documents_of", "exclude", "from_mix"]) -> MixUsed:
        return MixUsed(mix=self.name, role=role, manifest_sha256=self.manifest_sha256)

    def report(self) -> MixReport:
        return MixReport.parse(self.read(REPORT), f"mixes/{self.name}/{REPORT}")


def _npy(array: NDArray[Any]) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, version=(1, 0), allow_pickle=False)
    return stream.getvalue()
