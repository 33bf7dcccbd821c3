"""Which instance does which stream task. Spark places tasks anew in every micro-batch, so this is kept as it goes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from streamplan.model.processor_topology import TaskId
from streamplan.model.status import TaskMigration, TaskPlacement

LINES_SECONDS = 5.0
"""A task without state may move with every micro-batch: the history has each move, the log where it is by then."""

_KEPT_MOVES = 10_000


@dataclass(frozen=True)
class TaskWritten:
    """What one stream task wrote in a micro-batch, and the instance (Spark executor) that did it."""

    partition: int
    instance: str
    host: str
    written: int


@dataclass
class Placements:
    """By stream task. Filled from the threads of the queries, read by the one that watches them."""

    _placed: dict[TaskId, TaskPlacement] = field(default_factory=dict)
    _told: dict[TaskId, str] = field(default_factory=dict)
    _moves: list[TaskMigration] = field(default_factory=list)
    _last_lines: float = float("-inf")
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def written(self, subtopology: int, tasks: Sequence[TaskWritten], at: str) -> None:
        with self._lock:
            for one in tasks:
                task = TaskId(subtopology, one.partition)
                before = self._placed.get(task)
                records = one.written + (before.records if before else 0)
                now = self._placed[task] = TaskPlacement(one.instance, one.host, records, at)
                if (before is None or _named(before) != _named(now)) and len(self._moves) < _KEPT_MOVES:
                    previous = _named(before) if before else ""
                    self._moves.append(TaskMigration(at, str(task), previous, _named(now), os.getpid()))

    def current(self) -> Mapping[str, TaskPlacement]:
        with self._lock:
            return {str(task): self._placed[task] for task in sorted(self._placed)}

    def taken(self) -> list[TaskMigration]:
        """The moves since the last call."""
        with self._lock:
            moves, self._moves = self._moves, []
            return moves

    def lines(self) -> list[str]:
        """For the log: the tasks that are elsewhere than it said last; nothing more often than every few seconds."""
        if time.monotonic() - self._last_lines < LINES_SECONDS:
            return []
        with self._lock:
            now = {task: _named(placement) for task, placement in sorted(self._placed.items())}
        moved = {task: name for task, name in now.items() if self._told.get(task) != name}
        if not moved:
            return []
        lines = [
            f"task {task}: instance {self._told[task]} -> instance {name}"
            if task in self._told
            else f"task {task}: instance {name}"
            for task, name in moved.items()
        ]
        self._told |= moved
        self._last_lines = time.monotonic()
        return lines


def _named(placement: TaskPlacement) -> str:
    return f"{placement.instance} on {placement.host}"
