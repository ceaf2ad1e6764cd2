"""Does the admission that is published say what was proven now?"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from casebits_dagster.records.errors import RecordError, Refused
from casebits_dagster.records.region import Admission


def require_same_admission(path: Path, proven: Admission) -> None:
    """Compare every field of the admission at `path`. Raises Refused naming the first that differs.

    A full proof after a sampled one, or one by a newer verifier, proves the same: of `checks` the ids must agree.
    """
    try:
        published = Admission.parse(path.read_bytes(), str(path))
    except RecordError as error:
        # Not a malformed input: a published region that says something else than was proven.
        raise Refused(error.code, error.where, error.problem, expected=error.expected, read=error.read) from error
    ids = [check.id for check in proven.checks], [check.id for check in published.checks]
    _require_equal(f"{path}: checks", *ids)
    for name in (field.name for field in dataclasses.fields(Admission)):
        if name not in ("checks", "verifier"):
            _require_equal(f"{path}: {name}", getattr(proven, name), getattr(published, name))


def _require_equal(where: str, expected: object, read: object) -> None:
    if read != expected:
        raise Refused("ADMISSION_HASH", where, expected=expected, read=read)
