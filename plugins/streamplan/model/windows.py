"""The windows of aggregates and joins (``org.apache.kafka.streams.kstream``), and the bytes of a key with a window.

Also how long a versioned table keeps its history.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING, NamedTuple, NoReturn, TypeAlias
from zoneinfo import ZoneInfo, available_timezones

from streamplan.judged import judged_constructor
from streamplan.model.words import NoBuilder, no_builder

_UNITS_MS = {"millisecond": 1, "second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
Duration: TypeAlias = str | timedelta
"""A duration as a declaration has it: ``"5 minutes"``, or ``timedelta(minutes=5)``."""

_NUMBER_AND_WORD = re.compile(r"(\d+)\s*([A-Za-z]+)")
_DURATION = re.compile(r"(\d+) (millisecond|second|minute|hour|day)s?")

WINDOWED_CHANGELOG_ADDITIONAL_RETENTION_MS = _UNITS_MS["day"]
"""Kafka Streams' default of ``windowstore.changelog.additional.retention.ms``, in case clocks differ."""


_MOST_MS = 1_000_000 * _UNITS_MS["day"]
"""A window that begins in the year 9999 ends at a time that Spark still has. Kafka's configs have 64 bits."""

_MOST_DIGITS = 18


def duration_ms(text: str) -> int:
    """A duration such as ``"90 seconds"``, ``"1 minute"`` or ``"2 hours"`` in ms.

    Raises:
        ValueError: The text is no duration.
    """
    duration = _DURATION.fullmatch(text)
    if duration is None:
        raise ValueError(f"{text!r} is not a duration; {_meant(text)}")
    ms = int(duration[1][:_MOST_DIGITS]) * _UNITS_MS[duration[2]]
    if ms > _MOST_MS or len(duration[1]) > _MOST_DIGITS:
        raise ValueError(f"{text!r:.100} is too long: a duration has at most 1,000,000 days")
    return ms


def _meant(text: str) -> str:
    """What to write in place of a text that is no duration."""
    if text.startswith("-"):
        return "it cannot be negative"
    written = _NUMBER_AND_WORD.fullmatch(text.strip())
    word = written[2].lower() if written else ""
    short = {"m": "minute", "h": "hour", "hr": "hour", "hrs": "hour", "s": "second", "d": "day", "ms": "millisecond"}
    unit = short.get(word) or next(iter(get_close_matches(word, [*_UNITS_MS], 1)), "")
    unit = unit or next((each for each in ("minute", *_UNITS_MS) if word and each.startswith(word.rstrip("s"))), "")
    if written is None or not unit:
        return "write a number and a unit, as in '1 minute' or '30 seconds'"
    return f"write '{int(written[1])} {unit}{'' if int(written[1]) == 1 else 's'}'"


def is_duration(value: object) -> bool:
    """Whether a value is a duration, as windows are made of."""
    try:
        return isinstance(value, timedelta) or (isinstance(value, str) and duration_ms(value) > 0)
    except ValueError:
        return False


def duration_text(duration: Duration) -> str:
    """Return a duration as a text. The text of a timedelta is in the largest unit of which it is a whole number.

    So ``timedelta(minutes=5)`` is the same as ``"5 minutes"``, also for names and checkpoints.

    Args:
        duration: A text is returned as it is.

    Raises:
        ValueError: The duration is negative, or no whole number of milliseconds.
    """
    if isinstance(duration, str):
        return duration
    count, rest = divmod(duration, timedelta(milliseconds=1))
    if rest or count < 0:
        wrong = "is negative" if count < 0 else "is no whole number of milliseconds"
        raise ValueError(f"a timedelta of {duration.total_seconds():g} seconds {wrong}")
    units = reversed(_UNITS_MS.items())
    unit, size = next((unit, size) for unit, size in units if count % size == 0)
    number = count // size
    return f"{number} {unit}{'' if number == 1 else 's'}"


MOST_WINDOWS_OF_RECORD = 20_000
"""How many hopping windows may overlap. Each record writes an update of each window that it is in, all in one
transaction."""


class _Written(metaclass=NoBuilder):
    """What is written at once, with its constructor."""

    def _hold(self, **durations: Duration | None) -> None:
        """Set the fields of a frozen object: each duration as its text."""
        for name, duration in durations.items():
            try:
                self.__dict__[name] = None if duration is None else duration_text(duration)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error

    def __dir__(self) -> list[str]:
        """What is declared, and what Python has."""
        fields = getattr(type(self), "__dataclass_fields__", ())
        return [name for name in object.__dir__(self) if name.startswith("__") or name in fields]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            no_builder(self, name)


