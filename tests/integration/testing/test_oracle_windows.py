"""TopologyTestDriver beside the JVM library's: windows, sessions, final results and ``suppress``."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain
from operator import attrgetter
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from streamplan.errors import StreamplanError
from streamplan.model.operations import SuppressUpdates
from streamplan.model.pipeline import Pipeline
from streamplan.model.topology import Topology
from streamplan.model.windows import CALENDAR_UNITS, CalendarWindows, SessionWindows, TimeWindows
from streamplan.serdes.suppress_buffer import BufferedUpdate
from streamplan.spark.planning.aggregation import with_windows
from streamplan.spark.planning.window_bounds import window_bounds, window_end
from streamplan.testing import TopologyTestDriver

from tests.support.buffer_task import Arrived, BufferTask
from tests.support.library_windows import own_windows
from tests.support.soak import seeds, soak
from tests.support.twin_drivers import (
    APPLICATION,
    BEGIN,
    COGROUPED,
    FINAL,
    KEYS,
    SESSIONS_IN_ALL_WAYS,
    UNCACHED,
    LibraryDriver,
    Piped,
    both,
    by_key,
    compare,
    last_of_each,
    last_of_each_key,
    late_records,
    ms,
    one,
    our_outputs,
    pipe,
    random_records,
    value_of,
)
from tests.support.twin_topologies import (
    SESSIONS,
    VALUE,
    WINDOWS,
    ours,
    program,
)
from tests.support.window_task import WindowTask

IN_WINDOWS = "stream a; group_by_key; %s; %s; to_stream; windows; to w"
IN_SESSIONS = "stream a; group_by_key; %s; %s; to_stream; to_sessions totals; @4 session_values; to by-session"


BY_FUNCTIONS = [
    IN_WINDOWS % ("short_hops", "python_reduce"),
    IN_WINDOWS % ("sliding_windows", "python_aggregate"),
    IN_SESSIONS % ("short_sessions", "python_aggregate"),
]


@pytest.mark.parametrize(
    ("text", "seed", "count"),
    [
        *((text, 1, 5) for text in (BY_FUNCTIONS[0], BY_FUNCTIONS[2])),
        pytest.param(BY_FUNCTIONS[1], 1, 5, marks=pytest.mark.soak),
        *(pytest.param(text, 1, 20, marks=pytest.mark.soak) for text in BY_FUNCTIONS),
        *(pytest.param(text % (window, word), seed, 60, marks=pytest.mark.soak)
          for seed in range(2, 20) for word in ("python_reduce", "python_aggregate")
          for text, window in ((IN_WINDOWS, "short_windows"), (IN_WINDOWS, "short_hops"),
                               (IN_WINDOWS, "sliding_windows"),
                               (IN_SESSIONS, "short_sessions"), (IN_SESSIONS, "sessions"))),
    ],
)  # fmt: skip
def test_functions_aggregate_windows_as_those_of_the_library_do(
    spark: SparkSession, jvm: Any, text: str, seed: int, count: int
) -> None:
    """With deletions of windows that there are and are not, late records, and nulls as keys and values.

    Of a window that there is not, the library deletes nothing in its cache, and without it writes the deletion.
    """
    steps = program(text)
    records, restored_at = late_records(seed, steps, count), (min(9, count // 2),) if "sliding" in text else ()
    assert compare(spark, jvm, steps, records, deletes=False, restored_at=restored_at) > 5


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("word", ["python_reduce", "python_aggregate"])
@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("stream a; group_by_key; %s; on_close; %s; to_stream; windows; to w", "short_hops"),
        ("stream a; group_by_key; %s; on_close; %s; to_stream; windows; to w", "strict_windows"),
        ("stream a; group_by_key; %s; on_close; %s; to_stream; windows; to w", "sliding_windows"),
        ("stream a; group_by_key; %s; on_close; %s; to_stream; session_values; to w", "brief_sessions"),
    ],
)
def test_final_results_of_functions_are_those_of_the_library(
    spark: SparkSession, jvm: Any, text: str, window: str, word: str, seed: int
) -> None:
    steps = program(text % (window, word))
    records = within_a_segment(seed) if window in SESSIONS else late_records(seed, steps, 40)
    if window == "sliding_windows":
        in_time = sliding_records(seed, BEGIN)[:40]
        records = [each._replace(value=b'{"n": %d}' % (number % 8)) for number, each in enumerate(in_time)]
    assert compare(spark, jvm, steps, records, "w", deletes=False) > 5


FILTERED_IN_WINDOWS = (
    "stream a; group_by_key; %s; aggregate; table_filter_not; to_stream; windows; to kept; @3 table_map_values; "
    "table_filter; to_stream; windows; to others"
)
FILTERED_SESSIONS = "stream a; group_by_key; %s; count; often; count_values; to_stream; to_sessions often"


@pytest.mark.parametrize("window", ["short_hops", *soak(["shifts"])])
def test_a_filter_of_windows_deletes_what_the_library_deletes(spark: SparkSession, jvm: Any, window: str) -> None:
    """What it has passed, and nothing else. The third record is late, and the last but one too late for a window."""
    sold = [("k", 0, 0), ("l", 3, 5), ("k", 4, 20), ("k", 0, 21), ("k", 1, 69), ("k", 1, 30), ("l", 1, 75)]
    records = [Piped("a", key, b'{"n": %d, "s": "x"}' % n, BEGIN + 1000 * second) for key, n, second in sold]
    assert compare(spark, jvm, program(FILTERED_IN_WINDOWS % window), records) > len(records)


def test_a_filter_of_sessions_deletes_what_the_library_deletes(spark: SparkSession, jvm: Any) -> None:
    """A session is taken in that was kept, and one that was not. The library has forgotten the one at 200 s."""
    seconds = (("k", 0), ("k", 1), ("k", 60), ("k", 30), ("m", 200), ("m", 200), ("n", 240), ("m", 200))
    records = [Piped("a", key, b'{"n": 1}', BEGIN + 1000 * second) for key, second in seconds]
    assert compare(spark, jvm, program(FILTERED_SESSIONS % "short_sessions"), records) > len(records)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "text",
    [
        *(FILTERED_IN_WINDOWS % window for window in ("strict_windows", "short_hops", "later_hops", "sliding_windows")),
        *(FILTERED_IN_WINDOWS % window for window in ("shifts", "berlin_days")),
        *(FILTERED_SESSIONS % window for window in ("sessions", "short_sessions")),
        "stream a; group_by_key; short_sessions; aggregate; table_filter_not; to_stream; to_sessions kept",
        "stream a; stream b; merge 0; group_by; short_hops; count; often; to_stream; window_counts; to often",
    ],
)
def test_a_filter_of_windows_deletes_at_random_what_the_library_deletes(
    spark: SparkSession, jvm: Any, text: str, seed: int
) -> None:
    steps = program(text)
    assert compare(spark, jvm, steps, late_records(seed, steps, 50)) > 0


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("word", ["python_reduce", "python_aggregate"])
@pytest.mark.parametrize(
    "text",
    [
        "stream a; group_by_key; short_hops; %s; table_filter; to_stream; windows; to kept",
        "stream a; group_by_key; short_sessions; %s; table_filter_not; to_stream; to_sessions kept",
    ],
)
def test_a_filter_of_windows_of_functions_deletes_at_random_what_the_library_deletes(
    spark: SparkSession, jvm: Any, text: str, word: str, seed: int
) -> None:
    steps = program(text % word)
    assert compare(spark, jvm, steps, late_records(seed, steps, 50), deletes=False) > 5


GROUPED_WINDOWS = (
    "stream a; group_by_key; %s; aggregate; group_of_window; table_reduce; to_stream; to_text_windowed reduced; "
    "@3 table_map_values; table_filter; group_table; count; to_stream; counts; to_text counted"
)


@pytest.mark.parametrize(
    "text", [GROUPED_WINDOWS.partition("; @3")[0], *soak([GROUPED_WINDOWS])], ids=["values", "and counts"]
)
def test_windows_are_grouped_as_in_the_library(spark: SparkSession, jvm: Any, text: str) -> None:
    """Within a group, into another one, into none, and out of all. One record is late, and one too late."""
    sold = [
        ("k", 0, "x", 5),
        ("l", 1, "x", 6),
        ("k", 2, "y", 20),
        ("l", 3, None, 61),
        ("k", 4, "x", 30),
        ("k", 0, "x", 0),
    ]
    values = [{"n": n} if text is None else {"n": n, "s": text} for _, n, text, _ in sold]
    records = [
        Piped("a", key, json.dumps(value).encode(), BEGIN + 1000 * second)
        for (key, _, _, second), value in zip(sold, values, strict=True)
    ]
    assert compare(spark, jvm, program(text % "short_windows"), records) > len(records)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("window", ["short_hops", "sliding_windows", "shifts"])
def test_windows_are_grouped_at_random_as_in_the_library(spark: SparkSession, jvm: Any, window: str, seed: int) -> None:
    steps, chosen = program(GROUPED_WINDOWS % window), random.Random(seed)
    records = [
        record._replace(value=(record.value or b"").replace(b"x", chosen.choice([b"x", b"y", b"z"])) or None)
        for record in late_records(seed, steps, 40)
    ]
    assert compare(spark, jvm, steps, records) > 0


@pytest.mark.soak
def test_sessions_are_grouped_as_in_the_library(spark: SparkSession, jvm: Any) -> None:
    """A record changes the bounds of each session that takes it in: else the library puts it into its group again."""
    grouped = "stream a; group_by_key; short_sessions; aggregate; group_table; count"
    steps = program(f"{grouped}; to_stream; counts; to_text counted")
    sold = [
        ("k", "x", 0),
        ("k", "y", 1),
        ("l", "x", 2),
        ("k", "y", 60),
        ("k", "x", 30),
        ("l", "z", 10),
        ("l", "z", 200),
    ]
    with both(spark, jvm, steps) as (driver, library):
        for key, text, second in sold:
            record = Piped("a", key, b'{"n": 1, "s": "%b"}' % text.encode(), BEGIN + 1000 * second)
            pipe(driver, record)
            library.pipe(record)
            its = {topic: records for topic, records in library.outputs().items() if topic == "counted"}
            assert by_key(our_outputs(driver, ["counted"])) == by_key(its)


def test_sessions_are_those_of_the_library(spark: SparkSession, jvm: Any) -> None:
    """Two become one, twice; a record is within one; times are equal; and times are on the edge of gap and grace."""
    steps = program(SESSIONS_IN_ALL_WAYS)
    times = [
        ("k", 0),
        ("k", 60),
        ("k", 30),
        ("k", 45),
        ("l", 100),
        ("k", 60),
        ("k", 59),
        ("l", 100),
        ("l", 131),
        ("l", 115),
    ]
    records = [Piped("a", key, b'{"n": %d, "s": "x"}' % second, BEGIN + 1000 * second) for key, second in times]
    records[3] = records[3]._replace(value=None)
    assert compare(spark, jvm, steps, records) > 0


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100))
@pytest.mark.parametrize(
    "text",
    [
        SESSIONS_IN_ALL_WAYS,
        "stream a; filter; group_by; sessions; aggregate; to_stream; to_sessions totals",
        "stream a; each; repartition; group_by_key; short_sessions; count; to_stream; session_counts; to w",
        "stream a; stream b; merge 0; group_by_key; short_sessions; aggregate; to_stream; to_sessions totals",
    ],
)
def test_sessions_of_random_records_are_those_of_the_library(
    spark: SparkSession, jvm: Any, text: str, seed: int
) -> None:
    """With late, early and equal timestamps, also beyond the grace, and with nulls as keys and values."""
    steps = program(text)
    assert compare(spark, jvm, steps, late_records(seed, steps, 60)) > 0


@pytest.mark.parametrize(
    ("size", "advance"),
    [
        ("2 minutes", "1 minute"),
        ("1 minute", "20 seconds"),
        ("7 seconds", "3 seconds"),
        ("20000 milliseconds", "1 milliseconds"),
    ],
)
def test_a_time_is_in_the_windows_of_the_library(spark: SparkSession, jvm: Any, size: str, advance: str) -> None:
    """No window begins before the epoch."""
    windows, chosen = TimeWindows(size, advance=advance), random.Random(1)
    ends = [0, 1, windows.advance_ms - 1, windows.advance_ms, windows.size_ms - 1, windows.size_ms, windows.size_ms + 1]
    times = sorted({*ends, BEGIN, BEGIN + 1, *(BEGIN + chosen.randrange(10**9) for _ in range(3))})
    millis = jvm.java.time.Duration.ofMillis
    theirs = jvm.org.apache.kafka.streams.kstream.TimeWindows.ofSizeWithNoGrace(millis(windows.size_ms))
    theirs = theirs.advanceBy(millis(windows.advance_ms))
    rows = spark.createDataFrame([(at,) for at in times], "at long").select(
        "at", F.timestamp_millis("at").alias("time")
    )
    bounds = [F.unix_millis(f"window.{name}") for name in ("start", "end")]
    made = with_windows(rows, windows, "time").groupBy("at").agg(F.sort_array(F.collect_list(F.array(*bounds))))
    assert dict(map(tuple, made.collect())) == {
        at: [[start, start + windows.size_ms] for start in starts_of(theirs, at)] for at in times
    }


def test_a_time_is_in_the_hopping_windows_of_a_subclass_of_the_library(spark: SparkSession, jvm: Any) -> None:
    windows, chosen = TimeWindows("2 minutes", advance="50 seconds", offset="7 seconds"), random.Random(1)
    times = [7000, 7001, 57_000, 126_999, 127_000, *(BEGIN + chosen.randrange(10**9) for _ in range(9))]
    theirs = own_windows(jvm, windows)
    rows = spark.createDataFrame([(at,) for at in (0, 6999, *times)], "at long")
    made = with_windows(rows.select("at", F.timestamp_millis("at").alias("time")), windows, "time")
    starts = made.groupBy("at").agg(F.sort_array(F.collect_list(F.unix_millis("window.start"))))
    expected = {at: starts_of(theirs, at) for at in times}
    assert dict(map(tuple, starts.collect())) == expected == {at: [*windows.starts_of(at)] for at in times}


def starts_of(windows: Any, at: int) -> list[int]:
    """The starts of the library's windows, in one text: one call of Py4j for each would take long."""
    text = str(windows.windowsFor(at).keySet().toString())
    return [int(start) for start in text.strip("[]").split(", ")]


