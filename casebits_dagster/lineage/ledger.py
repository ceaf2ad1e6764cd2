"""The ledger of an audit: every link that was followed, and whether it held."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from casebits_dagster.lineage.records import Evidence, Recompute
from casebits_dagster.records.digests import sha256, sha256_file
from casebits_dagster.records.errors import CasebitsError


@dataclass(slots=True)
class Ledger:
    """Collects evidence. A link that does not hold is written down and the audit goes on, so that it can say all."""

    recompute: Recompute = "slices"
    evidence: list[Evidence] = field(default_factory=list)

    @property
    def looks(self) -> bool:
        """Whether anything is recomputed."""
        return self.recompute != "none"

    @property
    def everything(self) -> bool:
        return self.recompute == "all"

    def holds(self, link: str, where: str, fits: bool, problem: str, claimed: str = "") -> None:
        """Write down a comparison of bytes or fields; `problem` says what is wrong when it does not fit."""
        state: Literal["equal", "different"] = "equal" if fits else "different"
        said = "" if fits else problem
        self.evidence.append(Evidence(link=link, where=where, sha256=claimed, state=state, problem=said))

    def hashes(self, link: str, where: str, claimed: str, found: str) -> None:
        """Write down a hash that was recomputed, or stands in two records."""
        self.holds(link, where, claimed == found, f"expected {claimed}, read {found}", claimed)

    def trusts(self, link: str, where: str, claimed: str) -> None:
        """Write down a hash that the chain names and that was not recomputed."""
        self.evidence.append(Evidence(link=link, where=where, sha256=claimed, state="not_recomputed"))

    def content(self, link: str, where: str, claimed: str, raw: bytes) -> None:
        """Recompute the hash of what was read, unless nothing is recomputed."""
        if self.looks:
            self.hashes(link, where, claimed, sha256(raw))
        else:
            self.trusts(link, where, claimed)

    def file(self, link: str, where: str, claimed: str, path: Path, now: bool = True) -> None:
        """Recompute the hash of a file `now`, or write down that it is trusted."""
        if now and self.looks:
            self.hashes(link, where, claimed, sha256_file(path))
        else:
            self.trusts(link, where, claimed)

    @contextlib.contextmanager
    def following(self, link: str, where: str) -> Iterator[None]:
        """Write down whatever keeps the block from being followed: a refusal, a missing or a malformed file."""
        try:
            yield
        except (CasebitsError, OSError, ValueError, LookupError, TypeError) as error:
            self.holds(link, where, False, str(error) or type(error).__name__)

    @property
    def proven(self) -> bool:
        """Whether something was recomputed, and no link is different."""
        return self.looks and all(evidence.state != "different" for evidence in self.evidence)
