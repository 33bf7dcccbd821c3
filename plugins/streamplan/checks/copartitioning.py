"""Co-partitioning: do partition counts agree, and does every record lie where its key says?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from streamplan.checks.observation import Check, Observation, RecordsGone
from streamplan.checks.port import Cluster, Offsets
from streamplan.copartitioning import copartition_groups
from streamplan.partitions import partition_for_key
from streamplan.pipeline import Pipeline
from streamplan.topics import ObservedTopic, TopicRole, TopicSpec

LOOKS = 3
"""A repartition topic may be purged while it is read."""

NAMED_KEYS = 20
"""So many misplaced keys of a topic get a row each; the others are counted."""

_CACHED_KEYS = 1_000_000


@dataclass
class _Misplaced:
    partition: int
    belongs: int
    first_offset: int
    records: int = 0


@dataclass
class _Placement:
    records: int = 0
    wrong: int = 0
    keys: dict[tuple[bytes, int], _Misplaced] = field(default_factory=dict)


def observe(pipeline: Pipeline, cluster: Cluster) -> Iterable[Observation]:
    """Counts of every topic against the declaration and each other, then the partition of every record."""
    joined = {topic for group in copartition_groups(pipeline.topology) for topic in group}
    keyed = [
        spec
        for spec in pipeline.topics()
        if spec.role in (TopicRole.REPARTITION, TopicRole.CHANGELOG) or spec.name in joined
    ]
    observed = cluster.topics([spec.name for spec in pipeline.topics()])
    yield from _counts(pipeline, observed)
    written = 0
    for spec in keyed:
        if spec.name not in observed:
            continue  # its row above is red
        offsets = cluster.offsets(spec.name)
        written += sum(found.stable for found in offsets.values())
        yield from _placement(cluster, spec, observed[spec.name].partitions, offsets)
    if not written:
        yield Observation(f"{pipeline.topology.application_id}: records in its topics", "at least 1", "none")


def _counts(pipeline: Pipeline, observed: Mapping[str, ObservedTopic]) -> Iterable[Observation]:
    topology = pipeline.topology
    for subtopology in topology.subtopologies:
        expected = {topic: pipeline.partition_counts[topic] for topic in pipeline.source_topics(subtopology)}
        expected |= {topology.changelog_topic(store): pipeline.partitions(subtopology) for store in subtopology.stores}
        for topic, count in expected.items():
            found = observed[topic].partitions if topic in observed else "missing"
            yield Observation(f"{topic}: partitions (sub-topology {subtopology.id})", count, found)
    for group in copartition_groups(topology):
        counts = {topic: observed[topic].partitions for topic in map(topology.decorate, group) if topic in observed}
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"{topic}={count}" for topic, count in sorted(counts.items()))
            yield Observation("topics that are joined", "equal counts", f"Topics not co-partitioned: [{{{listed}}}]")


def _placement(
    cluster: Cluster, spec: TopicSpec, partitions: int, offsets: Mapping[int, Offsets]
) -> Iterable[Observation]:
    topic = spec.name
    for look in range(1, LOOKS + 1):
        try:
            found = _scan(cluster, spec, partitions, offsets)
            break
        except RecordsGone:
            if look == LOOKS:
                raise
            offsets = cluster.offsets(topic)
    purged = " (consumed and purged)" if not found.records and any(item.end for item in offsets.values()) else ""
    yield Observation(
        f"{topic}: records in the partition of their key{purged}", found.records, found.records - found.wrong
    )
    for (key, _), misplaced in list(found.keys.items())[:NAMED_KEYS]:
        yield Observation(
            f"{topic}: key {key.decode('utf-8', 'backslashreplace')!r}",
            f"partition {misplaced.belongs}",
            f"partition {misplaced.partition} ({misplaced.records} records, first at offset {misplaced.first_offset})",
        )
    if len(found.keys) > NAMED_KEYS:
        yield Observation(f"{topic}: further misplaced keys", 0, len(found.keys) - NAMED_KEYS)


def _scan(cluster: Cluster, spec: TopicSpec, partitions: int, offsets: Mapping[int, Offsets]) -> _Placement:
    """Every committed record. Records without a key belong anywhere."""
    ranges = {number: (found.start, found.stable) for number, found in offsets.items()}
    until = -spec.window_bytes or None
    placement = _Placement()
    belongs: dict[bytes, int] = {}
    for chunk in cluster.records(spec.name, ranges):
        placement.records += len(chunk)
        for partition, offset, _, key, _, _ in chunk:
            if key is None:
                continue
            right = belongs.get(key)
            if right is None:
                if len(belongs) >= _CACHED_KEYS:
                    belongs.clear()
                right = belongs[key] = partition_for_key(key[:until], partitions)
            if right != partition:
                placement.wrong += 1
                misplaced = placement.keys.setdefault((key, partition), _Misplaced(partition, right, offset))
                misplaced.records += 1
    return placement


CHECK = Check(
    name="copartitioning",
    title="Co-partitioning",
    healthy="Topics that are read together, and a store's changelog, have the declared number of partitions, and every"
    " record of a repartition topic or changelog lies in the partition that murmur2 gives its key.",
    observe=observe,
)
