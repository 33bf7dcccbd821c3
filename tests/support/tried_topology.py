"""A topology with topics of its own that runs in the session's Spark until it has processed what there is."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.topics import apply_topics
from streamplan.model.pipeline import Pipeline, TestData
from streamplan.model.topics import resolve_new_configs
from streamplan.model.topology import Topology
from streamplan.serdes.json import Json

from tests.support.checkpoints import checkpoint_of, forget_last_commit
from tests.support.draining import drain
from tests.support.records import read_committed
from tests.support.waiting import DEADLINE_SECONDS

_numbers = itertools.count()

SALE = Json("shop string, amount bigint, weight double, paid boolean")
PARTITIONS = 2
MINUTE = 60_000
EPOCH = (int(time.time()) // 60 - 120) * MINUTE
"""The beginning of a minute, two hours ago: a windowed changelog does not keep what is much older."""


class Tried:
    """A topology with topics of its own. Topic names in it are given their prefix by :meth:`named`.

    ``partition_counts``  the partition counts of topics that have another one than :data:`PARTITIONS`
    """

    def __init__(self, bootstrap_servers: str, checkpoints: Path, spark: SparkSession, *, restoring: bool) -> None:
        self.restoring = restoring
        self.name = f"tried-{os.getpid()}-{next(_numbers)}"
        self.bootstrap_servers, self.checkpoints, self.spark = bootstrap_servers, checkpoints, spark
        self.topology = Topology(self.name)
        self.lines: list[str] = []
        self.partition_counts: dict[str, int] = {}
        self._pipeline: Pipeline | None = None

    def declare_anew(self) -> Topology:
        """Return an empty topology that takes the place of the one before, with the same application id."""
        self.topology, self._pipeline = Topology(self.name), None
        return self.topology

    def named(self, topic: str) -> str:
        return f"{self.name}-{topic}"

    @property
    def pipeline(self) -> Pipeline:
        if self._pipeline is None:
            topics = (*self.topology.source_topics, *self.topology.sink_topics)
            counts = {**dict.fromkeys(topics, PARTITIONS), **self.partition_counts}
            self._pipeline = Pipeline(self.name, self.topology, "", counts, TestData((), lambda n: ("", b"", b""), "n"))
        return self._pipeline

    def create_topics(self, config: Mapping[str, Mapping[str, str]] | None = None) -> None:
        """Create the topics, those in ``config`` with topic configs of their own.

        They are given when a topic is created: brokers answer a later change before they act on it.
        """
        specs = {spec.name: spec for spec in self.pipeline.topics()}
        new = [
            NewTopic(spec.name, spec.partitions, config={**resolve_new_configs(spec, 1), **configs})
            for topic, configs in (config or {}).items()
            for spec in [specs[self.named(topic)]]
        ]
        if new:
            admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
            for created in admin.create_topics(new, operation_timeout=DEADLINE_SECONDS).values():
                created.result(DEADLINE_SECONDS)
        apply_topics(Brokers(self.bootstrap_servers), self.pipeline, deadline_seconds=DEADLINE_SECONDS)

    def produce(
        self,
        topic: str,
        records: Sequence[tuple[str | bytes | None, Any, int]],
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> None:
        """Key, value (as JSON unless bytes or None) and seconds after the epoch of the tests."""
        producer = Producer({"bootstrap.servers": self.bootstrap_servers, "partitioner": "murmur2_random"})
        refused: list[Any] = []
        for key, value, second in records:
            coded = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
            producer.produce(
                self.named(topic),
                coded,
                key,
                timestamp=EPOCH + 1000 * second,
                headers=[*headers],
                on_delivery=lambda error, message: refused.append(error) if error else None,
            )
        assert producer.flush(120) == 0
        assert refused == []

    def drain(self) -> None:
        if self.restoring and self.checkpoints.exists():
            shutil.rmtree(self.checkpoints)
        brokers = Brokers(self.bootstrap_servers)
        drain(self.spark, self.pipeline, brokers, self.checkpoints, 1000, report=self.lines.append)

    def run_last_again(self, subtopology: int) -> None:
        """As after a crash between the sink's transaction and Spark's own commit."""
        forget_last_commit(checkpoint_of(self.checkpoints, self.name, subtopology))

    def read(self, topic: str) -> list[Message]:
        return read_committed(self.bootstrap_servers, topic)

    def records(self, topic: str) -> list[tuple[str | None, Any]]:
        """Key and JSON of an output's records, sorted."""
        return sorted(
            (
                (m.key().decode() if m.key() is not None else None, json.loads(m.value()) if m.value() else None)
                for m in self.read(self.named(topic))
            ),
            key=repr,
        )

    def store(self, store: str) -> dict[str, Any]:
        """The last value of each key of a changelog."""
        found = self.read(self.topology.changelog_topic(store))
        return {m.key().decode(): json.loads(m.value()) if m.value() else None for m in found}

    def dead_letters(self) -> list[tuple[str, str]]:
        """Topic and reason of each dead letter, sorted."""
        found = [dict(m.headers()) for m in self.read(self.topology.dead_letter_topic)]
        topics = [
            headers.get("streamplan.source.topic", b"").decode().removeprefix(f"{self.name}-") for headers in found
        ]
        return sorted(zip(topics, (headers["streamplan.reason"].decode() for headers in found), strict=True))

    def delete_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        for future in admin.delete_topics([spec.name for spec in self.pipeline.topics()]).values():
            future.exception(120)


def sale(shop: str | None, amount: int | None, weight: float = 1.5, paid: bool = True) -> dict[str, Any]:
    return {"shop": shop, "amount": amount, "weight": weight, "paid": paid}