ZONES = [
    CalendarWindows("1 day", time_zone="Europe/Berlin"),
    CalendarWindows("1 day", time_zone="America/Havana"),  # the clock is set from 0:00 to 1:00, and from 1:00 to 0:00
    CalendarWindows("1 day", time_zone="Pacific/Apia", offset="6 hours"),  # a day was left out
    CalendarWindows("1 week", time_zone="America/Goose_Bay"),  # the clock was set back across midnight
    CalendarWindows("1 month", time_zone="America/Sao_Paulo"),
    TimeWindows("1 hour", offset="15 minutes"),
]


@pytest.mark.parametrize(
    "windows",
    [
        *ZONES,
        *soak(
            CalendarWindows(size, time_zone=zone, offset=offset)
            for size in CALENDAR_UNITS
            for zone in ("Europe/Berlin", "America/Goose_Bay", "Australia/Lord_Howe", "Antarctica/Casey")
            for offset in (None, "150 minutes")
        ),
    ],
    ids=str,
)
def test_a_time_is_in_the_window_of_a_subclass_of_the_library(
    spark: SparkSession, jvm: Any, windows: TimeWindows
) -> None:
    """Around all moments at which the clocks of the zone are set, up to the year 2038, and at the first moments."""
    zone = ZoneInfo(windows.time_zone if isinstance(windows, CalendarWindows) else "UTC")
    hour, chosen = 3_600_000, random.Random(1)
    around = [n * hour for n in hours_of_changes(zone)]
    around = chosen.sample(around, min(len(around), 12)) + [chosen.randrange(2**41) for _ in range(5)]
    steps = (-25 * hour, -hour, -1, 0, 1, 60_000, hour // 2, hour, 2 * hour, 3 * hour, 25 * hour)
    times = sorted({0, 1, *(at + step for at in around for step in steps)})
    theirs = own_windows(jvm, windows)
    rows = spark.createDataFrame([(at,) for at in times], "at long")
    bounds = rows.select("at", F.array(*window_bounds(windows, F.col("at"))), window_end(windows, F.col("at")))
    made = {row[0]: (*row[1], row[2]) for row in bounds.collect()}
    assert {at: list(found[:2]) for at, found in made.items()} == {at: bounds_of(theirs, at) for at in times}
    starts = spark.createDataFrame([(start, end) for start, end, _ in made.values()], "start long, end long")
    assert starts.where(window_end(windows, F.col("start")) != F.col("end")).count() == 0, "it is told by its start"


def hours_of_changes(zone: ZoneInfo) -> list[int]:
    """The hours since the epoch at which, or in the hour before which, the clocks of a zone are set."""

    def offset(hour: int) -> timedelta | None:
        return datetime.fromtimestamp(hour * 3600, UTC).astimezone(zone).utcoffset()

    days = [day for day in range(68 * 365) if offset(24 * day) != offset(24 * day + 24)]
    return [n for day in days for n in range(24 * day + 1, 24 * day + 25) if offset(n) != offset(n - 1)]


def bounds_of(windows: Any, at: int) -> list[int]:
    """The start and the end of the library's only window, in one text: to Py4j a Long is no key of the map."""
    return [int(number) for number in re.findall(r"Ms=(\d+)", str(windows.windowsFor(at).toString()))]


def across_the_changes_of_clocks(seed: int, count: int = 5) -> list[Piped]:
    """Records of some keys around the moments at which Berlin sets its clocks, in the order of time."""
    chosen, hour = random.Random(seed), 3_600_000
    changes = [datetime(2026, month, day, 1, tzinfo=UTC) for month, day in ((3, 29), (10, 25))]
    times = sorted(ms(at) + chosen.randrange(-2 * hour, 24 * hour) for at in changes for _ in range(count))
    # midnight in Berlin before, between and behind
    times += [ms(datetime(2026, 10, 25, 22, 59, 59, tzinfo=UTC)), ms(datetime(2026, 10, 25, 23, tzinfo=UTC))]
    return [Piped("a", chosen.choice("kl"), b'{"n": %d, "s": "x"}' % n, at) for n, at in enumerate(sorted(times))]


@pytest.mark.parametrize("count", [5, *soak([8])])
def test_a_key_with_a_window_of_its_own_has_the_bytes_of_the_library(spark: SparkSession, jvm: Any, count: int) -> None:
    """In a sink, in a repartition topic, and in a store."""
    steps = program(
        "stream a; group_by_key; windowed_by; aggregate; to_stream; by_window; to_windowed w; @5 group_windowed; "
        "count; @7 greatest; to_stream; to_windowed best"
    )
    assert compare(spark, jvm, steps, random_records(1, steps, count)) > count


DAYS = {
    "days": "stream a; group_by_key; berlin_days; count; to_stream; window_counts; to counts",
    "weeks": "stream a; group_by_key; utc_weeks; aggregate; to_stream; windows; to totals",
    "days beside other state": "stream a; group_by_key; berlin_days; count; to_stream; plain_counts; process; to made",
}


@pytest.mark.parametrize(
    ("text", "count"), [(DAYS["days"], 2), *(pytest.param(text, 5, marks=pytest.mark.soak) for text in DAYS.values())]
)
def test_days_of_a_time_zone_are_those_of_a_subclass_of_the_library(
    spark: SparkSession, jvm: Any, text: str, count: int
) -> None:
    assert compare(spark, jvm, program(text), across_the_changes_of_clocks(1, count)) > 2 * count


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_windows_with_an_offset_are_those_of_a_subclass_of_the_library(
    spark: SparkSession, jvm: Any, seed: int
) -> None:
    for text in ("count; to_stream; window_counts; to counts", "count; to_stream; plain_counts; process; to made"):
        steps = program(f"stream a; group_by_key; later_windows; {text}")
        assert compare(spark, jvm, steps, sorted(random_records(seed, steps, 12), key=attrgetter("at"))) > 0


CUSTOM = {
    "custom windows": "stream a; group_by_key; shifts; count; to_stream; window_counts; to counts; "
    "@1 shifts; aggregate; to_stream; windows; to totals",
    "hopping windows with an offset": "stream a; group_by_key; later_hops; count; to_stream; window_counts; to counts",
    "by functions": "stream a; group_by_key; shifts; python_aggregate; to_stream; windows; to w",
    "beside other state": "stream a; group_by_key; shifts; count; to_stream; plain_counts; process; to made",
}


@pytest.mark.parametrize(
    ("text", "seed", "count"),
    [
        (CUSTOM["custom windows"], 1, 7),
        *(pytest.param(text, 1, 12, marks=pytest.mark.soak) for text in [*CUSTOM.values()][:2]),
        *(pytest.param(text, seed, 12, marks=pytest.mark.soak) for text in CUSTOM.values() for seed in range(2, 5)),
    ],
)
def test_custom_windows_are_those_of_a_subclass_of_the_library(
    spark: SparkSession, jvm: Any, text: str, seed: int, count: int
) -> None:
    """With late records, and with nulls as keys and values."""
    steps = program(text)
    assert compare(spark, jvm, steps, late_records(seed, steps, count), settings=UNCACHED) > 5


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_windows_forget_what_the_grace_has_passed_as_tumbling_windows_do(spark: SparkSession, seed: int) -> None:
    """Of windows that overlap, by the watermark of Spark."""
    rows = {}
    for advance in (None, "20 seconds"):
        topology = Topology("forgetting")
        grouped = topology.stream("a", value=VALUE).group_by_key()
        grouped.windowed_by(TimeWindows("1 minute", grace="10 seconds", advance=advance)).count(store="counts")
        with TopologyTestDriver(Pipeline("forgetting", topology, "", {"a": 1}), spark=spark) as driver:
            for second in (0, 300, 600, 0):
                driver.pipe("a", {"n": seed}, key="k", at=BEGIN + 1000 * second)
            rows[advance] = {key.start.timestamp() - BEGIN / 1000: n for key, n in driver.store("counts").items()}
    assert rows[None][0] == rows["20 seconds"][0] == 1, "the record at the end is late for the window of the first one"


UPDATES = [
    "stream a; group_by_key; %s; count; to_stream; plain_counts; to w",
    "stream a; group_by_key; %s; count; to_stream; one_key_counts; to w",
    "stream a; select_key; repartition; group_by_key; %s; count; to_stream; one_key_counts; to w",
    "stream a; stream b; merge 0; group_by_key; %s; count; to_stream; one_key_counts; to w",
]
IN_ONE_MICRO_BATCH = [
    *(
        text % windows
        for text in UPDATES
        for windows in ("hopping_windows", "short_hops", "windowed_by")
        if windows != "short_hops" or "merge" not in text
    ),
    "stream a; group_by_key; count; to_stream; key_counts; to w",
    "stream a; group_by_key; short_sessions; count; to_stream; plain_sessions; to w",
]


@pytest.mark.parametrize(
    "text", [IN_ONE_MICRO_BATCH[0], IN_ONE_MICRO_BATCH[-2], IN_ONE_MICRO_BATCH[-1], *soak(IN_ONE_MICRO_BATCH[1:-2])]
)
@pytest.mark.parametrize("seed", seeds(1, 6))
def test_the_updates_of_a_micro_batch_have_the_order_of_the_library(
    spark: SparkSession, jvm: Any, text: str, seed: int
) -> None:
    """Two micro-batches. Of each the last update of each window, in the order in which the library writes them.

    So the library's record cache passes them. Its key is that of the store, which the text of each value names.
    """
    steps, chosen, now = program(text), random.Random(seed), BEGIN
    topics = [topic for step in steps if step.word == "stream" for topic in step.topics]
    with both(spark, jvm, steps) as (driver, library):
        for first in (0, 12):
            records = []
            for number in range(first, first + 12):
                now += chosen.choice([0, 1, 500, 10_000])
                late = 0 if len(topics) > 1 else chosen.choice([0, 0, 1, 8_000])
                value = b'{"n": 1, "s": "%b"}' % chosen.choice([b"x", b"y"])
                # The times of several topics differ: of equal ones the library takes any first.
                records.append(Piped(chosen.choice(topics), chosen.choice("kl"), value, now + number - late))
            with driver.micro_batch():
                for record in records:
                    pipe(driver, record)
            for record in records:
                library.pipe(record)
            its = library.outputs()["w"]
            last = last_of_each(its, lambda record: (record[0], (record[1] or {}).get("s")))
            mine = our_outputs(driver, ["w"])["w"]
            deleted = [record for record in mine if "n" not in record[1]]  # none of sessions that were not there before
            assert [record for record in mine if record not in deleted] == [
                record for record in last if "n" in record[1]
            ]
            assert deleted == [record for record in last if record in deleted]


COGROUPED_SESSIONS = (COGROUPED % " sessions;").replace("to totals", "to_sessions totals")


@pytest.mark.parametrize(
    ("word", "seed", "count"),
    [pytest.param(word, 3, 12, marks=pytest.mark.soak) for word in ("", "python_")],
)
def test_sliding_windows_of_two_streams_are_those_of_the_library(
    spark: SparkSession, jvm: Any, word: str, seed: int, count: int
) -> None:
    """In the order of time: the library takes a record for late by those of its own stream alone."""
    cogrouped = f"@1 {word}cogroup 4; sliding_windows; {word}cogrouped"
    steps = program(f"stream a; group_by_key; stream b; map; group_by; {cogrouped}")
    records = sorted(random_records(seed, steps, count), key=attrgetter("at"))
    assert compare(spark, jvm, steps, records, deletes=not word) > 0


@pytest.mark.parametrize(("seed", "count"), [(6, 5), pytest.param(3, 12, marks=pytest.mark.soak)])
def test_sessions_of_two_streams_are_those_of_the_library(spark: SparkSession, jvm: Any, seed: int, count: int) -> None:
    steps = program(COGROUPED_SESSIONS)
    assert compare(spark, jvm, steps, random_records(seed, steps, count)) > count


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(
    "text",
    [
        COGROUPED % "",
        COGROUPED_SESSIONS,
        "stream a; group_by_key; stream b; map; group_by; @1 cogroup 4; hopping_windows; cogrouped",
        "stream a; filter; group_by; stream b; map_values; repartition; group_by; @2 cogroup 6; cogrouped",
        "table a; to_stream; group_by_key; stream b; group_by_key; @2 cogroup 4; cogrouped; to_stream; to totals; "
        "@4 count; to_stream; counts; to counts",
    ],
)
def test_what_several_streams_are_folded_into_is_that_of_the_library(
    spark: SparkSession, jvm: Any, text: str, seed: int
) -> None:
    steps = program(text)
    assert compare(spark, jvm, steps, random_records(seed, steps, 60)) > 0


FINAL_SESSIONS = "stream a; group_by_key; %s; on_close; aggregate; to_stream; session_values; to w"


@pytest.mark.parametrize(("seed", "count"), [(4, 6), pytest.param(2, 14, marks=pytest.mark.soak)])
def test_final_results_are_those_of_the_library(spark: SparkSession, jvm: Any, seed: int, count: int) -> None:
    """With late, early and equal timestamps, also beyond the grace, and with nulls as keys and values."""
    steps = program(FINAL % "short_hops")
    assert compare(spark, jvm, steps, soon_after_the_epoch(late_records(seed, steps, count)), "w") > 20


@pytest.mark.soak
def test_final_results_of_sessions_are_those_of_the_library(spark: SparkSession, jvm: Any) -> None:
    steps = program(FINAL_SESSIONS % "brief_sessions")
    assert compare(spark, jvm, steps, within_a_segment(1)[:10], "w") > 10


SUPPRESSED_SESSIONS = "stream a; group_by_key; %s; aggregate; suppress; to_stream; session_values; to w"
SUPPRESSED = {
    "counted": "stream a; group_by_key; %s; count; suppress; to_stream; window_counts; to w",
    "aggregated": "stream a; group_by_key; %s; aggregate; suppress; to_stream; windows; to w",
    "before other state": "stream a; group_by_key; %s; count; suppress; to_stream; plain_counts; process; to w",
}


@pytest.mark.parametrize(
    ("text", "word", "seed", "count"),
    [
        (SUPPRESSED["counted"], "short_hops", 1, 7),
        pytest.param(SUPPRESSED["counted"], "short_hops", 1, 12, marks=pytest.mark.soak),
        pytest.param(SUPPRESSED["before other state"], "strict_windows", 2, 12, marks=pytest.mark.soak),
        *(
            pytest.param(text, word, seed, 12, marks=pytest.mark.soak)
            for text in SUPPRESSED.values()
            for word in ("strict_windows", "short_windows", "short_hops", "later_windows", "berlin_days", "shifts")
            for seed in range(3, 8)
        ),
        pytest.param(SUPPRESSED["counted"], "sliding_windows", 2, 12, marks=pytest.mark.soak),
        *(
            pytest.param(SUPPRESSED_SESSIONS, "brief_sessions", seed, 10, marks=pytest.mark.soak)
            for seed in range(1, 8)
        ),
    ],
)
def test_what_is_suppressed_until_a_window_closes_is_passed_as_in_the_library(
    spark: SparkSession, jvm: Any, text: str, word: str, seed: int, count: int
) -> None:
    """With late records. Its buffer has no changelog here, so the library has none, either."""
    steps = program(text % word)
    records = across_the_changes_of_clocks(seed) if word == "berlin_days" else late_records(seed, steps, count)
    if word in SESSIONS:
        records = within_a_segment(seed)[:count]
    assert compare(spark, jvm, steps, records, "w", settings=UNCACHED) > 5


@pytest.mark.parametrize("seed", seeds(1, 200))
@pytest.mark.parametrize("word", ["brief_sessions", "sliding_windows", *soak(["short_sessions", "short_hops"])])
def test_suppressed_windows_are_passed_at_the_moments_of_the_library_and_in_its_order(
    jvm: Any, word: str, seed: int
) -> None:
    """Record by record, some of them at the last millisecond of a window. The state alone, without Spark."""
    if word in SESSIONS:
        records = edges_of_sessions(seed, SESSIONS[word])
    elif word == "sliding_windows":
        records = edges_of_sliding_windows(seed)
    else:
        records = late_records(seed, program(FINAL % word), 40)
    assert compare_states(jvm, word, records, suppressed=True) > 10


def updates_of_table(seed: int, count: int) -> list[Piped]:
    """Updates of few keys, some of them late, and some of them deletions."""
    chosen, now, records = random.Random(seed), BEGIN, list[Piped]()
    for number in range(count):
        now += chosen.choice([0, 0, 1, 1000, 5000, 20_000, 21_000])
        at = now - chosen.choice([0, 0, 0, 1, 5000, 20_000, 40_000])
        value = chosen.choices([b'{"n": %d, "s": "x"}' % number, None], [4, 1])[0]
        records.append(Piped("t", chosen.choice(KEYS[:3]), value, at))
    return records


@pytest.mark.parametrize("seed", seeds(1, 201))
@pytest.mark.parametrize(("word", "most"), [("suppress_for", None), ("suppress_two", 2)])
def test_the_buffer_of_suppress_has_the_bytes_and_the_moments_of_the_library(
    jvm: Any, word: str, most: int | None, seed: int
) -> None:
    """Update by update, with the order of all that one lets pass. The state alone, without Spark."""
    library = LibraryDriver(jvm, program(f"unstored_table t; {word}; to_stream; to out"), UNCACHED)
    task, passed = BufferTask(SuppressUpdates.of("buffer", 20_000, most), VALUE), 0
    try:
        for offset, record in enumerate(updates_of_table(seed, 60)):
            library.pipe(record)
            its = library.raw_outputs()
            task.changelog.clear()
            mine = task.process([Arrived(str(record.key), record.at, record.value, offset)])
            written = [(key, value and json.loads(value), at) for key, value, at in its.get("out", [])]
            assert [(each.key.encode(), each.value and dict(each.value), each.at) for each in mine] == written, record
            changelogs = [rows for topic, rows in its.items() if "-KTABLE-SUPPRESS-" in topic]
            stored = {key: value for key, value, _ in chain.from_iterable(changelogs)}
            assert buffered(task.changelog) == buffered(stored), record
            passed += len(mine)
    finally:
        library.close()
    assert passed > 10


@pytest.mark.parametrize("count", [5, *soak([20])])
def test_a_full_buffer_of_suppress_stops_the_application_with_the_update_with_which_the_library_stops(
    spark: SparkSession, jvm: Any, count: int
) -> None:
    """The state alone, and with Spark one application that stops."""
    steps, stopped = program("unstored_table t; suppress_or_stop; to_stream; to out"), 0
    for seed in range(count):
        library = LibraryDriver(jvm, steps, UNCACHED)
        task = BufferTask(SuppressUpdates.of("buffer", 20_000, 2, shuts_down=True), VALUE)
        try:
            for offset, record in enumerate(updates_of_table(seed, 30)):
                arrived = [Arrived(str(record.key), record.at, record.value, offset)]
                fault = ""
                try:
                    library.pipe(record)
                except Py4JJavaError as error:
                    fault = str(error)
                if fault:
                    assert "exceeded its max capacity. Currently [3/2] records" in fault
                    with pytest.raises(StreamplanError, match="3 keys"):
                        task.process(arrived)
                    stopped += 1
                    break
                written = [
                    (key, value and json.loads(value), at) for key, value, at in library.raw_outputs().get("out", [])
                ]
                mine = task.process(arrived)
                assert [(each.key.encode(), each.value and dict(each.value), each.at) for each in mine] == written
        finally:
            library.close()
    assert stopped > count // 4
    with TopologyTestDriver(ours(steps, APPLICATION, 1), spark=spark) as driver:
        for key in "klm":
            if key == "m":
                with pytest.raises(StreamplanError, match="of suppress is full, at t-0 offset 2"):
                    driver.pipe("t", {"n": 1}, key=key, at="12:00")
            else:
                driver.pipe("t", {"n": 1}, key=key, at="12:00")


def buffered(changelog: Mapping[Any, bytes | None]) -> dict[Any, bytes | None]:
    """A changelog of the buffer without the values that the table had before, which ours does not have."""
    return {key: value and BufferedUpdate.parse(value).as_bytes() for key, value in changelog.items()}


TIME_LIMITED = {
    "of a table": "unstored_table a; suppress_for; to_stream; to out",
    "of a table with a store, and at most two": "table a; suppress_two; to_stream; filter; to out",
    "of a count": "stream a; group_by_key; count; suppress_for; to_stream; counts; to out",
    "of a reduced stream, beside a join": "stream a; group_by_key; greatest; suppress_for; to_stream; to out; "
    "table t; @0 left_join 5; to joined",
    "of windows": "stream a; group_by_key; short_windows; count; suppress_for; to_stream; window_counts; to out",
    "of hops, at most two": "stream a; group_by_key; short_hops; aggregate; suppress_two; to_stream; windows; to out",
    "of sessions": "stream a; group_by_key; brief_sessions; aggregate; suppress_for; to_stream; session_values; to out",
}


@pytest.mark.parametrize(
    ("text", "seed", "count"),
    [
        (TIME_LIMITED["of windows"], 2, 6),
        *(
            pytest.param(text, seed, 14, marks=pytest.mark.soak)
            for name, text in TIME_LIMITED.items()
            for seed in range(1 if name in ("of a table", "of a count", "of windows") else 2, 5)
        ),
    ],
)
def test_what_is_suppressed_until_a_time_limit_is_passed_as_in_the_library(
    spark: SparkSession, jvm: Any, text: str, seed: int, count: int
) -> None:
    """The changelog of the library's buffer has the times of the clock. The test above compares its bytes."""
    steps, written = program(text), 0
    topics = ["out", *(["joined"] if "joined" in text else [])]
    with both(spark, jvm, steps, UNCACHED) as (driver, library):
        for record in updates_of_table(seed, count):
            pipe(driver, record._replace(topic="a"))
            library.pipe(record._replace(topic="a"))
            mine, its = our_outputs(driver, topics), library.raw_outputs()
            passed = {
                topic: [(key, value_of(value), at) for key, value, at in its[topic]] for topic in topics if topic in its
            }
            assert mine == passed, record
            written += sum(map(len, mine.values()))
    assert written > 3


def edges_of_sessions(seed: int, sessions: SessionWindows) -> list[Piped]:
    """Records at the very time at which a session takes no more, and a millisecond before and behind it."""
    chosen, now, records = random.Random(seed), 0, list[Piped]()
    for _ in range(60):
        at = now - chosen.choice([0, 0, 0, sessions.retention_ms - 1, sessions.retention_ms, sessions.retention_ms + 1])
        records.append(Piped("a", chosen.choice(["k", "l", "km"]), b"{}", BEGIN + max(0, at)))
        now += chosen.choice([0, 1, 500, 1000, sessions.inactivity_gap_ms, sessions.retention_ms])
    return records


def edges_of_sliding_windows(seed: int) -> list[Piped]:
    """Records at the very time at which the grace is over, and a millisecond before and behind it."""
    grace = WINDOWS["sliding_windows"].grace_ms
    chosen, now, records = random.Random(seed), BEGIN, list[Piped]()
    for _ in range(60):
        late = chosen.choice([0, 0, grace - 1, grace, grace + 1])
        records.append(Piped("a", chosen.choice("kkl"), b"{}", now - late))
        now += chosen.choice([0, 0, 1, 500, grace, 31_000])
    return records


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(50))
@pytest.mark.parametrize("word", ["strict_windows", "short_windows", "short_hops", "hopping_windows"])
def test_final_results_of_random_records_are_those_of_the_library(
    spark: SparkSession, jvm: Any, word: str, seed: int
) -> None:
    steps = program(FINAL % word)
    assert compare(spark, jvm, steps, soon_after_the_epoch(late_records(seed, steps, 60)), "w") > 0


