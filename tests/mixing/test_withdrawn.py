"""What is withdrawn is in no mix that is built later, and the verifier refuses a mix that holds it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from casebits_dagster.lineage.mix_summary import mix_lines
from casebits_dagster.mixing.build import build_mix
from casebits_dagster.mixing.sources import Withdrawn
from casebits_dagster.mixing.verify import verify_mix
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.errors import CasebitsError, RecordError
from casebits_dagster.records.layout import Home
from casebits_dagster.records.mix import REPORT, TABLE, MixReport, val_name
from casebits_dagster.records.recipe import Interleaved, Recipe, Slice
from casebits_dagster.records.withdrawal import LeftOut, SourceRow, Withdrawal, WithdrawalUsed, load_withdrawals, used
from tests.mixing.corpus import TinySource, control, corpus, recipe
from tests.mixing.mix_mutations import seal

PIN = WithdrawalUsed(name="letter", sha256="ab" * 32)
MERGE = Recipe(
    mix="merge",
    description="a merge",
    strategy="interleaved",
    sequence_length=64,
    windows_per_shard=32,
    seed="merge",
    interleaved=Interleaved(chunk_tokens=100, sources=(Slice(name="all", generation="tiny"),)),
)


def without(source: TinySource, rows: list[int]) -> tuple[TinySource, list[str]]:
    """Return the source with the texts of these index rows withdrawn, and their ids."""
    ids = np.unique(source.index["id"][rows])
    return replace(source, withdrawn=Withdrawn(ids, (PIN,))), [text.hex() for text in ids.tolist()]


def held(home: Home, mix: str) -> set[str]:
    tables = (np.load(home.mix(mix) / name) for name in (TABLE, val_name(TABLE)))
    return {text.hex() for table in tables for text in table["id"].tolist()}


@pytest.mark.parametrize("made", [recipe(windows=60), MERGE], ids=lambda one: str(one.strategy))
def test_a_mix_leaves_out_what_is_withdrawn_and_says_how_many(home: Home, tmp_path: Path, made: Recipe) -> None:
    source, before = corpus(home), Home(tmp_path / "before")
    build_mix(made, {"tiny": corpus(before)}, before)
    asked, ids = without(source, [3, 5, 100, 200])
    assert held(before, made.mix) & set(ids) != set()
    built = build_mix(made, {"tiny": asked}, home)
    assert held(home, made.mix) & set(ids) == set()
    assert built.report.withdrawn == LeftOut(withdrawals=(PIN,), documents=4, ids=tuple(ids))
    assert "  withdrawn  4 documents left out, of 4 texts" in mix_lines(built.report)
    checks = {check.id: check.examined for check in verify_mix(built.folder, home).checks}
    assert checks["MIX_WITHDRAWN"] == built.report.train.documents + built.report.validation.documents


def test_a_text_of_several_regions_is_left_out_everywhere(home: Home) -> None:
    from tests.mixing.corpus import publish

    source = publish(home, "tiny", [[(30, 0)] * 40, [(30, 100)] * 2 + [(30, 1)] * 40])
    asked, ids = without(source, [0])
    report = build_mix(replace(MERGE, mix="twice"), {"tiny": asked}, home).report
    assert report.withdrawn == LeftOut(withdrawals=(PIN,), documents=3, ids=tuple(ids))


def test_no_byte_changes_when_nothing_of_the_sources_is_withdrawn(home: Home, tmp_path: Path) -> None:
    other = Home(tmp_path / "other")
    plain = build_mix(recipe(), {"tiny": corpus(home)}, home)
    foreign = Withdrawn(np.frombuffer(bytes(range(16)), "V16"), (PIN,))
    same = build_mix(recipe(), {"tiny": replace(corpus(other), withdrawn=foreign)}, other)
    assert (same.manifest_sha256, same.report.withdrawn) == (plain.manifest_sha256, None)


def test_a_published_mix_is_not_made_again_without_them(home: Home) -> None:
    source = corpus(home)
    build_mix(recipe(), {"tiny": source}, home)
    with pytest.raises(CasebitsError) as caught:
        build_mix(recipe(), {"tiny": without(source, [3])[0]}, home)
    assert str(caught.value) == (
        "MIX_WITHDRAWN mixes/tiny_aligned: is published from other withdrawals (a published mix is never overwritten: "
        "declare a new name, or remove its folder yourself)"
    )


def test_a_control_of_a_mix_that_holds_one_is_refused(home: Home) -> None:
    source = corpus(home)
    build_mix(recipe(), {"tiny": source}, home)
    taken = bytes.fromhex(min(held(home, "tiny_aligned")))
    asked = replace(source, withdrawn=Withdrawn(np.frombuffer(taken, "V16"), (PIN,)))
    with pytest.raises(CasebitsError) as caught:
        build_mix(control(recipe()), {"tiny": asked}, home)
    assert str(caught.value) == (
        "MIX_WITHDRAWN mix tiny_aligned: holds 1 withdrawn documents (build tiny_aligned again under a new name, and "
        "lay out the documents of that)"
    )


def test_a_control_says_what_its_mix_left_out(home: Home) -> None:
    asked, _ = without(corpus(home), [3, 5])
    first = build_mix(recipe(), {"tiny": asked}, home)
    second = build_mix(control(recipe()), {"tiny": asked}, home)
    assert second.report.withdrawn == first.report.withdrawn
    assert verify_mix(second.folder, home).manifest_sha256 == second.manifest_sha256


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda one, text: replace(one, documents=one.documents + 1),
            "MIX_WITHDRAWN withdrawn: documents, ids, expected (2, 2), read (3, 2)",
        ),
        (
            lambda one, text: replace(one, ids=tuple(sorted((*one.ids, text)))),
            "MIX_WITHDRAWN documents.npy[0]: was withdrawn when the mix was built",
        ),
        (
            lambda one, text: replace(one, ids=(*one.ids, "f" * 32)),
            "MIX_WITHDRAWN withdrawn: documents, ids, expected (2, 2), read (2, 3)",
        ),
    ],
)
def test_the_verifier_refuses_a_report_that_does_not_fit(home: Home, change: object, said: str) -> None:
    asked, _ = without(corpus(home), [3, 5])
    folder = build_mix(recipe(), {"tiny": asked}, home).folder
    report = MixReport.parse((folder / REPORT).read_bytes(), REPORT)
    assert report.withdrawn is not None
    text = np.load(folder / TABLE)["id"][0].tobytes().hex()
    changed = change(report.withdrawn, text)  # type: ignore[operator]
    (folder / REPORT).write_bytes(replace(report, withdrawn=changed).to_bytes())
    seal(folder)
    with pytest.raises(CasebitsError) as caught:
        verify_mix(folder, home)
    assert str(caught.value) == said


def test_withdrawals_are_pins(tmp_path: Path) -> None:
    folder = tmp_path / "withdrawals"
    assert load_withdrawals(tmp_path) == {}
    folder.mkdir()
    (folder / "letter.toml").write_text(
        'withdrawn_by = "A Person"\nwithdrawn_on = "2026-03-04"\nreason = "The author asked."\n'
        f'documents = ["{"0f" * 16}"]\n[[rows]]\ngeneration = "sample"\npath = "pd_mix.parquet"\nposition = 2\n'
    )
    pin = Withdrawal(
        withdrawn_by="A Person",
        withdrawn_on="2026-03-04",
        reason="The author asked.",
        documents=("0f" * 16,),
        rows=(SourceRow(generation="sample", path="pd_mix.parquet", position=2),),
    )
    assert load_withdrawals(tmp_path) == {"letter": pin}
    assert used({"letter": pin}) == (WithdrawalUsed(name="letter", sha256=sha256(pin.to_bytes())),)
    path = folder / "none.toml"
    path.write_text('withdrawn_by = "A"\nwithdrawn_on = "2026-03-04"\nreason = "why"\n')
    with pytest.raises(RecordError) as caught:
        load_withdrawals(tmp_path)
    assert str(caught.value) == f"PIN_INVALID {path}: names no document and no source row"
