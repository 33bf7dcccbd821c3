"""The follower with librdkafka's cluster in memory, which has topics and records, and no transactions.

What brokers are asked besides is answered by ``FakeCluster``: the client's own cluster does not know the requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer
from streamplan.errors import BrokersUnavailable
from streamplan.kafka.brokers import Brokers
from streamplan.queries import follower
from streamplan.queries import queries as queries_module
from streamplan.queries.follower import ChangelogChanged, Follower
from streamplan.queries.queries import Queries, view_of
from streamplan.queries.store_form import ReadValues

from tests.support.fake_cluster import FakeCluster
from tests.support.queried import PARTITIONS, Queried
from tests.support.waiting import eventually

STORES = ("totals", "users")


class Mirrored:
    """Writes each record to librdkafka's cluster, and to the one in memory as long as the start has not read it."""

    def __init__(self) -> None:
        self.queried = Queried()
        # A topic that is written first is created with 4 partitions, unless the client says another number.
        self._mock = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none", "log_level": 0})
        (broker,) = self._mock.list_topics(timeout=60).brokers.values()
        self.brokers = Brokers(f"{broker.host}:{broker.port}")
        self._producer = Producer({"bootstrap.servers": self.brokers.servers, "linger.ms": 0, "log_level": 0})
        for store in STORES:
            self._producer.list_topics(self.queried.changelog(store), 60)

    @property
    def cluster(self) -> FakeCluster:
        return self.queried.cluster

    def count(self, key: bytes, count: int | None, partition: int, *, before_the_start: bool = False) -> None:
        value = None if count is None else count.to_bytes(8, "big")
        topic = self.queried.changelog("totals")
        self._producer.produce(topic, value, key, partition)
        assert self._producer.flush(60) == 0
        if before_the_start:
            self.cluster.produce(topic, key, value, partition=partition)

    @contextmanager
    def open(self) -> Iterator[Queries]:
        view = view_of(self.queried.pipeline, self.cluster, stores=STORES)
        running = Follower(self.brokers, self.cluster, view)
        with Queries(view, ReadValues(self.cluster.schemas), running) as queries:
            yield queries


@pytest.fixture
def mirrored(monkeypatch: pytest.MonkeyPatch) -> Mirrored:
    monkeypatch.setattr(follower, "LOOK_SECONDS", 0.05)
    return Mirrored()


def test_it_goes_on_behind_what_was_read_at_the_start(mirrored: Mirrored) -> None:
    for number in range(5):
        mirrored.count(b"k%d" % number, number, 0, before_the_start=True)
    with mirrored.open() as queries:
        store = queries.key_value_store("totals")
        assert dict(store.all()) == {f"k{number}": number for number in range(5)}
        mirrored.count(b"k1", 100, 0)
        mirrored.count(b"k9", 9, 2)
        mirrored.count(b"k0", None, 0)
        expected = {"k1": 100, "k2": 2, "k3": 3, "k4": 4, "k9": 9}
        eventually(lambda: dict(store.all()) == expected, "what was written later is seen", interval=0.01)
        topic = mirrored.queried.changelog("totals")
        assert queries.position("totals") == {topic: {0: 7, 1: 0, 2: 1}}
        eventually(lambda: queries.lag("totals") == 0, "all is read", interval=0.01)
    mirrored.count(b"k1", 200, 0)
    assert dict(queries.view.store("totals").states)[0].position == 7, "it is closed"


def test_a_changelog_that_is_gone_ends_it(mirrored: Mirrored) -> None:
    with mirrored.open() as queries:
        queries.require_followed()
        del mirrored.cluster.existing[mirrored.queried.changelog("users")]
        mirrored.cluster.create(mirrored.queried.changelog("users"), PARTITIONS)

        def failed() -> bool:
            try:
                queries.require_followed()
            except ChangelogChanged:
                return True
            return False

        eventually(failed, "the other topic of the same name is noticed", interval=0.01)


def test_a_consumer_that_stays_behind_is_opened_anew(mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch) -> None:
    """The brokers have a record that the consumer is not given: its leader's epoch may be an old one."""
    opened: list[object] = []
    followed = follower.FollowedTopics

    def open_topics(*arguments: object) -> object:
        opened.append(arguments)
        return followed(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(follower, "FollowedTopics", open_topics)
    with mirrored.open() as queries:
        eventually(lambda: len(opened) == 1, "it is open", interval=0.01)
        mirrored.cluster.produce(mirrored.queried.changelog("totals"), b"k", b"value", partition=0)
        eventually(lambda: len(opened) > 1, "it is opened anew", interval=0.01)
        mirrored.count(b"k1", 1, 0)
        eventually(lambda: queries.key_value_store("totals").get("k1") == 1, "it reads on", interval=0.01)


def test_brokers_that_do_not_answer_are_told_by_the_lag(mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries_module, "SILENT_SECONDS", 0.5)
    with mirrored.open() as queries:
        eventually(lambda: queries.lag("totals") == 0, "they answer", interval=0.01)

        def away(method: str) -> None:
            raise BrokersUnavailable("Kafka")

        mirrored.cluster.before = away
        eventually(lambda: queries.lag("totals") is None, "they have not answered for so long", interval=0.01)
        assert queries.key_value_store("totals").get("k1") is None
        mirrored.cluster.before = lambda method: None
        eventually(lambda: queries.lag("totals") == 0, "they answer again", interval=0.01)
