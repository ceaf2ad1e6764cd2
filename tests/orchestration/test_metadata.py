"""What makes a code version move, and how tables are typed."""

from __future__ import annotations

import dagster as dg

from casebits_dagster.orchestration.metadata import code_version, counted, table
from casebits_dagster.orchestration.partitions import plain_name


def test_a_code_version_moves_with_stage_version_and_pins_alone() -> None:
    version = code_version("filtered_documents", 1, {"plan": "a"})
    assert version == code_version("filtered_documents", 1, {"plan": "a"})
    others = [
        code_version("filtered_documents", 2, {"plan": "a"}),
        code_version("filtered_documents", 1, {"plan": "b"}),
        code_version("encoded_arrays", 1, {"plan": "a"}),
    ]
    assert len({version, *others}) == 4


def test_columns_are_those_of_the_rows() -> None:
    shown = table([{"region": "00000", "tokens": 5, "share": 0.5, "empty": False}])
    assert isinstance(shown, dg.TableMetadataValue)
    columns = {column.name: column.type for column in shown.schema.columns}
    assert columns == {"region": "string", "tokens": "int", "share": "float", "empty": "bool"}


def test_a_table_without_rows_says_so() -> None:
    assert table([]) == "none"


def test_counts_come_largest_first() -> None:
    shown = counted({"b": 1, "a": 1, "c": 2}, 8)
    assert isinstance(shown, dg.TableMetadataValue)
    assert [dict(record.data) for record in shown.records] == [
        {"reason": "c", "rows": 2, "share": "25.0 %"},
        {"reason": "a", "rows": 1, "share": "12.5 %"},
        {"reason": "b", "rows": 1, "share": "12.5 %"},
    ]


def test_pins_may_have_names_that_dagster_does_not_take() -> None:
    assert plain_name("climbmix-2026.1") == "climbmix_2026_1"
