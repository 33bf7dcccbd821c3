"""How others know that an aggregator runs: a file, written anew every few seconds."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from streamplan.model.status import AggregatorState, AggregatorStatus, MicroBatch
from streamplan.reports.status import append_migrations, write_status
from streamplan.spark.placements import Placements, TaskWritten

INTERVAL_SECONDS = 5.0


@dataclass
class Heartbeat:
    """A context manager around the life of an aggregator. Without a ``file`` it says nothing.

    It has no thread of its own: whoever watches the queries beats, and when that hangs or Spark's JVM answers no more,
    the heart stands still. Before the queries run nothing is claimed, however long Spark takes to start. An aggregator
    that ends says stopped before it stops its queries, for it may be killed while it does.

    ``stop``     set when it was told to stop: whatever goes wrong then is no failure
    ``batches``  by sub-topology
    ``placements``  of the stream tasks
    """

    file: Path | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    report: Callable[[str], None] = lambda line: None
    batches: dict[int, MicroBatch] = field(default_factory=dict)
    placements: Placements = field(default_factory=Placements)
    _state: AggregatorState | None = None
    _last: float = 0.0

    def __enter__(self) -> Heartbeat:
        self._say(AggregatorState.STARTING)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._say(AggregatorState.STOPPED if kind is None or self.stop.is_set() else AggregatorState.FAILED)

    def beat(self) -> None:
        if self._state is not AggregatorState.RUNNING or time.monotonic() - self._last >= INTERVAL_SECONDS:
            self._say(AggregatorState.RUNNING)
        self._tell_moves()

    def ending(self) -> None:
        self._tell_moves()
        self._say(AggregatorState.STOPPED)

    def written(self, subtopology: int, batch: int, tasks: Sequence[TaskWritten] = ()) -> None:
        """A micro-batch was. Called from the threads of the queries; told with the next beat."""
        self.batches[subtopology] = MicroBatch(batch, _now())
        self.placements.written(subtopology, tasks, _now())

    def _tell_moves(self) -> None:
        for line in self.placements.lines():
            self.report(line)
        moves = self.placements.taken()
        if self.file is None or not moves:
            return
        try:
            append_migrations(self.file, moves)
        except OSError as error:
            self.report(f"no history of stream tasks: {error}")

    def _say(self, state: AggregatorState) -> None:
        if self.file is None:
            return
        self._state, self._last = state, time.monotonic()
        status = AggregatorStatus(
            state, os.getpid(), socket.gethostname(), _now(), dict(self.batches), self.placements.current()
        )
        try:
            write_status(self.file, status)
        except OSError as error:  # what the aggregator is there for goes on without
            self.report(f"no heartbeat: {error}")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
