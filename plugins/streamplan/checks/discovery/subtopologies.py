"""How the topics of a discovered application belong to its sub-topologies.

``Topology.describe()`` alone says which topics one sub-topology reads and writes. Without that text, topics are paired
by their names, as far as names tell.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from streamplan.checks.framework.application import SubtopologyTopics
from streamplan.model.description import DescribedSubtopology, topics_of
from streamplan.model.topics import TopicRole

CHANGELOG, REPARTITION, REGISTRATION = "-changelog", "-repartition", "-subscription-registration-topic"

INTERNAL = re.compile(
    r".+(-changelog|-repartition|-subscription-(registration|response)-topic)"
    r"|KTABLE-FK-JOIN-SUBSCRIPTION-(REGISTRATION|RESPONSE)-\d+-topic"
)
"""The names of internal topics, without the application id (``StreamsResetter.matchesInternalTopicFormat``)."""

_WAITING = re.compile(r"(-shared-join|-KSTREAM-OUTERSHARED-\d+)-store-changelog$")
"""The changelog of the records of a left or outer join of two streams that wait for a match."""

_WITHOUT_A_TABLE = 2
"""An application that reads a topic and a repartition topic, and no other, joins no table."""

_PERHAPS_JOINED = (
    "Kafka Streams writes such records before a left or outer join alone. Give the text of Topology.describe() (option"
    " --topology): it tells whether one follows"
)
_NAMED_JOIN = (
    "Kafka Streams writes such records before a left or outer join alone. The processor {} may be one: its name does"
    " not tell"
)

_LEFT_JOIN = re.compile(r"KSTREAM-(LEFTJOIN|OUTERTHIS|OUTEROTHER)-\d{10}|.+-outer-(this|other)-join")
_GENERATED = re.compile(r"(KSTREAM|KTABLE|COGROUPKSTREAM)-[A-Z-]+-\d{10}|.+-(this|other)-join")
"""Processors with a name that Kafka Streams generated (``KStreamImpl``, ``KStreamImplJoin``)."""

_LISTED_NAMES = 5
"""At most this many names are listed in one sentence."""


@dataclass(frozen=True)
class TopicsInKafka:
    """The topics of an application, as Kafka has them.

    Attributes:
        application_id: The ``application.id``.
        names: The names of all topics, also of others.
        positions: The topics in which the consumer group has positions.
        declared: The topics that the user said the application reads.
        internal: The internal topics of the application.
        counts: The number of partitions of each of these topics that exists.
        leaderless: Those of which a partition has no leader.
    """

    application_id: str
    names: Sequence[str]
    positions: Sequence[str]
    declared: Sequence[str]
    internal: Sequence[str]
    counts: Mapping[str, int]
    leaderless: frozenset[str] = frozenset()

    @property
    def repartition(self) -> list[str]:
        """The internal topics that are read."""
        return [name for name in self.internal if not name.endswith(CHANGELOG)]

    @property
    def changelogs(self) -> list[str]:
        """The changelogs."""
        return [name for name in self.internal if name.endswith(CHANGELOG)]

    @property
    def read(self) -> list[str]:
        """All topics that are read, those from outside first."""
        outside = dict.fromkeys([*self.declared, *self.positions])
        return [*(name for name in outside if name not in self.internal), *self.repartition]

    def greatest_count(self, topics: Iterable[str]) -> int:
        """Return the greatest number of partitions of these topics; 0 without any."""
        return max((self.counts.get(topic, 0) for topic in topics), default=0)


@dataclass
class Structure:
    """How topics belong together.

    Attributes:
        roles: The role of every topic of the application.
        subtopologies: The topics of each sub-topology.
        groups: Sets of topics that are joined with each other.
        expected: The expected number of partitions of topics for which it may differ from what Kafka has.
        notes: What could not be found out, for people.
        null_keys: The internal topics that may have records without a key (``Application.null_keys``).
        unlogged: The changelogs that the stores would have whose logging was declared to be off.
    """

    roles: dict[str, TopicRole]
    subtopologies: tuple[SubtopologyTopics, ...] = ()
    groups: tuple[frozenset[str], ...] = ()
    expected: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    null_keys: dict[str, str] = field(default_factory=dict)
    unlogged: set[str] = field(default_factory=set)


def listed(names: Sequence[str]) -> str:
    """Return the first of some names and how many more there are."""
    more = f" and {len(names) - _LISTED_NAMES} more" if len(names) > _LISTED_NAMES else ""
    return f"{', '.join(names[:_LISTED_NAMES])}{more}"


# -- by names


def structure_by_names(topics: TopicsInKafka) -> Structure:
    """Pair topics by their names: each topic that is read has its own tasks, with the changelogs that must be theirs.

    A changelog has as many partitions as its sub-topology has tasks, which is the greatest count of the topics that the
    sub-topology reads (``ChangelogTopics.setup``). Where the sub-topology is not known, it is the count of one of the
    topics that are read.
    """
    pairs, read = _pairs(topics), topics.read
    structure = Structure(
        dict.fromkeys(read, TopicRole.SOURCE)
        | dict.fromkeys(topics.repartition, TopicRole.REPARTITION)
        | dict.fromkeys(topics.changelogs, TopicRole.CHANGELOG)
    )
    subtopologies = [
        SubtopologyTopics(
            f"tasks that read {topic}", (topic,), tuple(changelog for changelog in pairs if pairs[changelog] == topic)
        )
        for topic in read
    ]
    structure.expected = {changelog: topics.greatest_count([topic]) for changelog, topic in pairs.items()}
    if unpaired := tuple(changelog for changelog in topics.changelogs if changelog not in pairs):
        name = f"tasks that read {' or '.join(read) or 'unknown topics'}"
        subtopologies.append(SubtopologyTopics(name, (), unpaired))
        counts = [topics.counts[topic] for topic in read if topic in topics.counts]
        for changelog in unpaired:
            if counts and topics.counts.get(changelog) not in counts:
                structure.expected[changelog] = Counter(counts).most_common(1)[0][0]
        structure.notes.append(
            f"It is not known from which topics the stores of these changelogs are made: {listed(unpaired)}. Such a"
            " changelog passes with the partition count of any topic that the application reads. Give the text of"
            " Topology.describe() (option --topology) for an exact check."
        )
    if not topics.positions and not topics.declared:
        structure.notes.append(
            f"The group {topics.application_id} has no positions. Name the topics that the application reads: --source."
        )
    structure.subtopologies = tuple(subtopologies)
    is_joined = any(_WAITING.search(name) for name in topics.changelogs)
    for topic in topics.repartition:
        if topic.endswith(REGISTRATION):
            structure.null_keys[topic] = ""
        elif is_joined or len(topics.read) > _WITHOUT_A_TABLE:
            structure.null_keys[topic] = _PERHAPS_JOINED
    return structure


def _pairs(topics: TopicsInKafka) -> dict[str, str]:
    """Return, by changelog, the topic from whose records its store is made, where that is clear.

    It is clear where only one topic is read. It is clear where a store has the name of a repartition topic, as it has
    unless both were given names. It is clear where one changelog and one repartition topic are left, unless their
    numbers of partitions say that they do not belong together.
    """
    if len(topics.read) == 1:
        return dict.fromkeys(topics.changelogs, topics.read[0])
    by_base = {_base(topic): topic for topic in topics.repartition}
    pairs = {name: by_base[_base(name)] for name in topics.changelogs if _base(name) in by_base}
    changelogs = [name for name in topics.changelogs if name not in pairs]
    repartition = [name for name in topics.repartition if name not in pairs.values()]
    if len(changelogs) == len(repartition) == 1:
        ((changelog,), (topic,)) = changelogs, repartition
        others = {topics.counts[name] for name in topics.read if name != topic and name in topics.counts}
        count = topics.counts.get(changelog)
        if count == topics.counts.get(topic) or count not in others:
            pairs[changelog] = topic
    return pairs


def _base(topic: str) -> str:
    """Return the part that the names of a repartition topic and of its changelog have in common."""
    if topic.endswith(REGISTRATION):
        return f"{topic.removesuffix(REGISTRATION)}-subscription-store"
    return topic.removesuffix(REPARTITION).removesuffix(CHANGELOG)


# -- by description


def structure_by_description(
    topics: TopicsInKafka, subtopologies: Sequence[DescribedSubtopology], unjudged_stores: Collection[str] = ()
) -> Structure:
    """Follow the text of ``Topology.describe()``. A topic that it does not name is no part of the application.

    A store has a changelog, unless it is one of ``unjudged_stores``, or the store of a table that is read from a topic:
    with ``topology.optimization`` this topic is its changelog.

    Args:
        topics: The topics in Kafka.
        subtopologies: All sub-topologies, those of global stores too.
        unjudged_stores: The stores of which the user says that their logging may be off.
    """
    described = [part for part in subtopologies if not part.is_global]
    names = _InternalNames(topics, described)
    structure = Structure({})
    parts, groups, without = list[SubtopologyTopics](), list[frozenset[str]](), list[str]()
    for part in described:
        read = {source.name: [names.of(topic) for topic in topics_of(source, topics.names)] for source in part.sources}
        sources = tuple(dict.fromkeys(topic for read_topics in read.values() for topic in read_topics))
        stores = {store: f"{topics.application_id}-{store}{CHANGELOG}" for store in part.store_names}
        absent = {store: topic for store, topic in stores.items() if topic not in topics.names}
        optional = {store for store in absent if store in unjudged_stores or _is_store_of_source(part, store)}
        without += [store for store in absent if store in optional]
        structure.unlogged |= {absent[store] for store in optional}
        changelogs = tuple(topic for store, topic in stores.items() if store not in optional)
        outputs = tuple(map(names.of, part.sinks))
        parts.append(SubtopologyTopics(f"sub-topology {part.id}", sources, changelogs, outputs, part.id))
        groups += [frozenset(topic for name in group for topic in read[name]) for group in part.joined]
        structure.expected |= dict.fromkeys(changelogs, topics.greatest_count(sources))
        for topic in sources:
            structure.roles[topic] = TopicRole.REPARTITION if topic in names.internal else TopicRole.SOURCE
        structure.roles |= dict.fromkeys(changelogs, TopicRole.CHANGELOG)
    for subtopology in parts:
        for topic in subtopology.outputs:
            structure.roles.setdefault(topic, TopicRole.SINK)
    structure.subtopologies = tuple(parts)
    structure.null_keys = _null_keys(subtopologies, names)
    structure.groups = tuple(group for group in groups if len(group) > 1)
    if without:
        structure.notes.append(
            f"These stores have no changelog: {listed(without)}. Either the logging of a store is off, or the topic"
            " from which it is made serves as its changelog."
        )
    if others := sorted({*topics.internal, *topics.positions, *topics.declared} - structure.roles.keys()):
        structure.notes.append(
            f"The given topology does not have these topics, so the checks leave them out: {listed(others)}. Look"
            " whether the topology is that of the version that runs."
        )
    return structure


def _is_store_of_source(part: DescribedSubtopology, store: str) -> bool:
    """Whether a store is that of a table which is read from a topic (``InternalStreamsBuilder.table``)."""
    sources = {source.name for source in part.sources}
    return any(
        node.startswith("KTABLE-SOURCE-") or f"{node}-table-source" in sources
        for node, stores in part.stores.items()
        if store in stores and sources.issuperset(part.predecessors.get(node, ()))
    )


def _null_keys(subtopologies: Sequence[DescribedSubtopology], names: _InternalNames) -> dict[str, str]:
    """Return the internal topics before a left or outer join, and before what may be one: they may have null keys.

    Source: ``NodesWithRelaxedNullKeyJoinDownstream``. All other repartition topics get no record without a key.
    """
    has_globals = any(part.is_global for part in subtopologies)
    successors: dict[tuple[int, str], list[tuple[int, str]]] = {}
    readers: dict[str, list[tuple[int, str]]] = {}
    for part in subtopologies:
        for source in part.sources:
            for topic in source.topics:
                readers.setdefault(topic, []).append((part.id, source.name))
        for node, before in part.predecessors.items():
            for predecessor in before:
                successors.setdefault((part.id, predecessor), []).append((part.id, node))
    for part in subtopologies:
        for node, written in part.sink_topics.items():
            if written is not None and names.of(written) in names.internal:
                successors.setdefault((part.id, node), []).extend(readers.get(written, []))
    joins: dict[tuple[int, str], str] = {}
    for part in subtopologies:
        for node, stores in part.stores.items():
            shared = [store for store in stores if sum(store in each for each in part.stores.values()) > 1]
            if _LEFT_JOIN.fullmatch(node):
                joins[part.id, node] = ""
            elif not _GENERATED.fullmatch(node) and (shared or (has_globals and not stores)):
                joins[part.id, node] = _NAMED_JOIN.format(node)
    found: dict[str, str] = {}
    for topic in {topic for topic in readers if names.of(topic) in names.internal}:
        reached, pending = set[tuple[int, str]](), list(readers[topic])
        while pending:
            at = pending.pop()
            if at not in reached:
                reached.add(at)
                pending += successors.get(at, [])
        reasons = [joins[at] for at in reached if at in joins]
        if topic.endswith(REGISTRATION):
            reasons.append("")
        if reasons:
            found[names.of(topic)] = min(reasons)  # "" where one is known for certain
    return found


class _InternalNames:
    """Translates the names of a description into those in Kafka.

    A topic that is written and read again, and is named like an internal topic, has the application id before its name.
    """

    def __init__(self, topics: TopicsInKafka, described: Sequence[DescribedSubtopology]) -> None:
        read = {topic for part in described for source in part.sources for topic in source.topics}
        internal = [topic for part in described for topic in part.sinks if topic in read and INTERNAL.fullmatch(topic)]
        decorated = {topic: f"{topics.application_id}-{topic}" for topic in internal}
        self._names = {
            topic: name for topic, name in decorated.items() if name in topics.names or topic not in topics.names
        }
        self.internal = frozenset(self._names.values())

    def of(self, topic: str) -> str:
        """Return the name of a topic in Kafka."""
        return self._names.get(topic, topic)
