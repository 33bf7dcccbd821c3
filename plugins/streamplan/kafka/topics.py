"""Topics: observed, planned, created and observed again; and their deletion."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Never

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata, ConfigResource, NewTopic, ResourceType

from streamplan.errors import Refused, StreamplanError
from streamplan.kafka.brokers import ANSWER_SECONDS, Brokers
from streamplan.kafka.requests import call_with_retry, error_code, is_not_permitted, missing_acl, raise_unavailable
from streamplan.kafka.schema_registry import SchemaRegistry
from streamplan.model.pipeline import Pipeline
from streamplan.model.topics import (
    ObservedTopic,
    TopicPlan,
    TopicSpec,
    explain_differences,
    plan_topics,
    resolve_configs,
    resolve_new_configs,
    resolve_replication_factor,
    temporary_topic,
)

AGREEMENT_SECONDS = 30.0
"""How long the brokers' metadata may differ after a topic was created or deleted."""


@dataclass(frozen=True)
class _Snapshot:
    """The topics at one moment.

    Attributes:
        brokers: The ids of all brokers, up or not.
        topics: The topics that exist.
        leaderless: Topics of which a partition has no leader.
    """

    brokers: frozenset[int]
    topics: Mapping[str, ObservedTopic]
    leaderless: frozenset[str]


class UnreadableConfigs(Mapping[str, str]):
    """The configs of a topic that this client may not read. Who needs one of them is told the permission.

    So a client that may read and describe a topic can look at everything but its configs.
    """

    def __init__(self, error: BaseException, topic: str, brokers: Brokers, seconds: float) -> None:
        self._error, self._topic, self._brokers, self._seconds = error, topic, brokers, seconds

    def _raise(self) -> Never:
        raise_unavailable(
            self._error,
            f"the configs of {self._topic}",
            self._brokers,
            self._seconds,
            needs=f"DescribeConfigs on topic {self._topic}",
        )

    def __getitem__(self, name: str) -> str:
        self._raise()

    def __iter__(self) -> Iterator[str]:
        self._raise()

    def __len__(self) -> int:
        self._raise()


def observe_topics(
    brokers: Brokers,
    names: Sequence[str],
    *,
    admin: AdminClient | None = None,
    with_configs: bool = True,
    deadline_seconds: float = ANSWER_SECONDS,
) -> dict[str, ObservedTopic]:
    """Describe those of ``names`` that exist. Creates nothing.

    Args:
        names: The topics.
        admin: An admin client that is open already.
        with_configs: Whether the configs are asked for, which needs the permission ``DescribeConfigs``.
        deadline_seconds: Deadline of each answer.

    Raises:
        BrokersUnavailable: The brokers did not answer.
    """
    client = admin if admin is not None else brokers.admin()
    return dict(_observe(client, brokers, names, deadline_seconds, with_configs=with_configs).topics)


def resolve_pipeline(pipeline: Pipeline, brokers: Brokers, *, deadline_seconds: float = ANSWER_SECONDS) -> Pipeline:
    """Return a pipeline with what stands with the brokers: partition counts and schemas. Creates nothing.

    The partition counts are those of the external topics. The Schema Registry is not asked here.

    Args:
        pipeline: The pipeline. For one without external topics nobody is asked.

    Raises:
        Refused: An external topic does not exist, or topics that are joined have different counts.
        BrokersUnavailable: The brokers did not answer.
    """
    pipeline = pipeline.with_schemas(SchemaRegistry.of(brokers))
    if pipeline.is_resolved:
        return pipeline
    metadata = _list_topics(brokers.admin(), brokers, deadline_seconds)
    return pipeline.resolved(
        {name: len(topic.partitions) for name, topic in metadata.topics.items() if topic.partitions}
    )


def broker_ids(metadata: ClusterMetadata) -> frozenset[int]:
    """Return the ids of all brokers, up or not.

    A broker that is down is not in the metadata, but its replicas are. Without it, topics would be created with too few
    replicas, and topics that have enough would be refused.
    """
    replicas = {
        replica
        for topic in metadata.topics.values()
        for partition in topic.partitions.values()
        for replica in partition.replicas
    }
    return frozenset(metadata.brokers) | replicas


