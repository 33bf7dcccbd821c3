"""Windows of the real library that begin elsewhere than at multiples of their size: a subclass of its ``Windows``.

Py4j implements interfaces, and ``Windows`` is a class. So Janino compiles it, which Spark has.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import pyspark
from streamplan.model.windows import CalendarWindows, TimeWindows

_numbers = itertools.count()


def shifts(timestamp: int) -> list[tuple[int, int]]:
    """Of each minute the first 20 seconds, and those from the tenth on."""
    minute = timestamp // 60_000 * 60_000
    both = [(minute, minute + 20_000), (minute + 10_000, minute + 60_000)]
    return [(start, end) for start, end in both if start <= timestamp < end]


def compiler() -> str:
    """The class path of Janino."""
    jars = Path(pyspark.__file__).parent / "jars"
    return os.pathsep.join(str(next(jars.glob(f"{name}-*.jar"))) for name in ("janino", "commons-compiler"))


_SOURCE = """
import java.time.LocalDate;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneId;
import java.time.ZonedDateTime;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.streams.kstream.Windows;
import org.apache.kafka.streams.kstream.internals.TimeWindow;

public class OwnWindows extends Windows {
    private final String unit;
    private final ZoneId zone;
    private final long size;
    private final long offset;
    private final long advance;
    private final long grace;

    public OwnWindows(String unit, String zone, String size, String offset, String advance, String grace) {
        this.unit = unit;
        this.zone = ZoneId.of(zone);
        this.size = Long.parseLong(size);
        this.offset = Long.parseLong(offset);
        this.advance = Long.parseLong(advance);
        this.grace = Long.parseLong(grace);
    }

    private boolean begins(LocalDate date) {
        if (unit.equals("1 week")) return date.getDayOfWeek().getValue() == 1;
        if (unit.equals("1 month")) return date.getDayOfMonth() == 1;
        return true;
    }

    /** The window between the last beginning that is not after the time, and the first one that is. */
    public Map windowsFor(long timestamp) {
        Map windows = new LinkedHashMap();
        if (unit.equals("shifts")) {
            long minute = Math.floorDiv(timestamp, 60000L) * 60000L;
            add(windows, minute, minute + 20000L, timestamp);
            add(windows, minute + 10000L, minute + 60000L, timestamp);
            return windows;
        }
        if (advance < size && unit.equals("")) {
            long first = Math.floorDiv(timestamp - size - offset, advance) + 1L;
            for (long start = first * advance + offset; start <= timestamp; start += advance)
                add(windows, start, start + size, timestamp);
            return windows;
        }
        long start = Long.MIN_VALUE;
        long end = Long.MAX_VALUE;
        if (unit.equals("")) {
            start = Math.floorDiv(timestamp - offset, size) * size + offset;
            end = start + size;
        } else {
            LocalDate about = Instant.ofEpochMilli(timestamp).atZone(zone).toLocalDate();
            for (int days = -40; days <= 40; days++) {
                LocalDate date = about.plusDays((long) days);
                if (!begins(date)) continue;
                long moment = ZonedDateTime.of(date.atStartOfDay().plus(Duration.ofMillis(offset)), zone)
                    .toInstant().toEpochMilli();
                if (moment <= timestamp && moment > start) start = moment;
                if (moment > timestamp && moment < end) end = moment;
            }
        }
        long first = Math.max(0L, start);
        windows.put(Long.valueOf(first), new TimeWindow(first, end));
        return windows;
    }

    private void add(Map windows, long start, long end, long timestamp) {
        if (start >= 0 && start <= timestamp && timestamp < end)
            windows.put(Long.valueOf(start), new TimeWindow(start, end));
    }

    public long size() {
        return size;
    }

    public long gracePeriodMs() {
        return grace;
    }
}
"""


def own_windows(jvm: Any, windows: TimeWindows) -> Any:
    """The library's twin of windows with an offset, of a calendar, or of :func:`shifts`."""
    name = f"OwnWindows{next(_numbers)}"  # py4j takes classes of one name for the same
    compiled = jvm.org.codehaus.janino.SimpleCompiler()
    compiled.cook(_SOURCE.replace("OwnWindows", name))
    (constructor,) = compiled.getClassLoader().loadClass(name).getConstructors()
    unit, zone = "shifts" if windows.are_of_function else "", "UTC"
    if isinstance(windows, CalendarWindows):
        unit, zone = windows.size, windows.time_zone
    given = [unit, zone, *map(str, (windows.size_ms, windows.offset_ms, windows.advance_ms, windows.grace_ms))]
    arguments = jvm.java.util.ArrayList()
    for argument in given:
        arguments.add(argument)
    return constructor.newInstance(arguments.toArray())
