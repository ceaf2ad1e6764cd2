"""From a recipe to documents: several sources, what they must share, and merges without a selection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from casebits_dagster.mixing.build import build_mix
from casebits_dagster.mixing.choose import choose
from casebits_dagster.mixing.sources import MixSource
from casebits_dagster.publication.consume import open_frontier
from casebits_dagster.publication.mix_sources import mix_sources
from casebits_dagster.records.errors import RecordError, Refused
from casebits_dagster.records.layout import Home
from casebits_dagster.records.recipe import Bounds, Domain, Interleaved, Lengths, Recipe, Slice
from casebits_dagster.records.region import Separator
from tests.mixing.corpus import control, corpus, publish, recipe

PAIR = tuple(Domain(name=name, generation=name, share=Decimal("0.5")) for name in ("tiny", "other"))


def merge(*sources: Slice) -> Recipe:
    changes = {"strategy": "interleaved", "selection": None, "aligned": None}
    return recipe(**changes, interleaved=Interleaved(chunk_tokens=8, sources=sources))


def pair(home: Home, **changes: Any) -> dict[str, MixSource]:
    return {"tiny": corpus(home), "other": replace(corpus(home, "other", seed=2), **changes)}


def refusal(one: Recipe, sources: Mapping[str, MixSource], home: Home) -> str:
    with pytest.raises(Refused) as caught:
        choose(one, sources, home)
    return str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"vocabulary_sha256": "cd" * 32},
        {"format": "plain-1"},
        {"separator_id": 7},
        {"separator_position": "start"},
    ],
)
def test_sources_of_one_mix_share_codec_and_separator(home: Home, changes: dict[str, Any]) -> None:
    sources = pair(home, **changes)
    begin = "VOCAB_MISMATCH generations tiny and other: one mix, one codec, expected ('casebits-1', 'abab"
    for one in (recipe(domains=PAIR), merge(*(Slice(name=s.name, generation=s.generation) for s in PAIR))):
        assert refusal(one, sources, home)[: len(begin)] == begin


def test_a_frontier_as_a_source(sample_home: Home) -> None:
    source = mix_sources(["sample"], sample_home)["sample"]
    assert (source.format, source.separator_id, source.separator_position) == ("casebits-1", 0, "end")
    frontier = open_frontier(sample_home.root, "sample")
    index = np.concatenate([frontier.rows(k) for k in range(frontier.manifest.count)])
    assert np.concatenate([source.rows(k) for k in range(source.regions)]).tobytes() == index.tobytes()
    assert (source.documents, source.regions) == (len(index), 14)


def test_a_stated_separator_is_that_of_the_sources(home: Home) -> None:
    source = {"tiny": corpus(home)}
    assert len(choose(recipe(separator=Separator(id=0, at="end")), source, home).train) > 0
    assert refusal(recipe(separator=Separator(id=50256, at="start")), source, home) == (
        "CODEC_PIN generation tiny: separator: is not what the recipe states, "
        "expected Separator(id=50256, at='start'), read Separator(id=0, at='end')"
    )


def test_an_interleaved_mix_takes_every_train_document_in_the_order_of_its_frontier(home: Home) -> None:
    tiny = publish(home, "tiny", [[(5, 0), (6, 1), (7, 2), (5, 100)], [], [(8, 1), (9, 0)]])
    other = publish(home, "other", [[(4, 0)] * 3])
    parts = (
        Slice(name="zero", generation="tiny", clusters=(0,)),
        Slice(name="other", generation="other"),
        Slice(name="one", generation="tiny", clusters=(1,)),
    )
    chosen = choose(merge(*parts), {"other": other, "tiny": tiny}, home)
    # A text that stands twice is taken twice: a merge loses nothing but the validation documents.
    number = {("tiny", 0): 0, ("other", 0): 1, ("tiny", 1): 2}
    rows = [
        (generation, int(row["region"]), int(row["index"]), number[source.generation, int(row["cluster"])], 0, 0)
        for generation, source in enumerate((tiny, other))
        for row in source.index
        if not row["split"] and (source.generation, int(row["cluster"])) in number
    ]
    assert [source.generation for source in chosen.sources] == ["tiny", "other"]
    assert chosen.train[["generation", "region", "index", "domain", "bucket", "copy"]].tolist() == rows
    assert 5 <= len(rows) <= 8
    assert (len(chosen.validation), chosen.validation_windows, chosen.mixes) == (0, 0, ())
    report = chosen.describe(chosen.train)
    assert report.outcome == "every train document of every source"
    totals = [int(chosen.train["tokens"][chosen.train["domain"] == k].sum()) for k in range(3)]
    said = [(row.supply_tokens, row.target_tokens, row.achieved_tokens, row.error_tokens) for row in report.domains]
    assert said == [(total, total, total, 0) for total in totals]
    assert [row.name for row in report.domains] == ["zero", "other", "one"]
    assert [(row.name, row.target_tokens) for row in report.lengths] == [("all", report.asked_tokens)]


def test_a_control_states_the_separator_too(home: Home) -> None:
    source = {"tiny": corpus(home)}
    build_mix(recipe(), source, home)
    stated = replace(control(recipe()), separator=Separator(id=0, at="start"))
    begin = "CODEC_PIN generation tiny: separator: is not what the recipe states"
    assert refusal(stated, source, home)[: len(begin)] == begin


def _scored(**bounds: Bounds) -> Recipe:
    """Return a recipe over two domains of the sample, of which the first has these bounds of scores, the second not."""
    clusters = sorted({2, 5, 11, 14, 16, 17, 19, 20} - {17})
    return recipe(
        windows=100,
        domains=(
            Domain(name="a", generation="sample", clusters=(17,), share=Decimal("0.5"), scores=bounds),
            Domain(name="b", generation="sample", clusters=tuple(clusters), share=Decimal("0.5")),
        ),
        lengths=Lengths(edges=(), profile=(Decimal(1),)),
        validation_windows=0,
    )


def test_a_domain_takes_the_documents_whose_scores_are_inside_its_bounds(sample_home: Home) -> None:
    sources = mix_sources(["sample"], sample_home)
    regions = [open_frontier(sample_home.root, "sample").region(k) for k in range(14)]
    lines = {line["id"]: line for region in regions for line in region.documents() if line["cluster"] == 17}
    shares = sorted(line["scores"]["symbol_share"] for line in lines.values())
    # An observed score is a bound, so that it tells whether equal is inside.
    least, most = Decimal(shares[len(shares) // 4]), Decimal(shares[3 * len(shares) // 4])
    everything = merge(
        Slice(
            name="a", generation="sample", clusters=(17,), scores={"symbol_share": Bounds(at_least=least, at_most=most)}
        )
    )
    chosen = choose(everything, sources, sample_home).train
    inside = {
        name
        for name, line in lines.items()
        if least <= Decimal(line["scores"]["symbol_share"]) <= most and line["split"] == "train"
    }
    assert {bytes(name).hex() for name in chosen["id"]} == inside
    assert 0.4 * len(lines) < len(inside) < 0.6 * len(lines)
    selected = choose(_scored(symbol_share=Bounds(at_most=most)), sources, sample_home).train
    low = {bytes(name).hex() for name in selected["id"][selected["domain"] == 0]}
    assert {name for name in low if Decimal(lines[name]["scores"]["symbol_share"]) > most} == set()


def test_a_metric_that_the_policy_does_not_record_is_refused(sample_home: Home) -> None:
    sources = mix_sources(["sample"], sample_home)
    with pytest.raises(RecordError) as caught:
        choose(_scored(englishness=Bounds(at_least=Decimal(1))), sources, sample_home)
    assert str(caught.value) == (
        "RECIPE_INVALID mixes/tiny_aligned.toml: selection.domains[0].scores.englishness: of a: not a metric that the "
        f"policy of sample records, expected one of {', '.join(sources['sample'].metrics)}, read englishness"
    )
    assert "symbol_share" in sources["sample"].metrics


def test_scores_are_those_of_published_regions(home: Home) -> None:
    one = recipe(
        domains=(Domain(name="a", generation="tiny", share=Decimal(1), scores={"x": Bounds(at_least=Decimal(0))}),)
    )
    assert refusal(one, {"tiny": corpus(home)}, home) == (
        "REGION_MISSING generation tiny: scores: expected published regions, read Arrays"
    )
