"""The windows of one key, as records come.

Sources: ``KStreamSessionWindowAggregate`` with ``RocksDBSessionStore``, ``KStreamWindowAggregate``, and
``KStreamSlidingWindowAggregate``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple, Self

from streamplan.spark.planning.merging import Fold


class Change(NamedTuple):
    """A change of a window: the turn of the record that has changed it, its bounds and its time in ms.

    ``parts`` of what it has aggregated; None for a window that is deleted, or a session that another one has taken in.
    """

    turn: int
    start: int
    end: int
    at: int
    parts: Any


@dataclass
class KeyWindows:
    """The windows of one key.

    Attributes:
        windows: Of each window its start, its end, and the parts of what it has aggregated; by their ends.
        known: The starts and ends of those that were there before the micro-batch.
        turn: The place of the record that is added.
        changed_at: By start and end the turn and the time at which a window was changed last, in the order of the
            changes.
        changed: Whether the windows differ from what the state has.
        deleted: The starts and ends of the sessions that a function has deleted.
    """

    windows: list[tuple[int, int, Any]]
    known: frozenset[tuple[int, int]]
    turn: int = 0
    changed_at: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    changed: bool = False
    deleted: set[tuple[int, int]] = field(default_factory=set)

    @classmethod
    def of(cls, state: Any) -> Self:
        """Return the windows that a row of the state holds; None stands for a key without a row."""
        windows = [(each[0], each[1], tuple(each[2])) for each in state[0]] if state is not None else []
        return cls(windows, frozenset((start, end) for start, end, _ in windows))

    def earliest_end(self, after: int) -> int | None:
        """The end of the first window that ends at a time or later; None without one."""
        return next((end for _, end, _ in self.windows if end >= after), None)

    def restore(self, start: int, end: int, parts: Any) -> None:
        """Take in a window as a changelog has it. One without ``parts`` was deleted."""
        self._put(start, end, parts)

    def changes(self, *, of_nothing: bool = False) -> Iterator[Change]:
        """Yield the last change of each window that has changed.

        Args:
            of_nothing: Whether a session is one of them that was not there before, and that a function has deleted.
        """
        now = {(start, end): parts for start, end, parts in self.windows}
        for window, (turn, at) in self.changed_at.items():
            if window in now or window in self.known or (of_nothing and window in self.deleted):
                yield Change(turn, *window, at, now.get(window))

    def taken_changes(self) -> list[Change]:
        """Return the changes since the last call, so that each is told once."""
        changes = list(self.changes())
        self.changed_at.clear()
        self.known = frozenset((start, end) for start, end, _ in self.windows)
        return changes

    def take(self, before: int) -> list[tuple[int, int, Any]]:
        """Remove the windows that end before a time, and return them."""
        taken = [window for window in self.windows if window[1] < before]
        if taken:
            self.windows = [window for window in self.windows if window[1] >= before]
            self.changed = True
        return taken

    def _put(self, start: int, end: int, parts: Any) -> None:
        if parts is not None:
            self.windows.append((start, end, parts))
            self.windows.sort(key=_by_end)
        else:
            self.deleted.add((start, end))
        self.changed = True

    def _note(self, start: int, end: int, at: int) -> None:
        self.changed_at.pop((start, end), None)
        self.changed_at[start, end] = self.turn, at


class KeySessions(KeyWindows):
    """The sessions of one key."""

    def add(self, at: int, parts: Any, gap_ms: int, over: int, late_before: int, fold: Fold) -> None:
        """Add a record. One that is too late is left out.

        Args:
            at: Its time in ms.
            parts: What it gives to each part of an aggregate.
            gap_ms: How far it may be from a session that takes it in.
            over: The store has forgotten the sessions that end then or before (``RocksDBSessionStore.findSessions``).
            late_before: A session that ends before takes nothing more.
            fold: Adds the record to the sessions that it makes one of.
        """
        met = [
            session
            for session in self.windows
            if session[1] >= at - gap_ms and session[1] > over and session[0] <= at + gap_ms
        ]
        start = min([at, *(session[0] for session in met)])
        end = max([at, *(session[1] for session in met)])
        if end < late_before:
            return
        total = fold.added([session[2] for session in met], parts)
        for session in met:
            self.windows.remove(session)
            self._note(session[0], session[1], at)
        self._put(start, end, total)
        self._note(start, end, at)


class KeyTimeWindows(KeyWindows):
    """The time windows of one key. The last part of what each has aggregated is the time of its newest record."""

    def add(self, at: int, parts: Any, bounds: Iterable[tuple[int, int]], closed_until: int, fold: Fold) -> None:
        """Add a record to each window that its time lies in. A closed window takes nothing more.

        Args:
            parts: What it gives to each part of an aggregate.
            bounds: The start and the end in ms of each window that its time lies in.
            closed_until: The windows that end then or before are closed.
            fold: Adds the record to a window.
        """
        added = []
        for start, end in bounds:
            if end <= closed_until:
                continue
            place = bisect_left(self.windows, start, key=itemgetter(0))
            known = [window[2] for window in self.windows[place : place + 1] if window[0] == start]
            added.append((start, end, fold.added(known, parts)))
        for start, end, total in added:  # none of them where the fold of one has failed
            place = bisect_left(self.windows, start, key=itemgetter(0))
            is_known = place < len(self.windows) and self.windows[place][0] == start
            self.windows[place : place + is_known] = [] if total is None else [(start, end, total)]
            self.changed = True
            self._note(start, end, at if total is None else total[-1])


class KeySlidingWindows(KeyWindows):
    """The sliding windows of one key (``KStreamSlidingWindowAggregate``).

    The last part of what each has aggregated is the time of its newest record. For other windows, one that a function
    has deleted is not there, even if its time is kept.
    """

    def add(self, at: int, parts: Any, size: int, closed_before: int, fold: Fold) -> None:
        """Add a record to each window that its time lies in, and to the windows that begin or end because of it.

        Args:
            at: Its time in ms.
            parts: What it gives to each part of an aggregate.
            size: How far apart in time the records of a window may be.
            closed_before: The windows that end before are closed, and take nothing more.
            fold: Adds the record to a window.
        """
        if at + size < closed_before:
            return
        record = _SlidingRecord(at, parts, size, closed_before, fold)
        made = [*(self._made_early(record) if at < size else self._made(record))]
        for start, total in made:  # none of them where the fold of one has failed
            place = bisect_left(self.windows, start, key=itemgetter(0))
            is_known = place < len(self.windows) and self.windows[place][0] == start
            self.windows[place : place + is_known] = [] if total is None else [(start, start + size, total)]
            self.changed = True
            self._note(start, start + size, at if total is None else total[-1])

    def _made(self, record: _SlidingRecord) -> Iterator[tuple[int, Any]]:
        """Yield the starts of the windows that a record changes, with what is aggregated of them then."""
        at, size = record.at, record.size
        left = right = previous = None
        ends_here = begins_behind = False
        starts = set()
        for start, end, aggregated in reversed(self._from(max(0, at - 2 * size), at + 1, record.fold)):
            starts.add(start)
            if start == at + 1:
                begins_behind = True
            elif end > at:
                right = aggregated if right is None else right
                yield from self._updated(start, aggregated, record)
            elif end == at:
                ends_here = True
                yield from self._updated(start, aggregated, record)
                if aggregated[-1] == at:
                    return
                previous = aggregated[-1]
            else:
                left, previous = aggregated, aggregated[-1]
                break
        if previous is not None and previous + 1 not in starts and previous + 1 + size >= at:
            yield from self._updated(previous + 1, None, record)
        if not ends_here:
            is_near = previous is not None and at - size <= previous
            yield from self._updated(at - size, left if is_near else None, record)
        if not begins_behind and right is not None and right[-1] > at:
            yield at + 1, right

    def _made_early(self, record: _SlidingRecord) -> Iterator[tuple[int, Any]]:
        """The same of a record whose window would begin before the epoch: the one from 0 on takes its place."""
        at, combined, right, previous = record.at, None, None, None
        begins_behind, starts = False, set()
        for start, _, aggregated in self._from(0, at + 1, record.fold):
            starts.add(start)
            if start == 0:
                combined = aggregated
                previous = aggregated[-1] if aggregated[-1] < at else None
            elif start <= at:
                right = aggregated
                yield from self._updated(start, aggregated, record)
            else:
                begins_behind = True
        if right is None and combined is not None and combined[-1] > at:
            right = combined
        if not begins_behind and right is not None and right[-1] > at:
            yield at + 1, right
        if previous is not None and previous + 1 not in starts:
            yield from self._updated(previous + 1, None, record)
        yield from self._updated(0, combined, record)

    def keep(self, windows: Iterable[tuple[int, int, Any]]) -> None:
        """Put windows back that were taken. They end before the others."""
        self.windows[:0] = windows

    def _from(self, first: int, last: int, fold: Fold) -> list[tuple[int, int, Any]]:
        """The windows that begin between two times, by their starts."""
        begin = bisect_left(self.windows, first, key=itemgetter(0))
        found = self.windows[begin : bisect_right(self.windows, last, key=itemgetter(0))]
        return [window for window in found if not fold.is_deleted(window[2])]

    def _updated(self, start: int, aggregated: Any, record: _SlidingRecord) -> Iterator[tuple[int, Any]]:
        """Add a record to what a window has aggregated, which may be nothing."""
        if start + record.size >= record.closed_before:
            known = [aggregated] if aggregated is not None else self._deleted(start, record)
            yield start, record.fold.added(known, record.parts)

    def _deleted(self, start: int, record: _SlidingRecord) -> list[Any]:
        """What is kept of a window that was deleted, if it has the time of the record at which it ends.

        Such a record may be the newest one of the stream task, of which a restored state must know.
        """
        place = bisect_left(self.windows, start, key=itemgetter(0))
        kept = [window[2] for window in self.windows[place : place + 1] if window[0] == start]
        return [
            parts
            for parts in kept
            if record.fold.is_deleted(parts) and (start == 0 or parts[-1] == start + record.size)
        ]


class _SlidingRecord(NamedTuple):
    """A record that is added to sliding windows; see :meth:`KeySlidingWindows.add`."""

    at: int
    parts: Any
    size: int
    closed_before: int
    fold: Fold


class KeyTotal(KeyWindows):
    """What is aggregated of one key without windows: one window that never ends, with the start and the end 0.

    The last part is the time of the newest record.
    """

    def add(self, at: int, parts: Any, fold: Fold) -> None:
        """Add a record.

        Args:
            at: Its time in ms.
            parts: What it gives to each part of an aggregate.
            fold: Adds the record to the total.
        """
        total = fold.added([window[2] for window in self.windows], parts)
        self.windows = [] if total is None else [(0, 0, total)]
        self.changed = True
        self._note(0, 0, at if total is None else total[-1])


def _by_end(window: tuple[int, int, Any]) -> tuple[int, int]:
    return window[1], window[0]
