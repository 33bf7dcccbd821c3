"""When the next micro-batch of each query begins.

Spark starts a micro-batch when the one before has ended and there are records (a trigger of 0 seconds). So a query
decides by itself how long it waits at the end of a micro-batch, after its transactions are committed. A sub-topology
that reads what another writes goes on as soon as that one has committed. The other one waits for it in turn: when both
work at the same time, each only takes the processors from the other, and a record waits for both.

Without records Spark does not call the query. Then it looks for records at an interval of its own
(``spark.sql.streaming.pollingDelay``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from streamplan.errors import StreamplanError
from streamplan.model.subtopology_graph import Flow, flows_into
from streamplan.model.topology import Topology

_MIN_PERIOD_SECONDS = 0.1
"""A micro-batch costs the same however few records it has, so that it does not begin more often than this."""

_PERIOD = 1.3
"""The period of a query that reads from outside, as a multiple of the time that it works: others need processors."""


@dataclass
class _QueryPace:
    """What is known of one query.

    ``read``     by flow the commits with records in it when the current micro-batch began
    ``handled``  the same of the last micro-batch that was committed
    """

    begun_at: float = 0.0
    read: Mapping[Flow, int] = field(default_factory=dict)
    handled: Mapping[Flow, int] = field(default_factory=dict)


class Pacing:
    """The pace of all queries of one aggregator. Their threads call it.

    Args:
        topology: The queries are those of its sub-topologies.
        interval_ms: No query waits longer for another one. With 0 none waits at all.
    """

    def __init__(self, topology: Topology, interval_ms: int) -> None:
        self._interval = interval_ms / 1000
        self._flows = {each.id: flows_into(each, topology) for each in topology.subtopologies}
        self._commits = dict.fromkeys((flow for flows in self._flows.values() for flow in flows), 0)
        self._reads_from_outside = {
            each.id: any(source.topic in topology.source_topics for source in each.sources)
            for each in topology.subtopologies
        }
        self._paces = {each.id: _QueryPace() for each in topology.subtopologies}
        self._rests: dict[int, dict[int, float]] = {each.id: {} for each in topology.subtopologies}
        self._at_work: set[int] = set()
        self._ending: set[int] = set()
        self._changed = threading.Condition()
        self._ended = False

    @property
    def waits(self) -> bool:
        """Whether queries wait for each other at all."""
        return self._interval > 0

    def begin(self, subtopology: int) -> None:
        """Note that a micro-batch begins.

        Raises:
            StreamplanError: The query is to begin none any more, see :meth:`let_end`.
        """
        with self._changed:
            if subtopology in self._ending:
                raise StreamplanError(f"sub-topology {subtopology} ends")
            self._at_work.add(subtopology)
            pace = self._paces[subtopology]
            pace.begun_at = time.monotonic()
            pace.read = {flow: self._commits[flow] for flow in self._flows[subtopology]}

    def committed(self, subtopology: int, topics: Collection[str]) -> None:
        """Note that the micro-batch is committed, with records in these topics of Kafka."""
        with self._changed:
            pace = self._paces[subtopology]
            pace.handled = pace.read
            self._at_work.discard(subtopology)
            for flow in self._commits.keys() & {(topic, subtopology) for topic in topics}:
                self._commits[flow] += 1
            self._changed.notify_all()

    def let_end(self, subtopology: int, seconds: float) -> None:
        """Let a query begin no further micro-batch, and wait until the one that it does is committed.

        Args:
            subtopology: The id of the sub-topology.
            seconds: How long at most.
        """
        with self._changed:
            self._ending.add(subtopology)
            self._changed.wait_for(lambda: subtopology not in self._at_work, seconds)

    def rest(self, subtopology: int, batch: int, *, more: bool = False) -> None:
        """Wait until the next micro-batch should begin.

        Args:
            subtopology: The id of the sub-topology.
            batch: The number of the micro-batch that is committed.
            more: Whether it was so large that more records are waiting: then the records need not be collected.
        """
        if not self.waits:
            return
        begun = time.monotonic()
        if not self._reads_from_outside[subtopology]:
            self._await_input(subtopology)
        elif not more:
            self._await_slot(subtopology, begun)
        self._note_rest(subtopology, batch, time.monotonic() - begun)

    def rest_until(self, subtopology: int, batch: int, has_records: Callable[[], bool], seconds: float) -> None:
        """Wait after a micro-batch without records until there are some.

        Args:
            subtopology: The id of the sub-topology.
            batch: The number of the micro-batch.
            has_records: Whether there are records. It is asked as often as Spark would ask.
            seconds: How long at most.
        """
        if not self.waits:
            return
        begun = time.monotonic()
        while (left := begun + seconds - time.monotonic()) > 0 and not has_records():
            with self._changed:
                if self._changed.wait_for(lambda: self._ended, min(self._interval, left)):
                    break
        self._note_rest(subtopology, batch, time.monotonic() - begun)

    def rest_after(self, subtopology: int, batch: int) -> float:
        """Return the seconds that the query has waited at the end of a micro-batch, which it does not need for it."""
        return self._rests[subtopology].get(batch, 0.0)

    def _note_rest(self, subtopology: int, batch: int, seconds: float) -> None:
        """Note that a query has waited so long at the end of a micro-batch."""
        before = self._rests[subtopology]
        # Spark tells of a micro-batch when it has ended, so that the one before may still be asked for.
        self._rests[subtopology] = {
            batch: seconds,
            **{number: rest for number, rest in before.items() if number == batch - 1},
        }

    def end(self) -> None:
        """Let nobody wait any more."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _await_slot(self, subtopology: int, now: float) -> None:
        """Wait until those have handled it who read what was written, but not beyond the interval."""
        pace = self._paces[subtopology]
        read_by_others = [
            (flow, self._paces[other])
            for other, flows in self._flows.items()
            for flow in flows
            if flow[1] == subtopology
        ]
        worked = now - pace.begun_at
        slot = pace.begun_at + max(_MIN_PERIOD_SECONDS, min(_PERIOD * worked, worked + self._interval))
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._ended
                    or all(other.handled.get(flow, 0) >= self._commits[flow] for flow, other in read_by_others)
                ),
                self._interval,
            )
            self._changed.wait_for(lambda: self._ended, max(0.0, slot - time.monotonic()))

    def _await_input(self, subtopology: int) -> None:
        """Wait until somebody has written what this sub-topology reads, but not beyond the interval.

        A long micro-batch of another one is committed in parts, of which nobody tells.
        """
        pace = self._paces[subtopology]
        with self._changed:
            self._changed.wait_for(
                lambda: self._ended or any(self._commits[flow] > read for flow, read in pace.read.items()),
                self._interval,
            )
