"""Errors that say where, what was expected, what was read, and what to do.

One class a *kind of answer*: the thing is malformed (`RecordError`), it is not there (`Absent`), it is there and must
not be consumed (`Refused`, with a code of the closed list), or a region does not prove (`Rejected`, with its check).
"""

from __future__ import annotations

_CODES = """
    LATEST_MISSING LATEST_TOO_LARGE JSON_INVALID JSON_NOT_CANONICAL JSON_DUPLICATE_KEY SCHEMA_UNKNOWN
    GENERATION_MISMATCH REVISION_NOT_PINNED ROLLBACK EQUIVOCATION STALE_FRONTIER LATEST_BEHIND MANIFEST_MISSING
    MANIFEST_SIZE MANIFEST_HASH PLAN_MISMATCH CHAIN_BROKEN HISTORY_REWRITTEN GAP COUNT_MISMATCH TREE_ROOT
    REGION_MISSING FILE_MISSING FILE_EXTRA FILE_SIZE FILE_HASH RECEIPT_HASH ADMISSION_MISSING ADMISSION_HASH
    ADMISSION_NOT_ADMITTED CONTENT_ID CODEC_PIN VOCAB_MISMATCH SOURCE_PIN LICENCE_MISSING CLEARANCE_MISSING
    PATH_UNSAFE GATE_UNPROVEN STORE_NO_CAS STORE_UNREACHABLE STORE_FORBIDDEN STORE_PROTOCOL
"""
REFUSAL_CODES = frozenset(_CODES.split())


class CasebitsError(Exception):
    """A named problem at a named place.

    `code` is stable and machine-readable, `where` names file and field (`regions/00017/receipt.json: counts.tokens`),
    `expected` and `read` are what the rule wanted and what was found, `remedy` is the next thing to do.
    """

    def __init__(
        self,
        code: str,
        where: str,
        problem: str = "",
        *,
        expected: object = None,
        read: object = None,
        remedy: str = "",
    ) -> None:
        self.code, self.where, self.problem = code, where, problem
        self.expected, self.read, self.remedy = expected, read, remedy
        parts = [problem] if problem else []
        if expected is not None or read is not None:
            parts.append(f"expected {expected}, read {read}")
        text = f"{code} {where}: {', '.join(parts)}"
        super().__init__(f"{text} ({remedy})" if remedy else text)

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process pools; the default would call the constructor with the message alone.
        return _rebuild, (type(self), self.code, self.where, self.problem, self.expected, self.read, self.remedy)


def _rebuild(
    kind: type[CasebitsError], code: str, where: str, problem: str, expected: object, read: object, remedy: str
) -> CasebitsError:
    return kind(code, where, problem, expected=expected, read=read, remedy=remedy)


class RecordError(CasebitsError):
    """A record or pin is malformed: wrong shape, unknown key, value out of its range."""


class Absent(CasebitsError):
    """The thing asked for is not there (which is not the same as wrong)."""


class Conflict(CasebitsError):
    """Other bytes are published under a name: what is published is never overwritten."""


class Refused(CasebitsError):
    """A publication must not be consumed; `code` is one of `REFUSAL_CODES`."""


class Rejected(CasebitsError):
    """A region does not prove; `code` is the id of the admission check that failed."""

    def __init__(self, *args: object, document: int | None = None, position: int | None = None, **names: object):
        super().__init__(*args, **names)  # type: ignore[arg-type]
        self.document, self.position = document, position

    def __str__(self) -> str:
        places = (("document", self.document), ("position", self.position))
        found = ", ".join(f"{name} {place}" for name, place in places if place is not None)
        return f"{super().__str__()} [{found}]" if found else super().__str__()

    def __reduce__(self) -> tuple[object, ...]:
        rebuild, args = super().__reduce__()
        return rebuild, args, {"document": self.document, "position": self.position}
