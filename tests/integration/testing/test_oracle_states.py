"""TopologyTestDriver beside the JVM library's: several states of one sub-topology, and joins with their results."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.soak import seeds, sized, soak
from tests.support.twin_drivers import (
    APPLICATION,
    BEGIN,
    Piped,
    both,
    by_key,
    compare,
    late_records,
    one,
    our_outputs,
    pipe,
    random_records,
    without_empty_deletions,
)
from tests.support.twin_topologies import (
    Program,
    drawn_chain,
    drawn_merges,
    drawn_states,
    ours,
    program,
)

CHAINS = {
    "a class behind a class": "stream a; process; to first; @1 map_values; process; to second",
    "a class behind a count": "stream a; group_by_key; count; to_stream; counts; process; to processed",
    "a class beside a count": "stream a; process; to made; @0 group_by_key; count; to_stream; counts; to counts",
    "an aggregate of a count": "stream a; group_by_key; count; to_stream; counts; to counts; @4 group_by_key; "
    "aggregate; to_stream; to totals",
    "a count of joined records": "table b; stream a; join 0; group_by_key; count; to_stream; counts; to counts; "
    "@2 to joined; @2 process; to processed",
    "a count of two streams that are joined": "stream b; stream a; join_soon 0; group_by_key; count; to_stream; "
    "counts; to counts",
    "sessions beside windows and a count": "stream a; group_by_key; sessions; count; @1 short_windows; count; "
    "@1 count; to_stream; counts; to counts",
    "a class behind a filter beside a count": "stream a; filter; process; to made; @0 group_by_key; count; to_stream; "
    "counts; to counts",
    "a class behind windows": "stream a; group_by_key; short_windows; count; to_stream; plain_counts; process; to made",
    "a class behind final results": "stream a; group_by_key; strict_windows; on_close; count; to_stream; "
    "plain_counts; process; to made",
    "a class beside a join of two streams": "stream b; stream a; join_soon 0; to joined; @2 process; to made; "
    "@1 group_by_key; count; to_stream; counts; to counts",
    "a count of joined tables": "table t; table u; join_tables 0; to_stream; group_by_key; count; to_stream; counts; "
    "to counts",
    "three states": "stream a; group_by_key; python_reduce; to_stream; group_by_key; aggregate; to_stream; process; "
    "to made",
    "a reduction beside a count": "stream a; group_by_key; greatest; to_stream; to best; @1 count; to_stream; counts; "
    "to counts",
    "a reduction of a count": "stream a; group_by_key; count; to_stream; counts; group_by_key; greatest; to_stream; "
    "to best; @4 group_by_key; reduce; to_stream; process; to made",
    "a count joined with a table": "table t; stream a; group_by_key; count; to_stream; counts; left_join 0; to joined; "
    "@6 group_by_key; aggregate; to_stream; to totals",
    "a count between two joins with a table": "table t; stream a; join 0; group_by_key; count; to_stream; counts; "
    "left_join 0; to made",
    "joined tables that are joined with a table": "table t; table u; join_tables 0; to_stream; table v; @3 join 4; "
    "to made; @1 to_stream; join 4; to others",
    "a joined table that a stream is joined with": "table t; table u; left_tables 0; to_stream; to joined; stream a; "
    "left_join 0; to met; @5 join 1; to others",
    "final results beside a class and a count": "stream a; group_by_key; strict_windows; on_close; count; to_stream; "
    "plain_counts; to closed; @1 count; to_stream; counts; to counts; @0 process; to made",
    "a join of a count and a stream": "stream b; stream a; group_by_key; count; to_stream; counts; join_soon 0; "
    "to joined",
    "an aggregate of a count and a stream": "stream a; group_by_key; count; to_stream; counts; group_by_key; stream b; "
    "filter; group_by_key; @5 cogroup 8; cogrouped; to_stream; to totals",
    "what a count and its stream are merged to": "stream a; filter; @0 group_by_key; count; to_stream; counts; "
    "merge 1; group_by_key; aggregate; to_stream; to totals; @6 process; to made",
}
"""Several states in one sub-topology."""

WAYS_THAT_MEET = {
    "a join of streams, and its result": "stream a; group_by_key; reduce; to_stream; outer_join_soon 0; to first; "
    "@4 filter_not; left_join_soon 0; to second",
    "a stream and what passes a filter": "stream a; filter; @0 outer_join_soon 1; to first; @2 left_join_soon 1; "
    "to second",
    "functions that aggregate": "stream a; filter; @0 group_by_key; @1 group_by_key; @2 python_cogroup 3; "
    "python_cogrouped; to_stream; to totals",
}
"""Operations that one record reaches by two ways."""


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(text, id=name, marks=pytest.mark.soak if name == "a join of streams, and its result" else ())
        for name, text in WAYS_THAT_MEET.items()
    ],
)
def test_two_ways_of_a_record_meet_in_the_order_of_the_library(spark: SparkSession, jvm: Any, text: str) -> None:
    """The second record is too late to wait for a match. What waits of the third is met by its update."""
    steps = program(text)
    records = [one("a", second, b'{"n": %d, "s": "x"}' % n) for second, n in [(120, 3), (0, 1), (121, 5), (300, 0)]]
    assert compare(spark, jvm, steps, records, deletes=False, restored_at=(3,)) > 0


def test_an_update_meets_what_it_is_joined_to_in_the_order_of_the_library(spark: SparkSession, jvm: Any) -> None:
    """The update goes to the join of streams first, and waits there for what the join of tables makes of it."""
    steps = program(
        "stream a; table u; @0 group_by_key; python_aggregate; to_stream; to latest; @1 join_tables 3; to_stream; "
        "outer_join_soon 4; to joined"
    )
    values = [("u", 0, 5), ("a", 180, 0), ("u", 181, 1), ("a", 201, 3)]
    records = [one(topic, second, b'{"n": %d, "s": "x"}' % n) for topic, second, n in values]
    assert compare(spark, jvm, steps, records, deletes=False) > 0


def test_a_record_of_a_table_without_a_key_moves_the_time_of_a_class(spark: SparkSession, jvm: Any) -> None:
    """The library drops it behind its source, and one that is not read before it."""
    steps = program("stream a; table t; @0 process; to made; @0 join 1; to joined")
    of_table = [Piped("t", None, b"no JSON", BEGIN + 61_000), Piped("t", None, b'{"n": 1}', BEGIN + 61_000)]
    records = [one("a", 0, b'{"n": 7, "s": "x"}'), *of_table, one("a", 200, b'{"n": 1, "s": "x"}')]
    assert compare(spark, jvm, steps, records) > 0


READS = {
    "a table": "table t; stream a; read_table 0; to read",
    "a count": "stream a; group_by_key; count; to_stream; counts; to counts; @0 read_table 2; to read",
    "a table and a count": "table t; stream a; group_by_key; count; @1 read_table 0; to rows; @1 read_table 3; to read",
}
"""Processors that read the store of another operation. One that is given the updates of the same store is not compared:
the library calls it while it flushes its record cache, and the twin's read then waits for the end of the flush.
"""


@pytest.mark.parametrize(("text", "seed", "count"), sized(READS, ["a count"], (3, 6), (3, 12)))
def test_a_processor_reads_what_another_operation_has_stored(
    spark: SparkSession, jvm: Any, text: str, seed: int, count: int
) -> None:
    steps = program(text)
    assert compare(spark, jvm, steps, random_records(seed, steps, count)) > 0


def test_what_timers_give_comes_before_what_the_update_behind_them_gives(spark: SparkSession, jvm: Any) -> None:
    """The library calls the timers of a record, and then passes the update from its record cache."""
    steps = program("stream a; group_by_key; reduce; to_stream; process; to made")
    records = [one("a", 0, b'{"n": 7, "s": "x"}'), one("a", 61, b'{"n": 6, "s": "z"}')]
    assert compare(spark, jvm, steps, records) > 4


MERGES = {
    "a class": "stream a; process; merge 0; to merged; @0 filter; @1 merge 4; to others",
    "a class without a store": "stream a; process_freely; merge 0; to merged; @0 filter; @1 merge 4; to others",
    "a count": "stream a; group_by_key; count; to_stream; counts; merge 0; to merged",
    "final results": "stream a; group_by_key; strict_windows; on_close; count; to_stream; plain_counts; merge 0; "
    "to merged",
    "final results of what is made of a record": "stream a; python_flat_map_values; group_by_key; strict_windows; "
    "on_close; count; to_stream; plain_counts; merge 1; to merged",
    "a function": "stream a; group_by_key; python_reduce; to_stream; merge 0; to merged",
    "a count and a class": "stream a; group_by_key; count; to_stream; counts; @0 process; merge 4; merge 0; to merged",
    "what is made of a record": "stream a; python_flat_map_values; filter; @1 process; @2 merge 3; to merged",
    "a join of two streams": "stream b; stream a; join_soon 0; merge 0; to merged; @1 merge 3; to all",
    "a join with a table": "table t; stream a; join 0; merge 1; to merged",
    "joined tables": "table t; table u; join_tables 0; to_stream; @0 to_stream; merge 3; to merged",
    "another topic": "stream b; stream a; group_by_key; count; to_stream; counts; merge 0; to merged",
}
"""Results that are merged with a stream of their sub-topology, which they are made of."""


@pytest.mark.parametrize(("text", "seed", "count"), sized(MERGES, ["a class", "a count"], (1, 4), (1, 12)))
def test_results_and_the_stream_that_they_are_merged_with_have_the_order_of_the_library(
    spark: SparkSession, jvm: Any, text: str, seed: int, count: int
) -> None:
    steps = program(text)
    assert len(ours(steps, APPLICATION, 1).topology.subtopologies) == 1
    assert compare(spark, jvm, steps, without_empty_deletions(steps, random_records(seed, steps, count))) > 0


@pytest.mark.parametrize(
    ("text", "seed", "count"), sized(CHAINS, ["a class behind a class", "a class behind a count"], (1, 4), (1, 12))
)
def test_several_states_of_one_sub_topology_are_those_of_the_library(
    spark: SparkSession, jvm: Any, text: str, seed: int, count: int
) -> None:
    steps = program(text)
    pipeline = ours(steps, APPLICATION, 1)
    assert len(pipeline.topology.subtopologies) == 1
    assert compare(spark, jvm, steps, without_empty_deletions(steps, random_records(seed, steps, count))) > 0


JOINS_WITH_RESULTS = {
    "its own count": "stream a; filter; @0 group_by_key; count; @0 join_counts 3; to joined; @1 join_counts 3; to some",
    "a stream as a table": "stream b; to_table; stream a; left_join 1; to joined; @2 join 1; group_by_key; count; "
    "to_stream; counts; to counts",
    "an aggregate of another topic": "stream b; group_by_key; aggregate; stream a; left_join 2; to joined; "
    "@3 join 2; to inner",
    "a stream as a table that it is joined with": "stream a; filter; to_table_stored; @0 left_join 2; to joined; "
    "@2 to_stream; join 2; to itself",
    "a filter with a store": "stream b; group_by_key; count; often_stored; stream a; left_join_counts 3; to joined; "
    "@3 to_stream; counts; to often",
    "what functions aggregate": "stream a; group_by_key; python_aggregate; @1 python_reduce; @0 join 2; left_join 3; "
    "to joined",
    "what a class has made": "stream a; process; group_by_key; greatest; @1 join 3; to joined",
    "an aggregate behind an aggregate": "stream a; group_by_key; count; to_stream; counts; @4 group_by_key; "
    "aggregate; @0 left_join 6; to joined",
    "updates of an aggregate": "stream a; group_by_key; count; to_stream; counts; @1 aggregate; @4 left_join 5; "
    "to joined; @6 process; to made",
    "a table before it": "table t; stream a; left_join 0; group_by_key; count; @2 left_join_counts 4; to joined",
    "a table behind it": "table t; stream a; group_by_key; aggregate; @1 left_join 3; left_join 0; to joined",
    "joined tables": "table t; table u; join_tables_stored 0; stream a; left_join 2; to joined",
    "itself": "table t; to_stream; join 0; to joined; @0 table_map_values_stored; to_stream; left_join 0; to mapped",
    "a filter behind its updates": "stream a; group_by_key; aggregate; to_stream; @2 table_filter_not_stored; "
    "@3 left_join 4; to joined",
    "a filter before its updates": "stream a; group_by_key; aggregate; table_filter_not_stored; @2 to_stream; "
    "left_join 3; to joined",
    "the records of its updates": "stream a; group_by_key; aggregate; to_stream; @0 to_table_stored; @3 left_join 4; "
    "to joined",
    "the records of its updates and itself": "stream a; group_by_key; count; to_stream; counts; merge 0; "
    "@0 to_table_stored; @5 left_join 6; to joined",
    "a filter of another aggregate": "stream a; group_by_key; aggregate; to_stream; @1 greatest; "
    "table_filter_not_stored; @3 left_join 5; to joined; @0 left_join 5; to met",
    "a filter of an earlier aggregate": "stream a; group_by_key; greatest; table_filter_not_stored; @1 aggregate; "
    "to_stream; left_join 3; to joined",
    "behind repartition topics": "stream a; group_by; count; @0 select_key; join_counts 2; to joined",
    "several streams in one aggregate": "stream a; group_by_key; stream b; group_by_key; @1 cogroup 3; cogrouped; "
    "@0 left_join 5; to joined",
}
"""Streams that are joined with tables that are results."""


@pytest.mark.parametrize(
    ("text", "seed", "count"),
    sized(JOINS_WITH_RESULTS, ["its own count"], (1, 6), (1, 15)),
)
def test_a_stream_meets_the_rows_of_a_result_as_in_the_library(
    spark: SparkSession, jvm: Any, text: str, seed: int, count: int
) -> None:
    """Behind two topics their timestamps decide. So a late record does not meet a count that has a later one."""
    steps = program(text)
    records = without_empty_deletions(steps, random_records(seed, steps, count))
    if len(ours(steps, APPLICATION, 1).topology.subtopologies) > 1:
        records.sort(key=lambda record: record.at)
    assert compare(spark, jvm, steps, records, deletes=False) > 0


@pytest.mark.parametrize(
    "name",
    [
        "its own count",
        *soak(
            [
                "what functions aggregate",
                "an aggregate behind an aggregate",
                "a stream as a table that it is joined with",
            ]
        ),
    ],
)
@pytest.mark.parametrize("seed", seeds(1, 5))
def test_a_record_of_a_micro_batch_meets_what_the_records_before_it_have_made(
    spark: SparkSession, jvm: Any, name: str, seed: int
) -> None:
    """The order of the topic decides, although some records are late. The library looks up in its record cache."""
    steps = program(JOINS_WITH_RESULTS[name])
    sinks = {step.topic for step in steps if step.word == "to"}
    with both(spark, jvm, steps) as (driver, library):
        for of_batch in range(3):
            records = [each for each in late_records(10 * seed + of_batch, steps, 12) if each.key is not None]
            with driver.micro_batch():
                for record in records:
                    pipe(driver, record)
            for record in records:
                library.pipe(record)
            its = {topic: made for topic, made in library.outputs().items() if topic in sinks}
            assert by_key(our_outputs(driver, sorted(sinks))) == by_key(its)


def test_what_came_directly_meets_a_result_as_it_was_before_the_record_has_changed_it(
    spark: SparkSession, jvm: Any
) -> None:
    """A record is joined with its own update, and both with the table of the update."""
    steps = program(
        "stream a; group_by_key; python_reduce; to_stream; group_by_key; python_reduce; to_stream; @0 join_soon 6; "
        "filter; left_join 5; to joined"
    )
    records = [one("a", at, b'{"n": %d, "s": "x"}' % n) for at, n in [(1, 3), (2, 2), (3, 4)]]
    assert compare(spark, jvm, steps, records, deletes=False) > 0


JOINED_RESULTS = {
    "two aggregates of a stream": "stream a; group_by_key; aggregate; @1 greatest; @2 join_tables 3; to_stream; "
    "to joined; @5 group_by_key; count; to_stream; counts; to counts",
    "an aggregate and a table": "table t; stream a; group_by_key; aggregate; left_tables_stored 0; to_stream; "
    "to joined; @0 to_stream; to copied; @0 outer_tables 3; to_stream; to all",
    "streams as tables": "stream a; to_table; stream b; to_table_stored; @1 outer_tables 3; to_stream; to joined",
    "a filter with a store": "stream a; group_by_key; reduce; table_filter_stored; table t; @3 left_tables 4; "
    "to_stream; to joined; @2 to_stream; to latest",
    "joined results": "stream a; group_by_key; aggregate; stream b; to_table; table t; @2 left_tables 4; "
    "left_tables_stored 5; to_stream; to joined; @6 to_stream; to first",
    "a join of a stored result of a join": "stream a; group_by_key; aggregate; table t; @2 left_tables 3; "
    "table_filter_stored; table u; @5 join_tables 6; to_stream; to joined",
    "what functions aggregate": "stream a; group_by_key; python_aggregate; @1 python_reduce; @2 left_tables 3; "
    "to_stream; to joined; @0 left_join 3; to met",
    "a group of a table": "unstored_table t; group_table; table_reduce; stream a; to_table; @2 left_tables 4; "
    "to_stream; to joined",
}
"""Joins of tables of which some are results."""


@pytest.mark.parametrize(
    ("text", "seed", "count"), sized(JOINED_RESULTS, ["an aggregate and a table"], (2, 4), (2, 15))
)
def test_results_are_joined_as_tables_of_the_library(
    spark: SparkSession, jvm: Any, text: str, seed: int, count: int
) -> None:
    steps = program(text)
    records = without_empty_deletions(steps, random_records(seed, steps, count))
    assert compare(spark, jvm, steps, records, deletes=False) > 0


def test_a_stream_that_has_met_a_table_is_restored_where_it_is_joined_with_an_aggregate(
    spark: SparkSession, jvm: Any
) -> None:
    steps = program(
        "table t; stream a; left_join 0; to met; @1 group_by_key; aggregate; to_stream; outer_join_soon 2; to joined"
    )
    records = [Piped("t", "k", b'{"n": 1, "s": "t"}', BEGIN), *(one("a", at, b'{"n": 2, "s": "x"}') for at in (1, 2))]
    assert compare(spark, jvm, steps, records, deletes=False, restored_at=(2,)) > 0


def test_restored_windows_take_no_record_that_is_too_late(spark: SparkSession, jvm: Any) -> None:
    """Their time goes on from that of the newest record of the changelog."""
    steps = program(
        "stream a; group_by_key; short_windows; count; to_stream; plain_counts; to all; @0 filter; group_by_key; "
        "short_windows; count; to_stream; plain_counts; to some"
    )
    records = [one("a", second, b'{"n": 4, "s": "x"}') for second in (60, 135, 59, 65, 140)]
    assert compare(spark, jvm, steps, records, restored_at=(2, 4)) > 0


@pytest.mark.parametrize(
    "text",
    [
        "stream a; group_by_key; count; to_stream; counts; to all; @0 group_by_key; short_windows; count; to_stream; "
        "plain_counts; to short",
        *soak(
            [
                "stream a; group_by_key; short_windows; count; to_stream; plain_counts; to short; @0 filter; "
                "group_by_key; short_windows; count; to_stream; plain_counts; to some",
                "stream a; group_by_key; short_windows; count; to_stream; plain_counts; to short; @0 group_by_key; "
                "windowed_by; count; to_stream; plain_counts; to long",
            ]
        ),
    ],
)
def test_windows_beside_another_aggregate_go_by_their_own_time(spark: SparkSession, jvm: Any, text: str) -> None:
    """The second record is not one that the filter passes. The third one is late, and too late where the second was."""
    steps = program(text)
    sold = [(60, 4), (135, 0), (59, 4), (65, 0), (140, 4)]
    records = [one("a", second, b'{"n": %d, "s": "x"}' % n) for second, n in sold]
    assert compare(spark, jvm, steps, records) > 0


def declared_records(seed: int, steps: Program, count: int = 12) -> list[Piped]:
    """Return random records without fields that are not declared. The twin's functions keep them, and ours do not."""
    return [record for record in random_records(seed, steps, count) if b"other" not in (record.value or b"")]


