"""An aggregator owns the stream tasks of its application until a newer aggregator claims them.

While it runs it is a member of the application's consumer group, so that nobody else moves the positions. It claims the
stream tasks in one transaction, which commits all positions again with the aggregator's own generation in their
metadata. The producers that had the transactional ids of the stream tasks before are fenced within that transaction. An
older aggregator reads the newer generation and stops.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TypeAlias

import confluent_kafka
from confluent_kafka import Consumer, Producer

from streamplan.errors import BrokersUnavailable, Refused, StreamplanError
from streamplan.kafka.application_state import observe_application
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.groups import committed_offsets, fence
from streamplan.kafka.membership import GroupMember, foreign_member_error, waiting_for_members
from streamplan.kafka.transactions import DEADLINE_SECONDS, Fenced, send_positions, transactional_producer
from streamplan.kafka_types import TopicPartition
from streamplan.model.committed_positions import CommittedPosition, latest_generation, resolve_positions
from streamplan.model.generation import Generation, PositionMetadata, named_checkpoint
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor_topology import Subtopology, TaskId
from streamplan.model.start_point import KafkaState

CHECK_SECONDS = 5.0
"""How often an aggregator asks whether it is still the newest. One that writes sees it with each transaction, too."""

_MAX_ATTEMPTS = 6

FOREIGN_SECONDS = 60.0
"""How long a start waits until members of another program have left.

