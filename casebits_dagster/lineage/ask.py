"""The question forms of an audit, all answered by one mechanism: a question becomes windows of mixes and documents of
regions, and the same chain follows both.

Windows, mixes, shards and token ranges are asked of a mix; regions, documents and source rows of everything below the
home. Of many windows or documents a seeded choice is followed to the source, and the limits say how many.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.lineage import locate
from casebits_dagster.lineage.audit import audit_window, limits
from casebits_dagster.lineage.audited_mix import AuditedMix, open_mix
from casebits_dagster.lineage.chain import Chain, OpenedRegion
from casebits_dagster.lineage.decision import decide
from casebits_dagster.lineage.ledger import Ledger
from casebits_dagster.lineage.records import (
    Audit,
    AuditedRow,
    FollowedWindow,
    Holding,
    Recompute,
    Searched,
    Share,
    Use,
    WindowAudit,
)
from casebits_dagster.lineage.shares import cluster_shares, window_shares
from casebits_dagster.mixing.seeds import shuffled
from casebits_dagster.records.errors import Absent, RecordError
from casebits_dagster.records.layout import Home, region_id
from casebits_dagster.records.pins import Generation
from casebits_dagster.records.withdrawal import SourceRow, Withdrawal

FOLLOWED = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What is asked: exactly one of a window, a shard, tokens [A, B) of the train stream or the whole of `mix`; a
    region (generation, index); a document id; a source row; or everything that is withdrawn."""

    mix: str = ""
    window: int | None = None
    shard: int | None = None
    tokens: tuple[int, int] | None = None
    region: tuple[str, int] | None = None
    document: str = ""
    source_row: SourceRow | None = None
    withdrawn: bool = False

    def check(self) -> None:
        """Raise RecordError when it is none of these, or several."""
        parts = [self.window, self.shard, self.tokens].count(None)
        forms = [bool(self.mix), self.region is not None, bool(self.document), self.source_row is not None]
        if [*forms, self.withdrawn].count(True) != 1 or parts < (2 if self.mix else 3):
            problem = (
                "a mix (with a window, a shard or tokens), a region, a document, a source row, or what is withdrawn"
            )
            raise RecordError("QUESTION_INVALID", "audit", f"expected one of: {problem}")

    def __str__(self) -> str:
        if self.mix:
            part = f"window {self.window} of " if self.window is not None else ""
            part += f"shard {self.shard} of " if self.shard is not None else ""
            part += f"tokens {self.tokens[0]} to {self.tokens[1]} of " if self.tokens else ""
            return f"{part}mix {self.mix}"
        if self.region:
            return f"region {self.region[0]}/{region_id(self.region[1])}"
        if row := self.source_row:
            return f"row {row.position} of {row.path}, source of {row.generation}"
        return f"document {self.document}" if self.document else "withdrawn documents"


@dataclass(slots=True)
class _Answer:
    """What was found so far."""

    chain: Chain
    rows: list[AuditedRow] = field(default_factory=list)
    held: list[Holding] = field(default_factory=list)
    uses: list[Use] = field(default_factory=list)
    searched: list[Searched] = field(default_factory=list)
    shares: list[Share] = field(default_factory=list)
    windows: list[FollowedWindow] = field(default_factory=list)
    windows_asked: int = 0
    tokens_asked: int = 0
    limits: list[str] = field(default_factory=list)


def audit(
    home: Home,
    question: Question,
    *,
    generations: Mapping[str, Generation] | None = None,
    recompute: Recompute = "slices",
    withdrawals: Mapping[str, Withdrawal] | None = None,
) -> Audit | WindowAudit:
    """Return the answer to a question, from the files below the home alone, with what was proven on the way.

    `generations` are those whose pins are at hand. Raises RecordError on a question that is none, Absent when what it
    names is not there, Refused when the mix cannot be read.
    """
    question.check()
    known = generations or {}
    if question.window is not None:
        return audit_window(home, question.mix, question.window, generations=known, recompute=recompute)
    return answer(home, question, known, recompute, withdrawals or {})


