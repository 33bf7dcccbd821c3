"""A member of a consumer group that reads nothing: it keeps others away from the group's positions.

While a group has a member, the brokers refuse commits by everybody who is not one, apart from transactional commits
without a member id, as the stream tasks make them. They refuse offset tools and the deletion of the group, and its
positions do not expire. Everybody can ask the brokers who the members are (``DescribeGroups``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from streamplan.errors import BrokersUnavailable, Refused, StreamplanError
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.groups import members
from streamplan.model.generation import Generation
from streamplan.model.group_member import DRAIN, OURS, Member

SESSION_SECONDS = 10.0
"""A member that died without a word is forgotten after so long. Kafka's default of 45 s would keep a successor waiting.

librdkafka sends the heartbeats from a thread of its own, so that a busy Python process keeps its membership.
"""

JOIN_SECONDS = 60.0
"""Deadline of the join. It waits for members that died: for their session time-out, which may be Kafka's 45 s."""

DRAIN_SECONDS = 600.0
"""How long an aggregator that is asked to end may take to process what its sub-topologies have written for others."""

_POLL_SECONDS = 0.2

_LOOK_SECONDS = 0.5
"""How often a member that waits to join looks at the others."""

_REJOIN_SECONDS = 1.0
"""How long a member waits before it makes a new client. One that had a fatal error joins no more."""


class GroupMember:
    """Joins the group on entry and leaves it on exit. Nothing is fetched: what it is assigned is paused.

    Args:
        group: The group's id.
        topics: The topics that it subscribes to. While the group is stable, positions in other topics may expire.
        instance: Which process it is. Its client id is ``streamplan:<instance>``, for everybody to see.
    """

    def __init__(self, brokers: Brokers, group: str, topics: Sequence[str], instance: str) -> None:
        self._brokers = brokers
        self._group = group
        self._topics = list(topics)
        self._protocol = brokers.group_protocol
        self.client_id = f"{OURS}{instance}"
        self._joined = threading.Event()
        self._rebalanced = threading.Event()
        self._ended = threading.Event()
        self._error: KafkaError | None = None
        self._thread = threading.Thread(target=self._poll, name=f"member of {group}", daemon=True)

    def __enter__(self) -> GroupMember:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(SESSION_SECONDS)  # without brokers the goodbye cannot be said; the session times out

    def others(self) -> list[Member]:
        """Return the other members of the group, as the brokers describe them.

        Raises:
            BrokersUnavailable: The brokers did not answer.
        """
        return [member for member in members(self._brokers, self._group) if member.client_id != self.client_id]

    def foreign(self) -> list[Member]:
        """Return the members that are no aggregators: they belong to another program.

        Raises:
            BrokersUnavailable: The brokers did not answer.
        """
        return [member for member in self.others() if member.instance is None]

    def await_join(
        self, report: Callable[[str], None], *, with_ours: bool = False, foreign_seconds: float = 0.0
    ) -> None:
        """Wait until the brokers have accepted this member, and have forgotten those that died.

        Args:
            report: Is told when it takes longer than a moment.
            with_ours: Do not wait for other members that are aggregators. The brokers list a member from its request to
                join on, and from then on refuse commits by everybody who is not in the group.
            foreign_seconds: How long to wait while members of another protocol keep it out. A Kafka Streams application
                does not leave its group when it is closed: the brokers forget its members when their sessions end.

        Raises:
            Refused: The group belongs to another kind of members, for instance a Kafka Streams application.
            BrokersUnavailable: The brokers did not accept it by :data:`JOIN_SECONDS`.
        """
        begun = time.monotonic()
        deadline, told, told_foreign = begun + JOIN_SECONDS, False, False
        while not self._joined.wait(_LOOK_SECONDS):
            if with_ours and self._is_among_ours():
                return
            now = time.monotonic()
            if _is_of_another_protocol(self._error):
                foreign = self.others()
                if now > begun + foreign_seconds:
                    raise foreign_member_error(self._group, foreign)
                if not told_foreign:
                    report(waiting_for_members(self._group, foreign, foreign_seconds))
                deadline, told_foreign = now + JOIN_SECONDS, True
                continue
            if now > deadline or not self._thread.is_alive():
                raise BrokersUnavailable(
                    f"consumer group {self._group}",
                    expected=f"to join it within {JOIN_SECONDS:g} s",
                    observed=str(self._error or "no answer"),
                    remedy="Do the brokers run, and may this client read the group?",
                )
            if not told:
                others = ", ".join(map(str, self.others()))
                report(
                    f"joining consumer group {self._group}" + (f", which has the members {others}" if others else "")
                )
                told = True

    def _is_among_ours(self) -> bool:
        """Whether the brokers list this member, and with it none of another program."""
        listed = members(self._brokers, self._group)
        return any(member.client_id == self.client_id for member in listed) and all(
            member.instance is not None for member in listed
        )

    def take_rebalance(self) -> bool:
        """Whether the group has been rebalanced since the last call: a member came or went."""
        rebalanced = self._rebalanced.is_set()
        self._rebalanced.clear()
        return rebalanced

    def _poll(self) -> None:
        try:
            while not self._ended.is_set():
                self._poll_until_fatal()
                if _is_of_another_protocol(self._error):
                    # An empty group of Kafka Streams (KIP-1071) stays what it is for members of KIP-848. For those of
                    # the classic protocol it becomes theirs (tried with Kafka 4.3.1).
                    self._protocol = "classic"
                self._ended.wait(_REJOIN_SECONDS)
        except KafkaException as error:  # the aggregator goes on, and looks at the positions' metadata
            self._error = error.args[0]

    def _poll_until_fatal(self) -> None:
        """Be a member until the end, or until the client has an error after which it joins no more."""
        consumer = self._brokers.consumer(self._group, client_id=self.client_id, **self._configs())
        try:
            consumer.subscribe(self._topics, on_assign=self._on_assign, on_revoke=self._on_revoke)
            while not self._ended.is_set():
                message = consumer.poll(_POLL_SECONDS)
                error = message.error() if message is not None else None
                if error is not None:
                    self._error = error
                    if _is_fatal(error):
                        return
        finally:
            consumer.close()

    def _configs(self) -> dict[str, Any]:
        configs: dict[str, Any] = {"auto_offset_reset": "latest", "group_protocol": self._protocol}
        if self._protocol == "classic":  # otherwise the brokers decide both (KIP-848)
            configs["session_timeout_ms"] = int(SESSION_SECONDS * 1000)
            # Java's consumers offer other assignors by default, and the brokers refuse them beside this one.
            configs["partition_assignment_strategy"] = "roundrobin"
        return configs

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self._protocol == "consumer":
            consumer.incremental_assign(partitions)
        else:
            consumer.assign(partitions)
        consumer.pause(partitions)
        self._error = None
        self._rebalanced.set()
        self._joined.set()

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._rebalanced.set()


