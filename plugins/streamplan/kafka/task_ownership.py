"""An aggregator owns the stream tasks of its application until a newer aggregator claims them.

An aggregator claims a stream task with the task's transactional id: whoever had the id before is fenced. Then it
commits the task's positions again, with its own generation in their metadata. So nobody else can move the positions
any more, and an older aggregator reads the newer generation and stops.
"""

from __future__ import annotations

import os
import random
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from streamplan.errors import Refused, StreamplanError
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.groups import committed_offsets
from streamplan.kafka.requests import is_fenced
from streamplan.kafka.transactions import DEADLINE_SECONDS, close_producer, open_task_producer
from streamplan.model.generation import Generation, PositionMetadata
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor_topology import Subtopology, TaskId
from streamplan.model.start_point import KafkaState, OffsetMap

CHECK_SECONDS = 5.0
"""How often an aggregator asks whether it is still the newest. One that writes sees it with each transaction, too."""

RECOMMIT_SECONDS = 24 * 3600.0
"""How often all positions are committed again.

The brokers forget a position that is not committed for 7 days (``offsets.retention.minutes``), and a transactional id
likewise (``transactional.id.expiration.ms``).
"""

_OPEN_AT_ONCE = 16
"""Producers that are opened side by side: each waits for its coordinator."""

_MAX_ATTEMPTS = 6


class _ConcurrentStart(Exception):
    """Another aggregator of the application is being started at the same time."""


@dataclass(frozen=True)
class ClaimedTasks:
    """What belongs to an aggregator until a newer one comes.

    Attributes:
        generation: The aggregator's own generation.
        predecessor: The newest generation before it; None for the first aggregator of an application.
        committed: What Kafka has of each sub-topology, by its id. Nobody else can change it.
    """

    generation: Generation
    predecessor: Generation | None
    committed: Mapping[int, KafkaState]


