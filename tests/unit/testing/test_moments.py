from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from streamplan.errors import Refused
from streamplan.serdes.moments import as_datetime
from streamplan.testing.moments import Moment, milliseconds, timestamp_ms

DAY = date(2026, 1, 31)
NOON = 1_769_860_800_000


@pytest.mark.parametrize(
    "moment",
    [
        "12:00",
        "12:00:00.000",
        "2026-01-31T12:00",
        "2026-01-31T12:00:00Z",
        "2026-01-31T13:00:00+01:00",
        datetime(2026, 1, 31, 12),
        datetime(2026, 1, 31, 12, tzinfo=UTC),
        datetime(2026, 1, 31, 14, tzinfo=timezone(timedelta(hours=2))),
        NOON,
    ],
)
def test_a_moment_has_several_forms(moment: Moment) -> None:
    assert timestamp_ms(moment, DAY) == NOON


def test_a_moment_is_exact_to_the_millisecond_also_at_the_ends_of_time() -> None:
    assert timestamp_ms("23:59:59.999", date(9999, 12, 31)) == 253_402_300_799_999
    for moment in (0, 1, NOON + 123, 253_402_300_799_999):
        assert timestamp_ms(as_datetime(moment), DAY) == moment
    assert timestamp_ms(-5, DAY) == -5


@pytest.mark.parametrize("moment", ["noon", "25:00", "12h", ""])
def test_what_is_no_moment_is_refused_with_the_forms_that_are(moment: str) -> None:
    with pytest.raises(Refused, match=r"a moment: expected '12:00', .*, observed"):
        timestamp_ms(moment, DAY)


def test_a_duration_is_text_or_a_timedelta() -> None:
    assert milliseconds("5 minutes") == milliseconds(timedelta(minutes=5)) == 300_000
    for wrong in ("5 min", timedelta(seconds=-1)):
        with pytest.raises(Refused, match="a duration"):
            milliseconds(wrong)
