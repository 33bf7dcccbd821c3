"""Tumbling windows (``org.apache.kafka.streams.kstream.TimeWindows``)."""

from __future__ import annotations

import re
from dataclasses import dataclass

_UNITS_MS = {"millisecond": 1, "second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
_DURATION = re.compile(r"(\d+) (millisecond|second|minute|hour|day)s?")

WINDOWED_CHANGELOG_ADDITIONAL_RETENTION_MS = _UNITS_MS["day"]
"""Kafka Streams' ``windowstore.changelog.additional.retention.ms``, for clocks that differ."""


def duration_ms(text: str) -> int:
    """``"90 seconds"``, ``"1 minute"``, ``"2 hours"`` in ms; raises ValueError for anything else."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a duration; write a number and a unit, as in '1 minute' or '30 seconds'")
    return int(found[1]) * _UNITS_MS[found[2]]


@dataclass(frozen=True)
class TimeWindows:
    """Windows of ``size``, one after the other, aligned to the epoch.

    ``size``, ``grace``  durations as in ``"1 minute"``. A window takes late records until the newest record is
                         ``grace`` younger than its end; with ``grace`` a day, Kafka Streams' own former default
    """

    size: str
    grace: str = "1 day"

    @property
    def size_ms(self) -> int:
        return duration_ms(self.size)

    @property
    def grace_ms(self) -> int:
        return duration_ms(self.grace)

    @property
    def retention_ms(self) -> int:
        """Of the window store (``WindowStoreMaterializer.retentionPeriod``)."""
        return self.size_ms + self.grace_ms

    @property
    def changelog_retention_ms(self) -> int:
        """``retention.ms`` of the store's changelog topic (``WindowedChangelogTopicConfig``)."""
        return self.retention_ms + WINDOWED_CHANGELOG_ADDITIONAL_RETENTION_MS
