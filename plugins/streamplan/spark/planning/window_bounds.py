"""The window of a time, of windows that follow each other, and do not begin at multiples of their size.

Days of a time zone have 23 to 25 hours. Spark knows the zones. So Spark computes the bounds of the windows, also for
the state of a stream task, which Python keeps: no window depends on two databases of time zones.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from streamplan.model.windows import CALENDAR_UNITS, CalendarWindows, CustomWindows, TimeWindows


def window_bounds(windows: TimeWindows, at: Column) -> tuple[Column, Column]:
    """Return the start and the end, in ms, of the only window that a time lies in.

    The window of its own start is the same window. The first window begins with the epoch.

    Args:
        windows: Windows that do not ``begin_at_multiples``.
        at: A time in ms.
    """
    start, end = _in_zone(windows, at) if isinstance(windows, CalendarWindows) else _with_offset(windows, at)
    return F.greatest(start, F.lit(0).cast("bigint")), end


def window_end(windows: TimeWindows, start: Column) -> Column:
    """Return the end, in ms, of the window that begins at a time.

    The state of a stream task calls the function of :class:`~streamplan.model.windows.CustomWindows`.

    Args:
        windows: Any time windows.
        start: The start of a window in ms.
    """
    if windows.begin_at_multiples or windows.are_of_function:
        return start + F.lit(windows.size_ms)
    return window_bounds(windows, start)[1]


def told_end(windows: TimeWindows, start: Column) -> Column:
    """Return the same, with the ends that the function of :class:`~streamplan.model.windows.CustomWindows` tells.

    Args:
        windows: Any time windows.
        start: The start of a window in ms.
    """
    if not isinstance(windows, CustomWindows):
        return window_end(windows, start)
    tell = F.udf(windows.end_of, "bigint", useArrow=False)  # with Arrow it warns of the method's type hints
    return tell(start)


def _with_offset(windows: TimeWindows, at: Column) -> tuple[Column, Column]:
    start = at - F.pmod(at - F.lit(windows.offset_ms), F.lit(windows.size_ms))
    return start, start + F.lit(windows.size_ms)


def _in_zone(windows: CalendarWindows, at: Column) -> tuple[Column, Column]:
    """The bounds by the clocks of a time zone.

    A clock that is set back shows the same time twice, and a clock that is set forward leaves times out. A window
    begins at the first of two such moments, or behind the gap (``java.time.ZonedDateTime.of``). So the window that the
    clock tells may begin after the time, or may have ended. Then it is the one before, or the one after.
    """
    unit, _ = CALENDAR_UNITS[windows.size]
    days, months = {"DAY": (1, 0), "WEEK": (7, 0), "MONTH": (0, 1)}[unit]
    zone, offset = windows.time_zone, F.expr(f"interval {windows.offset_ms} milliseconds")
    clock = F.from_utc_timestamp(F.timestamp_millis(at), zone)
    begun = F.date_trunc(unit, clock - offset)

    def start(later: int) -> Column:
        moved = begun + F.expr(f"make_interval(0, {later * months}, 0, {later * days})") + offset
        return F.unix_millis(F.to_utc_timestamp(moved, zone))

    this, following = start(0), start(1)
    begins = F.when(this > at, start(-1)).when(following <= at, following).otherwise(this)
    return begins, F.when(this > at, this).when(following <= at, start(2)).otherwise(following)