@pytest.mark.parametrize("seed", seeds(1, 200))
@pytest.mark.parametrize("word", ["short_hops", "brief_sessions", *soak(["strict_windows", "short_windows"])])
def test_windows_close_at_the_moments_of_the_library_and_in_its_order(jvm: Any, word: str, seed: int) -> None:
    """Record by record, with the order of all that one record gives. The state alone, without Spark."""
    records = within_a_segment(seed) if word in SESSIONS else late_records(seed, program(FINAL % word), 40)
    assert compare_states(jvm, word, soon_after_the_epoch(records)) > 5


def soon_after_the_epoch(records: Sequence[Piped]) -> list[Piped]:
    """The same records from 1970: at its first result, the library's cache looks into each minute since the epoch."""
    return [record._replace(at=record.at - BEGIN + 600_000) for record in records]


def within_a_segment(seed: int) -> list[Piped]:
    """Records of a minute and five seconds, which are gap and grace of the sessions.

    With a later record the library's store drops what ended in the minute. It drops a session that closes then before
    it is passed.
    """
    chosen = random.Random(seed)
    records, now = list[Piped](), 0
    while now < 65_000:
        at = max(0, now - chosen.choice([0, 0, 0, 1, 1000, 5000, 9000]))
        records.append(Piped("a", chosen.choice("klm"), b"{}", BEGIN + at))
        now += chosen.choice([0, 1, 500, 500, 1000, 3000, 3001])
    return records


