"""A pipeline: a topology and what deploying it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from streamplan.copartitioning import enforce_copartitioning, resolve_partition_counts
from streamplan.topics import (
    CHANGELOG_CONFIGS,
    DEAD_LETTER_CONFIGS,
    REPARTITION_CONFIGS,
    SOURCE_CONFIGS,
    TopicRole,
    TopicSpec,
)
from streamplan.topology import Subtopology, TaskId, Topology


@dataclass(frozen=True)
class TestData:
    """The records that the producer writes.

    ``record(n)``            key and value of record ``n``, counted from 0
    ``number(key, value)``   the ``n`` of a record found in the topic; None for a record that is not one of ours
    """

    __test__ = False  # its name is not a test for pytest

    topic: str
    record: Callable[[int], tuple[bytes, bytes]]
    number: Callable[[bytes | None, bytes | None], int | None]


@dataclass(frozen=True)
class Pipeline:
    """One file in ``pipelines/`` declares one of these.

    ``name``               prefix of the DAG ids: ``<name>_deploy``, ``<name>_producer``, ...
    ``source_partitions``  the partition count of each source topic
    ``health_schedule``    cron expression of ``<name>_health``
    """

    name: str
    topology: Topology
    description: str
    source_partitions: Mapping[str, int]
    test_data: TestData
    health_schedule: str = "*/10 * * * *"

    @property
    def partition_counts(self) -> dict[str, int]:
        """Partitions of every topic the topology reads, by its name in Kafka."""
        counts = resolve_partition_counts(self.topology, self.source_partitions)
        return {self.topology.decorate(topic): count for topic, count in counts.items()}

    def source_topics(self, subtopology: Subtopology) -> tuple[str, ...]:
        """The names in Kafka of what a sub-topology reads."""
        return tuple(self.topology.decorate(topic) for topic in subtopology.source_topics)

    def partitions(self, subtopology: Subtopology) -> int:
        """The number of stream tasks of a sub-topology: the one count of the topics it reads."""
        counts = self.partition_counts
        return enforce_copartitioning({topic: counts[topic] for topic in self.source_topics(subtopology)})

    def tasks(self) -> tuple[TaskId, ...]:
        """Every stream task."""
        return tuple(
            TaskId(subtopology.id, partition)
            for subtopology in self.topology.subtopologies
            for partition in range(self.partitions(subtopology))
        )

    def topics(self) -> tuple[TopicSpec, ...]:
        """Every topic: sources, repartition topics, changelogs, the dead-letter topic."""
        topology = self.topology
        counts = self.partition_counts
        specs = [TopicSpec(topic, TopicRole.SOURCE, counts[topic], SOURCE_CONFIGS) for topic in topology.source_topics]
        specs += [
            TopicSpec(topic, TopicRole.REPARTITION, counts[topic], REPARTITION_CONFIGS)
            for topic in map(topology.decorate, topology.repartition_topics)
        ]
        specs += [
            TopicSpec(
                topology.changelog_topic(store),
                TopicRole.CHANGELOG,
                self.partitions(group),
                CHANGELOG_CONFIGS,
            )
            for group in topology.subtopologies
            for store in group.stores
        ]
        most = max(self.source_partitions.values())
        specs.append(TopicSpec(topology.dead_letter_topic, TopicRole.DEAD_LETTER, most, DEAD_LETTER_CONFIGS))
        return tuple(specs)
