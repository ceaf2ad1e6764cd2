from __future__ import annotations

import pickle

import pytest

from casebits_dagster.records.errors import REFUSAL_CODES, Absent, CasebitsError, RecordError, Refused, Rejected


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            RecordError("JSON_INVALID", "a.json: x", expected=1, read=2),
            "JSON_INVALID a.json: x: expected 1, read 2",
        ),
        (Absent("FILE_MISSING", "a", "there is no file"), "FILE_MISSING a: there is no file"),
        (
            Refused("FILE_HASH", "a", "bytes differ", expected="0", read="1", remedy="fetch it again"),
            "FILE_HASH a: bytes differ, expected 0, read 1 (fetch it again)",
        ),
        (CasebitsError("PIN_HASH", "a", expected=None, read=0), "PIN_HASH a: expected None, read 0"),
    ],
)
def test_text_names_code_place_expected_read_and_remedy(error: CasebitsError, text: str) -> None:
    assert str(error) == text


def test_errors_cross_process_borders() -> None:
    error = Rejected("L2.eod", "ids", "no EOD", expected=0, read=7, remedy="rebuild", document=3, position=41)
    assert str(error) == "L2.eod ids: no EOD, expected 0, read 7 (rebuild) [document 3, position 41]"
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.__dict__) == (Rejected, str(error), error.__dict__)
    refused = Refused("GAP", "manifest", "hole")
    again = pickle.loads(pickle.dumps(refused))
    assert (type(again), str(again), again.__dict__) == (Refused, str(refused), refused.__dict__)


def test_the_list_of_refusals_is_closed() -> None:
    assert len(REFUSAL_CODES) == 42
    assert {"JSON_DUPLICATE_KEY", "EQUIVOCATION", "STORE_UNREACHABLE", "STORE_PROTOCOL"} <= REFUSAL_CODES
