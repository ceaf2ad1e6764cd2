"""Build and publish a mix: choose documents, plan windows, write, report.

Guarantees: the folder is a function of the recipe, the pinned frontiers and the earlier mixes it names; it appears
complete or not at all; a rerun changes nothing, and one that would make another mix under the same name is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from casebits_dagster.mixing import report as parts
from casebits_dagster.mixing.choose import Chosen, choose
from casebits_dagster.mixing.manifest import FolderWriter
from casebits_dagster.mixing.packing import PLANNERS
from casebits_dagster.mixing.packing.concatenated import in_order
from casebits_dagster.mixing.packing.layout import Layout, WindowPlan
from casebits_dagster.mixing.readme import readme
from casebits_dagster.mixing.seeds import I64
from casebits_dagster.mixing.sources import MixSource
from casebits_dagster.mixing.supply import Table
from casebits_dagster.mixing.write import SourceTokens, write_next, write_split
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


def build_mix(recipe: Recipe, sources: Mapping[str, MixSource], home: Home) -> BuiltMix:
    """Build the mix of a recipe from frontiers by generation name, and publish it under its name."""
    recipe.check(f"recipe {recipe.mix}")
    store, folder = LocalStore(home.root), home.mix(recipe.mix)
    chosen = choose(recipe, sources, home)
    _require_same(folder, recipe, chosen)
    packed = _pack(recipe, chosen)
    with store.staged(f"mix.{recipe.mix}") as staging:
        work = staging / "mix"
        work.mkdir()
        writer = FolderWriter(work)
        report = _write(writer, recipe, chosen, packed)
        manifest_sha256 = writer.finish()
        published = store.publish_folder(work, folder.relative_to(home.root).as_posix())
    return BuiltMix(report, manifest_sha256, folder, published)


def _pack(recipe: Recipe, chosen: Chosen) -> Packed:
    layout = Layout(
        sequence_length=recipe.sequence_length,
        seed=recipe.seed,
        tails=recipe.aligned.tails if recipe.aligned else "auto",
        spread=recipe.aligned.spread if recipe.aligned else True,
        separator=chosen.sources[0].separator_position,
    )
    plan = PLANNERS[recipe.strategy](chosen.train["tokens"].astype(np.int64), layout)
    if not plan.windows:
        raise CasebitsError("MIX_EMPTY", f"mix {recipe.mix}", "the documents fill no window", remedy="raise the budget")
    keep = np.ones(len(chosen.train), bool)
    keep[plan.returned] = False
    plan.segments["document"] = (np.cumsum(keep) - 1)[plan.segments["document"]]
    return Packed(plan, chosen.train[keep], chosen.train[~keep])


def _write(writer: FolderWriter, recipe: Recipe, chosen: Chosen, packed: Packed) -> mix.MixReport:
    tokens = SourceTokens(packed.used, chosen.sources)
    train, counts = write_split(writer, mix.TRAIN, packed.plan, tokens, recipe.windows_per_shard)
    write_next(writer, packed.plan, tokens)
    validation = _write_validation(writer, recipe, chosen)
    _write_tables(writer, packed)
    report = _report(recipe, chosen, packed, train, validation, counts)
    writer.put(mix.RECIPE, recipe.to_bytes())
    writer.put(mix.REPORT, report.to_bytes())
    writer.put(mix.README, readme(report).encode())
    return report


def _write_validation(writer: FolderWriter, recipe: Recipe, chosen: Chosen) -> mix.SplitFiles:
    length, windows, table = recipe.sequence_length, chosen.validation_windows, chosen.validation
    file_tokens = windows * length + 1 if windows else 0
    plan = in_order(table["tokens"].astype(np.int64), np.arange(len(table)), length, file_tokens)
    tokens = SourceTokens(table, chosen.sources)
    files, _ = write_split(writer, mix.VALIDATION, plan, tokens, recipe.windows_per_shard)
    writer.put_npy(mix.val_name(mix.SEGMENTS), plan.segments)
    writer.put_npy(mix.val_name(mix.TABLE), table)
    return files


def _write_tables(writer: FolderWriter, packed: Packed) -> None:
    used = packed.used
    writer.put_npy(mix.SEGMENTS, packed.plan.segments)
    writer.put_npy(mix.TABLE, used)
    once = used[np.sort(np.unique(used["id"], return_index=True)[1])]
    names = ("id", "generation", "region", "index", "tokens")
    writer.put_npz(mix.SELECTED, {name: np.ascontiguousarray(once[name]) for name in names})


def _report(
    recipe: Recipe, chosen: Chosen, packed: Packed, train: mix.SplitFiles, validation: mix.SplitFiles, counts: I64
) -> mix.MixReport:
    first, plan = chosen.sources[0], packed.plan
    return mix.MixReport(
        recipe=recipe,
        recipe_sha256=sha256(recipe.to_bytes()),
        sources=_sources_used(chosen),
        mixes=chosen.mixes,
        licences=tuple(sorted({licence for source in chosen.sources for licence in source.licences})),
        separator=mix.Separator(id=first.separator_id, position=first.separator_position),
        selection=chosen.describe(packed.used),
        train=train,
        validation=validation,
        conservation=parts.conservation(packed.lengths, plan, int(chosen.train["tokens"].sum(dtype=np.int64))),
        tails=parts.tails(packed.lengths, plan) if recipe.aligned else None,
        cut=parts.cut_documents(packed.lengths, plan),
        returned=parts.returned_documents(packed.returned, [source.generation for source in chosen.sources]),
        context=parts.context_table(packed.lengths, plan, int(first.separator_position == "start")),
        window_domains=parts.window_domains(plan, packed.used["domain"]),
        loss_reference=parts.loss_reference(counts, first.vocabulary_size),
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
    ):
        if published != asked:
            raise CasebitsError(code, f"mixes/{recipe.mix}", f"is published from other {what}", remedy=remedy)