def drain_application(
    brokers: Brokers,
    application_id: str,
    topics: Sequence[str],
    report: Callable[[str], None],
    *,
    seconds: float = DRAIN_SECONDS,
) -> None:
    """Ask the aggregator of an application to process what is in its repartition topics, and to end; wait for that.

    The question is a member of the group with a client id of its own, so that it is gone when this process dies.

    Args:
        topics: Topics that it reads.
        report: Is told what is waited for.
        seconds: The deadline.

    Raises:
        Refused: The group has members of another program.
        StreamplanError: The aggregator did not end in time.
    """
    instance = f"{DRAIN}{Generation.of_this_process(None).instance}"
    with GroupMember(brokers, application_id, topics, instance) as member:
        member.await_join(report, with_ours=True)
        deadline, told = time.monotonic() + seconds, False
        while others := member.others():
            if foreign := [other for other in others if other.instance is None]:
                raise foreign_member_error(application_id, foreign)
            listed = ", ".join(map(str, others))
            if time.monotonic() > deadline:
                raise StreamplanError(
                    f"application {application_id}",
                    expected=f"ended within {seconds:g} s, as it was asked to",
                    observed=f"{listed} in its consumer group",
                    remedy="Look into its log, or stop it in another way. Then do this again.",
                )
            if not told:
                report(f"{listed} is asked to process its repartition topics, and to end")
                told = True
            time.sleep(_LOOK_SECONDS)


def _is_of_another_protocol(error: KafkaError | None) -> bool:
    """Whether the brokers refuse a join because the group has members of another protocol.

    With the protocol of KIP-848 such a group does not exist for a member. For the client that is fatal, and only the
    text of a fatal error says the reason.
    """
    if error is None:
        return False
    missing = KafkaError(KafkaError.GROUP_ID_NOT_FOUND).str()
    return error.code() == KafkaError.INCONSISTENT_GROUP_PROTOCOL or (_is_fatal(error) and missing in error.str())


def _is_fatal(error: KafkaError) -> bool:
    """Whether the client that tells an error is of no use any more. In a message a code alone says that."""
    return error.fatal() or error.code() == KafkaError._FATAL


def waiting_for_members(group: str, foreign: Sequence[Member], seconds: float) -> str:
    """Return the line of a start that waits until members of another program have left.

    Args:
        group: The group's id.
        foreign: The members.
        seconds: How long it waits at most.
    """
    return (
        f"consumer group {group} has members of another program: {_named(foreign)}. Waiting up to {seconds:g} s until "
        "they have left."
    )


def _named(foreign: Sequence[Member]) -> str:
    # DescribeGroups lists the members of the protocol of KIP-1071 to nobody.
    return ", ".join(map(str, foreign)) or "members of another protocol, such as those of group.protocol=streams"


def foreign_member_error(group: str, foreign: Sequence[Member]) -> Refused:
    """Return the error of an aggregator that finds members of another program in its group.

    Args:
        group: The group's id, which is the application id.
        foreign: The members.
    """
    return Refused(
        f"consumer group {group}",
        expected="no member but the aggregators of this application",
        observed=_named(foreign),
        remedy="They could move the positions, and records would be lost or doubled. Stop them, or give them a group "
        "of their own. Then start this aggregator again. A Kafka Streams application that was stopped stays a member "
        "until its session ends (session.timeout.ms, 45 s by default).",
    )
