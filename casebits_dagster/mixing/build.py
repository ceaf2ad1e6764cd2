"""Build and publish a mix: choose documents, plan windows, write, report.

Guarantees: the folder is a function of the recipe, the pinned frontiers and the earlier mixes it names; it appears
complete or not at all; a rerun changes nothing, and one that would make another mix under the same name is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from casebits_dagster.mixing import report as parts
from casebits_dagster.mixing.choose import Chosen, choose
from casebits_dagster.mixing.manifest import FolderWriter
from casebits_dagster.mixing.packing import PLANNERS
from casebits_dagster.mixing.packing.concatenated import in_order
from casebits_dagster.mixing.packing.layout import Layout, WindowPlan, tokens_of_sources
from casebits_dagster.mixing.readme import readme
from casebits_dagster.mixing.seeds import I64
from casebits_dagster.mixing.sources import MixSource
from casebits_dagster.mixing.supply import Table
from casebits_dagster.mixing.unfinished import syncing, unfinished, write_all
from casebits_dagster.mixing.write import SourceTokens, TokenRuns, next_runs, split_files, split_runs
from casebits_dagster.records import mix
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.errors import CasebitsError
from casebits_dagster.records.layout import Home
from casebits_dagster.records.recipe import Recipe
from casebits_dagster.stores.local import LocalStore


@dataclass(frozen=True, slots=True)
class BuiltMix:
    """A published mix. `published` is False when identical bytes were there."""

    report: mix.MixReport
    manifest_sha256: str
    folder: Path
    published: bool


@dataclass(frozen=True, slots=True)
class Packed:
    """A plan over the documents that it kept (`used`: rows of `documents.npy`), and those it returned."""

    plan: WindowPlan
    used: Table
    returned: Table

    @property
    def lengths(self) -> I64:
        return self.used["tokens"].astype(np.int64)


@dataclass(frozen=True, slots=True)
class TokenWriter:
    """Writes token files with `workers` processes into `writer`'s folder; gives each to `sync`, tells `say` of it."""

    writer: FolderWriter
    done: Path
    workers: int
    sync: Callable[[Path], None]
    say: Callable[[str], None]

    def write(self, files: Iterable[TokenRuns]) -> I64:
        """Write the files; return how often each id stands in windows of train."""
        counts = np.zeros(1 << 16, np.int64)
        for written in write_all(files, self.writer.folder, self.done, self.workers):
            self.sync(self.writer.folder / written.name)
            self.writer.add(written.line)
            self.say(f"{written.name} is written")
            if written.name.startswith(mix.TRAIN):
                counts += written.counts
        return counts


def build_mix(
    recipe: Recipe,
    sources: Mapping[str, MixSource],
    home: Home,
    *,
    workers: int = 1,
    say: Callable[[str], None] = lambda _: None,
) -> BuiltMix:
    """Build the mix of a recipe from frontiers by generation name, and publish it under its name.

    `workers` processes write (1: this one alone); `say` hears of each file. A build that did not end leaves its token
    files to the next one of the same plan.
    """
    recipe.check(f"recipe {recipe.mix}")
    store, folder = LocalStore(home.root), home.mix(recipe.mix)
    chosen = choose(recipe, sources, home)
    _require_same(folder, recipe, chosen)
    say(f"{len(chosen.train):,} documents are chosen")
    packed = pack(recipe, chosen)
    say(f"{packed.plan.windows:,} windows are planned")
    with unfinished(home.unfinished(recipe.mix), _plan_sha256(recipe, chosen, packed)) as (work, done):
        writer = FolderWriter(work)
        with syncing() as sync:
            report = _write(TokenWriter(writer, done, workers, sync, say), recipe, chosen, packed)
            manifest_sha256 = writer.finish()
        published = store.publish_folder(work, home.name(folder))
    return BuiltMix(report, manifest_sha256, folder, published)


def _plan_sha256(recipe: Recipe, chosen: Chosen, packed: Packed) -> str:
    digest = hashlib.sha256(recipe.to_bytes())
    for record in (*_sources_used(chosen), *chosen.mixes):
        digest.update(record.to_bytes())
    for table in (packed.plan.segments, packed.used, chosen.validation):
        digest.update(table.tobytes())
    return digest.hexdigest()


def pack(recipe: Recipe, chosen: Chosen) -> Packed:
    """Return the windows of the chosen documents. Raises MIX_EMPTY when they fill none."""
    layout = Layout(
        sequence_length=recipe.sequence_length,
        seed=recipe.seed,
        tails=recipe.aligned.tails if recipe.aligned else "auto",
        spread=recipe.aligned.spread if recipe.aligned else True,
        separator=chosen.sources[0].separator_position,
        order=recipe.order or "shuffled",
        sources=chosen.train["domain"].astype(np.int64),
        chunk_tokens=recipe.interleaved.chunk_tokens if recipe.interleaved else 1,
    )
    plan = PLANNERS[recipe.strategy](chosen.train["tokens"].astype(np.int64), layout)
    if not plan.windows:
        raise CasebitsError("MIX_EMPTY", f"mix {recipe.mix}", "the documents fill no window", remedy="raise the budget")
    keep = np.ones(len(chosen.train), bool)
    keep[plan.returned] = False
    plan.segments["document"] = (np.cumsum(keep) - 1)[plan.segments["document"]]
    return Packed(plan, chosen.train[keep], chosen.train[~keep])