class _Windows(_Written):
    """What windows of all kinds have in common."""

    grace: str

    @property
    def grace_ms(self) -> int:
        """The grace in ms. Raises ValueError where it is no duration."""
        return duration_ms(self.grace)

    @property
    def retention_ms(self) -> int:
        """The retention of a store in ms."""
        raise NotImplementedError

    @property
    def changelog_retention_ms(self) -> int:
        """``retention.ms`` of a store's changelog topic (``WindowedChangelogTopicConfig``)."""
        return self.retention_ms + WINDOWED_CHANGELOG_ADDITIONAL_RETENTION_MS


@judged_constructor
@dataclass(frozen=True, repr=False)
class TimeWindows(_Windows):
    """Windows of one size, aligned to the epoch.

    Example: ``TimeWindows("1 minute")``

    Tumbling windows follow each other. Hopping windows begin after each ``advance`` and overlap, so that a record is in
    several of them. No window begins before the epoch (``TimeWindows.windowsFor``).

    Attributes:
        size: A duration, as ``"1 minute"`` or ``timedelta(minutes=1)``.
        grace: A duration. A window takes late records until the newest record is later than its end by ``grace``. The
            default is a day, which was the default of Kafka Streams before 3.0.
        advance: A duration: how much later the next window begins (``TimeWindows.advanceBy``). None for tumbling
            windows.
        offset: A duration: how much later than the epoch the windows begin. With the size ``"1 hour"`` and the offset
            ``"15 minutes"``, a window begins at 12:15. None for windows that begin with the epoch. That of hopping
            windows is below their advance. The library has a subclass of ``Windows`` for it.
    """

    size: str
    grace: str = "1 day"
    advance: str | None = None
    offset: str | None = None

    def __init__(
        self,
        size: Duration,
        grace: Duration = "1 day",
        advance: Duration | None = None,
        offset: Duration | None = None,
    ) -> None:
        self._hold(size=size, grace=grace, advance=advance, offset=offset)

    def __repr__(self) -> str:
        """The text is part of a checkpoint's identity. That of tumbling windows is older than the other ones."""
        advance = "" if self.advance is None else f", advance={self.advance!r}"
        offset = "" if self.offset is None else f", offset={self.offset!r}"
        return f"TimeWindows(size={self.size!r}, grace={self.grace!r}{advance}{offset})"

    @property
    def size_ms(self) -> int:
        """The size in ms. Raises ValueError where it is no duration."""
        return duration_ms(self.size)

    @property
    def advance_ms(self) -> int:
        """How much later the next window begins, in ms. Raises ValueError where it is no duration."""
        return self.size_ms if self.advance is None else duration_ms(self.advance)

    @property
    def offset_ms(self) -> int:
        """How much later than the epoch the windows begin, in ms. Raises ValueError where it is no duration."""
        return 0 if self.offset is None else duration_ms(self.offset)

    @property
    def begin_at_multiples(self) -> bool:
        """Whether each window begins at a multiple of :attr:`advance_ms` behind :attr:`offset_ms`, and overlap or not.

        Otherwise the windows follow each other, and ``window_bounds`` tells the one of a time.
        """
        return self.offset is None or self.advance is not None

    @property
    def are_of_function(self) -> bool:
        """Whether a Python function tells the windows of a time, as those of :class:`CustomWindows`."""
        return False

    @property
    def slides(self) -> bool:
        """Whether the records decide where windows begin, as those of :class:`SlidingWindows`."""
        return False

    @property
    def overlap(self) -> int:
        """How many windows a record is in at most. Raises ValueError where a duration is none."""
        return -(-self.size_ms // self.advance_ms)

    def starts_of(self, at_ms: int) -> range:
        """The starts in ms of the windows that a time lies in (``TimeWindows.windowsFor``).

        Only for windows that :attr:`begin_at_multiples`.
        """
        first = max(0, at_ms - self.size_ms + self.advance_ms - self.offset_ms) // self.advance_ms * self.advance_ms
        return range(self.offset_ms + first, at_ms + 1, self.advance_ms)

    @property
    def retention_ms(self) -> int:
        """The retention of the window store in ms (``WindowStoreMaterializer.retentionPeriod``)."""
        return self.size_ms + self.grace_ms


@judged_constructor
@dataclass(frozen=True, repr=False)
class SlidingWindows(TimeWindows):
    """Windows that begin and end at the times of records (``SlidingWindows.ofTimeDifferenceAndGrace``, KIP-450).

    Example: ``SlidingWindows("5 minutes", grace="1 minute")``

    Each record has a window that ends at its time, and one that begins a millisecond later, where there are records in
    it. Both the first and the last millisecond belong to a window.

    Attributes:
        size: A duration, as ``"5 minutes"``: how far apart in time the records of a window may be.
        grace: A duration. A window takes late records until the newest record is later than its end by more than
            ``grace``. The default is a day, as that of :class:`TimeWindows`.
    """

    def __init__(self, time_difference: Duration, grace: Duration = "1 day") -> None:
        self._hold(size=time_difference, grace=grace, advance=None, offset=None)

    def __repr__(self) -> str:
        """The text is part of a checkpoint's identity."""
        return f"SlidingWindows({self.size!r}, grace={self.grace!r})"

    @property
    def slides(self) -> bool:
        """True: see :attr:`TimeWindows.slides`."""
        return True

    @property
    def retention_ms(self) -> int:
        """The retention of the window store in ms (``SlidingWindowStoreMaterializer.retentionPeriod``)."""
        return 2 * self.size_ms + self.grace_ms


CALENDAR_UNITS = {"1 day": ("DAY", 1), "1 week": ("WEEK", 7), "1 month": ("MONTH", 31)}
"""By the size of windows of a calendar Spark's name of the unit, and the days that the longest one has."""


@judged_constructor
@dataclass(frozen=True, repr=False)
class CalendarWindows(TimeWindows):
    """Days, weeks or months of a time zone. They follow each other.

    Example: ``CalendarWindows("1 day", time_zone="Europe/Berlin")``

    A day begins at midnight by the clocks of the zone. So it has 23 or 25 hours when daylight saving time begins or
    ends. A week begins on Monday. No window begins before 1970. The library has a subclass of ``Windows`` for this.

    Attributes:
        size: ``"1 day"``, ``"1 week"`` or ``"1 month"``.
        time_zone: The name of a time zone, as ``"Europe/Berlin"``.
        grace: A duration. A window takes late records until the newest record is later than its end by ``grace``. The
            default is a day, as that of :class:`TimeWindows`.
        offset: A duration: how much later than midnight the windows begin, by the clocks of the zone. With ``"6
            hours"``, a day begins at six o'clock. None for midnight.
    """

    time_zone: str = "UTC"

    def __init__(
        self, size: Duration, time_zone: str, grace: Duration = "1 day", offset: Duration | None = None
    ) -> None:
        self._hold(size=size, grace=grace, advance=None, offset=offset)
        self.__dict__["time_zone"] = time_zone

    def __repr__(self) -> str:
        """The text is part of a checkpoint's identity."""
        offset = "" if self.offset is None else f", offset={self.offset!r}"
        return f"CalendarWindows(size={self.size!r}, time_zone={self.time_zone!r}, grace={self.grace!r}{offset})"

    @property
    def size_ms(self) -> int:
        """The size of the longest window in ms, without the hour by which daylight saving time may prolong it.

        It is what the ``size()`` of a class in the library usually is. Raises ValueError where there is no such unit.
        """
        if self.size not in CALENDAR_UNITS:
            raise ValueError(f"{self.size!r} is none of {', '.join(map(repr, CALENDAR_UNITS))}")
        return CALENDAR_UNITS[self.size][1] * _UNITS_MS["day"]

    @property
    def begin_at_multiples(self) -> bool:
        """False: see :attr:`TimeWindows.begin_at_multiples`."""
        return False

    def zone_fault(self) -> tuple[str, str] | None:
        """Return what is wrong with the time zone, and what to write; None where there is such a zone."""
        try:
            ZoneInfo(self.time_zone)
        except (LookupError, ValueError, OSError):
            meant = next(iter(get_close_matches(self.time_zone, available_timezones(), 1)), "Europe/Berlin")
            return f"there is no time zone {self.time_zone!r}", f"For example {meant!r}"
        return None


WindowsOfTime: TypeAlias = Callable[[int], Iterable[tuple[int, int]]]
"""A function that is given a time in ms, and returns the start and the end in ms of each window that it lies in."""


@judged_constructor
@dataclass(frozen=True, repr=False)
class CustomWindows(TimeWindows):
    """Windows that a Python function tells (a subclass of ``Windows``, with ``windowsFor``).

    Example::

        def shifts(timestamp: int) -> list[tuple[int, int]]:
            day, hour = timestamp // 86_400_000 * 86_400_000, 3_600_000
            first = [(day, day + 6 * hour), (day + 6 * hour, day + 24 * hour)]
            return [(start, end) for start, end in first if start <= timestamp < end]

        CustomWindows(shifts, size="18 hours", grace="1 hour")

    Only the start of a window is in the key of its store. So the function is also called with the start of a window,
    and then tells its end. No window begins before the epoch, and no two windows of a time begin at the same time. A
    record may be in no window. Its time closes none.

    Attributes:
        function: It is given a time in ms since the epoch, and returns the start and the end in ms of each window that
            the time lies in. The end does not belong to a window. A record for which it fails is a dead letter.
        size: A duration: that of the longest window (``Windows.size``).
        grace: A duration. A window takes late records until the newest record is later than its end by ``grace``. The
            default is a day, as that of :class:`TimeWindows`.
    """

    function: WindowsOfTime = field(default=lambda timestamp: (), compare=False)

    def __init__(self, function: WindowsOfTime, size: Duration, grace: Duration = "1 day") -> None:
        self._hold(size=size, grace=grace, advance=None, offset=None)
        self.__dict__["function"] = function

    def __repr__(self) -> str:
        """The text is part of a checkpoint's identity: what the store holds, and not what the function does."""
        return f"CustomWindows(size={self.size!r}, grace={self.grace!r})"

    @property
    def begin_at_multiples(self) -> bool:
        """False: see :attr:`TimeWindows.begin_at_multiples`."""
        return False

    @property
    def are_of_function(self) -> bool:
        """True: see :attr:`TimeWindows.are_of_function`."""
        return True

    def windows_of(self, at_ms: int) -> list[tuple[int, int]]:
        """The start and the end in ms of each window that a time lies in, by their starts.

        Raises:
            ValueError: The function returned something else. What it raises itself is raised, too.
        """
        ends: dict[int, int] = {}
        longest = self.size_ms
        for window in self.function(at_ms):
            is_pair = isinstance(window, tuple | list) and len(window) == 2
            if not is_pair or not all(isinstance(bound, int) and not isinstance(bound, bool) for bound in window):
                raise ValueError(f"returned {window!r:.200}, and not the start and the end of a window in ms")
            start, end = window
            if not 0 <= start <= at_ms < end:
                raise ValueError(f"returned a window from {start} to {end}, in which {at_ms} does not lie")
            if end - start > longest:
                raise ValueError(f"returned a window from {start} to {end}, which is longer than size={self.size!r}")
            if start in ends:
                raise ValueError(f"returned two windows that begin at {start}")
            if len(ends) == MOST_WINDOWS_OF_RECORD:
                raise ValueError(f"returned more than {MOST_WINDOWS_OF_RECORD:,} windows")
            ends[start] = end
        return sorted(ends.items())

    def end_of(self, start_ms: int) -> int:
        """The end in ms of the window that begins at a time: the size later, where the function does not tell it."""
        try:
            told = dict(self.windows_of(start_ms))
        except Exception:  # noqa: BLE001  whatever it raises: a store that has the window must be readable
            told = {}
        return told.get(start_ms, start_ms + self.size_ms)


@judged_constructor
@dataclass(frozen=True)
class SessionWindows(_Windows):
    """Sessions: a key's records that follow each other without a gap (``SessionWindows.ofInactivityGapAndGrace``).

    Example: ``SessionWindows("5 minutes")``

    A session is from the time of its first record to that of its last one. A record that is at most
    ``inactivity_gap`` away from several sessions makes one of them.

    Attributes:
        inactivity_gap: A duration, as ``"5 minutes"``: a record that is further away begins a session of its own.
        grace: A duration. A session takes late records until the newest record is later than its end by the gap and
            ``grace``. The default is a day, as that of :class:`TimeWindows`.
    """

    inactivity_gap: str
    grace: str = "1 day"

    def __init__(self, inactivity_gap: Duration, grace: Duration = "1 day") -> None:
        self._hold(inactivity_gap=inactivity_gap, grace=grace)

    @property
    def inactivity_gap_ms(self) -> int:
        """The gap in ms. Raises ValueError where it is no duration."""
        return duration_ms(self.inactivity_gap)

    @property
    def retention_ms(self) -> int:
        """The retention of the session store in ms (``SessionStoreMaterializer.retentionPeriod``)."""
        return self.inactivity_gap_ms + self.grace_ms


@judged_constructor
@dataclass(frozen=True)
class OnWindowClose(_Written):
    """The emit strategy that passes the result of each window once, when it closes (``EmitStrategy.onWindowClose``).

    Example: ``OnWindowClose(idle="10 minutes")``

    A time window closes when a record of its stream task is at least ``grace`` later than the window's end. A session
    closes when a record is more than the gap and ``grace`` later than the session's end.

    Attributes:
        idle: A duration, as ``"10 minutes"``. A stream task that has had no record for so long goes on by the wall
            clock: its time is ``idle`` behind the clock. None for tasks that wait for their next record.
    """

    idle: str | None = None

    def __init__(self, idle: Duration | None = None) -> None:
        self._hold(idle=idle)

    @property
    def idle_ms(self) -> int | None:
        """``idle`` in ms. Raises ValueError where it is no duration."""
        return None if self.idle is None else duration_ms(self.idle)


@judged_constructor
@dataclass(frozen=True)
class UntilWindowCloses(_Written):
    """What ``suppress`` of a table waits for: until a window closes (``Suppressed.untilWindowCloses``).

    Example: ``UntilWindowCloses()``

    The library has a buffer, which holds as many windows as it needs (``BufferConfig.unbounded()``).
    """

    def __init__(self) -> None:
        self._hold()


@judged_constructor
@dataclass(frozen=True)
class Versioned(_Written):
    """The state store of a table that keeps earlier values (``Stores.persistentVersionedKeyValueStore``).

    Example: ``Versioned("prices", history="1 hour")``

    Attributes:
        name: The name of the store.
        history: A duration, as ``"1 hour"``: so long after a value was replaced a late record still finds it.
    """

    name: str
    history: str

    def __init__(self, name: str, history: Duration) -> None:
        self._hold(history=history)
        self.__dict__["name"] = name

    @property
    def history_ms(self) -> int:
        """``history`` in ms. Raises ValueError where it is no duration."""
        return duration_ms(self.history)


@judged_constructor
@dataclass(frozen=True)
class UntilTimeLimit(_Written):
    """What ``suppress`` of a table waits for: until an update is so old (``Suppressed.untilTimeLimit``).

    Example: ``UntilTimeLimit("5 minutes", max_records=10_000)``

    The time is that of the newest update of the table in the stream task, and not that of the clock.

    Attributes:
        time_limit: A duration, as ``"5 minutes"``: how much older than the newest update the first update of a key is
            when its last one is passed.
        max_records: How many keys wait at most. Of more, those are passed that wait longest
            (``BufferConfig.maxRecords(…).emitEarlyWhenFull()``). None for any number (``BufferConfig.unbounded()``).
        shut_down_when_full: Whether more keys stop the application, and none is passed early
            (``BufferConfig.maxRecords(…).shutDownWhenFull()``).
    """

    time_limit: str
    max_records: int | None = None
    shut_down_when_full: bool = False

    def __init__(
        self, time_limit: Duration, max_records: int | None = None, *, shut_down_when_full: bool = False
    ) -> None:
        self._hold(time_limit=time_limit)
        self.__dict__["max_records"] = max_records
        self.__dict__["shut_down_when_full"] = shut_down_when_full

    @property
    def time_limit_ms(self) -> int:
        """``time_limit`` in ms. Raises ValueError where it is no duration."""
        return duration_ms(self.time_limit)


@judged_constructor
@dataclass(frozen=True)
class JoinWindows(_Windows):
    """How far apart in time two records may be that are joined (``org.apache.kafka.streams.kstream.JoinWindows``).

    Example: ``JoinWindows("10 minutes")``

    A record of the time ``t`` is joined with the records of the other stream from ``t - before`` to ``t + after``.

    Attributes:
        difference: A duration, as ``"5 minutes"``: both ``before`` and ``after``, where these are not given.
        grace: A duration. So much later than the window a record may come, by the newest record of its stream. The
            default is a day, as that of :class:`TimeWindows`.
        before: A duration: how much earlier than a record of this stream one of the other stream may be. None stands
            for ``difference``.
        after: A duration: how much later it may be. None stands for ``difference``.
    """

    difference: str
    grace: str = "1 day"
    before: str | None = None
    after: str | None = None

    def __init__(
        self,
        difference: Duration,
        grace: Duration = "1 day",
        before: Duration | None = None,
        after: Duration | None = None,
    ) -> None:
        self._hold(difference=difference, grace=grace, before=before, after=after)

    @property
    def before_ms(self) -> int:
        """``before`` in ms. Raises ValueError where it is no duration."""
        return duration_ms(self.difference if self.before is None else self.before)

    @property
    def after_ms(self) -> int:
        """``after`` in ms. Raises ValueError where it is no duration."""
        return duration_ms(self.difference if self.after is None else self.after)

    @property
    def retention_ms(self) -> int:
        """The retention of both window stores in ms (``StreamJoinedStoreFactory.retentionPeriod``)."""
        return self.before_ms + self.after_ms + self.grace_ms


# -- the bytes of a key with a window

WINDOW_START_BYTES = 8
"""Bytes after the key in a topic: the window's start in ms (``TimeWindowedSerializer``)."""

SEQUENCE_NUMBER_BYTES = 4
"""Bytes after the start in a store: 0 but in stores that keep duplicates (``WindowKeySchema``)."""

STORED_WINDOW_BYTES = WINDOW_START_BYTES + SEQUENCE_NUMBER_BYTES
"""Bytes after the key in the changelog of a windowed store (``WindowKeySchema``)."""

PREFIX_AND_TIME_BYTES = 1 + WINDOW_START_BYTES
"""The bytes before the key of a record in the buffer of a join with a table (``PrefixedWindowKeySchemas``)."""

TIME_AND_SIDE_BYTES = 8 + 1
"""Bytes before the key in the changelog of the store that both sides of a left or outer join share: the time in ms, and
1 for this side or 0 for the other one (``TimestampedKeyAndJoinSideSerializer``)."""

STORED_SESSION_BYTES = 8 + 8
"""Bytes after the key in the changelog of a session store: the session's end and start in ms (``SessionKeySchema``).

A topic has the same bytes (``SessionWindowedSerializer``).
"""


class StoredWindowKey(NamedTuple):
    """The key of a windowed store's changelog. ``start_ms`` is the window's start, in ms since the epoch."""

    key: bytes
    start_ms: int
    sequence_number: int


class StoredSessionKey(NamedTuple):
    """The key of a session store's changelog. ``end_ms`` and ``start_ms`` are in ms since the epoch."""

    key: bytes
    end_ms: int
    start_ms: int


def without_suffix(key: bytes, suffix_bytes: int) -> bytes:
    """The key without the bytes of its window; all of it where ``suffix_bytes`` is 0."""
    return key[:-suffix_bytes] if suffix_bytes else key


def window_start_ms(key: bytes) -> int:
    """The start of the window at the end of a topic's key (``TimeWindowedSerializer``), in ms since the epoch."""
    return _signed(key[-WINDOW_START_BYTES:])


def parse_stored_window(stored: bytes) -> StoredWindowKey | None:
    """The parts of a key of :data:`STORED_WINDOW_BYTES` or more; None for a shorter one. Any bytes have such parts."""
    if len(stored) < STORED_WINDOW_BYTES:
        return None
    start, number = stored[-STORED_WINDOW_BYTES:-SEQUENCE_NUMBER_BYTES], stored[-SEQUENCE_NUMBER_BYTES:]
    return StoredWindowKey(without_suffix(stored, STORED_WINDOW_BYTES), _signed(start), _signed(number))


def parse_stored_session(stored: bytes) -> StoredSessionKey | None:
    """The parts of a key of :data:`STORED_SESSION_BYTES` or more; None for a shorter one. Any bytes have such parts."""
    if len(stored) < STORED_SESSION_BYTES:
        return None
    end, start = stored[-16:-8], stored[-8:]
    return StoredSessionKey(without_suffix(stored, STORED_SESSION_BYTES), _signed(end), _signed(start))


def stored_window_key(key: bytes, start_ms: int, sequence_number: int = 0) -> bytes:
    """The key of a window in a store (``WindowKeySchema.toStoreKeyBinary``).

    Args:
        key: The key in bytes.
        start_ms: When the window begins, in ms since the epoch.
        sequence_number: The number among those of the same key and start.
    """
    return key + _bytes_of(start_ms) + sequence_number.to_bytes(SEQUENCE_NUMBER_BYTES, "big")


def stored_session_key(key: bytes, start_ms: int, end_ms: int) -> bytes:
    """The key of a session in a store (``SessionKeySchema.toBinary``): the end stands before the start."""
    return key + _bytes_of(end_ms) + _bytes_of(start_ms)


def _bytes_of(time_ms: int) -> bytes:
    return time_ms.to_bytes(WINDOW_START_BYTES, "big", signed=True)


def _signed(number: bytes) -> int:
    return int.from_bytes(number, "big", signed=True)