@pytest.mark.parametrize("seed", seeds(0, 1000))
def test_states_at_random_in_one_sub_topology_are_those_of_the_library(
    spark: SparkSession, jvm: Any, seed: int
) -> None:
    """They are restored before the fifth record and before the ninth."""
    steps = drawn_chain(seed)
    assert len(ours(steps, APPLICATION, 1).topology.subtopologies) == 1
    compare(spark, jvm, steps, declared_records(seed, steps), restored_at=(4, 8))


@pytest.mark.parametrize("seed", seeds(0, 1000))
def test_states_at_random_that_are_merged_with_their_streams_are_those_of_the_library(
    spark: SparkSession, jvm: Any, seed: int
) -> None:
    steps = drawn_merges(seed)
    assert len(ours(steps, APPLICATION, 1).topology.subtopologies) == 1
    compare(spark, jvm, steps, declared_records(seed, steps), restored_at=(6,))


@pytest.mark.parametrize("seed", seeds(0, 1000))
def test_states_of_all_kinds_at_random_in_one_sub_topology_are_those_of_the_library(
    spark: SparkSession, jvm: Any, seed: int
) -> None:
    """They are restored, too, but for two kinds.

    A restored class knows only the time of its newest put. And a left or outer join of the library looks for what waits
    only when its time has passed that of the record which it looked at last: this is lost when the library restarts.
    """
    steps = drawn_states(seed)
    records = without_empty_deletions(steps, declared_records(seed, steps, 16))
    is_restored = {"process", "left_join_soon", "outer_join_soon"}.isdisjoint(step.word for step in steps)
    compare(spark, jvm, steps, records, deletes=False, restored_at=(6, 11) if is_restored else ())
