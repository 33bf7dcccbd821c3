"""Moments as a test writes them: ``"12:00"``, ISO 8601, a datetime, or ms since the epoch."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import TypeAlias

from streamplan.errors import Refused
from streamplan.model.windows import duration_ms
from streamplan.serdes.moments import as_milliseconds

Moment: TypeAlias = "str | int | datetime"

_FORMS = "'12:00', '2026-01-31T12:00:00Z', a datetime, or ms since the epoch"


def timestamp_ms(moment: Moment, day: date) -> int:
    """Return a moment in ms since the epoch. A time without an offset from UTC is in UTC.

    Args:
        moment: A time of the day, a date and time of ISO 8601, a datetime, or ms since the epoch.
        day: The day of a time that says none.

    Raises:
        Refused: It is no moment.
    """
    if isinstance(moment, int):
        return moment
    found = moment if isinstance(moment, datetime) else _parsed(moment, day)
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return as_milliseconds(found)


def milliseconds(duration: str | timedelta) -> int:
    """Return a duration in ms.

    Args:
        duration: As ``"5 minutes"``, or a timedelta.

    Raises:
        Refused: It is no duration, or a negative one.
    """
    if isinstance(duration, timedelta):
        found = duration // timedelta(milliseconds=1)
    else:
        try:
            found = duration_ms(duration)
        except (ValueError, TypeError) as error:
            raise Refused("a duration", expected="as '5 minutes', or a timedelta", observed=repr(duration)) from error
    if found < 0:
        raise Refused("a duration", expected="0 or more", observed=str(duration))
    return found


def _parsed(text: str, day: date) -> datetime:
    try:
        return datetime.combine(day, time.fromisoformat(text))
    except (ValueError, TypeError):
        pass
    try:
        return datetime.fromisoformat(text)
    except (ValueError, TypeError) as error:
        raise Refused("a moment", expected=_FORMS, observed=repr(text)) from error
