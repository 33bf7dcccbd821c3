"""Topics that a topology needs, topics that the brokers have, and the differences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from streamplan.model import dead_letters
from streamplan.model.windows import (
    STORED_SESSION_BYTES,
    WINDOW_START_BYTES,
    parse_stored_session,
    window_start_ms,
    without_suffix,
)
from streamplan.serdes.primitive import KEY_SERDES, String, key_serde_of_type
from streamplan.serdes.serde import Undecodable
from streamplan.serdes.subscriptions import parse_combined_key
from streamplan.serdes.windowed import KeyInWindow, Windowed, moment_text


class TopicRole(StrEnum):
    """What a topic is to a topology."""

    SOURCE = "source"
    REPARTITION = "repartition"
    CHANGELOG = "changelog"
    DEAD_LETTER = "dead-letter"
    SINK = "sink"


SOURCE_CONFIGS = {"cleanup.policy": "delete", "retention.ms": "-1"}
"""A source topic that Streamplan creates keeps all records, because totals are recounted from them."""

TABLE_CONFIGS = {"cleanup.policy": "compact"}
"""A topic that is read as a table: only the last value of each key counts."""

SINK_CONFIGS: Mapping[str, str] = {}
"""A topic from outside that a topology writes has the brokers' defaults: it belongs to those who read it."""

REPARTITION_CONFIGS = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "segment.bytes": "52428800",
    "message.timestamp.type": "CreateTime",
}
"""``org.apache.kafka.streams.processor.internals.RepartitionTopicConfig``."""

CHANGELOG_CONFIGS = {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"}
"""``UnwindowedUnversionedChangelogTopicConfig`` of the same package."""


VERSIONED_CHANGELOG_ADDITIONAL_LAG_MS = 86_400_000
"""A day, in case clocks differ (``VersionedChangelogTopicConfig``)."""


def versioned_changelog_configs(history_ms: int) -> dict[str, str]:
    """The configs of a versioned store's changelog (``VersionedChangelogTopicConfig`` of the same package)."""
    lag_ms = min(history_ms + VERSIONED_CHANGELOG_ADDITIONAL_LAG_MS, 2**63 - 1)
    return {**CHANGELOG_CONFIGS, "min.compaction.lag.ms": str(lag_ms)}


def windowed_changelog_configs(retention_ms: int) -> dict[str, str]:
    """The configs of a windowed store's changelog (``WindowedChangelogTopicConfig`` of the same package)."""
    return {**CHANGELOG_CONFIGS, "cleanup.policy": "compact,delete", "retention.ms": str(retention_ms)}


def stream_join_changelog_configs(retention_ms: int) -> dict[str, str]:
    """The configs of the changelog of one side of a join of two streams (``StreamJoinedStoreFactory``).

    The store keeps several records of one key and time, so that nothing may be compacted.
    """
    return {**windowed_changelog_configs(retention_ms), "cleanup.policy": "delete"}


DEAD_LETTER_CONFIGS = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "max.message.bytes": str(dead_letters.MAX_BYTES),
    "message.timestamp.type": "CreateTime",
}


INTERNAL_ROLES = (TopicRole.REPARTITION, TopicRole.CHANGELOG, TopicRole.DEAD_LETTER)
"""Roles of the topics that belong to an application alone.

A dead-letter topic is one of them: it is written while the input is read, so a second reading would write each dead
letter a second time.
"""

ANY_TIMESTAMP_CONFIGS = {"message.timestamp.after.max.ms": str(2**63 - 1)}
"""An internal topic takes each timestamp that the source took. The brokers' default is an hour ahead (KIP-1030)."""

TEMPORARY_SUFFIX = "-moving"

SERIALIZED_KEY_TYPES = tuple(KEY_SERDES)
"""The names of the serdes that can have written keys of one text or one number."""

STRING_KEYS = String.key_type
"""The name of the serde of keys that are text."""


