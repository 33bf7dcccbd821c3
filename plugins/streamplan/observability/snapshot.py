"""What is known of an application at one moment: its stream tasks, its topics, its checks and its verified totals.

The page in Airflow and the command line show the same :class:`Snapshot`, and ``--json`` prints it. The field names are
the keys in that JSON. Times are ISO 8601 with a time zone. Lags and rates are numbers of offsets: transaction markers
and records of aborted transactions have offsets, too. So a lag is never smaller than the true number of records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from streamplan.checks.framework.check import CheckResult
from streamplan.model.status import AggregatorStatus, TaskMigration

MINUTES = 60
"""The number of minutes of which the lag is kept."""


@dataclass(frozen=True)
class InputSnapshot:
    """A partition that a stream task reads.

    Attributes:
        topic: The topic.
        partition: The partition.
        position: The committed position of the application; None where it has none.
        end: The last stable offset.
        lag: The offsets from the position to the end; None where there is no position.
    """

    topic: str
    partition: int
    position: int | None
    end: int
    lag: int | None


@dataclass(frozen=True)
class TaskSnapshot:
    """A stream task.

    Attributes:
        task: The id, such as ``1_0``; the partition that it reads where the id is not known.
        subtopology: The name of its sub-topology.
        inputs: The partitions that it reads.
        lag: The sum of their lags; None where one of them has no position.
        lag_seconds: The age of the oldest record that is not processed; 0 where all are, None where it is not known.
        records_per_second: How fast its positions moved since the previous snapshot; None in the first one.
        instance: The Spark executor that last committed for the task; None where the aggregator has not said it.
        host: The host of that executor.
        last_commit: When it committed.
        lag_by_minute: The greatest lag of each of the last minutes in which a snapshot was taken, the oldest first; up
            to :data:`MINUTES` of them.
    """

    task: str
    subtopology: str
    inputs: Sequence[InputSnapshot]
    lag: int | None
    lag_seconds: float | None
    records_per_second: float | None
    instance: str | None
    host: str | None
    last_commit: str | None
    lag_by_minute: Sequence[int] = ()


@dataclass(frozen=True)
class TopicSnapshot:
    """A topic of the application.

    Attributes:
        name: Its name in Kafka.
        role: What the topic is to the topology.
        partitions: The number of partitions that it has; None where there is no such topic.
        offsets: The sum of the offsets from the start to the last stable offset of its partitions.
        end: The sum of the last stable offsets. It only grows, so rates can be taken from it.
        records_per_second: How fast its ends moved since the previous snapshot; None in the first one.
    """

    name: str
    role: str
    partitions: int | None
    offsets: int
    end: int
    records_per_second: float | None


@dataclass(frozen=True)
class VerifiedSnapshot:
    """The last cut at which the totals were compared with the records and agreed.

    Attributes:
        records: The number of records that were counted up to the cut.
        keys: The number of keys with a total.
        at: When the check `totals` last passed; None where its last result is another one.
    """

    records: int
    keys: int
    at: str | None


@dataclass(frozen=True)
class Snapshot:
    """What is known of an application at one moment.

    Attributes:
        pipeline: The name of the pipeline, or of the application where no pipeline is declared.
        application_id: The ``application.id``.
        at: The moment.
        problem: Why Kafka could not be asked; empty where it answered. There are no tasks and no topics then.
        members: The members of the consumer group; None where they cannot be seen.
        aggregator: What the aggregator last said of itself; None where it has said nothing. Where its tasks are stands
            at the tasks.
        silent: Whether the aggregator says that it runs, and sent no heartbeat for too long.
        tasks: The stream tasks, by sub-topology and partition.
        migrations: The last stream tasks that continued on another instance, the newest first.
        topics: The topics.
        dead_letters: How many dead letters there are, by reason: those of the newest 100,000 offsets of each partition
            of the dead-letter topic at the first look, and all that came since.
        checks: The last result of each check that has run.
        verified: The last verified cut; None where there is none.
    """

    pipeline: str
    application_id: str
    at: str
    problem: str
    members: Sequence[str] | None
    aggregator: AggregatorStatus | None
    silent: bool
    tasks: Sequence[TaskSnapshot]
    migrations: Sequence[TaskMigration]
    topics: Sequence[TopicSnapshot]
    dead_letters: Mapping[str, int]
    checks: Sequence[CheckResult]
    verified: VerifiedSnapshot | None
