"""Finds any Kafka Streams application from what it left in Kafka: its consumer group and its internal topics.

Internal topics are named ``<application.id>-…-changelog`` and so on (``InternalTopologyBuilder.decorateTopic``,
``ProcessorStateManager.storeChangelogTopic``; ``StreamsResetter.matchesInternalTopicFormat`` has the list).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TypeVar

from streamplan.checks.discovery.changelogs import PLAIN, StoredKeys, resolve_stored_keys
from streamplan.checks.discovery.counts import CountOf, resolve_aggregation
from streamplan.checks.discovery.subtopologies import (
    CHANGELOG,
    INTERNAL,
    TopicsInKafka,
    listed,
    structure_by_description,
    structure_by_names,
)
from streamplan.checks.framework.application import Application, Partitioner
from streamplan.errors import CouldNotLook, Refused
from streamplan.kafka_port import Cluster
from streamplan.model.description import parse_subtopologies
from streamplan.model.partitioner import partition_for_key
from streamplan.model.pipeline import Limits
from streamplan.model.topics import TopicSpec

_SUGGESTIONS = 5
"""At most this many names are suggested for one that does not exist."""

_Declared = TypeVar("_Declared")


def discover(
    cluster: Cluster,
    application_id: str,
    *,
    sources: Sequence[str] = (),
    topology: str | None = None,
    counts: Sequence[CountOf] = (),
    partitioners: Mapping[str, Partitioner] | None = None,
    key_types: Mapping[str, str] | None = None,
    limits: Limits | None = None,
    others: Sequence[str] = (),
    unjudged_stores: Sequence[str] = (),
) -> Application:
    """Find an application with its topics as they are now.

    Args:
        cluster: Where to look.
        sources: Topics that it reads, besides those in which its consumer group has positions.
        topology: The text of ``Topology.describe()``. It says which topics belong together.
        counts: The counts whose totals are to be checked.
        partitioners: The partitioners of topics whose keys murmur2 does not place.
        key_types: The types by which keys of topics are shown: ``"int"``, ``"long"`` or ``"string"``. A changelog has
            the partitioner and the key type of the topics from which its store is made.
        limits: The bounds of the checks.
        others: Other applications that may have no consumer group yet. Their topics are not taken for its own.
        unjudged_stores: The stores whose keys are not those of the records that are read, or whose logging is off.

    Raises:
        CouldNotLook: There is no such application.
        Refused: An argument does not fit the application.
    """
    names = cluster.names()
    # Before its first commit an application has no positions. A topic that is counted is read.
    read = [*sources, *(count.source for count in counts if count.source in names)]
    deleted = [count.source for count in counts if count.source not in names]
    topics = _topics_of(cluster, application_id, names, list(dict.fromkeys(read)), others, deleted)
    if topology is None:
        missing = [f"{application_id}-{count.store}{CHANGELOG}" for count in counts if count.store is not None]
        if not topics.changelogs:  # else the name may be mistaken
            topics = replace(topics, internal=[*topics.internal, *(name for name in missing if name not in names)])
        structure = structure_by_names(topics)
    else:
        structure = structure_by_description(topics, parse_subtopologies(topology), unjudged_stores)
    declared = {f"{application_id}-{store}{CHANGELOG}": store for store in unjudged_stores}
    if wrong := [store for name, store in declared.items() if name not in {*structure.roles, *structure.unlogged}]:
        stores = [name.removeprefix(f"{application_id}-").removesuffix(CHANGELOG) for name in topics.changelogs]
        raise Refused(
            f"store {', '.join(wrong)}",
            expected=f"one of {application_id}: {' or '.join(stores) or 'none is known'}",
        )
    placing: dict[str, Partitioner] = {
        topic: _UserPartitioner(topic, partitioner) for topic, partitioner in (partitioners or {}).items()
    }
    types = dict(key_types or {})
    if unknown := {*placing, *types} - structure.roles.keys():
        raise Refused(
            f"topic {', '.join(sorted(unknown))}",
            expected=f"one of {application_id}: {' or '.join(structure.roles)}",
        )
    suffixes: dict[str, int] = {}
    unjudged: dict[str, str] = {}
    unreadable: list[str] = []
    for subtopology in structure.subtopologies:
        for changelog in subtopology.changelogs:
            _inherit(placing, changelog, subtopology.sources)
            _inherit(types, changelog, subtopology.sources)
            partitioner = placing.get(changelog, partition_for_key)
            stored = StoredKeys(PLAIN)
            inputs = [topic for topic in subtopology.sources or topics.read if topic in topics.counts]
            if changelog in declared:
                unjudged[changelog] = "--unjudged-store says that its keys are not those of the records that are read"
            elif not topics.leaderless.isdisjoint([changelog, *inputs]):
                unreadable.append(changelog)
            elif changelog in topics.counts:
                stored = resolve_stored_keys(cluster, changelog, topics.counts[changelog], partitioner, inputs)
            suffixes[changelog] = stored.schema.suffix
            if stored.schema.part:
                placing[changelog] = stored.schema.partitioner(partitioner)
            if stored.unjudged:
                unjudged[changelog] = f"{stored.unjudged}. Say so with --unjudged-store"
    if unreadable:
        structure.notes.append(
            f"The form of their keys is not known, because a partition has no leader: {listed(unreadable)}"
        )
    return Application(
        name=application_id,
        application_id=application_id,
        topics=tuple(
            TopicSpec(
                name,
                role,
                structure.expected.get(name, topics.counts.get(name, 0)),
                configs={},
                window_bytes=suffixes.get(name, 0),
                key_type=types.get(name, "string"),
            )
            for name, role in structure.roles.items()
        ),
        subtopologies=structure.subtopologies,
        groups=structure.groups,
        aggregations=tuple(
            resolve_aggregation(count, application_id, structure.subtopologies, structure.roles, types)
            for count in counts
        ),
        declared=False,
        limits=limits or Limits(),
        partitioners=placing,
        notes=tuple(structure.notes),
        unjudged=unjudged,
        null_keys=structure.null_keys,
    )


@dataclass(frozen=True)
class _UserPartitioner:
    """A user's partitioner, which may not understand every key."""

    topic: str
    partitioner: Partitioner

    def __call__(self, key: bytes, partitions: int) -> int:
        try:
            return self.partitioner(key, partitions)
        except Exception as error:  # it can be anything
            raise CouldNotLook(
                f"the partitioner of {self.topic}",
                expected=f"a partition for the key {key!r}",
                observed=f"{type(error).__name__}: {error}",
            ) from error


