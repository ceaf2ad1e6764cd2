"""The page of a mix, by hand: what its tables say, which plots it has, and that its keys lead from one to the next."""

from __future__ import annotations

import base64
from decimal import Decimal
from typing import Any

import dagster as dg
import pytest

from casebits_dagster.mixing.build import build_mix
from casebits_dagster.orchestration.describe_mix import mix
from casebits_dagster.records.layout import Home
from casebits_dagster.records.recipe import Domain, Interleaved, Lengths, Recipe, Slice
from tests.mixing.corpus import control, corpus, publish, recipe
from tests.mixing.plain_corpus import plain_corpus

LENGTHS = Lengths(edges=(), profile=(Decimal(1),))
DOMAINS = tuple(
    Domain(name=name, generation="tiny", clusters=(k,), share=Decimal("0.5")) for k, name in enumerate(("x", "y"))
)


def page(home: Home, made: Recipe, *, documents: list[tuple[int, int]] | None = None) -> dict[str, Any]:
    """Return the page of a mix of these documents (length, cluster), else of `corpus`; tables as lists of rows."""
    published = publish(home, "tiny", [documents]) if documents else corpus(home)
    return told(mix(build_mix(made, {"tiny": published}, home), home))


def told(found: dict[str, Any]) -> dict[str, Any]:
    def value(shown: Any) -> Any:
        return [dict(row.data) for row in shown.records] if isinstance(shown, dg.TableMetadataValue) else shown

    return {key: value(shown) for key, shown in found.items()}


def plots(found: dict[str, Any]) -> list[str]:
    """Return the names of the plots, each of which is a PNG inside the page."""
    drawn = {key: shown.value for key, shown in found.items() if isinstance(shown, dg.MarkdownMetadataValue)}
    for text in drawn.values():
        head, _, data = text.partition(";base64,")
        assert (head, base64.b64decode(data.rstrip(")"))[:4]) == ("![plot](data:image/png", b"\x89PNG")
    return list(drawn)


def small(**changes: Any) -> Recipe:
    return recipe(sequence_length=8, domains=DOMAINS, lengths=LENGTHS, validation_windows=0, **changes)


def test_the_tables_of_a_mix(home: Home) -> None:
    """Two windows of one document of 8 tokens each, and one that two documents of 4 share."""
    documents = [(8, 0), (8, 1), (4, 0), (4, 1)]
    found = page(home, small(windows=3), documents=documents)
    assert (found["layout"], found["windows"], found["documents"], found["validation"]) == (
        "aligned",
        "3 of 8 tokens, in 1 shards",
        "4 in 4 segments",
        "none",
    )
    assert found["domains"] == [
        {"name": name, "asked": "50.00 %", "achieved": "50.00 %", "error": "+0", "supply": "12"} for name in ("x", "y")
    ]
    assert found["fullness"] == "no padding; 1.33 documents a window"
    assert found["domains_in_windows"] == [
        {"domains in a window": 1, "windows": "2", "share": "66.7 %"},
        {"domains in a window": 2, "windows": "1", "share": "33.3 %"},
    ]
    assert found["one_sided"] == "0 of 1 mixed ones: > 95 % of one domain"
    assert found["conservation"] == [
        {"term": "tokens selected", "tokens": "24"},
        {"term": "+ separators inserted", "tokens": "0"},
        {"term": "= in windows", "tokens": "24"},
        {"term": "+ cut off documents", "tokens": "0"},
        {"term": "+ in documents returned whole", "tokens": "0"},
        {"term": "+ rest after the last window", "tokens": "0"},
        {"term": "the equation", "tokens": "holds"},
    ]
    # Of the 24 positions, 6 + 6 + 2 + 2 have a token 2 back; 4 + 4 one 4 back; end to end 6/8 and 4/8 of them see it.
    assert found["context"][:2] == [
        {"tokens back": "2", "aligned": "66.7 %", "concatenated": "50.0 %", "upper bound": "66.7 %"},
        {"tokens back": "4", "aligned": "33.3 %", "concatenated": "16.7 %", "upper bound": "33.3 %"},
    ]
    assert plots(found) == ["domains_plot", "windows_plot", "context_plot", "order_plot"]


def test_cells_of_domains_by_lengths(home: Home) -> None:
    found = page(home, recipe())
    assert plots(found) == [
        "domains_plot",
        "lengths_plot",
        "cells_plot",
        "windows_plot",
        "context_plot",
        "order_plot",
    ]
    assert [list(row) for row in found["cells"][:1]] == [["domain, lengths", "target", "achieved", "supply"]]
    assert [row["domain, lengths"] for row in found["cells"]] == [
        f"{domain}, {lengths}" for domain in "ab" for lengths in ("<16", "16-63", ">=64")
    ]


@pytest.mark.parametrize("per_step", [1, 8, 1_000])
def test_the_steps_of_a_stratified_mix_in_both_orders(home: Home, per_step: int) -> None:
    found = page(home, recipe(order="stratified", windows_per_step=per_step))
    assert found["layout"] == "aligned, stratified"
    assert found["steps"] == f"{per_step:,} windows each"
    assert [row["order"] for row in found["off_the_shares"]] == ["stratified", "shuffled"]
    assert plots(found)[-1] == "steps_plot"


def test_the_sources_of_a_merge(home: Home) -> None:
    """Source x has its turn first: 8 tokens of it, then 16 of y."""
    sources = tuple(Slice(name=name, generation="tiny", clusters=(k,)) for k, name in enumerate(("x", "y")))
    made = recipe(
        strategy="interleaved",
        sequence_length=8,
        selection=None,
        aligned=None,
        interleaved=Interleaved(chunk_tokens=8, sources=sources),
    )
    found = page(home, made, documents=[(8, 0), (8, 1), (9, 1)])
    assert found["sources"] == [
        {"name": "x", "asked": "32.00 %", "achieved": "32.00 %", "error": "+0", "supply": "8"},
        {"name": "y", "asked": "68.00 %", "achieved": "68.00 %", "error": "+0", "supply": "17"},
    ]
    # Of the three windows a third is of x, and the first is all of it: 5 tokens too many of 8, cut to whole ones.
    assert found["off_the_shares"] == [{"order": "this one", "worst step": "62.5 %", "worst prefix": "0.6 windows"}]
    assert "lengths" not in found


def test_a_control_is_shown_beside_its_mix(home: Home) -> None:
    source = {"tiny": corpus(home)}
    build_mix(recipe(), source, home)
    same = told(mix(build_mix(control(recipe()), source, home), home))
    assert list(same["context"][0]) == ["tokens back", "concatenated", "aligned", "upper bound"]
    other = control(recipe(mix="tiny_aligned"))
    shorter = Recipe(**{name: getattr(other, name) for name in Recipe.__slots__} | {"sequence_length": 32, "mix": "z"})
    found = told(mix(build_mix(shorter, source, home), home))
    assert list(found["context"][0]) == ["tokens back", "concatenated", "upper bound"]


def test_what_a_loss_means(home: Home) -> None:
    found = told(mix(build_mix(recipe(), {"tiny": plain_corpus(home)}, home), home))
    assert found["loss_reference"][0] == {
        "nats a token": "10.82",
        "who settles there knows": "nothing: ln(50,257)",
    }
    assert found["loss_reference"][1]["who settles there knows"] == "token frequencies only: is the order lost?"
