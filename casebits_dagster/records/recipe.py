"""A recipe: the pin that says what a mix is. Written once, never edited; a change is a new file with a new name.

Every key is used or refused: tables that do not belong to the strategy must be absent, and shares sum to 1 exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import combinations
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from casebits_dagster.records.canonical import LARGEST
from casebits_dagster.records.errors import RecordError
from casebits_dagster.records.record import AtLeast, Count, Name, Positive, Record, Text, micro, micro_text
from casebits_dagster.records.region import Separator

CaseClass = Literal["lower", "capitalised", "upper", "mixed", "no letters"]
CELLS = 16_384


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds(Record):
    """What a recorded score may be, as in a filter policy: `at_least` to `at_most`, equal is inside."""

    LEFT_OUT: ClassVar[frozenset[str]] = frozenset({"at_least", "at_most"})

    at_least: Decimal | None = None
    at_most: Decimal | None = None

    @property
    def millionths(self) -> range:
        """The scores inside, in the integers in which they are recorded."""
        low = -LARGEST if self.at_least is None else micro(self.at_least)
        return range(low, (LARGEST if self.at_most is None else micro(self.at_most)) + 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Slice(Record):
    """Documents of one generation: those that meet every condition that is given, the whole generation when none is.

    `clusters` (-1: documents without one); `min_tokens` to `max_tokens`, separator included; `case_classes`; `scores`,
    bounds by metric of the generation's filter policy.
    """

    LEFT_OUT: ClassVar[frozenset[str]] = frozenset({"min_tokens", "max_tokens", "case_classes", "scores"})

    name: Name
    generation: Name
    clusters: tuple[int, ...] = ()
    min_tokens: Positive | None = None
    max_tokens: Positive | None = None
    case_classes: tuple[CaseClass, ...] | None = None
    scores: dict[str, Bounds] | None = None

    @property
    def score_ranges(self) -> dict[str, range]:
        """The scores it takes, in millionths, by metric."""
        return {metric: bounds.millionths for metric, bounds in (self.scores or {}).items()}

    @property
    def token_range(self) -> range:
        """The lengths it takes."""
        return range(self.min_tokens or 0, (self.max_tokens or LARGEST) + 1)

    def overlap(self, other: Slice) -> str:
        """Return in words which documents both take; nothing when no document can be in both."""
        low, high = _common(self.token_range, other.token_range)
        clusters = _both(self.clusters, other.clusters)
        classes = _both(self.case_classes or (), other.case_classes or ())
        mine, others = self.score_ranges, other.score_ranges
        scores = {metric: _common(mine[metric], others[metric]) for metric in sorted(mine.keys() & others.keys())}
        if self.generation != other.generation or not clusters or not classes:
            return ""
        if low > high or any(least > most for least, most in scores.values()):
            return ""
        tokens = f"{low} to {high}" if high < LARGEST else f"{low} or more"
        told = "".join(f", {metric} {_between(least, most)}" for metric, (least, most) in scores.items())
        return f"{self.generation}: clusters {clusters}, {tokens} tokens, case classes {classes}{told}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Domain(Slice):
    """A mix's name for a slice. `share` is of tokens, separators included. A document is used at most `epochs` times,
    or as often as `epochs_by_length` says for each length bucket."""

    LEFT_OUT: ClassVar[frozenset[str]] = Slice.LEFT_OUT | {"epochs_by_length"}

    share: Decimal
    epochs: Positive = 1
    epochs_by_length: tuple[Positive, ...] | None = None

    def epoch_caps(self, buckets: int) -> tuple[int, ...]:
        """Return how often a document of each length bucket may be used."""
        return self.epochs_by_length or (self.epochs,) * buckets


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
class Interleaved(Record):
    """A merge of all train documents of some sources, each in its frontier's order: a run of whole documents of about
    `chunk_tokens` from each in turn. `validation_windows` come from the sources' validation documents only."""

    LEFT_OUT: ClassVar[frozenset[str]] = frozenset({"validation_windows"})

    chunk_tokens: Positive
    sources: tuple[Slice, ...]
    validation_windows: Positive | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe(Record):
    """One mix. Its documents come from a `selection`, are those of an earlier mix (`documents_of`), or all of the
    sources that are `interleaved`.

    Windows are shuffled unless `order` says that every step of `windows_per_step` windows has the mix's shares. A
    `separator` that is stated must be that of the sources. A mix of `production` is made by hand only; any other is
    made again when a frontier it draws on grows.
    """

    LEFT_OUT: ClassVar[frozenset[str]] = frozenset(
        {"order", "windows_per_step", "separator", "interleaved", "production"}
    )

    mix: Name
    description: Text
    strategy: Literal["aligned", "concatenated", "interleaved"]
    sequence_length: Annotated[int, AtLeast(2)]
    windows_per_shard: Positive
    seed: Text
    documents_of: Name | None = None
    selection: Selection | None = None
    aligned: Aligned | None = None
    interleaved: Interleaved | None = None
    order: Literal["shuffled", "stratified"] | None = None
    windows_per_step: Positive | None = None
    separator: Separator | None = None
    production: bool | None = None

    @property
    def slices(self) -> tuple[Slice, ...]:
        """What it takes from frontiers: its domains or its interleaved sources; none when from an earlier mix."""
        if self.interleaved:
            return self.interleaved.sources
        return self.selection.domains if self.selection else ()

    def check(self, where: str) -> None:
        """Raise RecordError when the fields do not fit together."""
        for field, fits, expected in _recipe_rules(self):
            _require(fits, where, field, expected)


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
        for part in recipe.slices:
            known = f"one of {sorted(generations)}"
            _require(part.generation in generations, f"mix {recipe.mix}", f"domain {part.name}", known)