def sliding_records(seed: int, begin: int) -> list[Piped]:
    """Records of few keys, some of them late, without a gap that makes the library lose a final result."""
    chosen, records, now = random.Random(seed), list[Piped](), begin
    for _ in range(60):
        now += chosen.choice([0, 0, 1, 500, 10_000, 31_000])
        at = max(0, now - chosen.choice([0, 0, 0, 0, 1, 500, 30_000, 60_007, 69_000]))
        records.append(Piped("a", chosen.choice("kkl"), b"{}", at))
    return records


@pytest.mark.parametrize(
    ("begin", "final", "seed"),
    [
        *((0, False, 0), (BEGIN, True, 0)),
        *(
            pytest.param(begin, final, seed, marks=pytest.mark.soak)
            for begin in (0, BEGIN)
            for final in (False, True)
            for seed in range(201)
            if seed > 0 or final != (begin == BEGIN)
        ),
    ],
)
def test_sliding_windows_change_as_in_the_library(jvm: Any, begin: int, final: bool, seed: int) -> None:
    """Record by record. The state alone, without Spark."""
    assert compare_states(jvm, "sliding_windows", sliding_records(seed, begin), final=final) > 10


@pytest.mark.soak
@pytest.mark.parametrize(
    ("text", "seed"),
    [
        ("aggregate; to_stream; windows; to w", 1),
        *(
            (text, seed)
            for text in (
                "aggregate; to_stream; windows; to w",
                "on_close; aggregate; to_stream; windows; to w",
                "count; to_stream; plain_counts; process; to w",
            )
            for seed in range(2, 5)
        ),
    ],
)
def test_sliding_windows_are_those_of_the_library(spark: SparkSession, jvm: Any, text: str, seed: int) -> None:
    """With late records, and with nulls as keys and values."""
    steps = program(f"stream a; group_by_key; sliding_windows; {text}")
    assert compare(spark, jvm, steps, late_records(seed, steps, 12)) > 10


