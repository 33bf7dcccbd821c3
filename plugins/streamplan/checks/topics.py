"""Topics: does each one exist as declared, on all the brokers that should hold it?

Some configs belong to other checks: those with which a repartition topic could lose records to ``repartition``, and
those on which compaction depends to ``compaction``. Partition counts of keyed topics belong to ``copartitioning``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from streamplan.checks import compaction, repartition
from streamplan.checks.framework.advice import Advice
from streamplan.checks.framework.application import Application
from streamplan.checks.framework.check import Check, CheckContext, Observation, at_least, expected_replication
from streamplan.checks.framework.consistent_cut import Deadline, some_of
from streamplan.kafka_port import Cluster
from streamplan.model.topics import ObservedTopic, TopicRole, TopicSpec, resolve_configs, same_value

REPLICA_DEADLINE = Deadline(seconds=5.0, interval=0.5)
"""A replica may fall behind for a moment, and a leader may be elected. What is wrong is wrong at every look."""

NAMED_PARTITIONS = 20
"""At most this many partitions of a topic get a row each for the same fault. The others are counted."""

INTERNAL = (TopicRole.REPARTITION, TopicRole.CHANGELOG)

INTERNAL_CONFIGS: Mapping[str, str] = {"message.timestamp.type": "CreateTime"}
"""The configs that any internal topic must have (``InternalTopicConfig.INTERNAL_TOPIC_DEFAULT_OVERRIDES``)."""


class _Fault(StrEnum):
    MISSING = "missing"
    LEADERLESS = "leaderless"
    UNDER_REPLICATED = "under-replicated"


@dataclass(frozen=True, order=True)
class _Suspect:
    """What was seen wrong at one look. The ``partition`` of a missing topic is -1."""

    topic: str
    partition: int
    fault: _Fault


@dataclass(frozen=True)
class TopicsCheck(Check):
    """Looks at every topic of the application by itself."""

    name = "topics"
    title = "Topics as declared"
    healthy = (
        "Every topic exists with the declared partitions, replicas and configs, and every partition has a leader and"
        " all of its replicas in sync."
    )
    advice = Advice.TOPICS

    verified_topics: Mapping[str, str] = field(default_factory=dict)
    deadline: Deadline = REPLICA_DEADLINE

    def configure(self, context: CheckContext) -> Check:
        """Take the topics of the verified cuts, and who is told of the wait."""
        return replace(self, verified_topics=context.verified_topics, deadline=self.deadline.reporting(context.report))

    def observe(self, application: Application, cluster: Cluster) -> Iterable[Observation]:
        """Observe the existence, the settings and the replicas of topics; see :class:`Check`."""
        observed, faults = _settled(cluster, [spec.name for spec in application.topics], self.deadline)
        replicas = expected_replication(application, cluster)
        for spec in application.topics:
            missing = _Suspect(spec.name, -1, _Fault.MISSING) in faults
            advice = Advice.MISSING_INTERNAL if spec.role in INTERNAL else Advice.MISSING_OF_OTHERS
            if application.declared and spec.owned:
                advice = Advice.MISSING_OWN
            where = ("deploying the pipeline creates it" if spec.owned else "its owner creates it") if missing else ""
            where = where if application.declared else ""
            yield Observation(f"topic {spec.name}", "exists", "missing" if missing else "exists", where, advice=advice)
            if spec.name in observed:
                topic = observed[spec.name]
                yield from _declared(application, spec, topic, replicas)
                yield from _partitions(topic, [suspect for suspect in faults if suspect.topic == spec.name])
        yield from self._deleted(application, cluster)

    def _deleted(self, application: Application, cluster: Cluster) -> Iterable[Observation]:
        """Observe topics that were there once. The positions in a deleted topic are gone: nothing else tells it."""
        before = [name for name in self.verified_topics if name not in {spec.name for spec in application.topics}]
        existing = cluster.topics(before) if before else {}
        for name in sorted({*before} - existing.keys()):
            remedy = f"{self.verified_topics[name]} has it; remove that file where the application reads it no more"
            yield Observation(f"topic {name}", "exists", "missing", remedy)


def _declared(
    application: Application, spec: TopicSpec, topic: ObservedTopic, replicas: int | None
) -> Iterable[Observation]:
    """Yield what was declared of a topic, or holds for any application, if no other check looks at it.

    The settings of an external topic are what its owner chose. Those of a sink are what its readers chose, but for its
    partition count, by which records are placed.
    """
    if not spec.owned:
        return
    if application.declared and spec.partitions and spec not in application.keyed:
        yield Observation(f"{spec.name}: partitions", spec.partitions, topic.partitions)
    if spec.role is TopicRole.SINK:
        return
    if replicas is not None and spec.role is not TopicRole.REPARTITION:
        subject = f"{spec.name}: replication factor"
        if application.declared:
            yield Observation(subject, replicas, topic.replication_factor, advice=Advice.REPLICAS)
        elif spec.role in INTERNAL:
            yield at_least(subject, topic.replication_factor, replicas)
    for config, expected in _configs(application, spec, replicas).items():
        value = topic.configs.get(config, "not set")
        agrees = same_value(value, expected)
        yield Observation(f"{spec.name}: {config}", expected, expected if agrees else value)


def _configs(application: Application, spec: TopicSpec, replicas: int | None) -> Mapping[str, str]:
    if not application.declared:
        return INTERNAL_CONFIGS if spec.role in INTERNAL else {}
    other_checks: frozenset[str] = frozenset()
    if spec.role is TopicRole.REPARTITION:
        other_checks = repartition.CONFIGS
    elif compaction.is_compacted(spec):
        other_checks = compaction.CONFIGS
    declared = resolve_configs(spec, replicas) if replicas is not None else spec.configs
    return {config: value for config, value in declared.items() if config not in other_checks}


def _partitions(topic: ObservedTopic, faults: Sequence[_Suspect]) -> Iterable[Observation]:
    leaderless = [suspect.partition for suspect in faults if suspect.fault is _Fault.LEADERLESS]
    behind = [suspect.partition for suspect in faults if suspect.fault is _Fault.UNDER_REPLICATED]
    led, replicated = topic.partitions - len(leaderless), topic.partitions - len(behind)
    yield Observation(f"{topic.name}: partitions with a leader", topic.partitions, led, advice=Advice.NO_LEADER)
    for partition in leaderless[:NAMED_PARTITIONS]:
        held = f"held by {_listed(topic.replicas[partition])}"
        yield Observation(f"{topic.name}-{partition}: leader", "a broker", "none", held, advice=Advice.NO_LEADER)
    subject = f"{topic.name}: fully replicated partitions"
    yield Observation(subject, topic.partitions, replicated, advice=Advice.UNDER_REPLICATED)
    for partition in behind[:NAMED_PARTITIONS]:
        missing = sorted(_behind(topic, partition))
        replicas, in_sync = topic.replicas[partition], topic.in_sync[partition]
        where = f"missing: {_listed(missing)}"
        subject = f"{topic.name}-{partition}: in sync"
        yield Observation(subject, _listed(replicas), _listed(in_sync), where, advice=Advice.UNDER_REPLICATED)


def _listed(brokers: Sequence[int]) -> str:
    ids = ", ".join(map(str, sorted(brokers)))
    return f"broker{'s' * (len(brokers) > 1)} {ids}" if ids else "none"


def _behind(topic: ObservedTopic, partition: int) -> set[int]:
    return set(topic.replicas[partition]) - set(topic.in_sync[partition])


def _settled(
    cluster: Cluster, names: Sequence[str], deadline: Deadline
) -> tuple[Mapping[str, ObservedTopic], Sequence[_Suspect]]:
    """Return the topics, and what was wrong with their partitions at every look until the deadline."""
    observed = cluster.topics(names)
    faults = set(_suspects(observed, names))
    if faults:
        wrong = some_of(sorted({suspect.topic for suspect in faults}))
        for _ in deadline.waits(f"{wrong} exist, with a leader and all replicas of each partition"):
            observed = cluster.topics(names)
            faults &= set(_suspects(observed, names))
            if not faults:
                break
    return observed, sorted(faults)


def _suspects(observed: Mapping[str, ObservedTopic], names: Sequence[str]) -> Iterable[_Suspect]:
    for name in names:
        topic = observed.get(name)
        if topic is None:
            yield _Suspect(name, -1, _Fault.MISSING)
            continue
        for partition in topic.replicas:
            if topic.leaders[partition] < 0:
                yield _Suspect(name, partition, _Fault.LEADERLESS)
            if _behind(topic, partition):
                yield _Suspect(name, partition, _Fault.UNDER_REPLICATED)


CHECK = TopicsCheck()