@dataclass(frozen=True)
class TopicSpec:
    """A topic that a topology needs.

    Attributes:
        name: Its name in Kafka.
        role: What it is to the topology.
        partitions: Its partition count; 0 while the counts of its pipeline are not resolved.
        configs: The configs that matter. The others are the brokers' defaults, or what its owner chose.
        window_bytes: The bytes of a window at the end of its keys, which do not count for the partition
            (:mod:`streamplan.model.windows`).
        key_type: One of :data:`SERIALIZED_KEY_TYPES`, or the type of a struct for keys of several fields.
        owned: Whether Streamplan creates it. An external topic is read, and nothing else.
        prefix_bytes: The bytes before its keys, which do not count for the partition: the time and the side of a record
            that waits for a match (``TimestampedKeyAndJoinSideSerializer``), or the time of one that waits in the
            buffer of a join with a table.
        number_bytes: The bytes behind its keys, which do not count either: the number of a record in such a buffer
            (``PrefixedWindowKeySchemas.TimeFirstWindowKeySchema``).
        primary_key_type: In the store of the subscriptions of a join by a foreign key the type of the primary key that
            stands behind the foreign key, and does not count for the partition; None elsewhere.
    """

    name: str
    role: TopicRole
    partitions: int
    configs: Mapping[str, str]
    window_bytes: int = 0
    key_type: str = STRING_KEYS
    owned: bool = True
    prefix_bytes: int = 0
    number_bytes: int = 0
    primary_key_type: str | None = None

    @property
    def is_of_store(self) -> bool:
        """Whether a changelog has the keys of the application, and not what waits in a join."""
        return not self.prefix_bytes and self.primary_key_type is None

    def application_key(self, key: bytes) -> bytes:
        """The part of a key that decides its partition."""
        if self.primary_key_type is not None:
            return parse_combined_key(key)[0]
        return without_suffix(key[self.prefix_bytes :], self.window_bytes + self.number_bytes)

    def application_key_text(self, key: bytes) -> str:
        """The part of a key that decides its partition, as people read it. A text has no quotes."""
        return _text_of_key(self.application_key(key), self.key_type)

    def key_text(self, key: bytes, *, quoted: bool = True) -> str:
        """A key of this topic as people read it.

        Args:
            key: As it is in Kafka.
            quoted: Whether a text has quotes, as within a sentence.
        """

        def shown(text: str, key_type: str) -> str:
            if key_type != STRING_KEYS or (text.isprintable() and not quoted):
                return text
            return repr(text) if quoted else repr(text)[1:-1]

        text = shown(self.application_key_text(key), self.key_type)
        if self.primary_key_type is not None:
            primary = _text_of_key(parse_combined_key(key)[1], self.primary_key_type)
            return f"{text} of {shown(primary, self.primary_key_type)}"
        text = str(self._in_window(text, key) or text)
        if self.number_bytes and len(key) >= self.prefix_bytes:
            text += f" of {moment_text(window_start_ms(key[: self.prefix_bytes]))}"
        elif self.prefix_bytes and len(key) >= self.prefix_bytes:
            side = "this side" if key[WINDOW_START_BYTES] else "the other side"
            text += f" of {side} at {moment_text(window_start_ms(key[:WINDOW_START_BYTES]))}"
        return text

    def key_in_window(self, key: bytes) -> KeyInWindow | None:
        """A key of this topic, as people read it, with its window; None where it has none.

        Args:
            key: As it is in Kafka.
        """
        serde = key_serde_of_type(self.key_type)
        if isinstance(serde, Windowed):
            try:
                return serde.in_window(serde.read_key(key))
            except Undecodable:
                return None
        return self._in_window(self.application_key_text(key), key)

    def _in_window(self, text: str, key: bytes) -> KeyInWindow | None:
        session = parse_stored_session(key) if self.window_bytes == STORED_SESSION_BYTES else None
        if session is not None:
            return KeyInWindow.of(text, session.start_ms, session.end_ms)
        if self.window_bytes and len(key) > self.window_bytes:
            end = len(self.application_key(key)) + WINDOW_START_BYTES
            return KeyInWindow.of(text, window_start_ms(key[:end]))
        return None


def _text_of_key(raw: bytes, key_type: str) -> str:
    text = raw.decode("utf-8", "backslashreplace")
    if key_type == STRING_KEYS:
        return text
    serde = key_serde_of_type(key_type)
    try:
        return serde.key_text(serde.read_key(raw))
    except Undecodable:
        return repr(text)


def temporary_topic(spec: TopicSpec, **configs: str) -> TopicSpec:
    """Return the topic that holds the records of an internal topic while that one is created anew.

    Args:
        spec: The internal topic, with its new number of partitions.
        configs: Further configs. The temporary topic keeps every record.
    """
    configs = REPARTITION_CONFIGS | configs
    return replace(spec, name=f"{spec.name}{TEMPORARY_SUFFIX}", configs=configs, owned=True)


@dataclass(frozen=True)
class ObservedTopic:
    """A topic as the brokers describe it.

    Attributes:
        name: Its name in Kafka.
        partitions: Its partition count.
        replication_factor: The replicas of each partition.
        configs: Every config in force, defaults included.
        replicas: By partition the brokers that should have it.
        in_sync: By partition the brokers that have all of it.
        leaders: By partition the broker that leads it; -1 for none.
    """

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]
    replicas: Mapping[int, Sequence[int]] = field(default_factory=dict)
    in_sync: Mapping[int, Sequence[int]] = field(default_factory=dict)
    leaders: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Difference:
    """One point in which an existing topic disagrees with its declaration."""

    topic: str
    point: str
    expected: str
    observed: str

    def __str__(self) -> str:
        return f"{self.topic}: {self.point}: expected {self.expected}, observed {self.observed}"


@dataclass(frozen=True)
class TopicPlan:
    """What applying would do.

    Attributes:
        create: The topics to create.
        agree: The topics that exist and agree with their declaration.
        differences: What must be settled first. A plan with differences is not applied.
        replication_factor: The replicas of a topic that is created.
    """

    create: tuple[TopicSpec, ...]
    agree: tuple[TopicSpec, ...]
    differences: tuple[Difference, ...]
    replication_factor: int