def earlier_mixes(recipe: Recipe) -> tuple[str, ...]:
    """Return the mixes a recipe names: the one whose documents it lays out, those it excludes or takes lengths from."""
    named = {recipe.documents_of}
    if recipe.selection:
        named |= {*recipe.selection.exclude, recipe.selection.lengths.from_mix}
    return tuple(sorted(name for name in named if name))


def generations_of(recipe: Recipe, recipes: Sequence[Recipe]) -> tuple[str, ...]:
    """Return the generations whose documents a mix holds, sorted; for `documents_of`, those of that mix."""
    if recipe.slices:
        return tuple(sorted({part.generation for part in recipe.slices}))
    earlier = next((other for other in recipes if other.mix == recipe.documents_of), None)
    return generations_of(earlier, recipes) if earlier else ()


Rule = tuple[str, bool, str]


def _recipe_rules(recipe: Recipe) -> Iterator[Rule]:
    """Yield each rule of a recipe: its field, whether it holds, and what is expected."""
    for strategy in ("aligned", "interleaved"):
        given = getattr(recipe, strategy) is not None
        yield strategy, given == (recipe.strategy == strategy), f"given when {strategy}"
    yield "documents_of", recipe.documents_of != recipe.mix, "another mix"
    sources = [recipe.documents_of, recipe.selection, recipe.interleaved]
    yield "selection", sources.count(None) == 2, "either selection or documents_of, or neither when interleaved"
    yield "order", recipe.order is None or recipe.aligned is not None, "given only when aligned"
    step = recipe.order != "stratified" or recipe.windows_per_step is not None
    yield "windows_per_step", step, "given when the order is stratified"
    if recipe.interleaved:
        for field, fits, expected in _slice_rules(recipe.interleaved.sources):
            yield f"interleaved.sources{field}", fits, expected
    if recipe.selection:
        for field, fits, expected in _selection_rules(recipe.selection, recipe.sequence_length):
            yield f"selection.{field}", fits, expected


def _slice_rules(slices: Sequence[Slice]) -> Iterator[Rule]:
    names = {part.name for part in slices}
    yield "", 0 < len(names) == len(slices), "one or more, each named once"
    for part in slices:
        yield ".max_tokens", len(part.token_range) > 0, f"of {part.name}: at least its min_tokens {part.min_tokens}"
        yield ".clusters", len(set(part.clusters)) == len(part.clusters), f"of {part.name}: each once"
        yield ".case_classes", part.case_classes != (), f"of {part.name}: one or more, or not given"
        yield ".scores", part.scores != {}, f"of {part.name}: one or more, or not given"
        for metric, bounds in (part.scores or {}).items():
            field, given = f".scores.{metric}", bounds.at_least is not None or bounds.at_most is not None
            yield field, given, f"of {part.name}: at_least, at_most or both"
            yield field, len(bounds.millionths) > 0, f"of {part.name}: at_most at least at_least {bounds.at_least}"
    for one, other in combinations(slices, 2):
        both = one.overlap(other)
        yield ".clusters", not both, f"no document in two domains: {one.name} and {other.name} take {both}"


def _selection_rules(selection: Selection, sequence_length: int) -> Iterator[Rule]:
    domains, lengths = selection.domains, selection.lengths
    yield "windows", (selection.windows is None) != (selection.tokens is None), "either windows or tokens"
    enough = selection.tokens is None or selection.tokens >= sequence_length
    yield "tokens", enough, f"at least one window of {sequence_length}"
    for field, fits, expected in _slice_rules(domains):
        yield f"domains{field}", fits, expected
    yield "domains.share", *_shares([domain.share for domain in domains])
    buckets = len(lengths.edges) + 1
    for domain in domains:
        caps = domain.epochs_by_length
        by_length = caps is None or (domain.epochs == 1 and len(caps) == buckets)
        yield "domains.epochs_by_length", by_length, f"of {domain.name}: one cap a bucket, in place of epochs"
    yield "lengths.edges", list(lengths.edges) == sorted(set(lengths.edges)), "rising edges"
    yield "lengths.edges", len(domains) * buckets <= CELLS, f"at most {CELLS} cells of domains by lengths"
    yield "lengths", (lengths.from_mix is None) == bool(lengths.profile), "either profile or from_mix"
    if lengths.profile:
        yield "lengths.profile", len(lengths.profile) == buckets, "one share a bucket"
        yield "lengths.profile", *_shares(lengths.profile)


def _both(mine: Sequence[int | str], others: Sequence[int | str]) -> str:
    """Return what two lists of conditions have in common; an empty list is no condition."""
    if mine and others:
        return ", ".join(str(value) for value in mine if value in others)
    return ", ".join(map(str, mine or others)) or "all"


def _common(one: range, other: range) -> tuple[int, int]:
    """Return the least and the most that both hold; they hold nothing in common when the least is more."""
    return max(one.start, other.start), min(one.stop, other.stop) - 1


def _between(least: int, most: int) -> str:
    """Return the bounds of a score in words."""
    if most == LARGEST:
        return f"{micro_text(least)} or more" if least > -LARGEST else "any"
    return f"{micro_text(least)} to {micro_text(most)}" if least > -LARGEST else f"{micro_text(most)} or less"


def _shares(shares: Sequence[Decimal]) -> tuple[bool, str]:
    return min(shares) >= 0 and sum(shares) == 1, f"shares that sum to 1 (they sum to {sum(shares)})"


def _require(fits: bool, where: str, field: str, expected: str) -> None:
    if not fits:
        raise RecordError("RECIPE_INVALID", f"{where}: {field}", f"expected {expected}")