def _write(tokens: TokenWriter, recipe: Recipe, chosen: Chosen, packed: Packed) -> mix.MixReport:
    writer, per_shard, plan = tokens.writer, recipe.windows_per_shard, packed.plan
    used = SourceTokens(packed.used, chosen.sources)
    validation, held = _validation_plan(recipe, chosen), SourceTokens(chosen.validation, chosen.sources)
    files = (
        split_runs(mix.TRAIN, plan, used, per_shard),
        next_runs(plan, used),
        split_runs(mix.VALIDATION, validation, held, per_shard),
    )
    counts = tokens.write(chain.from_iterable(files))
    writer.put_npy(mix.val_name(mix.SEGMENTS), validation.segments)
    writer.put_npy(mix.val_name(mix.TABLE), chosen.validation)
    _write_tables(writer, packed)
    report = _report(recipe, chosen, packed, validation, counts, writer.folder)
    writer.put(mix.RECIPE, recipe.to_bytes())
    writer.put(mix.REPORT, report.to_bytes())
    writer.put(mix.README, readme(report).encode())
    return report


def _validation_plan(recipe: Recipe, chosen: Chosen) -> WindowPlan:
    length, windows, table = recipe.sequence_length, chosen.validation_windows, chosen.validation
    file_tokens = windows * length + 1 if windows else 0
    return in_order(table["tokens"].astype(np.int64), np.arange(len(table)), length, file_tokens)


def _write_tables(writer: FolderWriter, packed: Packed) -> None:
    used = packed.used
    writer.put_npy(mix.SEGMENTS, packed.plan.segments)
    writer.put_npy(mix.TABLE, used)
    once = used[np.sort(np.unique(used["id"], return_index=True)[1])]
    names = ("id", "generation", "region", "index", "tokens")
    writer.put_npz(mix.SELECTED, {name: np.ascontiguousarray(once[name]) for name in names})


def _report(
    recipe: Recipe, chosen: Chosen, packed: Packed, validation: WindowPlan, counts: I64, folder: Path
) -> mix.MixReport:
    first, plan, per_shard = chosen.sources[0], packed.plan, recipe.windows_per_shard
    runs = parts.train_runs(folder, recipe, plan.windows, first.format)
    domains = tokens_of_sources(plan, packed.used["domain"].astype(np.int64))
    inserted = int(first.separator_position == "start")
    return mix.MixReport(
        recipe=recipe,
        recipe_sha256=sha256(recipe.to_bytes()),
        sources=_sources_used(chosen),
        mixes=chosen.mixes,
        licences=tuple(sorted({licence for source in chosen.sources for licence in source.licences})),
        separator=mix.Separator(id=first.separator_id, position=first.separator_position),
        selection=chosen.describe(packed.used),
        train=split_files(plan, len(packed.used), per_shard),
        validation=split_files(validation, len(chosen.validation), per_shard),
        conservation=parts.conservation(packed.lengths, plan, int(chosen.train["tokens"].sum(dtype=np.int64))),
        tails=parts.tails(packed.lengths, plan) if recipe.aligned else None,
        cut=parts.cut_documents(packed.lengths, plan),
        returned=parts.returned_documents(packed.returned, [source.generation for source in chosen.sources]),
        context=parts.context_table(packed.lengths, plan, inserted, beside=recipe.aligned is not None),
        window_domains=parts.window_domains(plan, domains),
        loss_reference=parts.loss_reference(counts, first.vocabulary_size, runs, recipe.seed),
        format="plain-1" if first.format == "plain-1" else None,
        orders=parts.order_reports(recipe, domains),
        withdrawn=chosen.withdrawn,
    )


def _sources_used(chosen: Chosen) -> tuple[mix.SourceUsed, ...]:
    fields = mix.SourceUsed.__slots__
    return tuple(mix.SourceUsed(**{name: getattr(source, name) for name in fields}) for source in chosen.sources)


def _require_same(folder: Path, recipe: Recipe, chosen: Chosen) -> None:
    """Say plainly why a published mix of this name cannot be made again: another recipe, or another frontier."""
    if not folder.exists():
        return
    report = mix.MixReport.parse((folder / mix.REPORT).read_bytes(), f"mixes/{recipe.mix}/{mix.REPORT}")
    remedy = "a published mix is never overwritten: declare a new name, or remove its folder yourself"
    for code, what, published, asked in (
        ("MIX_RECIPE", "recipe", report.recipe, recipe),
        ("MIX_FRONTIER", "frontiers", report.sources, _sources_used(chosen)),
        ("MIX_EARLIER", "earlier mixes", report.mixes, chosen.mixes),
        ("MIX_WITHDRAWN", "withdrawals", report.withdrawn, chosen.withdrawn),
    ):
        if published != asked:
            raise CasebitsError(code, f"mixes/{recipe.mix}", f"is published from other {what}", remedy=remedy)