def compare_states(
    jvm: Any, word: str, records: Sequence[Piped], *, final: bool = True, suppressed: bool = False
) -> int:
    """Compare the changes of the store, and the results that are passed, with those of the library."""
    counted = "session_counts" if word in SESSIONS else "window_counts"
    task = WindowTask((WINDOWS | SESSIONS)[word], final=final, suppressed=suppressed)
    count = "count; suppress" if suppressed else "on_close; count" if final else "count"
    steps = program(f"stream a; group_by_key; {word}; {count}; to_stream; {counted}; to w")
    library = LibraryDriver(jvm, steps, UNCACHED if suppressed else None)
    passed = 0
    try:
        for record in records:
            if record.value == b"no JSON" or record.key is None:
                continue
            library.pipe(record)
            its = last_of_each_key(library.outputs())
            made = task.process([(record.key, record.at)])
            closed = [(shown(row, word), row.parts["p0"], row.at) for row in made if row.place is not None]
            passed_there = [(key, value["n"], at) for key, value, at in its.get("w", [])]
            assert closed == passed_there or (not final and sorted(closed) == sorted(passed_there)), record
            stored = {
                (stored_key(row, word), row.parts and row.parts["p0"], row.at)
                for row in made
                if not final or row.place is None
            }
            changelogs = [rows for topic, rows in its.items() if topic.endswith("-changelog")]
            assert stored == {*chain.from_iterable(changelogs)}, record
            passed += len(closed)
    finally:
        library.close()
    return passed


