"""From a recipe to the documents of a mix: selected to targets, all of some sources, or those of an earlier mix."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from casebits_dagster.mixing.manifest import EarlierMix
from casebits_dagster.mixing.report import selection_report
from casebits_dagster.mixing.select import select, select_validation
from casebits_dagster.mixing.sources import MixSource
from casebits_dagster.mixing.supply import Documents, Supply, Table, eligible, stock, supply
from casebits_dagster.mixing.targets import Margins, Targets, plan_targets
from casebits_dagster.records.errors import Absent, CasebitsError, RecordError, Refused
from casebits_dagster.records.layout import Home
from casebits_dagster.records.mix import SELECTED, TABLE, MixUsed, SelectionReport, val_name
from casebits_dagster.records.recipe import Interleaved, Recipe, Selection
from casebits_dagster.records.record import micro
from casebits_dagster.records.region import Separator
from casebits_dagster.records.withdrawal import LeftOut


@dataclass(frozen=True, slots=True)
class Chosen:
    """The documents of a mix before packing. `train` is sorted by generation, region, index, copy; `validation` stands
    in the order of its windows. `describe` makes the selection report of the documents that the packing kept."""

    sources: list[MixSource]
    train: Table
    validation: Table
    validation_windows: int
    mixes: tuple[MixUsed, ...]
    withdrawn: LeftOut | None
    describe: Callable[[Table], SelectionReport]


def choose(recipe: Recipe, sources: Mapping[str, MixSource], home: Home) -> Chosen:
    """Return the documents of a recipe. Raises Absent when a frontier or an earlier mix it names is not there."""
    if recipe.interleaved:
        return _interleave(recipe, recipe.interleaved, sources)
    if recipe.selection is None:
        return _documents_of(recipe, sources, home)
    return _select(recipe, recipe.selection, sources, home)


def _select(recipe: Recipe, selection: Selection, sources: Mapping[str, MixSource], home: Home) -> Chosen:
    length = recipe.sequence_length
    windows = selection.windows or (selection.tokens or 0) // length
    used = _sources(recipe, [domain.generation for domain in selection.domains], sources)
    excluded = [EarlierMix(home, name) for name in selection.exclude]
    ids = [mix.load(SELECTED)["id"] for mix in excluded]
    whole_windows = length if recipe.aligned else 0
    have = supply(selection, used, np.concatenate([np.empty(0, "V16"), *ids]), whole_windows)
    margins, profile = _margins(selection, home)
    targets = plan_targets(margins, have.train.tokens, windows, length, selection.when_infeasible)
    selected = select(have.documents, have.train, targets, recipe.seed)
    return Chosen(
        sources=list(used.values()),
        train=selected.documents,
        validation=_validation(recipe, have.documents, selection.validation_windows),
        validation_windows=selection.validation_windows,
        mixes=(*(mix.used("exclude") for mix in excluded), *profile),
        withdrawn=_left_out(have.documents, used),
        describe=lambda kept: selection_report(windows * length, targets, margins, have, selected.cells, kept),
    )


def _interleave(recipe: Recipe, merge: Interleaved, sources: Mapping[str, MixSource]) -> Chosen:
    """Return all train documents of the sources; their targets are what there is."""
    used = _sources(recipe, [source.generation for source in merge.sources], sources)
    documents = eligible(merge.sources, (), used)
    have = stock(documents, [[1] for _ in merge.sources])
    totals = [tokens for (tokens,) in have.tokens]
    margins = Margins([source.name for source in merge.sources], ["all"], totals, [1])
    targets = Targets(totals, [sum(totals)], have.tokens, True, "every train document of every source", 0)
    rows = documents.rows(documents.train)
    train = documents.table(rows, np.zeros(len(rows)))
    found = Supply(documents, have, excluded=0, duplicates=0, unfit=0)
    return Chosen(
        sources=list(used.values()),
        train=train,
        validation=_validation(recipe, documents, merge.validation_windows or 0),
        validation_windows=merge.validation_windows or 0,
        mixes=(),
        withdrawn=_left_out(documents, used),
        describe=lambda kept: selection_report(sum(totals), targets, margins, found, have.tokens, kept),
    )


def _validation(recipe: Recipe, documents: Documents, windows: int) -> Table:
    """Return validation documents that fill so many windows and the extra token, in the order of the windows."""
    return select_validation(documents, windows * recipe.sequence_length + min(windows, 1), f"{recipe.seed}/validation")


def _margins(selection: Selection, home: Home) -> tuple[Margins, tuple[MixUsed, ...]]:
    lengths, used = selection.lengths, tuple[MixUsed, ...]()
    columns = [micro(part) for part in lengths.profile]
    if lengths.from_mix is not None:
        earlier = EarlierMix(home, lengths.from_mix)
        achieved = earlier.report().selection.lengths
        if tuple(column.name for column in achieved) != lengths.names:
            read = [column.name for column in achieved]
            raise CasebitsError("MIX_PROFILE", f"from_mix {lengths.from_mix}", expected=list(lengths.names), read=read)
        columns, used = [column.achieved_tokens for column in achieved], (earlier.used("from_mix"),)
    names = [domain.name for domain in selection.domains]
    return Margins(names, lengths.names, [micro(domain.share) for domain in selection.domains], columns), used


def _documents_of(recipe: Recipe, sources: Mapping[str, MixSource], home: Home) -> Chosen:
    earlier = EarlierMix(home, str(recipe.documents_of))
    report = earlier.report()
    used = _sources(recipe, [source.generation for source in report.sources], sources)
    train, validation = earlier.load(TABLE), earlier.load(val_name(TABLE))
    _require_none_withdrawn(earlier, np.concatenate([train["id"], validation["id"]]), used)
    return Chosen(
        sources=list(used.values()),
        train=train,
        validation=validation,
        validation_windows=report.validation.windows * report.recipe.sequence_length // recipe.sequence_length,
        mixes=(earlier.used("documents_of"),),
        withdrawn=report.withdrawn,
        describe=lambda kept: report.selection,
    )


def _left_out(documents: Documents, used: Mapping[str, MixSource]) -> LeftOut | None:
    """Return what the report says of documents that are withdrawn; None when there was none to leave out."""
    pins = next(iter(used.values())).withdrawn.pins
    texts = sorted({text.hex() for text in documents.withdrawn.tolist()})
    return LeftOut(withdrawals=pins, documents=len(documents.withdrawn), ids=tuple(texts)) if texts else None


def _require_none_withdrawn(earlier: EarlierMix, ids: Table, used: Mapping[str, MixSource]) -> None:
    withdrawn = next(iter(used.values())).withdrawn.ids
    if count := int(np.isin(ids, withdrawn).sum()) if len(withdrawn) else 0:
        remedy = f"build {earlier.name} again under a new name, and lay out the documents of that"
        raise CasebitsError("MIX_WITHDRAWN", f"mix {earlier.name}", f"holds {count} withdrawn documents", remedy=remedy)


def _sources(recipe: Recipe, generations: list[str], sources: Mapping[str, MixSource]) -> dict[str, MixSource]:
    """Return the named sources, each once, which must share one codec and have the separator that the recipe states."""
    for generation in generations:
        if generation not in sources:
            remedy = f"materialise the frontier of {generation!r} first"
            raise Absent("MANIFEST_MISSING", f"generation {generation!r}", "there is no such source", remedy=remedy)
    used = {generation: sources[generation] for generation in dict.fromkeys(generations)}
    first = next(iter(used.values()))
    expected = _codec(first)
    for source in used.values():
        where = f"generations {first.generation} and {source.generation}"
        if _codec(source) != expected:
            raise Refused("VOCAB_MISMATCH", where, "one mix, one codec", expected=expected, read=_codec(source))
    separator = Separator(id=first.separator_id, at=first.separator_position)
    if recipe.separator not in (None, separator):
        where, read = f"generation {first.generation}: separator", recipe.separator
        raise Refused("CODEC_PIN", where, "is not what the recipe states", expected=read, read=separator)
    _require_metrics(recipe, used)
    return used


def _require_metrics(recipe: Recipe, used: Mapping[str, MixSource]) -> None:
    """Refuse bounds on a score that the policy of the generation does not record."""
    table = "interleaved.sources" if recipe.interleaved else "selection.domains"
    for number, part in enumerate(recipe.slices):
        known = used[part.generation].metrics if part.scores else ()
        for metric in sorted(part.scores or ()):
            # A frontier without a document has recorded nothing yet.
            if known and metric not in known:
                where = f"mixes/{recipe.mix}.toml: {table}[{number}].scores.{metric}"
                problem = f"of {part.name}: not a metric that the policy of {part.generation} records"
                raise RecordError("RECIPE_INVALID", where, problem, expected=f"one of {', '.join(known)}", read=metric)


def _codec(source: MixSource) -> tuple[str, str, int, str]:
    return source.format, source.vocabulary_sha256, source.separator_id, source.separator_position
