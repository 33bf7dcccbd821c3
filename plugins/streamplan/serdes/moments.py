"""Moments as numbers: milliseconds since 1970 in UTC, as Kafka's timestamps are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_MILLISECOND = timedelta(milliseconds=1)


def as_datetime(timestamp: int) -> datetime:
    """Return ms since the epoch as a datetime in UTC.

    Args:
        timestamp: From 0 to the end of the year 9999.
    """
    return EPOCH + timestamp * _MILLISECOND


def as_milliseconds(moment: datetime) -> int:
    """Return the whole ms of a datetime with a time zone since the epoch."""
    return (moment - EPOCH) // _MILLISECOND
