"""Python functions in place of expressions write what the functions of the library write."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.soak import sized, soak
from tests.support.twin_drivers import BEGIN, Piped, compare, late_records, random_records
from tests.support.twin_topologies import program

REGROUPED = (
    *(("k", b'{"n": 1, "s": "x"}'), ("k", b'{"n": 4, "s": "x"}'), ("l", b'{"n": 2, "s": "x"}')),
    *(("k", b'{"n": 6, "s": "y"}'), ("l", None), ("l", b'{"n": 5}')),
)
"""Updates of a table: into a group, within it, into another one, out of all, and into none."""

OF_TABLES = {
    "tables": "unstored_table a; python_table_filter; to_stream; to kept; @0 python_table_filter_not_stored; "
    "python_table_map_values_stored; to_stream; to mapped",
    "results": "stream a; python_group_by; aggregate; python_table_filter; python_table_map_values; to_stream; "
    "to totals; @0 python_select_key; to copied; @0 keyed_map; to mapped; @0 keyed_python_map; group_by_key; count",
}
IN_WINDOWS = (
    "stream a; group_by_key; short_hops; aggregate; python_table_filter_not; to_stream; windows; to kept; "
    "@3 python_table_map_values; to_stream; windows; to mapped"
)
GROUPED = (
    "table a; python_group_table; table_reduce; to_stream; to_text reduced; @0 python_group_even; count; to_stream; "
    "counts; to_text counted"
)
LOOKED_UP = "global_table t; stream a; python_left_join_global 0; to joined"


@pytest.mark.parametrize(("text", "seed", "count"), sized(OF_TABLES, ["tables"], (1, 4), (1, 30)))
def test_functions_of_a_table_and_of_keys_do_what_those_of_the_library_do(
    spark: SparkSession, jvm: Any, text: str, seed: int, count: int
) -> None:
    steps = program(text)
    assert compare(spark, jvm, steps, random_records(seed, steps, count)) > 0


@pytest.mark.parametrize("count", [6, *soak([10])])
def test_functions_of_a_table_of_windows_do_what_those_of_the_library_do(
    spark: SparkSession, jvm: Any, count: int
) -> None:
    steps = program(IN_WINDOWS)
    assert compare(spark, jvm, steps, late_records(1, steps, count)) > 5


@pytest.mark.soak
def test_a_function_groups_a_table_as_in_the_library(spark: SparkSession, jvm: Any) -> None:
    """Also behind a restore from the changelog of the table."""
    records = [Piped("a", key, value, BEGIN + at) for at, (key, value) in enumerate(REGROUPED)]
    assert compare(spark, jvm, program(GROUPED), records, restored_at=(3,)) > len(records)


def test_a_function_looks_up_the_key_of_a_global_table_as_in_the_library(spark: SparkSession, jvm: Any) -> None:
    steps = program(LOOKED_UP)
    records = [each for each in random_records(1, steps, 16) if each.topic != "t" or b"no" not in (each.value or b"")]
    records = [each for each in records if each.topic != "t" or b'"1"' not in (each.value or b"")]
    assert compare(spark, jvm, steps, records) > 0