One that died leaves when its session ends, and so do the members of a Kafka Streams application that was closed: after
45 s by default (``session.timeout.ms``).
"""

_CLAIM_SECONDS = 10.0
"""How long an aggregator whose stream task was fenced waits for the claim that fenced it."""

_Positions: TypeAlias = Mapping[TopicPartition, CommittedPosition]


class StopRequested(Exception):
    """Somebody has asked the application to stop, see :func:`stop_application`."""


@dataclass(frozen=True)
class StreamTasks:
    """The stream tasks of an application, and what they read.

    Attributes:
        application_id: The id of the application.
        partitions: The topics and partitions in which its group has positions.
        tasks: The stream tasks, whose transactional ids are fenced.
    """

    application_id: str
    partitions: tuple[TopicPartition, ...]
    tasks: tuple[TaskId, ...]

    @classmethod
    def of(cls, pipeline: Pipeline) -> StreamTasks:
        """Return those of a declaration."""
        partitions = (
            (topic, partition)
            for subtopology in pipeline.topology.subtopologies
            for topic in pipeline.source_topics(subtopology)
            for partition in range(pipeline.partition_counts[topic])
        )
        return cls(pipeline.topology.application_id, tuple(partitions), pipeline.tasks())

    @classmethod
    def observed(cls, application_id: str, committed: Iterable[TopicPartition]) -> StreamTasks:
        """Return those of an application whose declaration is not at hand, and at most a few that it does not have.

        Each of its sub-topologies reads a topic of its own, and has as many stream tasks as that has partitions.

        Args:
            committed: The topics and partitions in which its group has positions.
        """
        partitions = tuple(sorted(committed))
        topics = {topic for topic, _ in partitions}
        count = 1 + max((partition for _, partition in partitions), default=-1)
        tasks = (TaskId(subtopology, partition) for subtopology in range(len(topics)) for partition in range(count))
        return cls(application_id, partitions, tuple(tasks))


@dataclass(frozen=True)
class ClaimedTasks:
    """What belongs to an aggregator until a newer one comes.

    Attributes:
        generation: The aggregator's own generation.
        committed: What Kafka has of each sub-topology, by its id. Nobody else can change it.
    """

    generation: Generation
    committed: Mapping[int, KafkaState]


@dataclass
class TaskOwnership:
    """The consumer group and the transactional ids of an application, as one of its aggregators sees them.

    It is a context manager. Inside, the aggregator is a member of the group.

    Attributes:
        pipeline: Its topology names the application.
        brokers: Where the application's topics are.
        report: Gets lines for the log.
        seen: What :func:`newest_instance` returned when this start was asked for. A stop is obeyed unless that instance
            has made it. None asks on entry.
        beside: Whether the application is the candidate of an upgrade, and stays one.
        drain_requested: Whether somebody has asked the aggregator to process its repartition topics, and to end.
    """

    pipeline: Pipeline
    brokers: Brokers
    report: Callable[[str], None] = lambda line: None
    seen: str | None = None
    beside: bool = False
    drain_requested: bool = False
    _stack: ExitStack = field(default_factory=ExitStack)
    _checked_at: float = field(default_factory=time.monotonic)

    @property
    def _application_id(self) -> str:
        return self.pipeline.topology.application_id

    def __post_init__(self) -> None:
        self._tasks = StreamTasks.of(self.pipeline)
        self._generation = Generation.of_this_process(None, beside=self.beside)
        self._has_claimed = False

    def __enter__(self) -> TaskOwnership:
        topics = sorted({topic for topic, _ in self._tasks.partitions})
        self._member = self._stack.enter_context(
            GroupMember(self.brokers, self._application_id, topics, self._generation.instance)
        )
        self._consumer = self._stack.enter_context(
            closing(self.brokers.consumer(self._application_id, isolation_level="read_uncommitted"))
        )
        if self.seen is None:
            self.seen = _instance(self.latest_generation())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def claim(self, has_checkpoint: Mapping[int, bool]) -> ClaimedTasks:
        """Take over every stream task. Whoever had them is fenced, and stops when it sees the new generation.

        Args:
            has_checkpoint: For each sub-topology, by its id, whether there is a checkpoint.

        Raises:
            Refused: The group has members of another program, or its positions are not where an aggregator left them;
                or the application is the candidate of an upgrade, see :meth:`_require_turn`; or this aggregator has
                claimed them before, and a newer one has taken over.
            StopRequested: Somebody has asked the application to stop since this start was asked for.
            StreamplanError: Another aggregator was being started each time.
        """
        self._member.await_join(self.report, with_ours=True, foreign_seconds=FOREIGN_SECONDS)
        self._await_no_foreign_member()
        self._require_turn()
        for attempt in range(_MAX_ATTEMPTS):
            try:
                with _claim_producer(self._tasks, self.brokers) as producer:
                    return self._claim(producer, has_checkpoint)
            except Fenced:
                _give_way(self._tasks, self.brokers, attempt)
        raise StreamplanError(
            f"{self._application_id} could not be claimed",
            expected="no other aggregator of this application that starts at the same time",
            observed=f"another one started at each of {_MAX_ATTEMPTS} attempts",
            remedy="Start only one aggregator.",
        )

    def _await_no_foreign_member(self) -> None:
        deadline = time.monotonic() + FOREIGN_SECONDS
        told = False
        while foreign := self._member.foreign():
            if time.monotonic() > deadline:
                raise foreign_member_error(self._application_id, foreign)
            if not told:
                self.report(waiting_for_members(self._application_id, foreign, FOREIGN_SECONDS))
                told = True
            time.sleep(min(1.0, FOREIGN_SECONDS))

    def name_checkpoint(self, claimed: ClaimedTasks, subtopology: int, checkpoint: str) -> None:
        """Let the positions of a sub-topology name the checkpoint that it continues. No other one is used after that.

        Args:
            claimed: For whom the stream tasks were claimed.
            subtopology: The id of the sub-topology, whose query does not run.
            checkpoint: The id of the checkpoint, which is complete.

        Raises:
            Refused: There is a newer aggregator.
            StopRequested: Somebody has asked the application to stop.
        """
        committed = claimed.committed[subtopology]
        positions = {
            place: (
                offset,
                PositionMetadata(
                    claimed.generation,
                    checkpoint,
                    start=committed.starts.get(place, 0),
                    time=committed.times.get(place),
                ).text,
            )
            for place, offset in committed.positions.items()
        }
        for attempt in range(_MAX_ATTEMPTS):
            try:
                with _claim_producer(self._tasks, self.brokers) as producer:
                    self.require_latest(now=True)  # after this a newer one fences the producer
                    producer.begin_transaction()
                    _send(producer, self._consumer, positions)
                    _commit(producer, self._tasks, self.brokers)
                return
            except Fenced:
                # By a claim, or by a request to stop. Both commit their generation a little later, unless they die.
                self.await_claim()
                self.require_latest(now=True)
                _give_way(self._tasks, self.brokers, attempt)
        raise superseded_error(self._application_id, claimed.generation, None)

    def latest_generation(self) -> Generation | None:
        """Return the newest generation in the metadata of any position; None where there is none.

        It reads positions that are not stable, too: waiting for a transaction that was left open could take as long as
        its timeout.
        """
        return latest_generation(_committed(self._tasks, self.brokers, self._consumer).values())

    def _generation_of_another(self) -> Generation | None:
        """Return the newest generation in the positions that is not the aggregator's own. That has claimed them all."""
        committed = _committed(self._tasks, self.brokers, self._consumer).values()
        own = self._generation
        parsed = ((position, PositionMetadata.parse(position.metadata)) for position in committed)
        return latest_generation(position for position, found in parsed if found and found.generation != own)

    def require_latest(self, *, now: bool = False) -> None:
        """Check every few seconds that there is no newer aggregator. Report members of other programs.

        Args:
            now: Whether it is checked at once.

        Raises:
            Refused: There is a newer aggregator.
            StopRequested: Somebody has asked the application to stop.
        """
        if not now and time.monotonic() - self._checked_at < CHECK_SECONDS:
            return
        self._checked_at = time.monotonic()
        latest = self._generation_of_another()
        if self._generation.is_superseded_by(latest):
            if latest is not None and latest.is_stop:
                raise _stop_requested(self._application_id, latest)
            raise superseded_error(self._application_id, self._generation, latest)
        if self._member.take_rebalance():
            others = self._member.others()
            self.drain_requested = self.drain_requested or any(member.asks_to_drain for member in others)
            for member in others:
                if member.instance is not None:
                    continue
                self.report(
                    f"warning: {member} has joined consumer group {self._application_id}. It can move the positions, "
                    "and this aggregator stops when it does: stop that program, or give it a group of its own."
                )

    def await_claim(self) -> None:
        """Wait until no claim is being committed, or for some seconds.

        A claim fences the stream tasks before it commits its generation. An aggregator whose stream task was fenced
        would not see the newer generation yet.
        """
        with suppress(BrokersUnavailable):
            _await_settled(self._tasks, self.brokers, _CLAIM_SECONDS)

    def _require_turn(self) -> None:
        """Refuse a start of a candidate application, and a build of an application that has taken over.

        Before the positions are locked: nobody that works must be fenced by a start that is refused.
        """
        latest, upgrade_from = self.latest_generation(), self.pipeline.upgrade_from
        if self.beside and latest is not None and not latest.is_beside:
            raise Refused(
                f"application {self._application_id}",
                expected="a candidate application, which has not taken over",
                observed=f"it writes the outputs already: {latest}",
                remedy="It has taken over, so there is nothing to build.",
            )
        if not self.beside and (latest.is_beside if latest is not None else upgrade_from is not None):
            raise Refused(
                f"application {self._application_id}",
                expected="the application that writes the outputs",
                observed=f"a candidate application: {upgrade_from or 'another application'} writes them",
                remedy=f"Run {self.pipeline.name}_upgrade: it builds the state, and lets this application take over. "
                "If the other application must go on, start the other one as it was declared.",
            )

    def _claim(self, producer: Producer, has_checkpoint: Mapping[int, bool]) -> ClaimedTasks:
        topology = self.pipeline.topology
        committed = _lock_positions(producer, self._consumer, self._tasks, self.brokers)
        latest = latest_generation(committed.values())
        if latest is not None and latest.is_stop and latest.instance != self.seen:
            raise _stop_requested(self._application_id, latest)
        if self._has_claimed and self._generation.is_superseded_by(latest):
            raise superseded_error(self._application_id, self._generation, latest)
        self._generation = self._generation.after(latest)
        state = observe_application(self.pipeline, KafkaCluster(self.brokers), committed)
        resolved = resolve_positions(
            self._application_id,
            [
                state.input_of(subtopology, has_checkpoint=has_checkpoint[subtopology.id])
                for subtopology in topology.subtopologies
            ],
            committed,
        )
        _send(
            producer,
            self._consumer,
            {
                place: (positions.offsets[place], metadata.text)
                for positions in resolved.values()
                for place, metadata in positions.claimed(self._generation).items()
            },
        )
        _commit(producer, self._tasks, self.brokers)
        self._has_claimed = True
        return ClaimedTasks(
            self._generation,
            {
                subtopology.id: state.kafka_state(subtopology, resolved[subtopology.id], self._generation)
                for subtopology in topology.subtopologies
            },
        )


