"""One topic as a person examines it: its partitions, their replicas, its configs, how many records live, which keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from operator import itemgetter

from streamplan.checks.framework.application import Application
from streamplan.errors import CouldNotLook
from streamplan.kafka_port import Cluster
from streamplan.model.topics import ObservedTopic, TopicRole, TopicSpec, resolve_configs
from streamplan.observability.lookup import key_as_text, topic_of, window_of_key
from streamplan.serdes.windowed import KeyInWindow

COUNTED_OFFSETS = 1_000_000
"""At most this many offsets of a topic are read, the newest of each partition."""

BUSIEST_KEYS = 3

LONG_BYTES = 8

_CONFIGS = ("cleanup.policy", "max.message.bytes", "min.insync.replicas", "retention.bytes", "retention.ms")
"""What a person asks of every topic, declared or not."""


@dataclass(frozen=True)
class KeyCount:
    """A key, and how many of the counted records have it. ``window`` has the parts of a key with a window."""

    key: str
    records: int
    window: KeyInWindow | None = None


@dataclass(frozen=True)
class KeyValue:
    """A key, and its last value. ``window`` has the parts of a key with a window."""

    key: str
    value: int
    window: KeyInWindow | None = None


@dataclass(frozen=True)
class PartitionView:
    """One partition.

    Attributes:
        partition: Its number.
        leader: The id of the broker that leads it; -1 for none.
        replicas: The brokers that should have it.
        in_sync: The brokers that have all of it.
        start: The first offset that is there.
        end: The last stable offset.
        uncommitted: The offsets behind it, up to the high watermark: those of open transactions.
        counted_from: The first offset that was read. It is ``start`` where the whole partition was.
        records: The committed records from there on.
        live: The keys whose last record has a value; None for a topic that is not compacted.
        busiest: The keys with most of these records.
        greatest: The keys with the greatest last values; none where values are not numbers of eight bytes, as Java's
            ``LongSerializer`` writes the counts of a changelog.
    """

    partition: int
    leader: int
    replicas: Sequence[int]
    in_sync: Sequence[int]
    start: int
    end: int
    uncommitted: int
    counted_from: int
    records: int
    live: int | None
    busiest: Sequence[KeyCount]
    greatest: Sequence[KeyValue]


@dataclass(frozen=True)
class ConfigView:
    """One config of a topic.

    Attributes:
        name: Its name.
        declared: The value that the declaration wants; None where it wants none, and for external topics.
        observed: The value that is in force; None where the brokers do not know the config.
    """

    name: str
    declared: str | None
    observed: str | None


@dataclass(frozen=True)
class TopicView:
    """A topic as it is now.

    Attributes:
        name: Its name in Kafka.
        role: What it is to the topology.
        partitions: Its partitions.
        configs: Those that are declared, and those that every topic is asked for.
    """

    name: str
    role: str
    partitions: Sequence[PartitionView]
    configs: Sequence[ConfigView]


def view_topic(application: Application, cluster: Cluster, topic: str) -> TopicView:
    """Look at a topic, and count the records of its newest :data:`COUNTED_OFFSETS` offsets.

    Args:
        topic: One of its topics.

    Raises:
        Refused: The application has no such topic.
        CouldNotLook: The topic does not exist.
    """
    spec = topic_of(application, topic)
    observed = cluster.topics([topic]).get(topic)
    if observed is None:
        raise CouldNotLook(f"topic {topic}", expected="a topic", observed="no such topic")
    return TopicView(topic, spec.role, _partitions(spec, observed, cluster), _configs(application, spec, observed))


def _partitions(spec: TopicSpec, observed: ObservedTopic, cluster: Cluster) -> list[PartitionView]:
    borders = cluster.offsets(spec.name)
    share = max(COUNTED_OFFSETS // max(len(borders), 1), 1)
    ranges = {
        number: (max(at.log_start, at.last_stable - share), at.last_stable) for number, at in sorted(borders.items())
    }
    counts: dict[int, Counter[bytes | None]] = {number: Counter() for number in ranges}
    last: dict[int, dict[bytes | None, bytes | None]] = {number: {} for number in ranges}
    is_compacted = "compact" in observed.configs.get("cleanup.policy", "")
    for batch in cluster.read(spec.name, ranges):
        counts[batch.partition].update(batch.keys)
        if is_compacted:
            last[batch.partition].update(zip(batch.keys, batch.values, strict=True))
    return [
        PartitionView(
            partition=number,
            leader=observed.leaders.get(number, -1),
            replicas=list(observed.replicas.get(number, ())),
            in_sync=list(observed.in_sync.get(number, ())),
            start=borders[number].log_start,
            end=borders[number].last_stable,
            uncommitted=borders[number].high_watermark - borders[number].last_stable,
            counted_from=first,
            records=counts[number].total(),
            live=sum(value is not None for value in last[number].values()) if is_compacted else None,
            busiest=[
                KeyCount(_key(spec, key), records, window_of_key(spec, key))
                for key, records in counts[number].most_common(BUSIEST_KEYS)
                if records > 1
            ],
            greatest=_greatest(spec, last[number]),
        )
        for number, (first, _) in ranges.items()
    ]


def _greatest(spec: TopicSpec, last: Mapping[bytes | None, bytes | None]) -> list[KeyValue]:
    values = [(key, value) for key, value in last.items() if value is not None]
    if spec.role is not TopicRole.CHANGELOG or any(len(value) != LONG_BYTES for _, value in values):
        return []
    numbers = [(int.from_bytes(value, "big", signed=True), key) for key, value in values]
    return [
        KeyValue(_key(spec, key), number, window_of_key(spec, key))
        for number, key in nlargest(BUSIEST_KEYS, numbers, itemgetter(0))
    ]


def _key(spec: TopicSpec, key: bytes | None) -> str:
    text = key_as_text(spec, key)
    return "null" if text is None else text


def _configs(application: Application, spec: TopicSpec, observed: ObservedTopic) -> list[ConfigView]:
    is_ours = application.declared and spec.owned and spec.role is not TopicRole.SINK
    declared = resolve_configs(spec, observed.replication_factor) if is_ours else {}
    names = sorted({*declared, *_CONFIGS})
    return [ConfigView(name, declared.get(name), observed.configs.get(name)) for name in names]