def shown(row: Row, word: str) -> bytes:
    """A key with its window, as the twin topologies show it."""
    return b"%b@%d-%d" % (row.key, row.start, row.end) if word in SESSIONS else b"%b@%d" % (row.key, row.start)


def stored_key(row: Row, word: str) -> bytes:
    """The key of a window in the changelog."""
    start, end = row.start.to_bytes(8, "big"), row.end.to_bytes(8, "big")
    return bytes(row.key) + (end + start if word in SESSIONS else start + bytes(4))


def counts_by_window(records: Sequence[tuple[Any, Any, int]]) -> list[int]:
    return [value["n"] for _, value, _ in records]


def test_a_late_record_is_dropped_at_once_or_from_the_next_micro_batch_on(spark: SparkSession, jvm: Any) -> None:
    """The record at 90 s closes the first window. The one at 30 s is late, and the one at 61 s is not."""
    steps = program("stream a; group_by_key; short_windows; count; to_stream; window_counts; to counts")
    records = [one("a", second) for second in (0, 90, 30, 61)]
    assert compare(spark, jvm, steps, records) > 0
    with both(spark, jvm, steps) as (driver, library):
        with driver.micro_batch():
            for record in records:
                pipe(driver, record)
        for record in records:
            library.pipe(record)
        assert sorted(counts_by_window(our_outputs(driver, ["counts"])["counts"])) == [2, 2]
        assert counts_by_window(library.outputs()["counts"]) == [1, 1, 2]
        pipe(driver, records[2])
        assert driver.output("counts") == []


