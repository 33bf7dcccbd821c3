"""The sessions of one key, as records come (``KStreamSessionWindowAggregate`` and ``RocksDBSessionStore``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from streamplan.spark.planning.merging import Merging


@dataclass
class KeySessions:
    """The sessions of one key.

    Attributes:
        sessions: Of each session its start, its end, and the parts of what it has aggregated; by their ends.
        known: The starts and ends of those that were there before the micro-batch.
        changed_at: By start and end the time of the record that changed a session last, in the order of the changes.
        changed: Whether the sessions differ from what the state has.
    """

    sessions: list[tuple[int, int, Any]]
    known: frozenset[tuple[int, int]]
    changed_at: dict[tuple[int, int], int] = field(default_factory=dict)
    changed: bool = False

    @classmethod
    def of(cls, state: Any) -> KeySessions:
        """Return the sessions that a row of the state holds; None stands for a key without a row."""
        sessions = [(each[0], each[1], tuple(each[2])) for each in state[0]] if state is not None else []
        return cls(sessions, frozenset((start, end) for start, end, _ in sessions))

    def restore(self, start: int, end: int, parts: Any) -> None:
        """Take in a session as a changelog has it."""
        self.sessions.append((start, end, parts))
        self.sessions.sort(key=_by_end)
        self.changed = True

    def add(self, at: int, parts: Any, gap_ms: int, over: int, late_before: int, merging: Merging) -> None:
        """Add a record. One that is too late is left out.

        Args:
            at: Its time in ms.
            parts: What it gives to each part of an aggregate.
            gap_ms: How far it may be from a session that takes it in.
            over: The store has forgotten the sessions that end then or before (``RocksDBSessionStore.findSessions``).
            late_before: A session that ends before takes nothing more.
            merging: Makes one of what two sessions have aggregated.
        """
        met = [
            session
            for session in self.sessions
            if session[1] >= at - gap_ms and session[1] > over and session[0] <= at + gap_ms
        ]
        start = min([at, *(session[0] for session in met)])
        end = max([at, *(session[1] for session in met)])
        if end < late_before:
            return
        total = None
        for session in met:
            total = session[2] if total is None else merging.merge(total, session[2])
            self.sessions.remove(session)
            self._note(session[0], session[1], at)
        self.sessions.append((start, end, parts if total is None else merging.merge(total, parts)))
        self.sessions.sort(key=_by_end)
        self._note(start, end, at)
        self.changed = True

    def changes(self) -> Iterator[tuple[int, int, int, Any]]:
        """Yield of each session that has changed the start, the end, the time of the record, and the parts or None."""
        now = {(start, end): parts for start, end, parts in self.sessions}
        for window, at in self.changed_at.items():
            if window in now or window in self.known:
                yield *window, at, now.get(window)

    def forget(self, over: int) -> None:
        """Remove the sessions that end at a time or before it."""
        left = [session for session in self.sessions if session[1] > over]
        self.changed = self.changed or len(left) < len(self.sessions)
        self.sessions = left

    def _note(self, start: int, end: int, at: int) -> None:
        self.changed_at.pop((start, end), None)
        self.changed_at[start, end] = at


def _by_end(session: tuple[int, int, Any]) -> tuple[int, int]:
    return session[1], session[0]