def stop_application(pipeline: Pipeline, brokers: Brokers) -> Generation | None:
    """Ask the aggregator of an application to stop, wherever it runs. It does within some seconds, with exit status 0.

    Its transactions are fenced at once, so that the positions stay where they are from now on.

    Args:
        brokers: Where the application's topics are.

    Returns:
        The generation that the aggregator finds in the positions; None where the application has no positions yet.

    Raises:
        StreamplanError: An aggregator was being started each time.
    """
    tasks = StreamTasks.of(pipeline)
    return _commit_generation(
        tasks,
        brokers,
        lambda latest, _: Generation.of_this_process(latest, stop=True, beside=latest.is_beside),
        action="asked to stop",
    )


def set_beside(
    tasks: StreamTasks, brokers: Brokers, *, beside: bool, expected: Mapping[TopicPartition, int]
) -> Generation | None:
    """Make an application the candidate of an upgrade, or the one that runs. Its positions do not move.

    Whoever still works for it is fenced, so that the positions stay where they are.

    Args:
        brokers: Where its topics are.
        beside: Whether it is the candidate.
        expected: The positions that it must have.

    Returns:
        The generation that says so; None where the application has no positions.

    Raises:
        Refused: It has other positions. Nothing was changed.
        StreamplanError: An aggregator was being started each time.
    """

    def generation(latest: Generation, committed: _Positions) -> Generation:
        observed = {place: position.offset for place, position in committed.items()}
        if moved := [place for place in {**observed, **expected} if observed.get(place) != expected.get(place)]:
            listed = ", ".join(
                f"{topic}-{partition} at {observed.get((topic, partition), 'none')} and not "
                f"{expected.get((topic, partition), 'none')}"
                for topic, partition in sorted(moved)
            )
            raise Refused(
                f"the positions of {tasks.application_id}",
                expected="where they were a moment ago",
                observed=listed,
                remedy="Somebody has started it. Stop it, and do this again.",
            )
        return Generation.of_this_process(latest, beside=beside)

    return _commit_generation(tasks, brokers, generation, action="claimed")


