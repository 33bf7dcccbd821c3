"""A timedelta stands for the text of a duration, wherever one is taken."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from streamplan import (
    CalendarWindows,
    JoinWindows,
    Json,
    OnWindowClose,
    Processor,
    SessionWindows,
    TimeWindows,
    Topology,
)
from streamplan.judged import mistakes_of
from streamplan.model.windows import duration_ms, duration_text, is_duration


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(minutes=5), "5 minutes"),
        (timedelta(seconds=60), "1 minute"),
        (timedelta(seconds=90), "90 seconds"),
        (timedelta(hours=36), "36 hours"),
        (timedelta(days=7), "7 days"),
        (timedelta(milliseconds=1), "1 millisecond"),
        (timedelta(seconds=1.5), "1500 milliseconds"),
        (timedelta(0), "0 days"),
        ("60 seconds", "60 seconds"),
    ],
)
def test_a_timedelta_has_the_text_of_its_largest_unit(duration: timedelta | str, text: str) -> None:
    assert duration_text(duration) == text
    if isinstance(duration, timedelta):
        assert duration_ms(text) == duration / timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("of_timedelta", "of_text"),
    [
        (TimeWindows(timedelta(minutes=5), advance=timedelta(minutes=1)), TimeWindows("5 minutes", advance="1 minute")),
        (TimeWindows("5 minutes", timedelta(seconds=10)), TimeWindows("5 minutes", grace="10 seconds")),
        (TimeWindows(timedelta(hours=1), offset=timedelta(minutes=5)), TimeWindows("1 hour", offset="5 minutes")),
        (
            CalendarWindows(timedelta(days=1), "Europe/Berlin", timedelta(hours=1), offset=timedelta(hours=6)),
            CalendarWindows("1 day", time_zone="Europe/Berlin", grace="1 hour", offset="6 hours"),
        ),
        (SessionWindows(timedelta(minutes=5), timedelta(hours=1)), SessionWindows("5 minutes", "1 hour")),
        (OnWindowClose(idle=timedelta(minutes=10)), OnWindowClose(idle="10 minutes")),
        (
            JoinWindows(timedelta(minutes=5), before=timedelta(0), after=timedelta(minutes=1), grace=timedelta(days=2)),
            JoinWindows("5 minutes", before="0 days", after="1 minute", grace="2 days"),
        ),
    ],
)
def test_windows_of_timedeltas_are_equal_to_those_of_texts(of_timedelta: Any, of_text: Any) -> None:
    assert of_timedelta == of_text
    assert repr(of_timedelta) == repr(of_text), "checkpoints have this text"
    assert copy.deepcopy(of_timedelta) == pickle.loads(pickle.dumps(of_timedelta)) == replace(of_timedelta) == of_text


@pytest.mark.parametrize(
    ("duration", "told"),
    [
        (timedelta(minutes=-5), "a timedelta of -300 seconds is negative"),
        (timedelta(microseconds=1), "a timedelta of 1e-06 seconds is no whole number of milliseconds"),
    ],
)
def test_a_timedelta_that_is_no_duration_is_told(duration: timedelta, told: str) -> None:
    (mistake,) = mistakes_of(TimeWindows("1 hour", advance=duration))
    assert mistake.message == f"TimeWindows: advance: {told}"


class Counter(Processor):
    def process(self, record: Any, store: Any) -> None: ...


def test_the_time_to_live_of_a_store_is_a_timedelta() -> None:
    one, two = Topology("app"), Topology("app")
    for topology, ttl in ((one, timedelta(days=7)), (two, "7 days")):
        stream = topology.stream("orders", value=Json("id string"))
        stream.process(Counter, store="seen", state="n bigint", schema="n bigint", ttl=ttl)
    assert [str(each.operation) for each in one.subtopologies[0].processors] == [
        str(each.operation) for each in two.subtopologies[0].processors
    ]
    assert [each.operation.ttl for each in one.subtopologies[0].processors] == ["7 days"]  # type: ignore[union-attr]
    assert one.faults == two.faults == ()


def test_the_durations_alone_are_completed_between_the_words_of_windows() -> None:
    words = [name for name in dir(TimeWindows("1 hour")) if not name.startswith("_")]
    assert words == ["advance", "grace", "offset", "size"]


@pytest.mark.parametrize("text", ["1000001 days", "86400000000001 milliseconds", f"{'9' * 5000} seconds"])
def test_a_duration_that_kafka_and_spark_cannot_hold_is_refused(text: str) -> None:
    """Windows of 200,000,000 days were accepted, and the first record stopped the application."""
    with pytest.raises(ValueError, match="is too long: a duration has at most 1,000,000 days"):
        duration_ms(text)
    assert not is_duration(text)
    assert duration_ms("1000000 days") == 86_400_000_000_000
