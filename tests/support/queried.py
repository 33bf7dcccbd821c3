"""A pipeline with stores of each kind, and queries of what a cluster in memory has of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from streamplan import (
    Json,
    KeyValueStore,
    Long,
    Pipeline,
    Processor,
    ProcessorContext,
    Record,
    SessionWindows,
    String,
    TimeWindows,
    Topology,
)
from streamplan.errors import StreamplanError
from streamplan.queries.follower import Follower, read_to_the_ends
from streamplan.queries.queries import Queries, view_of
from streamplan.queries.store_form import ReadValues

from tests.support.fake_cluster import FakeCluster

MINUTE = 60_000
PARTITIONS = 3
VISIT = Json("user string, page string, seconds bigint")


class Seen(Processor):
    def init(self, context: ProcessorContext) -> None:
        self.seen = context.get_state_store("seen")

    def process(self, record: Record) -> None:
        self.seen.put(record.value.page, {"user": record.key})


def declare(topology: Topology, name: str) -> None:
    """Counts in all kinds of stores, a table, an aggregate and a processor's own store; each by its name."""
    stream = topology.stream(f"{name}-visits", value=VISIT)
    by_user = stream.group_by("user", name="by-user")
    by_user.count(store="totals")
    by_user.aggregate({"longest": "max(seconds)"}, store="longest")
    by_user.windowed_by(TimeWindows("1 minute", grace="4 minutes")).count(store="per-minute")
    by_user.windowed_by(SessionWindows("1 minute", grace="4 minutes")).count(store="sessions")
    users = topology.table(f"{name}-users", value=Json("country string"), key_serde=String(), store="users")
    stream.select_key("user").join(users, {"country": "table.country"}).to(f"{name}-countries")
    stream.process(Seen, stores={"seen": KeyValueStore(String(), Json("user string"))})


def visits(name: str = "queried") -> Pipeline:
    """A pipeline with what :func:`declare` declares."""
    topology = Topology(name)
    declare(topology, name)
    return Pipeline(name, topology, "Counts.", {f"{name}-visits": PARTITIONS, f"{name}-users": PARTITIONS})


@dataclass
class NoFollower:
    """Stands for what follows the changelogs."""

    failure: StreamplanError | None = None
    silent_seconds: float = 0.0
    closed: bool = field(default=False)

    def close(self) -> None:
        self.closed = True


class Queried:
    """The pipeline :func:`visits`, whose changelogs lie in a cluster in memory."""

    def __init__(self, pipeline: Pipeline | None = None) -> None:
        self.pipeline = pipeline or visits()
        self.cluster = FakeCluster()
        for spec in self.pipeline.topics():
            self.cluster.create(spec.name, spec.partitions)
        self.follower = NoFollower()

    def changelog(self, store: str) -> str:
        return self.pipeline.topology.changelog_topic(store)

    def put(self, store: str, key: bytes, value: bytes | None, *, partition: int, timestamp: int = 0) -> None:
        self.cluster.produce(self.changelog(store), key, value, partition=partition, timestamp=timestamp)

    def count(self, store: str, key: bytes, count: int, *, partition: int, timestamp: int = 0) -> None:
        self.put(store, key, Long().encode({"value": count}), partition=partition, timestamp=timestamp)

    def open(self, **options: Any) -> Queries:
        """Queries of what is there now."""
        view = view_of(self.pipeline, self.cluster, **options)
        read_to_the_ends(self.cluster, view)
        return Queries(view, ReadValues(self.cluster.schemas), cast(Follower, self.follower))
