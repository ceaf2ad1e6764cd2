from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from casebits_dagster.records.errors import RecordError
from casebits_dagster.records.recipe import (
    Aligned,
    Bounds,
    Domain,
    Interleaved,
    Lengths,
    Recipe,
    Slice,
    generations_of,
    load_recipe,
    load_recipes,
    require_known,
)
from casebits_dagster.records.region import Separator
from tests.mixing.corpus import control, recipe

TEMPLATES = Path(__file__).resolve().parents[2] / "docs" / "recipes"


def test_the_declared_recipes_load(pins: Path) -> None:
    recipes = {one.mix: one for one in load_recipes(pins)}
    assert recipes["sample_concatenated"].documents_of == "sample_aligned"
    selection = recipes["sample_aligned"].selection
    assert selection is not None
    assert len(selection.domains) >= 4
    assert selection.lengths.names == ("<512", "512-2047", "2048-8191", ">=8192")


def test_what_a_recipe_names_must_be_declared(pins: Path) -> None:
    recipes = load_recipes(pins)
    require_known(recipes, {"sample"})
    with pytest.raises(RecordError, match=r"mix sample_aligned: domain literature: expected one of \['other'\]"):
        require_known(recipes, {"other"})
    control_alone = [one for one in recipes if one.documents_of]
    with pytest.raises(RecordError, match=r"mix sample_concatenated: mix 'sample_aligned': expected one of"):
        require_known(control_alone, {"sample"})
    with pytest.raises(RecordError, match="documents_of: expected another mix"):
        replace(control_alone[0], documents_of="sample_concatenated").check("recipe")


def test_bucket_names_of_no_edges() -> None:
    assert Lengths(edges=(), profile=(Decimal(1),)).names == ("all",)


def merge(**changes: Any) -> Recipe:
    """Return an interleaved recipe."""
    sources = tuple(Slice(name=name, generation=name) for name in ("wiki", "web"))
    merged: dict[str, Any] = {"strategy": "interleaved", "selection": None, "aligned": None}
    return recipe(**(merged | {"interleaved": Interleaved(chunk_tokens=100, sources=sources)} | changes))


def _domains(**changes: Any) -> tuple[Domain, ...]:
    return (replace(Domain(name="a", generation="tiny", share=Decimal(1)), **changes),)


def _bounds(least: str | None, most: str | None) -> Bounds:
    return Bounds(at_least=least and Decimal(least), at_most=most and Decimal(most))  # type: ignore[arg-type]


def _two(one: dict[str, Any], other: dict[str, Any]) -> dict[str, tuple[Domain, ...]]:
    """Return two domains, of which the first has all tokens."""
    return {"domains": (*_domains(**one), *_domains(**({"name": "b", "share": Decimal(0)} | other)))}


FULL = recipe(
    order="stratified",
    windows_per_step=128,
    separator=Separator(id=0, at="end"),
    domains=_domains(
        min_tokens=5,
        max_tokens=9,
        case_classes=("lower", "no letters"),
        scores={"english": Bounds(at_least=Decimal("0.5")), "digit_share": Bounds(at_most=Decimal("0.2"))},
        epochs_by_length=(1, 2, 3),
    ),
)


def test_a_recipe_survives_its_canonical_bytes() -> None:
    for one in (recipe(), control(recipe()), merge(), FULL):
        one.check("recipe")
        assert Recipe.parse(one.to_bytes(), "recipe") == one


def test_a_recipe_without_the_optional_keys_is_written_as_before_there_were_any() -> None:
    names = set(recipe().to_dict())
    assert names == {
        *("mix", "description", "strategy", "sequence_length", "windows_per_shard", "seed"),
        *("documents_of", "selection", "aligned"),
    }
    assert set(_domains()[0].to_dict()) == {"name", "generation", "clusters", "share", "epochs"}
    added = {"order", "windows_per_step", "separator"}
    assert (set(FULL.to_dict()) - names, set(merge().to_dict()) - names) == (added, {"interleaved"})


def test_the_generations_of_a_recipe() -> None:
    one, other = recipe(mix="one"), merge(mix="other")
    assert generations_of(one, ()) == ("tiny",)
    assert generations_of(other, ()) == ("web", "wiki")
    assert generations_of(control(other), (one, other)) == ("web", "wiki")
    assert generations_of(control(other), ()) == ()
    with pytest.raises(RecordError, match=r"mix other: domain web: expected one of \['wiki'\]"):
        require_known([other], {"wiki"})


