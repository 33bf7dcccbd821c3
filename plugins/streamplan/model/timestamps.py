"""The timestamps of records: those that can be processed, and those that can be written."""

from __future__ import annotations

LATEST_MS = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z in ms: the last moment of Spark's type ``timestamp`` and of Python's ``datetime``."""

FIRST_WRITABLE_MS = 1
"""The earliest timestamp that librdkafka can write: it takes 0 for "now" (``rd_kafka_msg_new0``)."""


def timestamp_fault(timestamp_ms: int) -> str | None:
    """Return why a record with this timestamp cannot be processed; None where it can.

    Kafka Streams stops at a negative timestamp (``FailOnInvalidTimestamp``, its default).

    Args:
        timestamp_ms: In ms since the epoch.
    """
    if timestamp_ms < 0:
        return f"the timestamp {timestamp_ms} is negative"
    if timestamp_ms > LATEST_MS:
        return f"the timestamp {timestamp_ms} is beyond the year 9999"
    return None


def writable_timestamp(timestamp_ms: int) -> int:
    """Return the timestamp with which a record is written: 1 ms for 0, else the same.

    Whoever compares a record with its copy compares with this.

    Args:
        timestamp_ms: In ms since the epoch.
    """
    return timestamp_ms or FIRST_WRITABLE_MS
