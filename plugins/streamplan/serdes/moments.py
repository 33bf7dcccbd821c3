"""Moments as numbers: milliseconds since 1970 in UTC, as Kafka's timestamps are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
"""The years 1 to 9999, which Python has: in microseconds and in days since 1970."""

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
