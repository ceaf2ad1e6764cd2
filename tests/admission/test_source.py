"""The verifier's own reading of a source range: one pass, its digest, and what makes it impossible."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from casebits_dagster.admission import source, verify_region
from casebits_dagster.admission.checks import Proof
from casebits_dagster.admission.source import SourceRange, SourceRows
from casebits_dagster.records.errors import Rejected
from casebits_dagster.records.plan import RegionSpec
from casebits_dagster.records.region import Receipt
from tests.faults.build import Made, make_region, seal
from tests.faults.world import SOURCE, make_world, source_rows


@pytest.fixture
def made(tmp_path: Path, pins: Path) -> Made:
    return make_region(*make_world(tmp_path, pins), 0)


def rows_of(made: Made, end: int, scored: set[int]) -> SourceRows:
    spec = RegionSpec(0, SOURCE, "rows", 0, end)
    receipt = Receipt.parse((made.folder / "receipt.json").read_bytes(), "receipt.json")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Proof, "require_equal", lambda *names: None)
        found = SourceRange(made.generation.source, spec, ("characters",))
        return found.read(scored, receipt, Proof("0", full=False))[0]


def test_columns_and_scores(made: Made) -> None:
    wanted = source_rows()[:23]
    sound = [number for number, row in enumerate(wanted) if not row.reason]
    read = rows_of(made, 23, set(range(23)))
    assert read.quarantined.tolist() == [row.reason != "" for row in wanted]
    assert {row: measured["characters"] for row, measured in read.scores.items()} == {
        number: 10**6 * len(wanted[number].text.decode()) for number in sound
    }
    assert [row.any() for row in read.digests] == (~read.quarantined).tolist()


def test_the_digest_covers_every_column(made: Made) -> None:
    first, second = (rows_of(made, end, set()) for end in (23, 22))
    assert (len(first.digest()), first.digest() == second.digest()) == (64, False)
    assert np.array_equal(first.digests[:22], second.digests)


def test_the_text_of_one_row(made: Made) -> None:
    spec = RegionSpec(0, SOURCE, "rows", 5, 97)
    found = SourceRange(made.generation.source, spec, ())
    sound = [number for number, row in enumerate(source_rows()) if number >= 5 and not row.reason]
    places = [found.find(number - 5) for number in sound]
    assert [block.text_of(row) for block, row in places] == [source_rows()[number].text for number in sound]
    with pytest.raises(IndexError):
        found.find(92)


def test_a_plan_beyond_the_source_file(made: Made) -> None:
    generation, receipt = made.generation, made.receipt
    long = replace(generation, plan=(replace(generation.plan[0], end=1000),))
    resealed(made, receipt | {"source": receipt["source"] | {"end": 1000}})
    message = (
        rf"^L4_SOURCE_RANGE 00000/receipt.json: source.path: SOURCE_INVALID {SOURCE}: expected 1000 rows, read 97$"
    )
    with pytest.raises(Rejected, match=message):
        verify_region(made.folder, long)


def resealed(made: Made, receipt: dict[str, object]) -> None:
    del receipt["content_id"]
    for path in made.folder.iterdir():
        path.unlink()
    made.folder.rmdir()
    seal(replace(made, receipt=receipt))


def test_trouble_with_the_machine_is_no_refusal(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*names: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setitem(source.READERS, "parquet_tokens", broken)
    with pytest.raises(PermissionError, match="Permission denied"):
        verify_region(made.folder, made.generation)


def test_every_format_of_a_pin_has_a_reader(made: Made) -> None:
    formats = ["climbmix_jsonl", "flat_u16", "jsonl_text", "parquet_text", "parquet_tokens"]
    assert sorted(source.READERS) == formats