def answer(
    home: Home,
    question: Question,
    known: Mapping[str, Generation],
    recompute: Recompute = "slices",
    withdrawals: Mapping[str, Withdrawal] | None = None,
) -> Audit:
    """Return the answer to a question that is not of one window; all else as of `audit`."""
    found = _Answer(Chain(home, Ledger(recompute), known))
    if question.mix:
        _ask_mix(found, question)
    elif question.region:
        _ask_region(found, *question.region)
    elif question.source_row:
        _ask_row(found, question.source_row)
    else:
        ids = [question.document] if question.document else []
        wanted = locate.as_ids(ids) if ids else locate.withdrawn_ids(withdrawals or {}, home, known)
        _ask_documents(found, wanted)
        if ids and not found.held and not found.uses:
            count = sum(one.documents for one in found.searched)
            problem = f"none of {count:,} documents and of {len(locate.mix_folders(home))} mixes has this id"
            raise Absent("NO_SUCH_DOCUMENT", question.document, problem)
    ledger = found.chain.ledger
    return Audit(
        question=str(question),
        recompute=recompute,
        windows_asked=found.windows_asked,
        tokens_asked=found.tokens_asked,
        documents=found.chain.documents,
        regions=found.chain.regions,
        evidence=tuple(ledger.evidence),
        limits=(*limits(found.chain), *found.limits),
        proven=ledger.proven,
        **{name: tuple(getattr(found, name)) for name in ("rows", "held", "uses", "searched", "shares", "windows")},
    )