def apply_topics(
    brokers: Brokers,
    pipeline: Pipeline,
    *,
    report: Callable[[str], None] | None = None,
    approve: Callable[[TopicPlan], None] = lambda plan: None,
    deadline_seconds: float = ANSWER_SECONDS,
) -> TopicPlan:
    """Create the topics of a pipeline that do not exist, and wait until all brokers know them with leaders.

    Args:
        report: Is told the plan before anything is created.
        approve: Is given the plan when nothing stands in its way. If it raises, nothing is created.
        deadline_seconds: Deadline of each answer.

    Returns:
        The plan that was applied.

    Raises:
        Refused: A topic differs from its declaration. The error lists every difference, and nothing was created.
        BrokersUnavailable: The brokers did not answer.
    """
    pipeline = resolve_pipeline(pipeline, brokers, deadline_seconds=deadline_seconds)
    specs = pipeline.topics()
    refuse_unfinished_repartition(brokers, pipeline, deadline_seconds=deadline_seconds)
    return apply_specs(brokers, pipeline.name, specs, report=report, approve=approve, deadline_seconds=deadline_seconds)


def refuse_unfinished_repartition(
    brokers: Brokers, pipeline: Pipeline, *, deadline_seconds: float = ANSWER_SECONDS
) -> None:
    """Refuse to create topics while a repartition is under way: their records are in temporary topics.

    Raises:
        Refused: A temporary topic of the pipeline exists.
        BrokersUnavailable: The brokers did not answer.
    """
    names = [temporary_topic(spec).name for spec in pipeline.internal_topics()]
    if temporary := observe_topics(brokers, names, with_configs=False, deadline_seconds=deadline_seconds):
        raise Refused(
            f"the topics of {pipeline.name} are being moved to another number of partitions",
            expected="no move under way",
            observed=f"{', '.join(sorted(temporary))}, which hold records during a move",
            remedy=f"Run {pipeline.name}_repartition: it goes on from where it stopped. Nothing was created.",
        )


def apply_specs(
    brokers: Brokers,
    subject: str,
    specs: Sequence[TopicSpec],
    *,
    report: Callable[[str], None] | None = None,
    approve: Callable[[TopicPlan], None] = lambda plan: None,
    deadline_seconds: float = ANSWER_SECONDS,
) -> TopicPlan:
    """Create topics that do not exist, as :func:`apply_topics` does.

    Args:
        subject: The name of the pipeline, for errors.
        report: Is told the plan before anything is created.
        approve: Is given the plan when nothing stands in its way.
        deadline_seconds: Deadline of each answer.

    Raises:
        Refused: A topic differs from its declaration, or the brokers refuse one.
        StreamplanError: The brokers do not agree on the topics, or did not answer.
    """
    names = [spec.name for spec in specs]
    admin = brokers.admin()
    deadline = time.monotonic() + AGREEMENT_SECONDS
    while True:
        before = _observe(admin, brokers, names, deadline_seconds)
        replication_factor = resolve_replication_factor(len(before.brokers))
        plan = plan_topics(specs, before.topics, replication_factor=replication_factor)
        # A broker may not know yet of a topic that was created a moment ago. The controller does: its topics must be
        # observed and compared before anything is created.
        if plan.differences or not _create(admin, brokers, plan, deadline_seconds, validate_only=True):
            break
        if time.monotonic() > deadline:
            raise StreamplanError(
                f"topics of {subject} exist for the controller and not for the brokers",
                expected=f"the same for all within {AGREEMENT_SECONDS:g} s",
                observed=f"only {', '.join(before.topics) or 'none'} is seen",
                remedy="Look into the brokers' logs. Nothing was created.",
            )
        time.sleep(0.1)
    if report is not None:
        report(format_plan(plan))
    if plan.differences:
        listed = "; ".join(map(str, plan.differences))
        count = len({difference.topic for difference in plan.differences})
        raise Refused(
            f"{count} of the topics of {subject} that exist are not as declared: {listed}",
            remedy=explain_differences(subject, plan.differences, [spec for spec in specs if not spec.owned]),
        )
    approve(plan)
    _create(admin, brokers, plan, deadline_seconds, validate_only=False)
    _await_agreement(admin, brokers, specs, replication_factor, deadline_seconds)
    return plan