class TaskOwnership:
    """The consumer group and the transactional ids of an application, as one of its aggregators sees them."""

    def __init__(self, pipeline: Pipeline, brokers: Brokers, *, transaction_timeout_ms: int) -> None:
        """Ask and claim nothing yet.

        Args:
            pipeline: Its topology names the application.
            brokers: Where the application's topics are.
            transaction_timeout_ms: After so long the brokers abort a transaction that nobody ends.
        """
        self._pipeline = pipeline
        self._application_id = pipeline.topology.application_id
        self._brokers = brokers
        self._transaction_timeout_ms = transaction_timeout_ms
        self._cluster = KafkaCluster(brokers)
        self._checked_at = self._committed_at = time.monotonic()

    def latest_generation(self) -> Generation | None:
        """Return the newest generation in the metadata of any position; None where there is none.

        It reads positions that are not stable, too: waiting for a transaction that was left open could take as long as
        its timeout.
        """
        with closing(self._consumer("read_uncommitted")) as consumer:
            positions = self._committed_positions(
                consumer,
                [
                    (topic, partition)
                    for subtopology in self._pipeline.topology.subtopologies
                    for topic in self._pipeline.source_topics(subtopology)
                    for partition in range(self._pipeline.partition_counts[topic])
                ],
            )
        known = [PositionMetadata.parse(position.metadata) for position in positions]
        generations = [metadata.generation for metadata in known if metadata is not None]
        return max(generations, key=lambda generation: generation.number, default=None)

    def claim(self, has_checkpoint: Mapping[int, bool]) -> ClaimedTasks:
        """Take over every stream task. Whoever had them is fenced, and stops when it sees the new generation.

        A sub-topology without a checkpoint and without positions is new: it begins at the start of its topics, and that
        is committed before it reads. From then on a missing position is a fault, and is never taken for 0.

        Args:
            has_checkpoint: For each sub-topology, by its id, whether it has a checkpoint.

        Raises:
            Refused: A position is missing where there must be one.
            StreamplanError: Another aggregator was being started each time.
        """
        for _ in range(_MAX_ATTEMPTS):
            latest = self.latest_generation()
            generation = Generation.of_this_process(latest)
            try:
                committed = {
                    subtopology.id: self._claim(subtopology, generation, has_checkpoint[subtopology.id])
                    for subtopology in self._pipeline.topology.subtopologies
                }
            except _ConcurrentStart:
                time.sleep(random.uniform(0.1, 2.0))  # so that the two do not try again at the same moment
                continue
            self._checked_at = self._committed_at = time.monotonic()
            return ClaimedTasks(generation, latest, committed)
        raise StreamplanError(
            f"{self._application_id} could not be claimed",
            expected="no other aggregator of it that is being started",
            observed=f"one {_MAX_ATTEMPTS} times",
            remedy="Start one of them, and not both.",
        )

    def require_latest(self, generation: Generation) -> None:
        """Check every few seconds that there is no newer aggregator, and commit the positions again once a day.

        Args:
            generation: The aggregator's own generation.

        Raises:
            Refused: There is a newer aggregator.
        """
        now = time.monotonic()
        if now - self._checked_at < CHECK_SECONDS:
            return
        self._checked_at = now
        latest = self.latest_generation()
        if generation.is_superseded_by(latest):
            raise superseded_error(self._application_id, generation, latest)
        if now - self._committed_at >= RECOMMIT_SECONDS:
            self._committed_at = now
            self.recommit(generation)

    def recommit(self, generation: Generation) -> None:
        """Commit every position again where it is, so that the brokers do not forget it.

        Transactions that run meanwhile are fenced, and Spark tries their tasks again.

        Args:
            generation: The aggregator's own generation.

        Raises:
            Refused: There is a newer aggregator.
        """
        try:
            for subtopology in self._pipeline.topology.subtopologies:
                self._claim(subtopology, generation, has_checkpoint=True)
        except _ConcurrentStart as error:
            raise superseded_error(self._application_id, generation, self.latest_generation()) from error

    def _claim(self, subtopology: Subtopology, generation: Generation, has_checkpoint: bool) -> KafkaState:
        topics = self._pipeline.source_topics(subtopology)
        partitions = [(topic, number) for topic in topics for number in range(self._pipeline.partition_counts[topic])]
        tasks = [TaskId(subtopology.id, number) for number in range(self._pipeline.partitions(subtopology))]
        with ExitStack() as stack, ThreadPoolExecutor(_OPEN_AT_ONCE) as pool:
            producers = list(pool.map(self._open_producer, tasks))
            for producer in producers:
                stack.callback(close_producer, producer)
            # Every earlier producer is fenced now, and its transaction is settled: the positions are final.
            consumer = stack.enter_context(closing(self._consumer("read_committed")))
            found = self._committed_positions(consumer, partitions)
            known = [PositionMetadata.parse(position.metadata) for position in found]
            if any(metadata is not None and generation.is_superseded_by(metadata.generation) for metadata in known):
                raise _ConcurrentStart
            state = self._kafka_state(
                subtopology,
                {(position.topic, position.partition): position.offset for position in found if position.offset >= 0},
                has_checkpoint,
            )
            list(
                pool.map(
                    lambda number: self._commit(producers[number], number, state.positions, generation, consumer),
                    range(len(producers)),
                )
            )
        return state

    def _kafka_state(self, subtopology: Subtopology, positions: OffsetMap, has_checkpoint: bool) -> KafkaState:
        log_starts = {
            (topic, number): offsets.log_start
            for topic in self._pipeline.source_topics(subtopology)
            for number, offsets in self._cluster.offsets(topic).items()
        }
        changelog_offsets = sum(
            offsets.high_watermark
            for store in subtopology.stores
            for offsets in self._cluster.offsets(self._pipeline.topology.changelog_topic(store)).values()
        )
        missing = sorted(log_starts.keys() - positions.keys())
        if missing and (positions or has_checkpoint or changelog_offsets):
            names = ", ".join(f"{topic}-{number}" for topic, number in missing)
            raise Refused(
                f"group {self._application_id} has no position for {names}",
                expected="positions beside the checkpoint, the changelogs and the other partitions",
                remedy="They were deleted or have expired (the brokers' offsets.retention.minutes): reset the "
                "application.",
            )
        return KafkaState(log_starts if missing else positions, log_starts, changelog_offsets)

    def _committed_positions(self, consumer: Consumer, partitions: Sequence[tuple[str, int]]) -> list[TopicPartition]:
        return committed_offsets(consumer, self._application_id, partitions, self._brokers, DEADLINE_SECONDS)

    def _commit(
        self, producer: Producer, partition: int, positions: OffsetMap, generation: Generation, consumer: Consumer
    ) -> None:
        """Commit the positions of one task in a transaction, with the generation in their metadata."""
        offsets = [
            TopicPartition(topic, number, position, PositionMetadata(generation).text)
            for (topic, number), position in positions.items()
            if number == partition
        ]
        try:
            producer.begin_transaction()
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), DEADLINE_SECONDS)
            producer.commit_transaction(DEADLINE_SECONDS)
        except KafkaException as error:
            if is_fenced(error):
                raise _ConcurrentStart from error
            raise

    def _open_producer(self, task: TaskId) -> Producer:
        return open_task_producer(
            self._brokers, self._application_id, task, transaction_timeout_ms=self._transaction_timeout_ms
        )

    def _consumer(self, isolation_level: str) -> Consumer:
        return self._brokers.consumer(self._application_id, isolation_level=isolation_level)


def await_end(predecessor: Generation | None, report: Callable[[str], None]) -> None:
    """Wait until an older aggregator on this machine has ended: until then it may write its checkpoint.

    It stops by itself within :data:`CHECK_SECONDS`. After three times as long the wait ends anyway: the process may be
    another one that got its id.

    Args:
        predecessor: The generation before this aggregator's; None where there is none.
        report: Is told what is waited for.
    """
    if predecessor is None or predecessor.host != socket.gethostname() or predecessor.pid == os.getpid():
        return
    deadline = time.monotonic() + 3 * CHECK_SECONDS
    while _is_running(predecessor.pid) and time.monotonic() < deadline:
        report(f"waiting until the aggregator of {predecessor}, which this one has superseded, has stopped")
        time.sleep(1)


def superseded_error(application_id: str, own: Generation, latest: Generation | None) -> Refused:
    """Return the error of an aggregator that a newer generation has superseded.

    Args:
        application_id: The id of the application.
        own: The generation of the older aggregator.
        latest: The newer generation, where it is known.
    """
    return Refused(
        f"a newer aggregator of {application_id} has taken over",
        expected=f"{own} to be the newest",
        observed=str(latest) if latest else "another that was being started",
        remedy="One application has one aggregator. This one stops, and nothing is lost: the newer one goes on where "
        "it was. If that was started by mistake, stop it and start this one again.",
    )


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # the process of another user, and maybe another program
    return True
