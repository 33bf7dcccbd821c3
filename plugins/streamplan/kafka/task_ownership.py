"""Where an aggregator begins: the positions of the consumer group, once nobody else can move them."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from streamplan.errors import Refused, StreamplanError
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.requests import call_with_retry, is_fenced
from streamplan.kafka.transactions import DEADLINE_SECONDS, open_task_producer
from streamplan.model.generation import Generation
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor_topology import Subtopology, TaskId
from streamplan.model.start_point import Committed

_AT_ONCE = 16
"""Producers that are opened side by side: each waits for its coordinator."""

_TRIES = 6


class _Outrun(Exception):
    """Another aggregator of the application is being started at the same time."""


@dataclass(frozen=True)
class Claimed:
    """What belongs to this aggregator until a newer one comes. ``committed`` by the id of a sub-topology."""

    generation: Generation
    predecessor: Generation | None
    committed: Mapping[int, Committed]


class Application:
    """A pipeline's consumer group and its transactional ids."""

    def __init__(self, pipeline: Pipeline, brokers: Brokers, *, transaction_timeout_ms: int) -> None:
        self.pipeline = pipeline
        self.id = pipeline.topology.application_id
        self.brokers = brokers
        self.transaction_timeout_ms = transaction_timeout_ms
        self._cluster = KafkaCluster(brokers)

    def newest(self) -> Generation | None:
        """The newest generation that any position names. Waits for no transaction."""
        # Unstable positions too: a transaction that was left open would be waited for until it times out.
        with closing(self._consumer("read_uncommitted")) as consumer:
            found = self._positions(
                consumer,
                [
                    (topic, partition)
                    for subtopology in self.pipeline.topology.subtopologies
                    for topic in self.pipeline.source_topics(subtopology)
                    for partition in range(self.pipeline.partition_counts[topic])
                ],
            )
        generations = [generation for one in found if (generation := Generation.parse(one.metadata)) is not None]
        return max(generations, key=lambda generation: generation.number, default=None)

    def claim(self, checkpoints: Mapping[int, bool]) -> Claimed:
        """Take every stream task over: whoever had them is fenced, and stops when it sees the new generation.

        ``checkpoints`` says of each sub-topology whether it has one. A sub-topology without a checkpoint and without
        positions is new: it begins at the start of its topics, and that is committed before it reads. From then on a
        missing position is a fault and never taken for 0; raises :class:`Refused`.
        """
        for _ in range(_TRIES):
            newest = self.newest()
            generation = Generation.of_this_process(1 if newest is None else newest.number + 1)
            try:
                return Claimed(
                    generation,
                    newest,
                    {
                        subtopology.id: self._claim(subtopology, generation, checkpoints[subtopology.id])
                        for subtopology in self.pipeline.topology.subtopologies
                    },
                )
            except _Outrun:
                time.sleep(random.uniform(0.1, 2.0))  # so that not both try again at the same moment
        raise StreamplanError(
            f"{self.id} could not be claimed",
            expected="no other aggregator of it that is being started",
            observed=f"one {_TRIES} times",
            remedy="Start one of them, and not both.",
        )

    def renew(self, generation: Generation) -> None:
        """Commit every position again where it is, lest the brokers forget it (``offsets.retention.minutes``).

        Transactions that run meanwhile are fenced, and their tasks tried again.
        """
        try:
            for subtopology in self.pipeline.topology.subtopologies:
                self._claim(subtopology, generation, checkpoint=True)
        except _Outrun as error:
            raise outdone(self.id, generation, self.newest()) from error

    def _claim(self, subtopology: Subtopology, generation: Generation, checkpoint: bool) -> Committed:
        topics = self.pipeline.source_topics(subtopology)
        counts = {topic: self.pipeline.partition_counts[topic] for topic in topics}
        with ExitStack() as stack, ThreadPoolExecutor(_AT_ONCE) as pool:
            producers = list(
                pool.map(
                    lambda partition: self._open(TaskId(subtopology.id, partition)),
                    range(self.pipeline.partitions(subtopology)),
                )
            )
            for producer in producers:
                stack.callback(_close, producer)
            # Every producer before is fenced, and what it left is settled: from here on the answers are final.
            consumer = stack.enter_context(closing(self._consumer("read_committed")))
            found = self._positions(
                consumer, [(topic, partition) for topic in topics for partition in range(counts[topic])]
            )
            if any(generation.yields_to(Generation.parse(one.metadata)) for one in found):
                raise _Outrun
            offsets = {topic: self._cluster.offsets(topic) for topic in topics}
            starts = {(topic, number): of.log_start for topic in topics for number, of in offsets[topic].items()}
            changelogs = [self.pipeline.topology.changelog_topic(store) for store in subtopology.stores]
            written = sum(of.high_watermark for topic in changelogs for of in self._cluster.offsets(topic).values())
            positions = {(one.topic, one.partition): one.offset for one in found if one.offset >= 0}
            if missing := sorted(starts.keys() - positions.keys()):
                if positions or checkpoint or written:
                    self._refuse(missing)
                positions = starts
            list(
                pool.map(
                    lambda numbered: self._stamp(numbered[1], numbered[0], positions, generation, consumer),
                    enumerate(producers),
                )
            )
        return Committed(positions, starts, written)

    def _positions(self, consumer: Consumer, of: Sequence[tuple[str, int]]) -> list[TopicPartition]:
        """With ``offset`` -1001 where there is none."""

        def question(left: float) -> list[TopicPartition]:
            found: list[TopicPartition] = consumer.committed([TopicPartition(*one) for one in of], left)
            for one in found:
                if one.error is not None:
                    raise KafkaException(one.error)
            return found

        return call_with_retry(question, f"the positions of group {self.id}", self.brokers, DEADLINE_SECONDS)

    def _refuse(self, missing: Sequence[tuple[str, int]]) -> None:
        raise Refused(
            f"group {self.id} has no position for {', '.join(f'{topic}-{number}' for topic, number in missing)}",
            expected="positions beside the checkpoint, the changelogs and the other partitions",
            remedy="They were deleted or have expired (the brokers' offsets.retention.minutes): reset the application.",
        )

    def _open(self, task: TaskId) -> Producer:
        return open_task_producer(self.brokers, self.id, task, transaction_timeout_ms=self.transaction_timeout_ms)

    def _stamp(
        self,
        producer: Producer,
        partition: int,
        positions: Mapping[tuple[str, int], int],
        generation: Generation,
        consumer: Consumer,
    ) -> None:
        own = [
            TopicPartition(topic, number, position, generation.metadata)
            for (topic, number), position in positions.items()
            if number == partition
        ]
        try:
            producer.begin_transaction()
            producer.send_offsets_to_transaction(own, consumer.consumer_group_metadata(), DEADLINE_SECONDS)
            producer.commit_transaction(DEADLINE_SECONDS)
        except KafkaException as error:
            if is_fenced(error):
                raise _Outrun from error
            raise

    def _consumer(self, isolation_level: str) -> Consumer:
        return self.brokers.consumer(self.id, isolation_level=isolation_level)


def outdone(application_id: str, own: Generation, newer: Generation | None) -> Refused:
    """What the older of two aggregators says when it stops."""
    return Refused(
        f"a newer aggregator of {application_id} has taken over",
        expected=f"{own} to be the newest",
        observed=str(newer) if newer else "another that was being started",
        remedy="One application has one aggregator. This one stops, and nothing is lost: the newer one goes on where "
        "it was. If that was started by mistake, stop it and start this one again.",
    )


def _close(producer: Producer) -> None:
    producer.purge()
    try:
        producer.close()
    except KafkaException as error:  # a fenced producer refuses to close; what it wrote is settled by now
        if not is_fenced(error):
            raise
