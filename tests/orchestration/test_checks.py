"""How a refusal is laid out over the checks of its asset."""

from __future__ import annotations

import shutil
from pathlib import Path

from casebits_dagster.orchestration.checks import mix_results, refusal, rejected_layers
from casebits_dagster.records.errors import Refused, Rejected
from casebits_dagster.records.layout import Home
from casebits_dagster.records.mix import SEGMENTS

REJECTED = Rejected("L4_TEXT", "00013/ids", "another text", expected=b"a", read=b"b", document=0, position=7)


def test_layers_before_the_failed_one_passed_and_those_after_were_not_reached() -> None:
    results = rejected_layers(REJECTED)
    assert [(one.check_name, one.passed, one.severity.value, one.description) for one in results] == [
        ("L1_shape", True, "ERROR", "passed before L4_TEXT failed"),
        ("L2_structure", True, "ERROR", "passed before L4_TEXT failed"),
        ("L3_declared_ids", True, "ERROR", "passed before L4_TEXT failed"),
        ("L4_source", False, "ERROR", str(REJECTED)),
        ("L5_segmentation", False, "WARN", "not reached: L4_TEXT failed before"),
    ]


def test_a_refusal_names_document_and_position_also_when_they_are_zero() -> None:
    assert refusal(REJECTED) == {
        "check": "L4_TEXT",
        "proves": "each decoded document is, byte for byte, the text of its source row",
        "where": "00013/ids",
        "problem": "another text",
        "document": 0,
        "position": 7,
        "expected": "b'a'",
        "read": "b'b'",
    }
    absent = Refused("LATEST_MISSING", "LATEST.json", remedy="publish first")
    assert refusal(absent) == {"check": "LATEST_MISSING", "where": "LATEST.json", "remedy": "publish first"}


def test_a_mix_that_rotted_on_disk_fails_its_check(sample_home: Home, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    shutil.copytree(sample_home.root, home.root)
    path = home.mix("sample_aligned") / SEGMENTS
    broken = bytearray(path.read_bytes())
    broken[-1] ^= 1
    path.write_bytes(broken)
    (verified,) = mix_results(home.mix("sample_aligned"), home)
    assert (verified.check_name, verified.passed) == ("verified", False)
    assert verified.metadata["check"].value == "FILE_HASH"