def committed_generation(pipeline: Pipeline, brokers: Brokers) -> Generation | None:
    """Return the newest generation that has committed a position; None where there is none.

    Raises:
        BrokersUnavailable: The brokers did not answer.
    """
    with closing(brokers.consumer(pipeline.topology.application_id, isolation_level="read_uncommitted")) as consumer:
        return latest_generation(_committed(StreamTasks.of(pipeline), brokers, consumer).values())


def newest_instance(pipeline: Pipeline, brokers: Brokers) -> str:
    """Return the instance of the newest generation that has committed a position; ``none`` where there is none.

    A start that knows it knows which stops are older than the start. No clock tells that: those of hosts differ.

    Args:
        pipeline: The pipeline with all partition counts.
        brokers: Where the application's topics are.

    Raises:
        BrokersUnavailable: The brokers did not answer.
    """
    return _instance(committed_generation(pipeline, brokers))


def _instance(generation: Generation | None) -> str:
    return generation.instance if generation is not None else "none"


def checkpoint_in_use(pipeline: Pipeline, brokers: Brokers, subtopology: Subtopology) -> str:
    """Return the id of the checkpoint that the positions of a sub-topology name; empty where they name none.

    Args:
        brokers: Where the application's topics are.
        subtopology: One of its sub-topologies.

    Raises:
        BrokersUnavailable: The brokers did not answer.
    """
    topics = pipeline.source_topics(subtopology)
    with closing(brokers.consumer(pipeline.topology.application_id, isolation_level="read_uncommitted")) as consumer:
        committed = _committed(StreamTasks.of(pipeline), brokers, consumer)
    found = [PositionMetadata.parse(position.metadata) for (topic, _), position in committed.items() if topic in topics]
    return named_checkpoint(metadata for metadata in found if metadata is not None)