MAX_REPLICATION_FACTOR = 3


def resolve_replication_factor(brokers: int) -> int:
    """The replicas of a topic: one on each broker, up to 3."""
    return min(brokers, MAX_REPLICATION_FACTOR)


def resolve_min_insync_replicas(replication_factor: int) -> int:
    """The replicas that must have a write with ``acks=all``: all but one, so that one broker may be away."""
    return max(1, replication_factor - 1)


def resolve_configs(spec: TopicSpec, replication_factor: int) -> dict[str, str]:
    """The configs that a topic must have."""
    return {**spec.configs, "min.insync.replicas": str(resolve_min_insync_replicas(replication_factor))}


def resolve_new_configs(spec: TopicSpec, replication_factor: int) -> dict[str, str]:
    """The configs with which a topic is created. Topics of earlier versions lack those that none must have."""
    added = ANY_TIMESTAMP_CONFIGS if spec.role in INTERNAL_ROLES else {}
    return {**resolve_configs(spec, replication_factor), **added}


def plan_topics(
    desired: Iterable[TopicSpec], observed: Mapping[str, ObservedTopic], *, replication_factor: int
) -> TopicPlan:
    """Compare the topics that are needed with those that exist. Nothing is created.

    Args:
        desired: The topics that are needed.
        observed: The topics that exist, by name.
        replication_factor: The replicas that each topic should have.
    """
    create: list[TopicSpec] = []
    agree: list[TopicSpec] = []
    differences: list[Difference] = []
    for spec in desired:
        topic = observed.get(spec.name)
        if topic is None and spec.owned:
            create.append(spec)
            continue
        if topic is None:
            differences.append(Difference(spec.name, "existence", "a topic that its owner creates", "no such topic"))
            continue
        of_topic = list(_differences(spec, topic, replication_factor))
        differences += of_topic
        if not of_topic:
            agree.append(spec)
    return TopicPlan(tuple(create), tuple(agree), tuple(differences), replication_factor)


def _differences(spec: TopicSpec, topic: ObservedTopic, replication_factor: int) -> Iterable[Difference]:
    if topic.partitions != spec.partitions:
        yield Difference(spec.name, "partitions", str(spec.partitions), str(topic.partitions))
    if not spec.owned or spec.role is TopicRole.SINK:
        return  # replication and configs are what its owner chose: of a sink those who read it
    if topic.replication_factor != replication_factor:
        yield Difference(spec.name, "replication", str(replication_factor), str(topic.replication_factor))
    for config, expected in resolve_configs(spec, replication_factor).items():
        observed = topic.configs.get(config, "not set")
        if not same_value(observed, expected):
            yield Difference(spec.name, config, expected, observed)


def explain_differences(pipeline: str, differences: Sequence[Difference], others: Sequence[TopicSpec] = ()) -> str:
    """What a person can do about topics that are not as declared. Streamplan changes no existing topic on its own.

    Args:
        pipeline: The name of the pipeline.
        differences: Where topics differ.
        others: The external topics that it reads, with their counts.
    """
    points = {difference.point for difference in differences}
    parts = ["Nothing was created or changed."]
    if points - {"partitions", "existence"}:
        parts.append(
            "Configs and replication can be brought to what is expected with kafka-configs.sh and "
            "kafka-reassign-partitions.sh. docs/first-aid.md has the command for a config, and a script for "
            "those without Kafka's tools."
        )
    if "partitions" in points and others:
        parts.append(explain_changed_counts(pipeline, others))
    elif "partitions" in points:
        parts.append(
            "A number of partitions cannot be changed in place: a key lies in partition murmur2(key) modulo that "
            "number, so keys would move, two stream tasks would count the same key, and its total would be split. "
            f"{pipeline}_repartition is the safe way to another number: it moves the records to a new topic, totals "
            "unchanged (repartition_from in the declaration). Else declare the number that is there. Where internal "
            f"topics alone are wrong and the input may be read once more from its beginning, {pipeline}_reset makes "
            "them anew."
        )
    return " ".join(parts)


def explain_changed_counts(pipeline: str, others: Sequence[TopicSpec]) -> str:
    """What a person can do where internal topics do not fit the counts of external topics.

    Args:
        pipeline: The name of the pipeline.
        others: The external topics that it reads, with their counts.
    """
    counts = ", ".join(f"{spec.name}={spec.partitions}" for spec in others)
    return (
        f"The counts of internal topics follow from those of the external topics ({counts}). Where an owner has "
        "changed a count since the first deployment, keys lie in other partitions, and their totals would be split. "
        f"{pipeline}_reset makes the internal topics anew, and reads the input again from the start moment."
    )


def same_value(value: str, other: str) -> bool:
    """Whether two values of a config mean the same: ``compact,delete`` is ``delete,compact``."""
    return words(value) == words(other)


def words(value: str) -> frozenset[str]:
    """The words of a config that is a list."""
    return frozenset(word.strip() for word in value.split(","))
