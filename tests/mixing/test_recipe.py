from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from casebits_dagster.records.errors import RecordError
from casebits_dagster.records.recipe import Aligned, Domain, Lengths, Recipe, load_recipe, load_recipes, require_known
from tests.mixing.corpus import control, recipe


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


def test_a_recipe_survives_its_canonical_bytes() -> None:
    for one in (recipe(), control(recipe())):
        assert Recipe.parse(one.to_bytes(), "recipe") == one


def _domains(**changes: Any) -> tuple[Domain, ...]:
    return (replace(Domain(name="a", generation="tiny", share=Decimal(1)), **changes),)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"aligned": None}, "aligned"),
        ({"strategy": "concatenated"}, "aligned"),
        ({"documents_of": "x"}, "selection"),
        ({"selection": None}, "selection"),
        ({"tokens": 999}, "selection.windows"),
        ({"windows": None}, "selection.windows"),
        ({"windows": None, "tokens": 63}, "selection.tokens"),
        ({"domains": ()}, "selection.domains"),
        ({"domains": _domains() * 2}, "selection.domains"),
        ({"domains": _domains(share=Decimal("0.9"))}, "selection.domains.share"),
        ({"domains": _domains(clusters=(1, 1))}, "selection.domains.clusters"),
        ({"domains": (*_domains(clusters=(1,)), *_domains(name="b", share=Decimal(0)))}, "selection.domains.clusters"),
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
