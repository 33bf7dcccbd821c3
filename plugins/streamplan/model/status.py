"""What an aggregator reports about itself: whether it runs, and where its stream tasks are.

``reports/status.py`` writes these values to files and reads them back: the field names are the keys in those files.
Times are ISO 8601 with a time zone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

HEARTBEAT_TIMEOUT_SECONDS = 60.0
"""An aggregator counts as gone after this time without a heartbeat.

It sends one every few seconds, and one that was killed is started again within this time.
"""


class AggregatorState(StrEnum):
    """The life of an aggregator. ``STARTING`` covers the time in which Spark starts and state is restored."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True)
class MicroBatch:
    """The last micro-batch of a sub-topology.

    Attributes:
        id: Spark's number of the micro-batch.
        at: When its records were committed.
    """

    id: int
    at: str


@dataclass(frozen=True)
class MicroBatchMeasures:
    """What was measured of the last micro-batch of a sub-topology that had records.

    Attributes:
        batch: Spark's number of the micro-batch.
        records: The number of records that it read.
        seconds: How long it lasted, from its trigger to its entry in the checkpoint.
        write_seconds: How long its Spark job lasted, which computes and writes within the tasks' transactions.
        state_rows: The number of rows that the state stores hold; 0 for a sub-topology without state.
        state_bytes: The memory that the state stores use.
        written: The number of records that the sub-topology has written since the aggregator started.
        dead_lettered: The number of records that it has dead-lettered since then.
    """

    batch: int
    records: int
    seconds: float
    write_seconds: float
    state_rows: int
    state_bytes: int
    written: int
    dead_lettered: int


@dataclass(frozen=True)
class Restoration:
    """How far the state of a sub-topology is restored from its changelogs.

    Attributes:
        offsets: The number of changelog offsets that were read.
        total: The number of all that have to be read.
    """

    offsets: int
    total: int


@dataclass(frozen=True)
class TaskPlacement:
    """The instance that last committed for a stream task.

    Attributes:
        instance: Id of the Spark executor.
        host: Host name of the executor.
        records: Number of records written for the task since the aggregator started.
        at: When the task last committed.
    """

    instance: str
    host: str
    records: int
    at: str


@dataclass(frozen=True)
class TaskMigration:
    """A stream task continued on another instance.

    Attributes:
        at: When the task first committed there.
        task: Id of the stream task, such as ``1_0``.
        before: ``<executor id> on <host>`` of the previous instance; empty for the first one of an aggregator.
        instance: ``<executor id> on <host>`` of the new instance.
        pid: Process id of the aggregator.
    """

    at: str
    task: str
    before: str
    instance: str
    pid: int


@dataclass(frozen=True)
class AggregatorStatus:
    """What an aggregator last said about itself.

    Attributes:
        state: Where it is in its life.
        pid: Its process id.
        host: The host name of its machine.
        at: Time of this heartbeat.
        batches: The last micro-batch of each sub-topology, by the sub-topology's id.
        tasks: The placement of each stream task, by the task's id, such as ``1_0``.
        started: When it started; empty in a file of an earlier version.
        measures: What was measured of each sub-topology, by the sub-topology's id.
        restorations: The restorations since the start, by the sub-topology's id.
        held: What it does not process for now, each as an error tells it: a record at which each worker died.
    """

    state: AggregatorState
    pid: int
    host: str
    at: str
    batches: Mapping[int, MicroBatch] = field(default_factory=dict)
    tasks: Mapping[str, TaskPlacement] = field(default_factory=dict)
    started: str = ""
    measures: Mapping[int, MicroBatchMeasures] = field(default_factory=dict)
    restorations: Mapping[int, Restoration] = field(default_factory=dict)
    held: Sequence[str] = ()

    def age(self, now: float) -> float:
        """Seconds since this heartbeat; negative where another host's clock is ahead.

        Args:
            now: Seconds since the epoch.
        """
        return now - datetime.fromisoformat(self.at).timestamp()

    def is_silent(self, now: float) -> bool:
        """Whether it says that it runs, and sent no heartbeat for too long. While it starts it sends none.

        Args:
            now: Seconds since the epoch.
        """
        return self.state is AggregatorState.RUNNING and self.age(now) > HEARTBEAT_TIMEOUT_SECONDS