def test_how_often_a_document_of_each_length_may_be_used() -> None:
    assert _domains(epochs=2)[0].epoch_caps(3) == (2, 2, 2)
    assert _domains(epochs_by_length=(1, 4))[0].epoch_caps(2) == (1, 4)


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ({}, {"generation": "else"}, ""),
        ({"clusters": (1,)}, {"clusters": (2,)}, ""),
        ({"max_tokens": 9}, {"min_tokens": 10}, ""),
        ({"case_classes": ("lower",)}, {"case_classes": ("upper", "mixed")}, ""),
        ({}, {}, "tiny: clusters all, 0 or more tokens, case classes all"),
        (
            {"clusters": (1, 2, 3), "min_tokens": 4, "max_tokens": 9, "case_classes": ("lower", "upper")},
            {"clusters": (3, 1), "max_tokens": 12, "case_classes": ("upper",)},
            "tiny: clusters 1, 3, 4 to 9 tokens, case classes upper",
        ),
        ({"clusters": (7,), "max_tokens": 9}, {"min_tokens": 9}, "tiny: clusters 7, 9 to 9 tokens, case classes all"),
        ({"scores": {"x": _bounds(None, "0.499999")}}, {"scores": {"x": _bounds("0.5", None)}}, ""),
        (
            {"scores": {"x": _bounds(None, "0.5"), "y": _bounds("1", None)}},
            {"scores": {"x": _bounds("0.5", None), "y": _bounds("2", None)}},
            "tiny: clusters all, 0 or more tokens, case classes all, x 0.500000 to 0.500000, y 2.000000 or more",
        ),
        (
            {"scores": {"x": _bounds("-1", None), "y": _bounds(None, "1")}},
            {"scores": {"z": _bounds(None, "1"), "y": _bounds(None, "7")}},
            "tiny: clusters all, 0 or more tokens, case classes all, y 1.000000 or less",
        ),
    ],
)
def test_what_two_domains_have_in_common(one: dict[str, Any], other: dict[str, Any], both: str) -> None:
    first, second = _two(one, other)["domains"]
    assert (first.overlap(second), second.overlap(first) == "") == (both, both == "")
    if both:
        with pytest.raises(RecordError) as caught:
            recipe(domains=(first, second)).check("r.toml")
        problem = f"selection.domains.clusters: expected no document in two domains: a and b take {both}"
        assert str(caught.value) == f"RECIPE_INVALID r.toml: {problem}"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"aligned": None}, "aligned"),
        ({"strategy": "concatenated"}, "aligned"),
        ({"strategy": "interleaved", "aligned": None}, "interleaved"),
        ({"interleaved": merge().interleaved}, "interleaved"),
        ({"strategy": "interleaved", "aligned": None, "interleaved": merge().interleaved}, "selection"),
        ({"strategy": "concatenated", "aligned": None, "order": "shuffled"}, "order"),
        ({"order": "stratified"}, "windows_per_step"),
        ({"documents_of": "x"}, "selection"),
        ({"selection": None}, "selection"),
        ({"tokens": 999}, "selection.windows"),
        ({"windows": None}, "selection.windows"),
        ({"windows": None, "tokens": 63}, "selection.tokens"),
        ({"domains": ()}, "selection.domains"),
        ({"domains": _domains() * 2}, "selection.domains"),
        ({"domains": _domains(share=Decimal("0.9"))}, "selection.domains.share"),
        ({"domains": _domains(clusters=(1, 1))}, "selection.domains.clusters"),
        (_two({"clusters": (1,)}, {}), "selection.domains.clusters"),
        ({"domains": _domains(min_tokens=5, max_tokens=4)}, "selection.domains.max_tokens"),
        ({"domains": _domains(case_classes=())}, "selection.domains.case_classes"),
        ({"domains": _domains(scores={})}, "selection.domains.scores"),
        ({"domains": _domains(scores={"x": Bounds()})}, "selection.domains.scores.x"),
        ({"domains": _domains(scores={"x": _bounds("1", "0.9")})}, "selection.domains.scores.x"),
        (
            _two({"scores": {"x": _bounds("0", "1")}}, {"scores": {"x": _bounds("1", None)}}),
            "selection.domains.clusters",
        ),
        ({"domains": _domains(epochs_by_length=(1, 2))}, "selection.domains.epochs_by_length"),
        ({"domains": _domains(epochs=2, epochs_by_length=(1, 2, 3))}, "selection.domains.epochs_by_length"),
        ({"lengths": Lengths(edges=tuple(range(1, 16_385)), from_mix="x")}, "selection.lengths.edges"),
        ({"lengths": Lengths(edges=(5, 5), profile=(Decimal(1),) * 3)}, "selection.lengths.edges"),
        ({"lengths": Lengths(edges=())}, "selection.lengths"),
        ({"lengths": Lengths(edges=(), profile=(Decimal(1),), from_mix="x")}, "selection.lengths"),
        ({"lengths": Lengths(edges=(5,), profile=(Decimal(1),))}, "selection.lengths.profile"),
        ({"lengths": Lengths(edges=(5,), profile=(Decimal(2), Decimal(-1)))}, "selection.lengths.profile"),
    ],
)
def test_fields_that_do_not_fit_together_are_refused(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(RecordError) as caught:
        recipe(**changes).check("r.toml")
    assert (caught.value.code, caught.value.where) == ("RECIPE_INVALID", f"r.toml: {field}")


def test_bounds_of_a_score_are_written_as_a_policy_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "m.toml"
    domain = '[[selection.domains]]\nname = "d"\ngeneration = "g"\nshare = 1\n'
    text = (
        'mix = "m"\ndescription = "d"\nstrategy = "concatenated"\nsequence_length = 8\nwindows_per_shard = 4\n'
        f'seed = "s"\n[selection]\nwindows = 1\n{domain}scores.english = {{at_least = 0.5}}\n'
        "[selection.lengths]\nedges = []\nprofile = [1]\n"
    )
    path.write_text(text)
    assert load_recipe(path).slices[0].scores == {"english": _bounds("0.5", None)}
    path.write_text(text.replace("at_least", "minimum"))
    with pytest.raises(RecordError, match=r"m\.toml: line 13: .*scores\.english\.minimum: unknown field"):
        load_recipe(path)


def test_the_sources_of_a_merge_are_apart() -> None:
    twice = (Slice(name="a", generation="wiki"), Slice(name="b", generation="wiki", clusters=(1,)))
    for sources, field in (((), ""), ((twice[0],) * 2, ""), (twice, ".clusters")):
        with pytest.raises(RecordError) as caught:
            merge(interleaved=Interleaved(chunk_tokens=1, sources=sources)).check("r.toml")
        assert caught.value.where == f"r.toml: interleaved.sources{field}"


def test_a_recipe_file_is_named_after_its_mix_and_has_no_unknown_key(tmp_path: Path) -> None:
    text = (
        'mix = "m"\ndescription = "d"\nstrategy = "concatenated"\nsequence_length = 8\nwindows_per_shard = 4\n'
        'seed = "s"\ndocuments_of = "other"\n'
    )
    (tmp_path / "m.toml").write_text(text)
    assert load_recipe(tmp_path / "m.toml").documents_of == "other"
    (tmp_path / "n.toml").write_text(text)
    with pytest.raises(RecordError, match=r"n\.toml: mix: expected the file's name 'n'"):
        load_recipe(tmp_path / "n.toml")
    (tmp_path / "m.toml").write_text(text + "spread = true\n")
    with pytest.raises(RecordError, match=r"m\.toml: line 8: spread: unknown field"):
        load_recipe(tmp_path / "m.toml")


def test_the_defaults_of_aligned() -> None:
    assert replace(recipe(), aligned=Aligned()) == recipe()
    assert Aligned() == Aligned(tails="auto", spread=True)


def test_the_templates_load_and_name_what_they_need() -> None:
    recipes = {path.stem: load_recipe(path) for path in sorted(TEMPLATES.glob("*.toml"))}
    needed = {name: generations_of(one, tuple(recipes.values())) for name, one in recipes.items()}
    bluscript = ("chess-gpt2", "code-gpt2", "commoncrawl-gpt2", "math-gpt2", "stockfish-gpt2")
    assert needed == {
        "bluscriptcp_p1b_aligned": bluscript,
        "bluscriptcp_p1b_concatenated": bluscript,
        "bluscriptcp_p2d_aligned": bluscript,
        "bluscriptcp_p2d_concatenated": bluscript,
        "indonesian_merge": ("culturax-id-40000", "wikipedia-id-40000"),
    }
    require_known(tuple(recipes.values()), {name for names in needed.values() for name in names})
    separators = {name: one.separator for name, one in recipes.items()}
    eot = Separator(id=50256, at="start")
    assert separators == {name: None if name == "indonesian_merge" else eot for name in recipes}


@pytest.mark.parametrize(
    ("name", "length", "file_tokens", "shares", "profile"),
    [
        ("p1b", 16_384, 1_000_439_809, "37 29 28 3 3", "18.2 0 56.1 16.6 4.5 4.6"),
        ("p2d", 32_768, 600_473_601, "40 29.1 24.9 3 3", "15.6 3.6 17 22.4 8.5 32.9"),
    ],
)
def test_the_templates_have_the_published_numbers(
    name: str, length: int, file_tokens: int, shares: str, profile: str
) -> None:
    one = load_recipe(TEMPLATES / f"bluscriptcp_{name}_aligned.toml")
    assert one.selection is not None
    assert (one.selection.windows or 0) * length + 1 == file_tokens
    assert (one.sequence_length, one.aligned) == (length, Aligned(tails="float", spread=True))
    assert [domain.name for domain in one.selection.domains] == ["code", "math", "commoncrawl", "chess", "stockfish"]
    assert [100 * domain.share for domain in one.selection.domains] == list(map(Decimal, shares.split()))
    assert [100 * share for share in one.selection.lengths.profile] == list(map(Decimal, profile.split()))
    assert one.selection.lengths.edges == tuple(1_024 * k for k in (4, 16, 32, 64, 128))
