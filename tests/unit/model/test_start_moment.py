from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from streamplan.errors import Refused
from streamplan.model.pipeline import Pipeline
from streamplan.model.start_moment import StartMoment
from streamplan.pipelines.orders import PIPELINE

NOW = datetime(2026, 2, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-01-31T00:00:00Z", datetime(2026, 1, 31, tzinfo=UTC)),
        ("2026-01-31T02:00:00+02:00", datetime(2026, 1, 31, tzinfo=UTC)),
        ("by_duration:P1D", NOW - timedelta(days=1)),
        ("by_duration:PT90S", NOW - timedelta(seconds=90)),
        ("by_duration:P1DT2H3M4.5S", NOW - timedelta(days=1, hours=2, minutes=3, seconds=4.5)),
        ("by_duration:P999999D", datetime(1970, 1, 1, tzinfo=UTC)),  # before there were records
    ],
)
def test_a_time_is_one_in_ms(text: str, moment: datetime) -> None:
    assert StartMoment.parse(text).timestamp_ms(NOW) == int(moment.timestamp() * 1000)


def test_the_ends_of_a_topic_are_no_times() -> None:
    earliest, latest = StartMoment.parse("earliest"), StartMoment.parse("latest")
    assert (earliest.is_earliest, earliest.timestamp_ms()) == (True, None)
    assert (latest.is_earliest, latest.is_latest, latest.timestamp_ms()) == (False, True, None)


@pytest.mark.parametrize(
    "text",
    ["", "none", "Latest", "yesterday", "by_duration:", "by_duration:P", "by_duration:1h", "2026-01-31T00:00:00"],
)
def test_anything_else_is_a_fault_of_the_declaration(text: str) -> None:
    with pytest.raises(Refused, match=r"auto_offset_reset: .*It is earliest, latest, by_duration:P7D or 2026"):
        Pipeline("orders", PIPELINE.topology, "", {"orders": 2}, auto_offset_reset=text)