def format_plan(plan: TopicPlan) -> str:
    """Return the plan with a line for each topic.

    ``+`` is created, ``=`` agrees and is left alone, ``!`` differs and stands in the way.
    """
    lines = [f"Topics, replication {plan.replication_factor}:"]
    lines += [f"  + {_format_spec(spec, plan.replication_factor)}" for spec in plan.create]
    lines += [f"  = {_format_spec(spec, plan.replication_factor)}" for spec in plan.agree]
    lines += [f"  ! {difference}" for difference in plan.differences]
    if not plan.create and not plan.differences:
        lines.append("  Nothing to create.")
    return "\n".join(lines)


def _format_spec(spec: TopicSpec, replication_factor: int) -> str:
    if not spec.owned:
        return f"{spec.name} ({spec.role}, {spec.partitions} partitions): others own it, and it is not changed"
    configs = ", ".join(f"{name}={value}" for name, value in resolve_configs(spec, replication_factor).items())
    return f"{spec.name} ({spec.role}, {spec.partitions} partitions): {configs}"


def _observe(
    admin: AdminClient, brokers: Brokers, names: Sequence[str], seconds: float, *, with_configs: bool = True
) -> _Snapshot:
    metadata = _list_topics(admin, brokers, seconds)
    existing = {name: metadata.topics[name] for name in names if name in metadata.topics}
    # A topic that is being created may be listed before it can be described.
    existing = {name: topic for name, topic in existing.items() if topic.error is None and topic.partitions}
    configs = (
        _observe_configs(admin, brokers, list(existing), seconds) if with_configs else {name: {} for name in existing}
    )
    return _Snapshot(
        brokers=broker_ids(metadata),
        topics={
            name: ObservedTopic(
                name=name,
                partitions=len(topic.partitions),
                replication_factor=min(len(partition.replicas) for partition in topic.partitions.values()),
                configs=configs[name],
                replicas={number: tuple(partition.replicas) for number, partition in topic.partitions.items()},
                in_sync={number: tuple(partition.isrs) for number, partition in topic.partitions.items()},
                leaders={number: partition.leader for number, partition in topic.partitions.items()},
            )
            for name, topic in existing.items()
            if name in configs
        },
        leaderless=frozenset(
            name for name, topic in existing.items() if any(part.leader < 0 for part in topic.partitions.values())
        ),
    )


def _observe_configs(
    admin: AdminClient, brokers: Brokers, names: Sequence[str], seconds: float
) -> dict[str, Mapping[str, str]]:
    if not names:
        return {}
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    configs: dict[str, Mapping[str, str]] = {}
    for resource, future in admin.describe_configs(resources, request_timeout=seconds).items():
        try:
            entries = future.result(seconds + 1.0)
        except (KafkaException, TimeoutError) as error:
            if error_code(error) == KafkaError.UNKNOWN_TOPIC_OR_PART:
                continue  # deleted, or not yet known to the broker that was asked
            if is_not_permitted(error):
                configs[resource.name] = UnreadableConfigs(error, resource.name, brokers, seconds)
                continue
            raise_unavailable(error, f"the configs of {resource.name}", brokers, seconds)
        configs[resource.name] = {name: entry.value for name, entry in entries.items() if entry.value is not None}
    return configs


def _create(admin: AdminClient, brokers: Brokers, plan: TopicPlan, seconds: float, *, validate_only: bool) -> list[str]:
    """Create what the plan says, or let the brokers validate all of it. Returns the topics that exist already."""
    if not plan.create:
        return []
    new = [
        NewTopic(
            spec.name,
            num_partitions=spec.partitions,
            replication_factor=plan.replication_factor,
            config=resolve_new_configs(spec, plan.replication_factor),
        )
        for spec in plan.create
    ]
    existing: list[str] = []
    refused: list[str] = []
    for name, future in admin.create_topics(new, validate_only=validate_only, request_timeout=seconds).items():
        try:
            future.result(seconds + 1.0)
        except (KafkaException, TimeoutError) as error:
            code = error_code(error)
            if code is None or code in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT):
                raise_unavailable(error, f"the creation of {name}", brokers, seconds)
            if code == KafkaError.TOPIC_ALREADY_EXISTS:
                existing.append(name)
            elif is_not_permitted(error):
                acl = missing_acl(error, brokers, f"Create on topic {name}")
                refused.append(f"{name}: {error.args[0].str()}. {acl}")
            else:
                refused.append(f"{name}: {error.args[0].str()}")
    if refused:
        raise Refused(
            f"the brokers refuse to create {len(refused)} of {len(new)} topics: {'; '.join(refused)}",
            remedy="Nothing was created." if validate_only else "The other topics were created.",
        )
    return existing