def _ask_mix(answer: _Answer, question: Question) -> None:
    chain, ledger = answer.chain, answer.chain.ledger
    mix = open_mix(chain.home.mix(question.mix), ledger)
    begin, end = _tokens_asked(mix, question)
    length = mix.report.recipe.sequence_length
    windows = range(begin // length, -(-end // length))
    answer.windows_asked, answer.tokens_asked = len(windows), end - begin
    answer.shares += window_shares(mix, begin, end, chain)
    if ledger.everything:
        for name in mix.files.files:
            mix.files.hash_file(name)
    chosen = _choice(len(windows), mix.files.manifest_sha256)
    answer.windows += [mix.follow(windows[place], chain) for place in chosen]
    if len(chosen) < len(windows):
        answer.limits.append(
            f"{len(chosen)} of {len(windows):,} windows, chosen by the mix's hash, were followed to their rows; "
            "`casebits verify mix` compares every token."
        )


def _tokens_asked(mix: AuditedMix, question: Question) -> tuple[int, int]:
    """Return the tokens [begin, end) of the train stream that are asked for. Raises Absent beyond its end."""
    recipe, windows = mix.report.recipe, mix.report.train.windows
    whole, own = windows * recipe.sequence_length, recipe.windows_per_shard * recipe.sequence_length
    if question.shard is not None:
        if not 0 <= question.shard < mix.report.train.shards:
            where, problem = f"{mix.name}: shard {question.shard}", f"the mix has shards 0 to {-(-whole // own) - 1}"
            raise Absent("NO_SUCH_SHARD", where, problem)
        return question.shard * own, min((question.shard + 1) * own, whole)
    begin, end = question.tokens or (0, whole)
    if not 0 <= begin < end <= whole:
        raise Absent("NO_SUCH_TOKENS", f"{mix.name}: tokens {begin} to {end}", f"the mix has tokens 0 to {whole}")
    return begin, end


def _choice(count: int, seed: str) -> list[int]:
    """Return the numbers that are followed of so many: all, when they are few."""
    return sorted(shuffled(count, seed)[:FOLLOWED].tolist()) if count > FOLLOWED else list(range(count))


def _ask_region(answer: _Answer, generation: str, index: int) -> None:
    chain = answer.chain
    opened = _held(answer, generation, index, None)
    if opened is None:
        return
    chosen = _choice(len(opened.region), opened.audited.content_id)
    for place in chosen:
        with chain.ledger.following("document of the region", f"{generation}/{region_id(index)} document {place}"):
            chain.document(opened, place, opened.line(place)["id"])
    answer.limits.append(f"{len(chosen)} of {len(opened.region):,} documents were decoded and hashed.")
    with chain.ledger.following("documents of the region", f"{generation}/{region_id(index)}"):
        answer.shares += cluster_shares(opened)

    def inside(mix: AuditedMix, documents: NDArray[Any]) -> NDArray[np.int64]:
        source = [number for number, one in enumerate(mix.report.sources) if one.generation == generation]
        return np.flatnonzero(np.isin(documents["generation"], source) & (documents["region"] == index))

    for mix in _mixes(answer):
        with chain.ledger.following("mix", mix.name):
            answer.uses += locate.uses(mix, inside)


def _held(answer: _Answer, generation: str, index: int, place: locate.Place | None) -> OpenedRegion | None:
    """Note which versions of the frontier hold a region (or a document of it); return it as the newest has it."""
    chain, where = answer.chain, f"{generation}/{region_id(index)}"
    first = version = 0
    opened = None
    if not chain.home.generation(generation).root.is_dir():
        raise Absent("LATEST_MISSING", generation, "there is no such generation", remedy="see `casebits status`")
    with chain.ledger.following("region in the frontier", where):
        pinned = locate.newest(chain.home, generation)
        first = locate.first_version(chain, pinned, index)
        version = pinned.version if first else 0
        opened = chain.region(pinned, index)
    document, number = (place.id, place.number) if place else ("", None)
    held = Holding(
        document=document, generation=generation, region=region_id(index), index=number, first=first, newest=version
    )
    answer.held.append(held)
    return opened


def _ask_row(answer: _Answer, row: SourceRow) -> None:
    chain = answer.chain
    index = locate.region_of_row(row, chain.home, chain.generations)
    opened = _held(answer, row.generation, index, None)
    if opened is None:
        return
    answer.held.clear()
    try:
        answer.rows.append(decide(row, opened, chain))
    except (ValueError, LookupError, TypeError) as error:
        where = f"{row.generation}/{region_id(index)} row {row.position}"
        chain.ledger.holds("verdict of the row", where, False, f"documents.jsonl cannot be read: {error!r}")
    _ask_documents(answer, locate.as_ids([found.document for found in answer.rows if found.document]))


def _ask_documents(answer: _Answer, wanted: locate.Ids) -> None:
    """Find these documents in all regions, frontiers and mixes; follow them, and one window of each use."""
    chain = answer.chain
    found = locate.find_documents(chain.home, wanted)
    answer.searched += found.searched
    for where, problem in found.unread:
        chain.ledger.holds("search of the region", where, False, problem)
    followed = {found.places[place] for place in _choice(len(found.places), "places")}
    for place in found.places:
        opened = _held(answer, place.generation, place.region, place)
        if opened and place in followed:
            with chain.ledger.following("document", f"{place.generation}/{region_id(place.region)}"):
                chain.document(opened, place.number, place.id)
    if len(followed) < len(found.places):
        answer.limits.append(f"{len(followed)} of {len(found.places):,} documents were decoded and hashed.")
    texts = {text.hex() for text in wanted.tolist()}
    for mix in _mixes(answer):
        with chain.ledger.following("mix", mix.name):
            uses = list(locate.uses(mix, lambda _, documents: locate.rows_with(documents["id"], wanted)))
            answer.uses += uses
            numbers = [use.first_windows[0] for use in uses if use.split == "train" and use.first_windows]
            answer.windows += [mix.follow(number, chain, texts) for number in numbers]
    if not len(wanted):
        answer.limits.append("No document is asked for: nothing was searched for.")


def _mixes(answer: _Answer) -> Iterable[AuditedMix]:
    """Yield every mix below the home; one that cannot be read is a link that does not hold."""
    for folder in locate.mix_folders(answer.chain.home):
        with answer.chain.ledger.following("mix", folder.name):
            yield open_mix(folder, answer.chain.ledger)