def _inherit(declared: dict[str, _Declared], changelog: str, sources: Iterable[str]) -> None:
    for topic in sources:
        if topic in declared:
            declared.setdefault(changelog, declared[topic])


def own_topics(application_id: str, names: Iterable[str], groups: Iterable[str], read: Iterable[str] = ()) -> list[str]:
    """Return the internal topics of an application.

    A topic whose name begins with a longer application id belongs to that application: ``my-app`` has no topic of
    ``my-app-v1``. But a group of such a name is no application if this application reads every repartition topic that
    would belong to it.

    Args:
        names: The names of all topics.
        groups: The ids of all consumer groups.
        read: The topics in which the application's group has positions.
    """
    internal = [name for name in names if _is_internal(application_id, name)]
    known, others = set(read), []
    for group in groups:
        if group.startswith(f"{application_id}-"):
            theirs = {name for name in internal if _is_internal(group, name) and not name.endswith(CHANGELOG)}
            if not theirs or theirs - known:
                others.append(group)
    return sorted(name for name in internal if name in known or not any(_is_internal(other, name) for other in others))


def _is_internal(application_id: str, topic: str) -> bool:
    prefix = f"{application_id}-"
    return topic.startswith(prefix) and INTERNAL.fullmatch(topic[len(prefix) :]) is not None


def _topics_of(
    cluster: Cluster,
    application_id: str,
    names: Sequence[str],
    declared: Sequence[str],
    others: Sequence[str],
    deleted: Sequence[str],
) -> TopicsInKafka:
    """Find the topics of an application.

    ``declared`` are those that the user said it reads. Those in ``deleted`` do not exist: where no topic is known that
    it reads from outside, they were deleted, and the positions with them. Else their names are taken for mistakes.
    """
    groups, positions = cluster.groups(), cluster.committed_offsets(application_id)
    own = own_topics(application_id, names, [*groups, *others], positions)
    internal = [name for name in own if name not in declared]  # one from outside may be named like an internal one
    if internal and not declared and not set(positions) - set(internal):
        declared = deleted
    if application_id not in groups and not positions and not internal:
        raise CouldNotLook(
            f"application {application_id}",
            expected="a consumer group of that name, or topics whose names begin with it",
            observed="neither",
            remedy=_suggestion(application_id, groups),
        )
    if not (positions or internal or declared):
        raise CouldNotLook(
            f"application {application_id}",
            expected="positions in the topics that it reads, or internal topics",
            observed="a consumer group without either",
            remedy="Name a topic that the application reads: --source TOPIC.",
        )
    topics = cluster.topics([*internal, *declared, *positions])
    counts = {name: topic.partitions for name, topic in topics.items()}
    leaderless = frozenset(name for name, topic in topics.items() if min(topic.leaders.values(), default=0) < 0)
    return TopicsInKafka(application_id, names, sorted(positions), declared, internal, counts, leaderless)


def _suggestion(application_id: str, groups: Sequence[str]) -> str:
    if not groups:
        return "There is no consumer group at all."
    if similar := get_close_matches(application_id, groups, _SUGGESTIONS):
        return f"Is it {' or '.join(similar)}?"
    return f"Consumer groups here: {listed(sorted(groups))}."
