"""Licences as SPDX expressions: which of several is the most restrictive, and what the Hub and the web call one."""

from __future__ import annotations

import re
from collections.abc import Iterable

from casebits_dagster.records.errors import Refused

# From the freest to the most restrictive: rights given up; a notice to keep; then the Creative Commons licences in the
# order in which Creative Commons itself lists them, from most to least permissive, each with those that ask the same
# (ODC's and CDLA's). What is not here may ask anything, so it counts as more restrictive than all that is.
_ORDER = (
    "CC0-1.0 PDDL-1.0 Unlicense LicenseRef-public-domain",
    "MIT ISC Apache-2.0 BSD-2-Clause BSD-3-Clause PSF-2.0 CDLA-Permissive-1.0 CDLA-Permissive-2.0",
    "CC-BY-2.0 CC-BY-2.5 CC-BY-3.0 CC-BY-4.0 ODC-By-1.0",
    "CC-BY-SA-3.0 CC-BY-SA-4.0 ODbL-1.0 CDLA-Sharing-1.0",
    "CC-BY-NC-2.0 CC-BY-NC-3.0 CC-BY-NC-4.0",
    "CC-BY-NC-SA-2.0 CC-BY-NC-SA-3.0 CC-BY-NC-SA-4.0",
    "CC-BY-ND-4.0",
    "CC-BY-NC-ND-3.0 CC-BY-NC-ND-4.0",
)
_RANKS = {spdx.lower(): (rank, spdx) for rank, line in enumerate(_ORDER) for spdx in line.split()}
_UNKNOWN = len(_ORDER)
# The Hub writes an SPDX id in lower case, but for these; some it does not have.
_HUB_NAMES = {"pddl-1.0": "pddl", "odc-by-1.0": "odc-by", "odbl-1.0": "odbl"}
_NOT_ON_HUB = ("psf-2.0", "licenseref-public-domain")
_NO_LICENCE = ("", "none", "noassertion", "unknown", "licenseref-unknown", "other")


def require_licence(spdx: str, where: str) -> str:
    """Return a licence as it is written. Raises Refused LICENCE_MISSING when it says that there is none, or which."""
    if spdx.strip().lower() in _NO_LICENCE:
        remedy = "find out under which terms the source is given, and pin them in a new generation"
        raise Refused("LICENCE_MISSING", where, expected="an SPDX expression", read=repr(spdx), remedy=remedy)
    return spdx


def is_ranked(spdx: str) -> bool:
    """Return whether the order knows a licence, or every part of `A AND B`, whose terms hold together."""
    return _rank(spdx) < _UNKNOWN


def most_restrictive(licences: Iterable[str]) -> tuple[str, ...]:
    """Return the most restrictive of licences, sorted: those alike, or those that the order does not know."""
    found = sorted(set(licences))
    return tuple(spdx for spdx in found if _rank(spdx) == max(map(_rank, found)))


def hub_licence(spdx: str) -> str:
    """Return the Hub's name of a licence, or `other`."""
    name = spdx.lower()
    return _HUB_NAMES.get(name, name) if name in _RANKS and name not in _NOT_ON_HUB else "other"


def hub_licence_name(licences: Iterable[str]) -> str:
    """Return what the Hub shows beside `other`: the expression in its alphabet."""
    return re.sub("[^a-z0-9.]+", "-", " AND ".join(licences).lower()).strip("-")


def licence_url(spdx: str) -> str:
    """Return the page of a licence, where SPDX lists it; else the expression itself."""
    _, written = _RANKS.get(spdx.lower(), (0, ""))
    listed = written and not written.startswith("LicenseRef-")
    return f"https://spdx.org/licenses/{written}.html" if listed else spdx


def _rank(spdx: str) -> int:
    return max(_RANKS.get(part.strip().lower(), (_UNKNOWN, ""))[0] for part in spdx.split(" AND "))
