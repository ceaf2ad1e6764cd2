"""The ledger of an audit: every link that was followed, and whether it held."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from casebits_dagster.lineage.records import Evidence
from casebits_dagster.records.errors import CasebitsError


@dataclass(slots=True)
class Ledger:
    """Collects evidence. A link that does not hold is written down and the audit goes on, so that it can say all."""

    evidence: list[Evidence] = field(default_factory=list)

    def hashes(self, link: str, where: str, claimed: str, found: str) -> None:
        """Write down a hash that was recomputed."""
        problem = "" if claimed == found else f"expected {claimed}, read {found}"
        state = "different" if problem else "equal"
        self.evidence.append(Evidence.from_dict(_row(link, where, claimed, state, problem), "evidence"))

    def holds(self, link: str, where: str, fits: bool, problem: str) -> None:
        """Write down a comparison of bytes or fields; `problem` says what is wrong when it does not fit."""
        state = "equal" if fits else "different"
        self.evidence.append(Evidence.from_dict(_row(link, where, "", state, "" if fits else problem), "evidence"))

    def trusts(self, link: str, where: str, claimed: str) -> None:
        """Write down a hash that the chain names and that was not recomputed."""
        self.evidence.append(Evidence.from_dict(_row(link, where, claimed, "not_recomputed", ""), "evidence"))

    @contextlib.contextmanager
    def following(self, link: str, where: str) -> Iterator[None]:
        """Write down whatever keeps the block from being followed: a refusal, a missing or a malformed file."""
        try:
            yield
        except (CasebitsError, OSError, ValueError, LookupError) as error:
            self.holds(link, where, False, str(error) or type(error).__name__)

    @property
    def proven(self) -> bool:
        return all(evidence.state != "different" for evidence in self.evidence)


def _row(link: str, where: str, sha256: str, state: str, problem: str) -> dict[str, str]:
    return {"link": link, "where": where, "sha256": sha256, "state": state, "problem": problem}
