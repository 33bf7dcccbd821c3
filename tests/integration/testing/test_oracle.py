"""TopologyTestDriver beside the JVM library's: operations, functions and processors, and random topologies.

The files beside it, test_oracle_*.py, compare windows, several states of one sub-topology, and joins.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pyspark.sql import SparkSession
from streamplan.serdes.changes import written_change

from tests.support.process_task import Arrived, ProcessTask
from tests.support.soak import seeds, sized
from tests.support.twin_drivers import (
    APPLICATION,
    BEGIN,
    COGROUPED,
    FINAL,
    SESSIONS_IN_ALL_WAYS,
    TABLES_JOINED_IN_ALL_WAYS,
    LibraryDriver,
    Piped,
    compare,
    last_of_each_key,
    late_records,
    random_records,
    table_records,
    without_empty_deletions,
)
from tests.support.twin_topologies import (
    GAPS_STATE,
    VALUE,
    Gaps,
    Program,
    drawn,
    program,
)

OUTPUTS = {
    "count": "stream a; filter; group_by; count; to_stream; counts; to counts",
    "joins of streams": "stream b; stream a; filter; join_soon 0; to joined; @1 to copied",
    "several of one record": "stream a; each; to each; @1 map_values; select_key; to mapped",
    "functions": "stream a; python_filter; python_map_values; to mapped; @0 python_map; to keyed; "
    "@0 python_flat_map; group_by_key; greatest",
    "cogroup": COGROUPED % "",
    "processors without a store": "stream a; process_freely; to copies; @0 process_values; to values; @3 group_by_key; "
    "count; to_stream; counts; to counts; @1 group_by_key; count; @0 process_for_one; to all",
    "branches and values": "stream a; filter_not; flat_map_values; to values; @0 python_filter_not; "
    "python_flat_map_values; group_by_key; count; @0 split; branch_1; to one; @8 branch_2; to two; @8 branch_x; "
    "to three; @8 branch_0; select_key; group_by_key; count; @0 split_loosely; branch_2; to large",
    "told timestamps": "stream_at a; group_by_key; short_windows; count; to_stream; window_counts; to counts; "
    "stream_told b; to copied; @7 group_by_key; sessions; count; @0 map_values; to mapped; stream_told c; stream_at d; "
    "join_soon 14; to joined",
    "one source of several topics": "stream a,b; filter; to copied; @0 group_by; count; to_stream; counts; to counts; "
    "@0 group_by_key; python_aggregate; to_stream; to last; stream_at c,d; map_values; to mapped",
    "a topic that is written, and read twice": "stream a; filter; to passed; stream passed; group_by_key; count; "
    "to_stream; counts; to counts; stream passed; filter_not; to others",
}


@pytest.mark.parametrize(
    ("text", "seed", "count"),
    [
        *sized(
            OUTPUTS,
            ["several of one record", "cogroup", "processors without a store", "branches and values"],
            (4, 4),
            (1, 6),
        ),
        *(
            pytest.param(OUTPUTS[name], 1, 6, id=name)
            for name in ("functions", "a topic that is written, and read twice")
        ),
        *(
            pytest.param(OUTPUTS[name], 1, 6, id=name, marks=pytest.mark.soak)
            for name in ("one source of several topics", "told timestamps")
        ),
    ],
)
def test_an_output_is_that_of_the_library(spark: SparkSession, jvm: Any, text: str, seed: int, count: int) -> None:
    steps = program(text)
    assert compare(spark, jvm, steps, random_records(seed, steps, count)) > 0


OF_TABLES = {
    "tables": "unstored_table a; table_filter; to_stream; to kept; @0 table_filter_not; table_map_values; to_stream; "
    "to mapped; @0 table_map_values; table_filter; table_filter_not; to_stream; filter; to none",
    "with stores": "unstored_table a; table_filter_stored; to_stream; to kept; @0 table_filter_not_stored; "
    "table_map_values_stored; table_map_values; to_stream; to mapped; @0 table_map_values; table_filter_stored",
    "streams as tables": "stream a; to_table; table_filter; to_stream; to kept; @0 filter; select_key; "
    "to_table_stored; table_map_values; to_stream; to others; @6 to_table; table_filter_not_stored; to_stream; "
    "group_by; count",
    "values of windows": "stream a; group_by_key; hopping_windows; count; count_values; to_stream; windows; to counts; "
    "stream b; group_by_key; sessions; aggregate; table_map_values; to_stream; session_values; to sessions",
    "values of aggregates": "stream a; group_by; count; count_values; to_stream; to values; @2 count_values_stored; "
    "table_map_values; to_stream; to twice; @0 group_by_key; aggregate; table_map_values_stored; to_stream; filter; "
    "to totals; @10 greatest; table_map_values; to_stream; to greatest",
    "what is behind": "unstored_table a; table_filter; to_stream; group_by; count; @1 to_stream; group_by_key; "
    "aggregate; unstored_table d; table_filter; to_stream; unstored_table e; to_stream; merge 10; to merged",
}


@pytest.mark.parametrize(("text", "seed", "count"), sized(OF_TABLES, [*OF_TABLES][:4], (1, 6), (1, 12)))
def test_an_operation_of_a_table_writes_what_the_library_writes(
    spark: SparkSession, jvm: Any, text: str, seed: int, count: int
) -> None:
    steps = program(text)
    assert compare(spark, jvm, steps, random_records(seed, steps, count)) > 0


REGROUPED = (
    *(("k", b'{"n": 1, "s": "x"}'), ("k", b'{"n": 4, "s": "x"}'), ("l", b'{"n": 2, "s": "x"}')),
    *(("k", b'{"n": 6, "s": "y"}'), ("l", None), ("l", b'{"n": 5}')),
)
"""Updates of a table: into a group, within it, into another one, out of all, and into none."""

GROUPED = {
    "values": "unstored_table a; group_table; table_reduce; to_stream; to_text reduced; @1 count; to_stream; counts; "
    "to_text counted",
    "a filter": "table a; table_filter_not; table_map_values; group_even; count; to_stream; counts; to_text counted; "
    "@2 to_stream; to mapped",
    "a join": "unstored_table a; unstored_table b; @0 left_tables_stored 1; table_filter; group_table; count; "
    "to_stream; counts; to_text counted; @3 to_stream; to kept",
}


LATE = (b'{"n": 1, "s": "v"}', None, b'{"n": 5, "s": "v"}', b'{"n": 2, "s": "v"}', b'{"n": 5, "s": "w"}', None)
"""Updates of one key, each before the one before it."""


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(GROUPED["values"], id="values"),
        pytest.param(GROUPED["a filter"], id="a filter", marks=pytest.mark.soak),
    ],
)
def test_a_grouped_table_writes_what_the_library_writes(spark: SparkSession, jvm: Any, text: str) -> None:
    """A deletion has the time of its record, and not the latest time of the group."""
    records = [Piped("a", key, value, BEGIN + at) for at, (key, value) in enumerate(REGROUPED)]
    records += [Piped("a", "m", value, BEGIN - at) for at, value in enumerate(LATE)]
    assert compare(spark, jvm, program(text), records) > len(records)


@pytest.mark.soak
@pytest.mark.parametrize("text", GROUPED.values(), ids=GROUPED)
def test_tables_are_grouped_as_in_the_library_at_random(spark: SparkSession, jvm: Any, text: str) -> None:
    steps = program(text)
    assert compare(spark, jvm, steps, without_other_fields(random_records(1, steps, 30))) > 0


def without_other_fields(records: Sequence[Piped]) -> list[Piped]:
    """A reducer is given the declared fields."""
    return [record for record in records if b"other" not in (record.value or b"")]


def test_the_values_of_a_grouped_table_have_the_library_s_bytes(jvm: Any) -> None:
    library = LibraryDriver(jvm, program("unstored_table a; group_table; count; to_stream; counts; to_text counted"))
    texts = ["x", "x", "y" * 70, "y" * 70, None, "z" * 9_000, "z" * 9_000]
    values = [None if text is None else json.dumps({"n": n, "s": text}).encode() for n, text in enumerate(texts)]
    try:
        for at, value in enumerate(values):
            library.pipe(Piped("a", "k", value, at))
        sent = [value for _, value, _ in library.raw_outputs()[f"{APPLICATION}-x1-repartition"]]
    finally:
        library.close()
    first, second, third, fourth, _, fifth, sixth = values
    pairs = [(first, None), (second, first), (None, second), (third, None), (fourth, third), (None, fourth)]
    assert sent == [written_change(new, old) for new, old in (*pairs, (fifth, None), (sixth, fifth))]


WITH_OLD_VALUES = {
    "a count": "stream a; group_by; count; often; count_values; group_table; table_aggregate; to_stream; "
    "to_text totals",
    "filters": "stream a; group_by_key; greatest; table_filter; to_stream; to kept; @2 table_filter_not_stored; "
    "to_stream; to others",
    "final results": "stream b; group_by_key; strict_windows; on_close; count; often; to_stream; window_counts; "
    "to counts",
}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(WITH_OLD_VALUES["a count"], id="a count"),
        pytest.param(WITH_OLD_VALUES["filters"], id="filters", marks=pytest.mark.soak),
    ],
)
def test_an_operation_compares_with_the_value_of_an_aggregate_before(spark: SparkSession, jvm: Any, text: str) -> None:
    values = [b'{"n": 1, "s": "x"}', b'{"n": 0, "s": "x"}', b'{"n": 3, "s": "x"}', b'{"n": 2, "s": "y"}']
    records = [Piped("a", "k", value, BEGIN + at) for at, value in enumerate(values)]
    assert compare(spark, jvm, program(text), records) > len(records)


@pytest.mark.soak
@pytest.mark.parametrize("text", WITH_OLD_VALUES.values(), ids=WITH_OLD_VALUES)
def test_operations_compare_with_old_values_at_random(spark: SparkSession, jvm: Any, text: str) -> None:
    steps = program(text)
    assert compare(spark, jvm, steps, random_records(1, steps, 30)) > 0


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1000))
def test_a_random_topology_writes_what_the_library_writes(spark: SparkSession, jvm: Any, seed: int) -> None:
    steps = drawn(seed)
    compare(spark, jvm, steps, without_empty_deletions(steps, random_records(seed, steps, 25)))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100))
@pytest.mark.parametrize(
    "text",
    [
        "stream a; process; to processed; @0 to copied",
        "stream a; map_values; each; repartition; process; map_values; to processed",
        "stream a; process; repartition; map_values; to processed",
        "stream a; stream b; merge 0; process; to processed",
    ],
)
def test_a_class_with_state_does_what_a_processor_of_the_library_does(
    spark: SparkSession, jvm: Any, text: str, seed: int
) -> None:
    """With a punctuator in stream time, deletions, late, early and equal timestamps, and nulls as keys and values."""
    steps, chosen = program(text), random.Random(seed)
    records = late_records(seed, steps, 60)
    deleting = [record._replace(value=b'{"n": 1}') if chosen.random() < 0.15 else record for record in records]
    assert compare(spark, jvm, steps, deleting) > 0


AGGREGATED_BY_FUNCTIONS = (
    "stream a; group_by_key; python_reduce; to_stream; to totals; stream b; map_values; group_by; python_aggregate; "
    "to_stream; to sums"
)


@pytest.mark.parametrize(
    ("text", "seed", "count"),
    [
        (AGGREGATED_BY_FUNCTIONS, 1, 9),
        pytest.param(AGGREGATED_BY_FUNCTIONS, 1, 20, marks=pytest.mark.soak),
        *(pytest.param(text, seed, 60, marks=pytest.mark.soak) for seed in range(2, 40) for text in (
            "stream a; group_by_key; python_aggregate; to_stream; to totals",
            "stream a; group_by; python_reduce; to_stream; map_values; select_key; group_by_key; count; to_stream; "
            "counts; to totals",
            "stream a; stream b; merge 0; group_by; python_aggregate; to_stream; filter; to totals; @5 to all",
        )),
    ],
)  # fmt: skip
def test_functions_aggregate_as_those_of_the_library_do(
    spark: SparkSession, jvm: Any, text: str, seed: int, count: int
) -> None:
    """With deletions of keys that there are and are not, late records, and nulls as keys and values."""
    steps = program(text)
    records = late_records(seed, steps, count)
    assert compare(spark, jvm, steps, records) > len(records) // 3


FUNCTIONS_COGROUPED = (
    "stream a; group_by_key; stream b; filter; group_by; @1 python_cogroup 4;%s python_cogrouped; to_stream; to totals"
)


@pytest.mark.parametrize(
    ("windows", "seed", "count"),
    [
        ("", 3, 6),
        pytest.param("", 3, 16, marks=pytest.mark.soak),
        *(pytest.param(windows, seed, 50, marks=pytest.mark.soak) for seed in range(4, 14)
          for windows in ("", " sessions;", " hopping_windows;")),
    ],
)  # fmt: skip
def test_functions_of_several_streams_aggregate_as_those_of_the_library_do(
    spark: SparkSession, jvm: Any, windows: str, seed: int, count: int
) -> None:
    steps = program(FUNCTIONS_COGROUPED % windows)
    if "sessions" in windows:
        steps = program((FUNCTIONS_COGROUPED % windows).replace("to totals", "to_sessions totals"))
    assert compare(spark, jvm, steps, random_records(seed, steps, count), deletes=False) > 5


@pytest.mark.parametrize("seed", seeds(1, 102))
def test_the_store_of_a_class_has_the_bytes_of_the_library(jvm: Any, seed: int) -> None:
    """And its results their order. The state alone, without Spark. The library logs each put, and here the last one."""
    chosen, library = random.Random(seed), LibraryDriver(jvm, program("stream a; process; to processed"))
    task = ProcessTask(Gaps, GAPS_STATE, VALUE.schema, timer="due", value=VALUE)
    written = 0
    try:
        for offset, record in enumerate(late_records(seed, program("stream a"), 60)):
            if record.value == b"no JSON":
                continue
            value = b'{"n": 1}' if chosen.random() < 0.15 else record.value
            library.pipe(record._replace(value=value))
            its = library.raw_outputs()
            task.changes.clear()
            made = task.process([Arrived(record.key, record.at, None, offset, value)])
            results = [(one.key, one.value, one.at) for one in made if one.reason is None]
            parsed = [(key, data and json.loads(data), at) for key, data, at in its.pop("processed", [])]
            assert [(key and key.encode(), value, at) for key, value, at in results] == parsed
            changed = last_of_each_key(its).values()
            assert sorted(task.changes) == sorted(change for topic in changed for change in topic)
            written += len(parsed)
    finally:
        library.close()
    assert written > 10


@pytest.mark.usefixtures("compiled_code")
@pytest.mark.parametrize(
    ("text", "drawn_records", "seed", "count"),
    [
        pytest.param(
            "stream a; group_by_key; windowed_by; count; to_stream; window_counts; to w; @1 hopping_windows; aggregate",
            random_records,
            1,
            3,
            id="windows",
        ),
        pytest.param(
            "table t; to_stream; to copied; stream a; select_key; left_join 0; to left; @4 join 0; to inner",
            random_records,
            1,
            4,
            id="joins",
            marks=pytest.mark.soak,
        ),
        pytest.param("stream a; process; to processed", late_records, 1, 4, id="process"),
        pytest.param(
            "stream b; stream a; outer_join_soon 0; to joined",
            late_records,
            1,
            5,
            id="joins of streams",
            marks=pytest.mark.soak,
        ),
        pytest.param(TABLES_JOINED_IN_ALL_WAYS[3], table_records, 1, 6, id="joins of tables", marks=pytest.mark.soak),
        pytest.param(SESSIONS_IN_ALL_WAYS, late_records, 1, 4, id="sessions", marks=pytest.mark.soak),
        pytest.param(FINAL % "short_windows", late_records, 1, 6, id="final results", marks=pytest.mark.soak),
    ],
)
def test_compiled_plans_write_what_the_library_writes(
    spark: SparkSession,
    jvm: Any,
    text: str,
    drawn_records: Callable[[int, Program, int], list[Piped]],
    seed: int,
    count: int,
) -> None:
    """One plan of each kind of state."""
    steps = program(text)
    assert compare(spark, jvm, steps, drawn_records(seed, steps, count)) > 0
