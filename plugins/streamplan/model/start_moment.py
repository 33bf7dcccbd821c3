"""The moment at which a new application begins to read its input, as ``auto.offset.reset`` of a consumer says it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

EARLIEST = "earliest"

LATEST = "latest"

_BY_DURATION = "by_duration:"

_DURATION = re.compile(
    r"P(?=.)(?:(?P<days>\d+)D)?(?:T(?=.)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)

FORMS = f"{EARLIEST}, {LATEST}, {_BY_DURATION}P7D or 2026-01-31T00:00:00Z"
"""The forms that a start moment can have, for errors."""


@dataclass(frozen=True)
class StartMoment:
    """Where a new application begins in the topics that it reads as streams.

    ``earliest``, ``latest`` and ``by_duration:<duration of ISO 8601>`` are those of ``auto.offset.reset`` (KIP-1106). A
    time of ISO 8601 with its offset from UTC is that moment.

    Attributes:
        is_latest: Whether it begins at the end of the topics.
        at: It begins with the first record of this time or later; None for no time.
        before_now: It begins with the first record that is at most so old; None for no age.
    """

    is_latest: bool = False
    at: datetime | None = None
    before_now: timedelta | None = None

    @classmethod
    def parse(cls, text: str) -> StartMoment:
        """Return the moment that a text says.

        Raises:
            ValueError: It has none of the :data:`FORMS`.
        """
        if text in (EARLIEST, LATEST):
            return cls(is_latest=text == LATEST)
        if text.startswith(_BY_DURATION):
            match = _DURATION.fullmatch(text.removeprefix(_BY_DURATION))
            if match is None:
                raise ValueError(f"{text!r} has no duration of ISO 8601, such as PT12H or P7D")
            try:
                return cls(before_now=timedelta(**{unit: float(n) for unit, n in match.groupdict().items() if n}))
            except OverflowError as error:
                raise ValueError(f"{text!r} is too long") from error
        try:
            moment = datetime.fromisoformat(text)
        except ValueError as error:
            raise ValueError(f"{text!r} is no time and no word for one") from error
        if moment.tzinfo is None:
            raise ValueError(f"{text!r} says no offset from UTC, such as Z or +01:00")
        return cls(at=moment)

    @property
    def is_earliest(self) -> bool:
        """Whether it begins with the first record that is there."""
        return self == StartMoment()

    def timestamp_ms(self, now: datetime | None = None) -> int | None:
        """Return the time of the first record that is read, in ms since the epoch; None where no time says it.

        Args:
            now: The time from which an age is counted; by default that of the clock.
        """
        if self.before_now is not None:
            seconds = (now or datetime.now(UTC)).timestamp() - self.before_now.total_seconds()
        elif self.at is not None:
            seconds = self.at.timestamp()
        else:
            return None
        return max(0, int(seconds * 1000))
