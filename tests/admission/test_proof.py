"""The table of checks and the collection of their results."""

from __future__ import annotations

import subprocess
import sys

import pytest

from casebits_dagster.admission.checks import SAMPLE_LEAST, Proof, check_table

PRODUCER = (
    "casebits_dagster.codec",
    "casebits_dagster.filters",
    "casebits_dagster.regions",
    "casebits_dagster.sources",
)


def test_table_is_in_layer_order_with_unique_ids() -> None:
    table = check_table()
    assert len({check.id for check in table}) == len(table)
    assert [check.layer for check in table] == sorted(check.layer for check in table)
    assert [check.id[:2] for check in table] == [check.layer for check in table]
    assert [check.id for check in table if check.version < 1 or not check.proves] == []


def test_a_small_population_is_examined_in_full() -> None:
    proof = Proof("00000", full=False)
    assert proof.sample("L4_SCORES", SAMPLE_LEAST) == list(range(SAMPLE_LEAST))
    assert proof.sample("L4_SCORES", 0) == []


def test_a_sample_is_fixed_by_the_receipt_and_the_check() -> None:
    proof = Proof("00000", full=False)
    proof.seed("ab" * 32)
    drawn = proof.sample("L4_SCORES", 1000)
    assert drawn[:4] == [83, 91, 139, 162]
    assert (len(set(drawn)), drawn) == (SAMPLE_LEAST, sorted(drawn))
    assert proof.sample("L4_SCORES", 1000) == drawn
    assert proof.sample("L5_SEGMENTATION", 1000) != drawn
    proof.seed("cd" * 32)
    assert proof.sample("L4_SCORES", 1000) != drawn


def test_full_mode_examines_everything() -> None:
    assert Proof("00000", full=True).sample("L4_SCORES", 100) == list(range(100))


def test_a_check_that_never_ran_is_no_admission() -> None:
    proof = Proof("00000", full=False)
    for check in check_table()[:-1]:
        proof.passed(check.id, 1)
    with pytest.raises(KeyError, match="L5_SEGMENTATION"):
        proof.results()


def test_importing_the_verifier_loads_no_producer() -> None:
    program = "import sys, casebits_dagster.admission; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert [name for name in loaded if name.startswith(PRODUCER)] == []