def test_the_library_loses_a_session_that_closes_with_the_segment_of_its_store(jvm: Any) -> None:
    """It ends at 59 s, in the first minute of its store. The record at 101 s closes it, and drops that minute."""
    library = LibraryDriver(jvm, program(FINAL_SESSIONS % "short_sessions"))
    try:
        for second in (30, 59, 101):
            library.pipe(one("a", second))
        assert "w" not in library.outputs()
    finally:
        library.close()
    task = WindowTask(SESSIONS["short_sessions"])
    rows = [row for second in (30, 59, 101) for row in task.process([("k", BEGIN + 1000 * second)])]
    (closed,) = [row for row in rows if row.place is not None]
    assert (closed.start, closed.end, closed.parts["p0"]) == (BEGIN + 30_000, BEGIN + 59_000, 2)


def test_the_library_without_its_cache_loses_a_window_that_a_much_later_record_closes(jvm: Any) -> None:
    steps = program(FINAL % "strict_windows")
    for cache, number in (("10485760", 1), ("0", 0)):
        library = LibraryDriver(jvm, steps, {"statestore.cache.max.bytes": cache})
        try:
            for second in (605, 1300):
                library.pipe(Piped("a", "k", b"{}", 1000 * second))
            assert len(library.outputs().get("w", [])) == number
        finally:
            library.close()
    task = WindowTask(WINDOWS["strict_windows"])
    rows = [row for second in (605, 1300) for row in task.process([("k", 1000 * second)])]
    assert [row.start for row in rows if row.place is not None] == [600_000]
