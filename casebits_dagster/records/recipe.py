"""A recipe: the pin that says what a mix is. Written once, never edited; a change is a new file with a new name.

Every key is used or refused: tables that do not belong to the strategy must be absent, and shares sum to 1 exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal

from casebits_dagster.records.errors import RecordError
from casebits_dagster.records.record import AtLeast, Count, Name, Positive, Record, Text


@dataclass(frozen=True, kw_only=True, slots=True)
class Domain(Record):
    """A mix's name for clusters of one generation (-1: documents without a cluster). No clusters: the whole generation.

    `share` is of tokens, separators included. A document is used at most `epochs` times.
    """

    name: Name
    generation: Name
    clusters: tuple[int, ...] = ()
    share: Decimal
    epochs: Positive = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Lengths(Record):
    """Buckets of whole-document tokens, separator included, cut at `edges`: [0, edges[0]), ..., [edges[-1], no end).

    `profile` is the token share of each bucket; `from_mix` copies what an earlier mix with equal edges achieved.
    """

    edges: tuple[Positive, ...]
    profile: tuple[Decimal, ...] = ()
    from_mix: Name | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Return a text for each bucket, such as `<512`, `512-2047`, `>=2048`."""
        if not self.edges:
            return ("all",)
        middle = (f"{low}-{high - 1}" for low, high in zip(self.edges, self.edges[1:], strict=False))
        return (f"<{self.edges[0]}", *middle, f">={self.edges[-1]}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection(Record):
    """Which documents: the budget (`windows`, or `tokens` rounded down to whole windows), domains, lengths.

    `when_infeasible` says what to do when supply cannot meet both targets: refuse, take the largest feasible budget, or
    give up as much of the length targets (domain targets) as needed. `exclude` names earlier mixes whose documents are
    not used. `validation_windows` come from validation documents only.
    """

    windows: Positive | None = None
    tokens: Positive | None = None
    domains: tuple[Domain, ...]
    lengths: Lengths
    when_infeasible: Literal["fail", "shrink", "keep_domains", "keep_lengths"] = "fail"
    exclude: tuple[Name, ...] = ()
    validation_windows: Count = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Aligned(Record):
    """How whole documents are laid out. `tails`: what is left of a document after its full windows starts a window of
    its own (`strict`), is placed like a short document (`float`), or floats only where short documents cannot fill the
    rest of its window (`auto`). `spread` puts small documents of all domains into every window."""

    tails: Literal["strict", "float", "auto"] = "auto"
    spread: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe(Record):
    """One mix. Documents come from `selection`, or are those of an earlier mix (`documents_of`)."""

    mix: Name
    description: Text
    strategy: Literal["aligned", "concatenated"]
    sequence_length: Annotated[int, AtLeast(2)]
    windows_per_shard: Positive
    seed: Text
    documents_of: Name | None = None
    selection: Selection | None = None
    aligned: Aligned | None = None

    def check(self, where: str) -> None:
        """Raise RecordError when the fields do not fit together."""
        _require((self.aligned is not None) == (self.strategy == "aligned"), where, "aligned", "given when aligned")
        _require(self.documents_of != self.mix, where, "documents_of", "another mix")
        one_source = (self.documents_of is None) != (self.selection is None)
        _require(one_source, where, "selection", "either selection or documents_of")
        if self.selection is not None:
            for field, fits, expected in _selection_rules(self.selection, self.sequence_length):
                _require(fits, where, f"selection.{field}", expected)


def load_recipe(path: Path) -> Recipe:
    """Return the recipe of a pin file `<mix>.toml`."""
    recipe = Recipe.from_toml(path)
    _require(recipe.mix == path.stem, str(path), "mix", f"the file's name {path.stem!r}")
    recipe.check(str(path))
    return recipe


def load_recipes(pins_folder: Path) -> tuple[Recipe, ...]:
    """Return every declared recipe, sorted by name."""
    return tuple(load_recipe(path) for path in sorted((pins_folder / "mixes").glob("*.toml")))


def require_known(recipes: Sequence[Recipe], generations: set[str]) -> None:
    """Raise RecordError when a recipe names a generation or an earlier mix that no pin declares."""
    mixes = {recipe.mix for recipe in recipes}
    for recipe in recipes:
        for earlier in earlier_mixes(recipe):
            _require(earlier in mixes, f"mix {recipe.mix}", f"mix {earlier!r}", f"one of {sorted(mixes)}")
        for domain in recipe.selection.domains if recipe.selection else ():
            known = f"one of {sorted(generations)}"
            _require(domain.generation in generations, f"mix {recipe.mix}", f"domain {domain.name}", known)


def earlier_mixes(recipe: Recipe) -> tuple[str, ...]:
    """Return the mixes a recipe names: the one whose documents it lays out, those it excludes or takes lengths from."""
    named = {recipe.documents_of}
    if recipe.selection:
        named |= {*recipe.selection.exclude, recipe.selection.lengths.from_mix}
    return tuple(sorted(name for name in named if name))


def generations_of(recipe: Recipe, recipes: Sequence[Recipe]) -> tuple[str, ...]:
    """Return the generations whose documents a mix holds, sorted; for `documents_of`, those of that mix."""
    if recipe.selection:
        return tuple(sorted({domain.generation for domain in recipe.selection.domains}))
    earlier = next((other for other in recipes if other.mix == recipe.documents_of), None)
    return generations_of(earlier, recipes) if earlier else ()


def _selection_rules(selection: Selection, sequence_length: int) -> Iterator[tuple[str, bool, str]]:
    """Yield each rule of a selection: its field, whether it holds, and what is expected."""
    domains, lengths = selection.domains, selection.lengths
    yield "windows", (selection.windows is None) != (selection.tokens is None), "either windows or tokens"
    enough = selection.tokens is None or selection.tokens >= sequence_length
    yield "tokens", enough, f"at least one window of {sequence_length}"
    names = {domain.name for domain in domains}
    yield "domains", 0 < len(names) == len(domains), "one or more, each named once"
    yield "domains.share", *_shares([domain.share for domain in domains])
    clusters = [(domain.generation, cluster) for domain in domains for cluster in domain.clusters or (None,)]
    whole = {generation for generation, cluster in clusters if cluster is None}
    apart = len(set(clusters)) == len(clusters) and not any(g in whole and c is not None for g, c in clusters)
    yield "domains.clusters", apart, "no cluster in two domains"
    yield "lengths.edges", list(lengths.edges) == sorted(set(lengths.edges)), "rising edges"
    yield "lengths", (lengths.from_mix is None) == bool(lengths.profile), "either profile or from_mix"
    if lengths.profile:
        yield "lengths.profile", len(lengths.profile) == len(lengths.edges) + 1, "one share a bucket"
        yield "lengths.profile", *_shares(lengths.profile)


def _shares(shares: Sequence[Decimal]) -> tuple[bool, str]:
    return min(shares) >= 0 and sum(shares) == 1, f"shares that sum to 1 (they sum to {sum(shares)})"


def _require(fits: bool, where: str, field: str, expected: str) -> None:
    if not fits:
        raise RecordError("RECIPE_INVALID", f"{where}: {field}", f"expected {expected}")
