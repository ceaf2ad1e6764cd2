"""What a consumer remembers of a publication, so that nobody can show it less, or something else, the next time.

Rules: the version never falls (ROLLBACK); a version has one manifest (EQUIVOCATION); a publication that says how long
it may be believed is not believed longer (STALE_FRONTIER). The state is stored only after all checks at opening passed.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

from casebits_dagster.records.errors import Refused
from casebits_dagster.records.frontier import Latest
from casebits_dagster.records.mix_latest import MixLatest
from casebits_dagster.records.record import Name, Positive, Record, Sha256
from casebits_dagster.stores.local import make_folder, write_durably


@dataclass(frozen=True, kw_only=True, slots=True)
class Trust(Record):
    """The newest version of a generation or mix that was seen and passed, and the hash of its manifest."""

    SCHEMA: ClassVar[str] = "casebits/trust/1"

    name: Name
    version: Positive
    manifest_sha256: Sha256


def read_trust(path: Path | None) -> Trust | None:
    """Return the state in a file; None while there is none. A state that cannot be read is an error, never "none"."""
    if path is None or not path.exists():
        return None
    return Trust.parse(path.read_bytes(), str(path))


def require_trusted(trust: Trust | None, latest: Latest | MixLatest, now: datetime | None) -> None:
    """Check LATEST against what was seen before and the clock (None: the machine's). Raises as the module says."""
    name = latest.generation if isinstance(latest, Latest) else latest.mix
    if trust and trust.name != name:
        where, remedy = "LATEST.json: generation", "keep one trust file a publication"
        raise Refused("GENERATION_MISMATCH", where, "of the trust state", expected=trust.name, read=name, remedy=remedy)
    if trust and latest.version < trust.version:
        remedy = "a version that was published does not go away: ask the publisher; delete the trust file to start over"
        expected = f"version {trust.version} or later"
        raise Refused("ROLLBACK", "LATEST.json: version", expected=expected, read=latest.version, remedy=remedy)
    if trust and latest.version == trust.version and latest.manifest.sha256 != trust.manifest_sha256:
        problem, read = f"version {trust.version} was seen with another manifest", latest.manifest.sha256
        expected = trust.manifest_sha256
        raise Refused("EQUIVOCATION", "LATEST.json: manifest.sha256", problem, expected=expected, read=read)
    if latest.expires_at is not None:
        moment = (now or datetime.now(UTC)).astimezone(UTC)
        if moment >= _moment(latest.expires_at, "LATEST.json: expires_at"):
            problem, remedy = "the publication is no longer vouched for", "ask the publisher to publish it again"
            read = f"{moment:%Y-%m-%dT%H:%M:%SZ}"
            expected = f"before {latest.expires_at}"
            raise Refused(
                "STALE_FRONTIER", "LATEST.json: expires_at", problem, expected=expected, read=read, remedy=remedy
            )


def keep_trust(path: Path | None, trust: Trust) -> None:
    """Write the state, whole or not at all."""
    if path is None or (path.exists() and path.read_bytes() == trust.to_bytes()):
        return
    make_folder(path.absolute().parent)
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    write_durably(part, trust.to_bytes())
    part.replace(path)


def _moment(text: str, where: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = datetime.min
    if found.tzinfo is None:
        raise Refused("JSON_INVALID", where, expected="a moment as YYYY-MM-DDThh:mm:ssZ", read=text) from None
    return found
