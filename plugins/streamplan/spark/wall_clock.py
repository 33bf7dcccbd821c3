"""The time of stream tasks that have no records: it goes on by the wall clock (``OnWindowClose(idle=…)``).

Stream tasks with punctuators of ``WALL_CLOCK_TIME`` are given the time of the clock, whether they have records or not.

The driver gives a stream task its time with a micro-batch. It is committed with the positions of the task, in the
transaction of what the task then writes. So the clock is never read twice for one result: a micro-batch that runs again
is given the time that was committed, and a restored state begins with it.

A task is given a time when everything was processed that was in the topics at a moment, and the task had no record for
``idle`` until then. What waits in the topic of a sub-topology before it, after a pause for example, is so not taken for
silence. Neither is what a transaction of the application has written that is still open: the brokers confirm a commit
before its marker is in each partition.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from streamplan.kafka_types import Offsets, TopicPartition
from streamplan.model.processor_topology import Subtopology
from streamplan.model.subtopology_graph import responders_of, upstream_of
from streamplan.model.topology import Topology

_STEP_SHARE = 10
_LEAST_STEP_MS, _GREATEST_STEP_MS = 1_000, 60_000
"""A task is given a later time after a tenth of ``idle``, and within these limits: each costs a transaction."""


class IdleTasks:
    """Which stream tasks of a sub-topology are idle, and which time they have.

    Args:
        idle_ms: For how long an idle task has had no record.
        partitions: The number of stream tasks.
        now_ms: The time of the start, since when a task may be idle.
        step_ms: How much later the next time of a task is at least.
    """

    def __init__(self, idle_ms: int, partitions: int, now_ms: int, step_ms: int | None = None) -> None:
        self._idle_ms = idle_ms
        step = min(max(_LEAST_STEP_MS, idle_ms // _STEP_SHARE), _GREATEST_STEP_MS)
        self._step_ms = step if step_ms is None else step_ms
        self._since = dict.fromkeys(range(partitions), now_ms)
        self._given: dict[int, int] = {}

    def note_records(self, partitions: Iterable[int], now_ms: int) -> None:
        """Note that the tasks of these partitions have records now."""
        self._since.update(dict.fromkeys(partitions, now_ms))

    def is_any_due(self, now_ms: int) -> bool:
        """Whether any task would be given a time if everything was processed."""
        return bool(self._due(now_ms))

    def next_due_ms(self) -> int:
        """Return when the next task may be given a time."""
        return self._idle_ms + min(
            max(since, self._given.get(partition, since - self._step_ms) + self._step_ms)
            for partition, since in self._since.items()
        )

    def give_times(self, processed_until_ms: int) -> dict[int, int]:
        """Return by partition the time in ms of each idle task that has not had it yet.

        Args:
            processed_until_ms: Everything is processed that was in the topics at this moment.
        """
        due = self._due(processed_until_ms)
        self._given |= due
        return due

    def _due(self, now_ms: int) -> dict[int, int]:
        # A clock that was set back begins to count anew.
        self._since = {partition: min(since, now_ms) for partition, since in self._since.items()}
        time = now_ms - self._idle_ms
        return {
            partition: time
            for partition, since in self._since.items()
            if time >= max(since, self._given.get(partition, 0) + self._step_ms)
        }


class _Cluster(Protocol):
    def offsets(self, topic: str) -> Mapping[int, Offsets]: ...

    def positions(self, group: str, topic: str) -> Mapping[int, int]: ...


@dataclass
class ProcessedInput:
    """Until which moment a sub-topology has processed its input, with what others have to write for it before.

    Attributes:
        cluster: Answers offsets and positions.
        group: The consumer group of the application.
        stages: The topics of each sub-topology on the way, in the order of the flow; the last ones are its own.
        written: The topics that the application writes. Its records in open transactions count, too. In other topics
            they do not: nobody knows when a transaction of another program ends.
    """

    cluster: _Cluster
    group: str
    stages: Sequence[Sequence[str]]
    written: Collection[str] = frozenset()
    _moment_ms: int = 0
    _stage: int = 0
    _ends: Mapping[TopicPartition, int] | None = field(default=None)
    _processed_ms: int | None = None

    def until(self, now_ms: int) -> int | None:
        """Return the newest moment for which it is known that everything was processed; None where none is.

        Args:
            now_ms: The time now.
        """
        while True:
            if self._ends is None:
                if self._stage == 0:
                    self._moment_ms = now_ms
                self._ends = {
                    (topic, partition): offsets.high_watermark if topic in self.written else offsets.last_stable
                    for topic in self.stages[self._stage]
                    for partition, offsets in self.cluster.offsets(topic).items()
                }
            if not self._is_processed(self._ends):
                return self._processed_ms
            self._ends = None
            self._stage += 1
            if self._stage == len(self.stages):
                self._stage, self._processed_ms = 0, self._moment_ms
                return self._processed_ms

    def _is_processed(self, ends: Mapping[TopicPartition, int]) -> bool:
        positions = {topic: self.cluster.positions(self.group, topic) for topic in {topic for topic, _ in ends}}
        return all(positions[topic].get(partition, 0) >= end for (topic, partition), end in ends.items())


def stages_of(subtopology: Subtopology, topology: Topology) -> list[Subtopology]:
    """Return the sub-topologies that a record passes on its way into one, in the order of the flow, and itself.

    Args:
        subtopology: One of the sub-topologies.
    """
    stages: list[Subtopology] = []
    numbered = {each.id: each for each in topology.subtopologies}

    def add(each: Subtopology) -> None:
        for number in sorted(upstream_of(each, topology)):
            add(numbered[number])
        if each not in stages:
            stages.append(each)
            for responder in responders_of(each, topology):
                known = len(stages)
                add(responder)
                if len(stages) == known:
                    stages.append(responder)  # it responds to a further join
                stages.append(each)  # which goes on with the responses

    add(subtopology)
    return stages
