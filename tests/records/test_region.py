from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from casebits_dagster.records.digests import sha256
from casebits_dagster.records.region import Receipt, SplitPin
from tests.records.strategies import records


@settings(max_examples=10, deadline=None)
@given(st.data())
def test_content_id_is_over_everything_but_itself(data: st.DataObject) -> None:
    receipt: Receipt = data.draw(records(Receipt)).sealed()
    assert receipt.content_id == receipt.expected_content_id()
    unsealed = replace(receipt, content_id="")
    head, tail = unsealed.to_bytes().split(b'"content_id":"",', 1)
    assert receipt.content_id == sha256(head, tail)
    changed = replace(receipt, verdicts_digest=sha256(receipt.verdicts_digest.encode()))
    assert changed.expected_content_id() != receipt.content_id


def test_split_threshold_is_the_floor_of_the_share_of_two_to_the_64() -> None:
    def threshold(share: str) -> int:
        return SplitPin(rule="sha256-salt-id", salt="s", share=Decimal(share)).threshold

    assert [threshold("0"), threshold("0.001"), threshold("0.5"), threshold("1")] == [
        0,
        18446744073709551,
        2**63,
        2**64,
    ]
