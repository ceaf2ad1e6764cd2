"""What lies below a home, as hashes: two runs made the same bytes exactly when their snapshots are equal.

Left out is what is outside identity: run records, rejections (they name runs), the index (a cache), staging, Dagster's
own instance, LATEST.json, the one file that carries times, gates and verdicts, which say how far things are now,
publications, which are copies, audits, which are answers, and the verdict tables: working files, whose Parquet bytes
depend on the library and whose content is in the receipts. Cost: one hash of every file.
"""

from __future__ import annotations

from casebits_dagster.records.digests import sha256, sha256_file
from casebits_dagster.records.layout import Home

_OUTSIDE_TOP = {"audits", ".staging", ".unfinished", "checked", "dagster", "published"}
_OUTSIDE_GENERATION = {"runs", "rejections", "index", "verdicts", "gates", "LATEST.json"}


def snapshot(home: Home) -> dict[str, str]:
    """Return the SHA-256 of each file whose bytes a rerun must repeat, by its path below the home, sorted."""
    found = {}
    for path in sorted(home.root.rglob("*")):
        parts = path.relative_to(home.root).parts
        outside = parts[0] in _OUTSIDE_TOP or (parts[0] == "generations" and not _OUTSIDE_GENERATION.isdisjoint(parts))
        if path.is_file() and not outside:
            found["/".join(parts)] = sha256_file(path)
    return found


def tree_digest(files: dict[str, str]) -> str:
    """Return one digest of a snapshot, to compare two homes by eye."""
    return sha256("".join(f"{digest}  {path}\n" for path, digest in sorted(files.items())).encode())


def difference(before: dict[str, str], after: dict[str, str]) -> str:
    """Return in words what changed between two snapshots.

    >>> difference({"a": "0"}, {"a": "0"})
    'no byte changed: the 1 files are what they were before'
    >>> difference({"a": "0", "b": "0"}, {"a": "1", "c": "0", "d": "0"})
    '2 new, 1 changed, 1 gone; first: a changed'
    """
    if before == after:
        return f"no byte changed: the {len(after)} files are what they were before"
    kinds = {
        "changed": sorted(path for path in before.keys() & after.keys() if before[path] != after[path]),
        "gone": sorted(before.keys() - after.keys()),
        "new": sorted(after.keys() - before.keys()),
    }
    counts = ", ".join(f"{len(kinds[kind])} {kind}" for kind in ("new", "changed", "gone") if kinds[kind])
    first = next(kind for kind in ("changed", "gone", "new") if kinds[kind])
    return f"{counts}; first: {kinds[first][0]} {first}"
