"""What a function may tell as a timestamp."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction

import pytest
from streamplan.spark.planning.extracted_timestamps import milliseconds_of
from streamplan.spark.planning.function_results import Unfit

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def test_a_moment_is_told_in_whole_milliseconds_whatever_its_zone() -> None:
    chosen = random.Random(4)
    for _ in range(500):
        microseconds = chosen.randrange(253_402_300_800_000_000)
        zone = timezone(timedelta(minutes=chosen.randrange(-800, 800)))
        moment = EPOCH + timedelta(microseconds=microseconds)
        if datetime(2, 1, 1, tzinfo=UTC) < moment < datetime(9998, 1, 1, tzinfo=UTC):
            moment = moment.astimezone(zone)
        assert milliseconds_of(moment) == Fraction(microseconds, 1000).__floor__()
        assert milliseconds_of(microseconds // 1000) == microseconds // 1000


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        (None, "told no timestamp"),
        (-1, "told -1: the timestamp -1 is negative"),
        (EPOCH - timedelta(microseconds=1), "told -1: the timestamp -1 is negative"),
        (253_402_300_800_000, "told 253402300800000: the timestamp 253402300800000 is beyond the year 9999"),
        (10**30, f"told {10**30}: the timestamp {10**30} is beyond the year 9999"),
        (datetime(2026, 1, 1), "told datetime, and not a datetime with a zone, or the milliseconds since 1970"),
        (True, "told bool, and not a datetime with a zone, or the milliseconds since 1970"),
        (1.5, "told float, and not a datetime with a zone, or the milliseconds since 1970"),
        ("2026-01-01", "told str, and not a datetime with a zone, or the milliseconds since 1970"),
    ],
)
def test_what_is_no_timestamp_is_told_with_what_it_is(told: object, reason: str) -> None:
    with pytest.raises(Unfit) as unfit:
        milliseconds_of(told)
    assert str(unfit.value) == reason