def superseded_error(application_id: str, own: Generation, latest: Generation | None) -> Refused:
    """Return the error of an aggregator that a newer generation has superseded.

    Args:
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


def _stop_requested(application_id: str, stop: Generation) -> StopRequested:
    return StopRequested(f"a process on {stop.host} (pid {stop.pid}) asked {application_id} to stop")


def _commit_generation(
    tasks: StreamTasks,
    brokers: Brokers,
    generation_after: Callable[[Generation, _Positions], Generation],
    *,
    action: str,
) -> Generation | None:
    """Commit the positions again with another generation. Whoever works for the application is fenced.

    Args:
        brokers: Where its topics are.
        generation_after: Makes the generation after the newest one and the positions; what it raises ends all.
        action: What is done to the application, for the error.
    """
    for attempt in range(_MAX_ATTEMPTS):
        try:
            with ExitStack() as stack:
                consumer = stack.enter_context(
                    closing(brokers.consumer(tasks.application_id, isolation_level="read_uncommitted"))
                )
                if not _committed(tasks, brokers, consumer):
                    return None  # to open the producer would fence the claim that is to commit the first positions
                producer = stack.enter_context(_claim_producer(tasks, brokers))
                committed = _lock_positions(producer, consumer, tasks, brokers)
                parsed = {place: PositionMetadata.parse(position.metadata) for place, position in committed.items()}
                known = {place: metadata for place, metadata in parsed.items() if metadata is not None}
                latest = latest_generation(committed.values())
                if latest is None:
                    producer.abort_transaction(DEADLINE_SECONDS)
                    return None
                generation = generation_after(latest, committed)
                _send(
                    producer,
                    consumer,
                    {
                        place: (committed[place].offset, replace(metadata, generation=generation).text)
                        for place, metadata in known.items()
                    },
                )
                _commit(producer, tasks, brokers)
                return generation
        except Fenced:
            _give_way(tasks, brokers, attempt)
    raise StreamplanError(
        f"{tasks.application_id} could not be {action}",
        expected="no aggregator of this application that starts at the same time",
        observed=f"one started at each of {_MAX_ATTEMPTS} attempts",
        remedy="Stop what starts the aggregator, and do this again.",
    )


def _lock_positions(producer: Producer, consumer: Consumer, tasks: StreamTasks, brokers: Brokers) -> _Positions:
    """Begin a transaction of claims. Until it ends nobody else can move the positions, which are returned.

    A transaction that has sent positions, and has not ended, makes everybody wait who reads them ``read_committed``.
    Each transaction of a stream task reads them so after it has opened its producer. A producer that was opened before
    is fenced here, and what it committed until then is seen.

    Args:
        producer: Of :func:`_claim_producer`. It sends the positions that are to be committed, and commits them.
        consumer: A ``read_uncommitted`` consumer of the group, which does not wait for this transaction.
    """
    producer.begin_transaction()
    before = _committed(tasks, brokers, consumer)
    if before:
        _send(producer, consumer, {place: (at.offset, at.metadata) for place, at in before.items()})
    fence(brokers, tasks.application_id, tasks.tasks)
    return _committed(tasks, brokers, consumer)


def claim_transactional_id(application_id: str) -> str:
    """Return the transactional id of claims. A process that opens it fences another one that claims at the same time.

    Args:
        application_id: The application whose stream tasks are claimed.
    """
    return f"{application_id}-claim"


def _claim_producer(tasks: StreamTasks, brokers: Brokers) -> AbstractContextManager[Producer]:
    return transactional_producer(brokers, claim_transactional_id(tasks.application_id))


def _give_way(tasks: StreamTasks, brokers: Brokers, attempt: int) -> None:
    """Let the claim end that has fenced this one. Without it, two claims fence each other until both give up.

    The other one has opened its producer, and may not have sent positions yet. Nobody knows how long that takes on a
    busy machine. So the pause is random, and longer after each attempt.

    Args:
        attempt: How often this claim was fenced before.
    """
    time.sleep(random.uniform(0.1, 2.0) * 2**attempt)
    with suppress(BrokersUnavailable):
        _await_settled(tasks, brokers, _CLAIM_SECONDS)


def _send(producer: Producer, consumer: Consumer, positions: Mapping[TopicPartition, tuple[int, str]]) -> None:
    """Send offsets and their metadata to the transaction. They replace what was sent to it before."""
    offsets = [
        confluent_kafka.TopicPartition(*place, offset, metadata)
        for place, (offset, metadata) in sorted(positions.items())
    ]
    send_positions(producer, offsets, consumer.consumer_group_metadata())


def _commit(producer: Producer, tasks: StreamTasks, brokers: Brokers) -> None:
    """Commit the transaction, and return when everybody sees its positions. The brokers answer a little earlier."""
    producer.commit_transaction(DEADLINE_SECONDS)
    _await_settled(tasks, brokers, DEADLINE_SECONDS)


def _await_settled(tasks: StreamTasks, brokers: Brokers, seconds: float) -> None:
    """Wait until no transaction that has sent positions is open."""
    with closing(brokers.consumer(tasks.application_id, isolation_level="read_committed")) as consumer:
        _committed(tasks, brokers, consumer, seconds)


def _committed(
    tasks: StreamTasks, brokers: Brokers, consumer: Consumer, seconds: float = DEADLINE_SECONDS
) -> _Positions:
    """Read the positions of all source topics, as far as there are any."""
    return committed_offsets(consumer, tasks.application_id, tasks.partitions, brokers, seconds)
