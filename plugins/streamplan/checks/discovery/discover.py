"""Any Kafka Streams application, from what it left in Kafka: its consumer group and its internal topics.

Internal topics are named ``<application.id>-…-changelog`` and so on (``InternalTopologyBuilder.decorateTopic``,
``ProcessorStateManager.storeChangelogTopic``; ``StreamsResetter.matchesInternalTopicFormat`` has the list). Which of
them one sub-topology reads and writes is written nowhere but in ``Topology.describe()``. Without that text they are
paired by their names, as far as these tell.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TypeVar

from streamplan.checks.discovery.changelogs import resolve_key_schema
from streamplan.checks.discovery.counts import CountOf, resolve_aggregation
from streamplan.checks.framework.application import Application, Partitioner, SubtopologyTopics
from streamplan.checks.framework.cluster import Cluster
from streamplan.errors import CouldNotLook, Refused
from streamplan.model.description import DescribedSubtopology, parse_description, topics_of
from streamplan.model.partitioner import partition_for_key
from streamplan.model.pipeline import Limits
from streamplan.model.topics import TopicRole, TopicSpec

_CHANGELOG, _REPARTITION, _REGISTRATION = "-changelog", "-repartition", "-subscription-registration-topic"
_INTERNAL = re.compile(
    r".+(-changelog|-repartition|-subscription-(registration|response)-topic)"
    r"|KTABLE-FK-JOIN-SUBSCRIPTION-(REGISTRATION|RESPONSE)-\d+-topic"
)
_NEAR = 5

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
) -> Application:
    """The application, its topics as they are now.

    ``sources``       topics it reads besides those in which its group has positions
    ``topology``      the text of ``Topology.describe()``, which tells everything
    ``counts``        of which the totals are to be checked
    ``partitioners``  of topics whose keys are not placed by murmur2
    ``key_types``     of topics, by which keys are shown: ``"int"``, ``"long"`` or ``"string"``. A changelog has the
                      partitioner and the key type of the topics that its store is made of

    Raises :class:`CouldNotLook` where there is no such application, and :class:`Refused` for what does not fit it.
    """
    names = cluster.names()
    # Before its first commit an application has positions nowhere; a topic that is counted is read.
    told = [*sources, *(count.source for count in counts if count.source in names)]
    found = _Found.of(cluster, application_id, names, list(dict.fromkeys(told)))
    parts = _by_names(found) if topology is None else _by_description(found, parse_description(topology))
    places: dict[str, Partitioner] = {topic: _Given(topic, given) for topic, given in (partitioners or {}).items()}
    types = dict(key_types or {})
    if strangers := {*places, *types} - parts.roles.keys():
        raise Refused(
            f"topic {', '.join(sorted(strangers))}",
            expected=f"one of {application_id}: {' or '.join(parts.roles)}",
        )
    suffixes: dict[str, int] = {}
    for subtopology in parts.subtopologies:
        for changelog in subtopology.changelogs:
            _inherit(places, changelog, subtopology.sources)
            _inherit(types, changelog, subtopology.sources)
            partitioner = places.get(changelog, partition_for_key)
            form = resolve_key_schema(cluster, changelog, len(cluster.offsets(changelog)), partitioner)
            suffixes[changelog] = form.suffix
            if form.part:
                places[changelog] = form.partitioner(partitioner)
    return Application(
        name=application_id,
        application_id=application_id,
        topics=tuple(
            TopicSpec(
                name,
                role,
                parts.expected.get(name, found.counts.get(name, 0)),
                configs={},
                window_bytes=suffixes.get(name, 0),
                key_type=types.get(name, "string"),
            )
            for name, role in parts.roles.items()
        ),
        subtopologies=parts.subtopologies,
        groups=parts.groups,
        aggregations=tuple(
            resolve_aggregation(count, application_id, parts.subtopologies, parts.roles, types) for count in counts
        ),
        declared=False,
        limits=limits or Limits(),
        partitioners=places,
        notes=tuple(parts.notes),
    )


@dataclass(frozen=True)
class _Given:
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
    """The internal topics of the application, of all ``names``; ``read``: those in which its group has positions.

    One that begins with a longer application id belongs to that one: ``my-app`` has none of ``my-app-v1``'s. A group of
    such a name is no application, though, where this one reads every repartition topic that would be its own.
    """
    internal = [name for name in names if _is_internal(application_id, name)]
    own, others = set(read), []
    for group in groups:
        if group.startswith(f"{application_id}-"):
            theirs = {name for name in internal if _is_internal(group, name) and not name.endswith(_CHANGELOG)}
            if not theirs or theirs - own:
                others.append(group)
    return sorted(name for name in internal if name in own or not any(_is_internal(other, name) for other in others))


def _is_internal(application_id: str, topic: str) -> bool:
    prefix = f"{application_id}-"
    return topic.startswith(prefix) and _INTERNAL.fullmatch(topic[len(prefix) :]) is not None


@dataclass(frozen=True)
class _Found:
    """``positions``: topics in which the group has some. ``given``: as read. ``own``: internal topics."""

    application_id: str
    names: Sequence[str]
    positions: Sequence[str]
    given: Sequence[str]
    own: Sequence[str]
    counts: Mapping[str, int]

    @classmethod
    def of(cls, cluster: Cluster, application_id: str, names: Sequence[str], given: Sequence[str]) -> _Found:
        groups, positions = cluster.groups(), cluster.committed_offsets(application_id)
        # A topic from outside may be named like an internal one.
        own = [name for name in own_topics(application_id, names, groups, positions) if name not in given]
        if application_id not in groups and not positions and not own:
            raise CouldNotLook(
                f"application {application_id}",
                expected="a consumer group of that name, or topics whose names begin with it",
                observed="neither",
                remedy=_near(application_id, groups),
            )
        if not (positions or own or given):
            raise CouldNotLook(
                f"application {application_id}",
                expected="positions in the topics that it reads, or internal topics",
                observed="a consumer group without either",
                remedy="Name a topic that it reads.",
            )
        counts = {name: topic.partitions for name, topic in cluster.topics([*own, *given, *positions]).items()}
        return cls(application_id, names, sorted(positions), given, own, counts)

    @property
    def repartition(self) -> list[str]:
        return [name for name in self.own if not name.endswith(_CHANGELOG)]

    @property
    def changelogs(self) -> list[str]:
        return [name for name in self.own if name.endswith(_CHANGELOG)]

    @property
    def read(self) -> list[str]:
        """Those from outside first."""
        outside = dict.fromkeys([*self.given, *self.positions])
        return [*(name for name in outside if name not in self.own), *self.repartition]

    def greatest(self, topics: Iterable[str]) -> int:
        return max((self.counts.get(topic, 0) for topic in topics), default=0)


def _near(application_id: str, groups: Sequence[str]) -> str:
    if not groups:
        return "There is no consumer group at all."
    if near := get_close_matches(application_id, groups, _NEAR):
        return f"Is it {' or '.join(near)}?"
    return f"Consumer groups here: {_listed(sorted(groups))}."


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NEAR} more" if len(names) > _NEAR else ""
    return f"{', '.join(names[:_NEAR])}{more}"


@dataclass
class _Parts:
    """``roles``: of every topic. ``expected``: partition counts, where they need not be those observed."""

    roles: dict[str, TopicRole]
    subtopologies: tuple[SubtopologyTopics, ...] = ()
    groups: tuple[frozenset[str], ...] = ()
    expected: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def _by_names(found: _Found) -> _Parts:
    """Each topic that is read has tasks of its own, and those changelogs that must be theirs.

    A changelog has as many partitions as its sub-topology has tasks, which is the greatest count of the topics that it
    reads (``ChangelogTopics.setup``): where the sub-topology is not known, that of one of the topics read.
    """
    pairs, read = _pairs(found), found.read
    parts = _Parts(
        dict.fromkeys(read, TopicRole.SOURCE)
        | dict.fromkeys(found.repartition, TopicRole.REPARTITION)
        | dict.fromkeys(found.changelogs, TopicRole.CHANGELOG)
    )
    tasks = [
        SubtopologyTopics(
            f"tasks that read {topic}", (topic,), tuple(changelog for changelog in pairs if pairs[changelog] == topic)
        )
        for topic in read
    ]
    parts.expected = {changelog: found.greatest([topic]) for changelog, topic in pairs.items()}
    if left := tuple(changelog for changelog in found.changelogs if changelog not in pairs):
        tasks.append(SubtopologyTopics(f"tasks that read {' or '.join(read) or 'what is not known'}", (), left))
        counts = [found.counts[topic] for topic in read if topic in found.counts]
        for changelog in left:
            if counts and found.counts[changelog] not in counts:
                parts.expected[changelog] = Counter(counts).most_common(1)[0][0]
        parts.notes.append(
            f"Not known of which topics the stores behind {_listed(left)} are made: such a changelog passes with the"
            " partition count of any topic that is read. The text of Topology.describe() would tell."
        )
    if not found.positions and not found.given:
        parts.notes.append(f"The group {found.application_id} has no positions: name the topics that it reads.")
    parts.subtopologies = tuple(tasks)
    return parts


def _pairs(found: _Found) -> dict[str, str]:
    """By changelog the topic of whose records its store is made, where that is clear.

    It is where only one topic is read; where a store has the name of a repartition topic, as it has unless both were
    given names; where one of each is left, unless the counts say that they are strangers.
    """
    if len(found.read) == 1:
        return dict.fromkeys(found.changelogs, found.read[0])
    by_base = {_base(topic): topic for topic in found.repartition}
    pairs = {name: by_base[_base(name)] for name in found.changelogs if _base(name) in by_base}
    changelogs = [name for name in found.changelogs if name not in pairs]
    topics = [name for name in found.repartition if name not in pairs.values()]
    if len(changelogs) == len(topics) == 1:
        ((changelog,), (topic,)) = changelogs, topics
        others = {found.counts[name] for name in found.read if name != topic and name in found.counts}
        if found.counts[changelog] == found.counts[topic] or found.counts[changelog] not in others:
            pairs[changelog] = topic
    return pairs


def _base(topic: str) -> str:
    """What a repartition topic and a changelog have in common."""
    if topic.endswith(_REGISTRATION):
        return f"{topic.removesuffix(_REGISTRATION)}-subscription-store"
    return topic.removesuffix(_REPARTITION).removesuffix(_CHANGELOG)


def _by_description(found: _Found, subtopologies: Sequence[DescribedSubtopology]) -> _Parts:
    """As the topology is. What it does not name is no part of it."""
    names = _InKafka(found, subtopologies)
    parts = _Parts({})
    tasks, groups, without = [], list[frozenset[str]](), list[str]()
    for one in subtopologies:
        read = {source.name: [names.of(topic) for topic in topics_of(source, found.names)] for source in one.sources}
        sources = tuple(dict.fromkeys(topic for topics in read.values() for topic in topics))
        stores = {store: f"{found.application_id}-{store}{_CHANGELOG}" for store in one.store_names}
        changelogs = tuple(topic for topic in stores.values() if topic in found.names)
        without += [store for store, topic in stores.items() if topic not in found.names]
        tasks.append(
            SubtopologyTopics(f"sub-topology {one.id}", sources, changelogs, tuple(map(names.of, one.sinks)), one.id)
        )
        groups += [frozenset(topic for name in group for topic in read[name]) for group in one.joined]
        parts.expected |= dict.fromkeys(changelogs, found.greatest(sources))
        for topic in sources:
            parts.roles[topic] = TopicRole.REPARTITION if topic in names.internal else TopicRole.SOURCE
        parts.roles |= dict.fromkeys(changelogs, TopicRole.CHANGELOG)
    for topic in (topic for one in tasks for topic in one.outputs):
        parts.roles.setdefault(topic, TopicRole.SINK)
    parts.subtopologies, parts.groups = tuple(tasks), tuple(group for group in groups if len(group) > 1)
    if without:
        parts.notes.append(f"No changelog of {_listed(without)}: its logging is off, or a topic that is read serves.")
    if others := sorted({*found.own, *found.positions, *found.given} - parts.roles.keys()):
        parts.notes.append(f"Not in the given topology and left out: {_listed(others)}. Is it that of this version?")
    return parts


class _InKafka:
    """Names of a description as they are in Kafka. What it writes and reads again, named so, is internal."""

    def __init__(self, found: _Found, subtopologies: Sequence[DescribedSubtopology]) -> None:
        read = {topic for one in subtopologies for source in one.sources for topic in source.topics}
        internal = [
            topic for one in subtopologies for topic in one.sinks if topic in read and _INTERNAL.fullmatch(topic)
        ]
        decorated = {topic: f"{found.application_id}-{topic}" for topic in internal}
        self._names = {
            topic: name for topic, name in decorated.items() if name in found.names or topic not in found.names
        }
        self.internal = frozenset(self._names.values())

    def of(self, topic: str) -> str:
        return self._names.get(topic, topic)
