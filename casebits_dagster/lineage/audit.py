"""Audit one training window of a mix: where does every one of its tokens come from?

Follows window -> segments -> documents -> region -> receipt -> admission -> manifest -> source row, from the files
below the home alone; no database is asked. Re-reads the window's tokens, compares each segment with its source slice in
every stream, decodes each document and hashes its text. Cost: the mix's tables hashed, the records on the way, and the
memory-mapped slices of the window.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from casebits_dagster.lineage.audited_mix import open_mix
from casebits_dagster.lineage.chain import FILTER_AGAIN, SOURCE_RANGE, Chain
from casebits_dagster.lineage.ledger import Ledger
from casebits_dagster.lineage.records import Recompute, WindowAudit
from casebits_dagster.records.layout import Home
from casebits_dagster.records.pins import Generation

_RUNS = "Run records, Dagster's event log and the times in LATEST.json are outside identity: listed, not proven."
_SCORES = "The quality scores are those that the admitted region records; the filter was not run again."
_UNREAD = "The source was not read again: its range hash is the one that the verifier recomputed at admission."
_SLICES = "Arrays, shards and source files were read where the audit needs them; their own hashes were not recomputed."
_NONE = "Nothing was recomputed: this is what tables and records say, and nothing is proven."


def limits(chain: Chain) -> Iterator[str]:
    """Yield what an audit did not check, in words."""
    ledger = chain.ledger
    yield _RUNS
    if not any(one.link == FILTER_AGAIN and one.state == "equal" for one in ledger.evidence):
        yield _SCORES
    if any(one.link == SOURCE_RANGE and one.state == "not_recomputed" for one in ledger.evidence):
        yield _UNREAD
    if not ledger.everything:
        yield _SLICES if ledger.looks else _NONE
    if any(region.policy is None for region in chain.regions):
        yield "The pins of a generation are not at hand: of its filter policy the hash is told, and no threshold."


def audit_window(
    home: Home,
    mix: str,
    window: int,
    *,
    generations: Mapping[str, Generation] | None = None,
    recompute: Recompute = "slices",
) -> WindowAudit:
    """Return where training window `window` of the mix comes from, and whether every link of the chain holds.

    `generations` (by name, where their pins are at hand) let it read the source itself again. `recompute="all"` hashes
    every file on the way and the source range, "none" nothing: then nothing is proven either. Raises Absent when the
    mix or the window is not there, Refused when the mix cannot be read.
    """
    ledger = Ledger(recompute)
    opened = open_mix(home.mix(mix), ledger)
    chain = Chain(home, ledger, generations or {})
    followed = opened.follow(window, chain)
    recipe = opened.report.recipe
    return WindowAudit(
        mix=mix,
        strategy=recipe.strategy,
        window=window,
        windows=opened.report.train.windows,
        sequence_length=recipe.sequence_length,
        shard=followed.shard,
        first_token=followed.first_token,
        mix_manifest_sha256=opened.files.manifest_sha256,
        segments=followed.segments,
        documents=chain.documents,
        regions=chain.regions,
        evidence=tuple(ledger.evidence),
        limits=tuple(limits(chain)),
        proven=ledger.proven,
    )