def _await_agreement(
    admin: AdminClient, brokers: Brokers, specs: Sequence[TopicSpec], replication_factor: int, seconds: float
) -> None:
    names = [spec.name for spec in specs]
    deadline = time.monotonic() + AGREEMENT_SECONDS
    agreeing = 0
    while True:
        snapshot = _observe(admin, brokers, names, seconds)
        after = plan_topics(specs, snapshot.topics, replication_factor=replication_factor)
        # Another broker may give each answer, and the brokers learn of a topic one after the other.
        agreeing = 0 if after.create or after.differences or snapshot.leaderless else agreeing + 1
        if agreeing > len(snapshot.brokers):
            return
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    waiting = [f"{spec.name} is not there" for spec in after.create]
    waiting += [str(difference) for difference in after.differences]
    waiting += [f"{name} has a partition without a leader" for name in sorted(snapshot.leaderless)]
    raise StreamplanError(
        "the topics after they were created",
        expected=f"as declared, with leaders, within {AGREEMENT_SECONDS:g} s",
        observed="; ".join(waiting),
        remedy="Look into the brokers' logs; running this again creates what is missing.",
    )


def delete_records(
    brokers: Brokers, topic: str, until: Mapping[int, int], *, deadline_seconds: float = ANSWER_SECONDS
) -> None:
    """Delete the records of a topic below an offset of each partition.

    Args:
        until: By partition the offset of the first record that stays.

    Raises:
        BrokersUnavailable: The brokers did not answer.
    """
    admin = brokers.admin()
    offsets = [TopicPartition(topic, partition, offset) for partition, offset in sorted(until.items())]
    for at, future in admin.delete_records(offsets, request_timeout=deadline_seconds).items():
        try:
            future.result(deadline_seconds + 1.0)
        except (KafkaException, TimeoutError) as error:
            raise_unavailable(
                error,
                f"the deletion of records of {topic}-{at.partition} below offset {until[at.partition]}",
                brokers,
                deadline_seconds,
                needs=f"Delete on topic {topic}",
            )


def delete_topics(brokers: Brokers, names: Sequence[str], *, deadline_seconds: float = ANSWER_SECONDS) -> None:
    """Delete those of the topics that exist, and wait until no broker knows them any more.

    Args:
        names: The topics. One that does not exist is no error.
        deadline_seconds: Deadline of each answer.

    Raises:
        BrokersUnavailable: The brokers did not answer.
        StreamplanError: A broker still knows a topic :data:`AGREEMENT_SECONDS` after its deletion.
    """
    if not names:
        return
    admin = brokers.admin()
    for name, future in admin.delete_topics(list(names), request_timeout=deadline_seconds).items():
        try:
            future.result(deadline_seconds + 1.0)
        except (KafkaException, TimeoutError) as error:
            if error_code(error) == KafkaError.UNKNOWN_TOPIC_OR_PART:
                continue
            raise_unavailable(
                error, f"the deletion of {name}", brokers, deadline_seconds, needs=f"Delete on topic {name}"
            )
    deadline = time.monotonic() + AGREEMENT_SECONDS
    answers_without = 0
    while True:
        metadata = _list_topics(admin, brokers, deadline_seconds)
        remaining = sorted(set(names) & metadata.topics.keys())
        # Another broker may give each answer, and the brokers learn of a deletion one after the other.
        answers_without = 0 if remaining else answers_without + 1
        if answers_without > len(broker_ids(metadata)):
            return
        if time.monotonic() > deadline:
            raise StreamplanError(
                f"topic {', '.join(remaining) or ', '.join(names)} after its deletion",
                expected=f"gone for all brokers within {AGREEMENT_SECONDS:g} s",
                observed="still in the metadata of some",
                remedy="Look into the brokers' logs; running this again goes on from here.",
            )
        time.sleep(0.05)


def _list_topics(admin: AdminClient, brokers: Brokers, seconds: float) -> ClusterMetadata:
    """List all topics. A request for one topic by name may create it, where the brokers do that."""
    return call_with_retry(lambda left: admin.list_topics(timeout=left), "its topics", brokers, seconds)
