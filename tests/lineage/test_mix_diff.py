from __future__ import annotations

from decimal import Decimal

import pytest

from casebits_dagster.lineage.mix_diff import Documents, MixDiff, diff_lines, mix_diff
from casebits_dagster.mixing.build import build_mix
from casebits_dagster.records.layout import Home
from casebits_dagster.records.recipe import Domain, Lengths
from tests.mixing.corpus import corpus, publish, recipe


@pytest.fixture
def found(home: Home) -> MixDiff:
    """Mixes of four documents of 8 tokens and of two of them; the larger one has a further cluster."""
    source = {"tiny": publish(home, "tiny", [[(8, 0)] * 2 + [(8, 1)] * 2])}
    lengths = Lengths(edges=(), profile=(Decimal(1),))
    both = tuple(Domain(name=n, generation="tiny", clusters=(k,), share=Decimal("0.5")) for k, n in enumerate("xy"))
    one = (Domain(name="x", generation="tiny", clusters=(0,), share=Decimal(1)),)
    for name, windows, domains in (("large", 4, both), ("small", 2, one)):
        made = recipe(
            mix=name, sequence_length=8, windows=windows, domains=domains, lengths=lengths, validation_windows=0
        )
        build_mix(made, source, home)
    return mix_diff(home.mix("large"), home.mix("small"))


def test_what_differs_is_told_in_lines(found: MixDiff) -> None:
    assert list(diff_lines(found)) == [
        "A large, B small",
        "  recipe: ",
        '    mix: "large" -> "small"',
        '    selection.domains.x.share: "0.500000" -> "1.000000"',
        "    selection.domains.y.clusters: [1] -> (none)",
        "    selection.domains.y.epochs: 1 -> (none)",
        '    selection.domains.y.generation: "tiny" -> (none)',
        '    selection.domains.y.name: "y" -> (none)',
        '    selection.domains.y.share: "0.500000" -> (none)',
        "    selection.windows: 4 -> 2",
        "  sources: the same",
        "  files: ",
        "    train.documents: 4 -> 2",
        "    train.file_tokens: 33 -> 17",
        "    train.segments: 4 -> 2",
        "    train.windows: 4 -> 2",
        "  documents:",
        "    in A only              2 documents                16 tokens",
        "    in B only              0 documents                 0 tokens",
        "    in both                2 documents                16 tokens",
        "  domain             A           B       B - A",
        "  x            50.00 %    100.00 %      +50.00",
        "  y            50.00 %           -           -",
        "  length             A           B       B - A",
        "  all         100.00 %    100.00 %       +0.00",
        "  sees its own text             A           B       B - A",
        "  2 tokens                75.00 %     75.00 %       +0.00",
        "  4 tokens                50.00 %     50.00 %       +0.00",
        "  6 tokens                25.00 %     25.00 %       +0.00",
    ]


def test_the_record_is_read_back(found: MixDiff) -> None:
    assert MixDiff.parse(found.to_bytes(), "diff") == found


def test_a_mix_is_not_different_from_itself(home: Home) -> None:
    folder = build_mix(recipe(), {"tiny": corpus(home)}, home).folder
    same = mix_diff(folder, folder)
    nothing = Documents(documents=0, tokens=0)
    assert (same.recipe, same.sources, same.files, same.only_a, same.only_b) == ((), (), (), nothing, nothing)
