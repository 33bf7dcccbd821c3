"""A Kafka cluster in memory, which implements ``streamplan.kafka_port.Cluster``, and an application that runs on it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from streamplan.checks.framework.consistent_cut import Deadline
from streamplan.errors import CouldNotLook
from streamplan.kafka_port import RecordBatch, RecordsGone, Result
from streamplan.kafka_types import Offsets, Record
from streamplan.model.committed_positions import CommittedPosition
from streamplan.model.group_member import Member
from streamplan.model.partitioner import partition_for_key
from streamplan.model.pipeline import Pipeline
from streamplan.model.topics import ObservedTopic, resolve_configs
from streamplan.serdes.schema_source import SchemaSource
from streamplan.testing.declared_schemas import DeclaredSchemas

IMPATIENT = Deadline(seconds=0.0, interval=0.0, sleep=lambda _: None)


@dataclass
class FakePartition:
    records: list[Record] = field(default_factory=list)
    start: int = 0
    end: int = 0
    open_since: int | None = None
    """Offset of the first record of an open transaction."""

    @property
    def stable(self) -> int:
        return self.end if self.open_since is None else self.open_since


@dataclass
class FakeTopic:
    partitions: list[FakePartition]
    configs: dict[str, str]


class FakeRecordBatch:
    """A ``RecordBatch`` of records that are there one by one."""

    def __init__(self, partition: int, records: Sequence[Record]) -> None:
        self.partition = partition
        self.offsets = [record.offset for record in records]
        self.timestamps = [record.timestamp for record in records]
        self.keys = [record.key for record in records]
        self.values = [record.value for record in records]
        self.headers = [record.headers for record in records]

    def __len__(self) -> int:
        return len(self.offsets)


class FakeCluster:
    """``before`` is called with the name of each method of the port before it answers."""

    def __init__(self) -> None:
        self.schemas: SchemaSource = DeclaredSchemas(())
        self.existing: dict[str, FakeTopic] = {}
        self.committed: dict[tuple[str, str], dict[int, int]] = {}
        self.began: dict[tuple[str, str], dict[int, int]] = {}
        """Where a group began to read a topic."""
        self.metadata: dict[tuple[str, str], str] = {}
        """What a group has committed with its positions in a topic."""
        self.up_broker_ids: tuple[int, ...] = (1,)
        self.replicas: dict[tuple[str, int], tuple[int, ...]] = {}
        """Of partitions that are not on every broker."""
        self.down: set[int] = set()
        """Brokers that are away: they are in sync with nothing and lead nothing."""
        self.group_members: dict[str, Sequence[Member] | None] = {}
        """Of groups that have any. None: members that cannot be seen."""
        self.before: Callable[[str], None] = lambda method: None

    # -- the port

    def names(self) -> Sequence[str]:
        self.before("names")
        return sorted(self.existing)

    def groups(self) -> Sequence[str]:
        self.before("groups")
        return sorted({group for group, _ in self.committed})

    def members(self, group: str) -> Sequence[Member] | None:
        self.before("members")
        return self.group_members.get(group, ())

    def topics(self, names: Sequence[str]) -> Mapping[str, ObservedTopic]:
        self.before("topics")
        return {name: self._observed(name) for name in self.existing if name in names}

    def broker_ids(self) -> Sequence[int]:
        self.before("broker_ids")
        return self.up_broker_ids

    def topic_ids(self, names: Sequence[str]) -> Mapping[str, str]:
        self.before("topic_ids")
        return {name: str(id(self._topic(name))) for name in names}

    def offsets(self, topic: str) -> Mapping[int, Offsets]:
        self.before("offsets")
        return {number: Offsets(p.start, p.stable, p.end) for number, p in enumerate(self._topic(topic).partitions)}

    def offsets_since(self, topic: str, timestamp_ms: int | None) -> Mapping[int, int]:
        self.before("offsets_since")
        since = sys.maxsize if timestamp_ms is None else timestamp_ms
        return {
            number: next((record.offset for record in p.records if record.timestamp >= since), p.stable)
            for number, p in enumerate(self._topic(topic).partitions)
        }

    def positions(self, group: str, topic: str) -> Mapping[int, int]:
        self.before("positions")
        return dict(self.committed.get((group, topic), {}))

    def starts(self, group: str, topic: str) -> Mapping[int, int]:
        self.before("starts")
        return dict(self.began.get((group, topic), {}))

    def committed_offsets(self, group: str) -> Mapping[str, Mapping[int, int]]:
        self.before("committed_offsets")
        return {topic: dict(found) for (owner, topic), found in self.committed.items() if owner == group and found}

    def committed_positions(self, group: str) -> Mapping[tuple[str, int], CommittedPosition]:
        self.before("committed_positions")
        return {
            (topic, number): CommittedPosition(offset, self.metadata.get((group, topic), ""))
            for (owner, topic), found in self.committed.items()
            if owner == group
            for number, offset in found.items()
        }

    def read(self, topic: str, ranges: Mapping[int, tuple[int, int]]) -> Iterator[FakeRecordBatch]:
        self.before("read")
        for number, (first, last) in ranges.items():
            partition = self._topic(topic).partitions[number]
            if first >= last:
                continue
            if first < partition.start:
                raise RecordsGone(f"{topic}-{number}")
            if last > partition.stable:
                raise CouldNotLook(f"{topic}-{number} never reached {last}")
            yield FakeRecordBatch(number, [record for record in partition.records if first <= record.offset < last])

    def read_uncommitted(self, topic: str, ranges: Mapping[int, tuple[int, int]]) -> Iterator[FakeRecordBatch]:
        self.before("read_uncommitted")
        for number, (first, last) in ranges.items():
            records = self._topic(topic).partitions[number].records
            yield FakeRecordBatch(number, [record for record in records if first <= record.offset < last])

    def map_batches(
        self, topic: str, ranges: Mapping[int, tuple[int, int]], function: Callable[[Iterator[RecordBatch]], Result]
    ) -> Iterator[Result]:
        yield function(self.read(topic, ranges))

    # -- what tests do to it

    def create(self, topic: str, partitions: int, configs: Mapping[str, str] | None = None) -> None:
        self.existing[topic] = FakeTopic([FakePartition() for _ in range(partitions)], dict(configs or {}))

    def produce(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        partition: int | None = None,
        timestamp: int = 0,
        headers: tuple[tuple[str, bytes | None], ...] = (),
    ) -> Record:
        partitions = self._topic(topic).partitions
        number = partition if partition is not None else partition_for_key(key or b"", len(partitions))
        record = Record(number, partitions[number].end, timestamp, key, value, headers)
        partitions[number].records.append(record)
        partitions[number].end += 1
        return record

    def purge(self, topic: str, partition: int, until: int) -> None:
        found = self._topic(topic).partitions[partition]
        found.records = [record for record in found.records if record.offset >= until]
        found.start = until

    def compact(self, topic: str, partition: int, until: int) -> None:
        """As the cleaner does below ``until``: the last record of each key stays."""
        found = self._topic(topic).partitions[partition]
        last = {record.key: record.offset for record in found.records if record.offset < until}
        found.records = [r for r in found.records if r.offset >= until or last[r.key] == r.offset]

    def _observed(self, name: str) -> ObservedTopic:
        topic = self.existing[name]
        replicas = {n: self.replicas.get((name, n), self.up_broker_ids) for n in range(len(topic.partitions))}
        in_sync = {n: tuple(one for one in ids if one not in self.down) for n, ids in replicas.items()}
        leaders = {n: ids[0] if ids else -1 for n, ids in in_sync.items()}
        factor = min(map(len, replicas.values()))
        return ObservedTopic(name, len(topic.partitions), factor, dict(topic.configs), replicas, in_sync, leaders)

    def _topic(self, topic: str) -> FakeTopic:
        if topic not in self.existing:
            raise CouldNotLook(f"topic {topic} does not exist")
        return self.existing[topic]


class FakeApplication:
    """The orders application as ``exactly_once_v2`` leaves it, a transaction a call; nothing of ours computes it."""

    source = "orders"
    group = "orders-aggregator"
    repartition = "orders-aggregator-orders-products-quantities-repartition"
    changelog = "orders-aggregator-orders-products-quantities-changelog"
    dead_letters = "orders-aggregator-dead-letter"

    def __init__(self, cluster: FakeCluster, pipeline: Pipeline) -> None:
        self.cluster = cluster
        self.totals: dict[bytes, int] = {}
        for spec in pipeline.topics():
            cluster.create(spec.name, spec.partitions, resolve_configs(spec, 1))
        cluster.committed[self.group, self.source] = {0: 0, 1: 0}
        cluster.committed[self.group, self.repartition] = {0: 0, 1: 0}

    def order(self, n: int, product: int | None = None) -> Record:
        kind = n % 2 if product is None else product
        return self.cluster.produce(self.source, b"order_%d" % n, b'{"Id": "order_%d", "ProductType": %d}' % (n, kind))

    def rekey(self, partition: int, until: int) -> None:
        """Task ``0_<partition>`` processes and commits up to ``until``."""
        positions = self.cluster.committed[self.group, self.source]
        for record in self.cluster.existing[self.source].partitions[partition].records:
            if positions[partition] <= record.offset < until:
                kind = (record.value or b"")[-2:-1]
                if kind in (b"0", b"1"):
                    self.cluster.produce(self.repartition, kind, record.value)
                else:
                    self.dead_letter(record)
        positions[partition] = until

    def dead_letter(self, record: Record) -> None:
        origin = {"topic": b"orders", "partition": b"%d" % record.partition, "offset": b"%d" % record.offset}
        headers = (("streamplan.task", b"0_%d" % record.partition), ("streamplan.reason", b"the reason"))
        headers += tuple((f"streamplan.source.{name}", value) for name, value in origin.items())
        self.cluster.produce(self.dead_letters, record.key, record.value, partition=record.partition, headers=headers)

    def count(self, partition: int, until: int) -> None:
        """Task ``1_<partition>`` processes and commits up to ``until``."""
        positions = self.cluster.committed[self.group, self.repartition]
        for record in self.cluster.existing[self.repartition].partitions[partition].records:
            if positions[partition] <= record.offset < until:
                assert record.key is not None
                self.totals[record.key] = self.totals.get(record.key, 0) + 1
                value = self.totals[record.key].to_bytes(8, "big")
                self.cluster.produce(self.changelog, record.key, value, partition=partition)
        positions[partition] = until

    def drain(self) -> None:
        for step, topic in ((self.rekey, self.source), (self.count, self.repartition)):
            for number, partition in enumerate(self.cluster.existing[topic].partitions):
                step(number, partition.end)
