"""Queries of changelogs on real brokers, beside what a plain consumer reads of them."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator, Mapping

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from streamplan.errors import CouldNotLook
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.topics import apply_topics
from streamplan.local.brokers import LocalKafka
from streamplan.model.pipeline import Pipeline
from streamplan.model.windows import stored_session_key, stored_window_key
from streamplan.queries import PartitionNotHeld, Queries, follower, open_queries
from streamplan.queries.follower import ChangelogChanged

from tests.support.brokers import await_topics
from tests.support.changelog_writer import ChangelogWriter
from tests.support.queried import MINUTE, PARTITIONS, visits
from tests.support.records import read_committed
from tests.support.waiting import DEADLINE_SECONDS, eventually

_numbers = itertools.count()


class Deployed:
    """The pipeline of ``visits`` on real brokers, whose changelogs the test writes."""

    def __init__(self, brokers: Brokers) -> None:
        self.brokers = brokers
        self.pipeline: Pipeline = visits(f"queried-{os.getpid()}-{next(_numbers)}")
        apply_topics(brokers, self.pipeline, deadline_seconds=DEADLINE_SECONDS)
        await_topics(brokers.servers, *(spec.name for spec in self.pipeline.topics()))
        self.writer = ChangelogWriter(brokers.servers, PARTITIONS)

    def changelog(self, store: str) -> str:
        return self.pipeline.topology.changelog_topic(store)

    def count(self, store: str, key: bytes, count: int | None, *, of: bytes | None = None) -> None:
        value = None if count is None else count.to_bytes(8, "big")
        self.writer.put(self.changelog(store), key, value, of=of)

    def open(self, **options: object) -> Queries:
        return open_queries(self.pipeline, self.brokers, deadline_seconds=DEADLINE_SECONDS, **options)  # type: ignore[arg-type]

    def committed(self, store: str) -> dict[bytes, bytes]:
        """The last value of each key, as a plain consumer reads the changelog."""
        found: dict[bytes, bytes | None] = {}
        for message in read_committed(self.brokers.servers, self.changelog(store)):
            found[message.key() or b""] = message.value()
        return {key: value for key, value in found.items() if value is not None}

    def ends(self, store: str) -> Mapping[int, int]:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self.brokers.servers, "group.id": "test-reader"})
        try:
            topic = self.changelog(store)
            return {
                number: consumer.get_watermark_offsets(TopicPartition(topic, number), 60)[1]
                for number in range(PARTITIONS)
            }
        finally:
            consumer.close()


@pytest.fixture
def deployed(brokers: Brokers) -> Iterator[Deployed]:
    made = Deployed(brokers)
    yield made
    admin = AdminClient({"bootstrap.servers": brokers.servers})
    for future in admin.delete_topics([spec.name for spec in made.pipeline.topics()]).values():
        future.exception(120)


def counts(queries: Queries, store: str = "totals") -> dict[str, int]:
    return {entry.key: entry.value for entry in queries.key_value_store(store).all()}


def test_a_store_has_what_was_committed_at_the_start_and_what_is_committed_later(deployed: Deployed) -> None:
    numbers = random.Random(1)

    def write(records: int, *, commit: bool = True) -> None:
        with deployed.writer.transaction(commit=commit):
            for _ in range(records):
                deleted = numbers.random() < 0.2
                key = b"k%d" % numbers.randrange(40)
                deployed.count("totals", key, None if deleted else numbers.randrange(10**6))

    write(200)
    write(50, commit=False)
    write(100)
    with deployed.open() as queries:

        def is_up_to_date() -> bool:
            expected = {
                key.decode(): int.from_bytes(value, "big") for key, value in deployed.committed("totals").items()
            }
            return counts(queries) == expected

        assert is_up_to_date(), "at the start it has been read to the end"
        for commit in (True, False, True):
            write(100, commit=commit)
            eventually(is_up_to_date, "what was committed is seen, and what was aborted is not")
        ends = deployed.ends("totals")
        eventually(
            lambda: queries.position("totals") == {deployed.changelog("totals"): ends}, "the position is the end"
        )
        eventually(lambda: queries.lag("totals") == 0, "nothing is left to be read")
        before = counts(queries)
    with deployed.open() as queries:
        assert counts(queries) == before, "after a restart"


def test_records_of_an_open_transaction_are_seen_when_it_is_committed(deployed: Deployed) -> None:
    with deployed.writer.transaction():
        deployed.count("totals", b"ann", 1)
    with deployed.open() as queries:
        with deployed.writer.transaction():
            deployed.count("totals", b"ann", 2)
            deployed.count("totals", b"bob", 3)
            deployed.writer.flush()
            eventually(lambda: (queries.lag("totals") or 0) > 0, "what may be committed lags")
            assert counts(queries) == {"ann": 1}
        eventually(lambda: counts(queries) == {"ann": 2, "bob": 3}, "the transaction is committed")
        with deployed.writer.transaction(commit=False):
            deployed.count("totals", b"bob", 4)
        eventually(lambda: queries.lag("totals") == 0, "what was aborted does not lag")
        assert counts(queries) == {"ann": 2, "bob": 3}
    with deployed.writer.transaction():
        deployed.count("totals", b"ann", 5)
        deployed.writer.flush()
        with deployed.open() as queries:
            assert counts(queries) == {"ann": 2, "bob": 3}, "a start does not wait for it, nor does it see it"


def test_windows_and_sessions_follow(deployed: Deployed) -> None:
    with deployed.open() as queries:
        windows, sessions = queries.window_store("per-minute"), queries.session_store("sessions")
        assert [*windows.all(), *sessions.all()] == []
        with deployed.writer.transaction():
            for minute in range(4):
                deployed.count("per-minute", stored_window_key(b"ann", minute * MINUTE), minute, of=b"ann")
            deployed.count("sessions", stored_session_key(b"ann", 0, 30_000), 2, of=b"ann")
        eventually(lambda: len([*windows.all()]) == 4 and len([*sessions.all()]) == 1, "both are seen")
        assert [value for _, value in windows.fetch("ann", MINUTE, 2 * MINUTE)] == [1, 2]
        with deployed.writer.transaction():
            deployed.count("sessions", stored_session_key(b"ann", 0, 30_000), None, of=b"ann")
            deployed.count("sessions", stored_session_key(b"ann", 0, 40_000), 3, of=b"ann")
            deployed.count("per-minute", stored_window_key(b"ann", 2 * MINUTE), None, of=b"ann")
            deployed.count("per-minute", stored_window_key(b"ann", 8 * MINUTE), 8, of=b"ann")
        eventually(lambda: sessions.fetch_session("ann", 0, 40_000) == 3, "the session is longer")
        assert sessions.fetch_session("ann", 0, 30_000) is None
        eventually(lambda: [value for _, value in windows.all()] == [8], "the older windows are gone")


def test_it_reads_anew_what_was_deleted_before_it_was_read(deployed: Deployed, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, opened = deployed.changelog("per-minute"), []

    def delete_what_was_read_and_more() -> None:
        with deployed.writer.transaction():
            deployed.count("per-minute", stored_window_key(b"ann", 0), None, of=b"ann")
        ends = deployed.ends("per-minute")
        with deployed.writer.transaction():
            deployed.count("per-minute", stored_window_key(b"ann", MINUTE), 2, of=b"ann")
        admin = AdminClient({"bootstrap.servers": deployed.brokers.servers})
        for future in admin.delete_records([TopicPartition(topic, *place) for place in ends.items()]).values():
            future.result(120)

    class AfterTheDeletion(follower.FollowedTopics):
        def __init__(self, *arguments: object) -> None:
            if not opened:
                delete_what_was_read_and_more()
            opened.append(self)
            super().__init__(*arguments)  # type: ignore[arg-type]

    with deployed.writer.transaction():
        deployed.count("per-minute", stored_window_key(b"ann", 0), 1, of=b"ann")
    monkeypatch.setattr(follower, "FollowedTopics", AfterTheDeletion)
    with deployed.open() as queries:
        windows = queries.window_store("per-minute")
        eventually(lambda: [value for _, value in windows.all()] == [2], "what is left is seen, and nothing else")
        with deployed.writer.transaction():
            deployed.count("per-minute", stored_window_key(b"ann", 2 * MINUTE), 3, of=b"ann")
        eventually(lambda: [value for _, value in windows.all()] == [2, 3], "it goes on")
        assert len(opened) == 2


def test_several_readers_share_the_partitions(deployed: Deployed) -> None:
    keys = [b"k%d" % number for number in range(30)]
    with deployed.writer.transaction():
        for number, key in enumerate(keys):
            deployed.count("totals", key, number)
    with deployed.open(partitions=[0]) as one, deployed.open(partitions=[1, 2]) as other:
        shares = [counts(one), counts(other)]
        assert not shares[0].keys() & shares[1].keys()
        assert shares[0] | shares[1] == {key.decode(): number for number, key in enumerate(keys)}
        for key in keys:
            answers = []
            for queries in (one, other):
                try:
                    answers.append(queries.key_value_store("totals").get(key.decode()))
                except PartitionNotHeld:
                    continue
            assert len(answers) == 1


def test_a_changelog_that_is_deleted_ends_it_with_what_to_do(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "LOOK_SECONDS", 0.2)
    with deployed.open() as queries:
        admin = AdminClient({"bootstrap.servers": deployed.brokers.servers})
        topic = deployed.changelog("totals")
        admin.delete_topics([topic])[topic].result(120)

        def has_failed() -> bool:
            try:
                queries.require_followed()
            except ChangelogChanged as error:
                return "Start it again" in error.remedy
            return False

        eventually(has_failed, "the deleted changelog is found out")
        with pytest.raises(ChangelogChanged):
            queries.key_value_store("totals").get("ann")
    with pytest.raises(CouldNotLook, match=f"changelog {topic}: expected an existing topic"):
        deployed.open()


def test_a_changelog_with_more_partitions_ends_it(deployed: Deployed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "LOOK_SECONDS", 0.2)
    with deployed.open() as queries:
        admin = AdminClient({"bootstrap.servers": deployed.brokers.servers})
        topic = deployed.changelog("totals")
        admin.create_partitions([NewPartitions(topic, PARTITIONS + 1)])[topic].result(120)

        def has_failed() -> bool:
            try:
                queries.require_followed()
            except ChangelogChanged as error:
                return f"expected {PARTITIONS} partitions, observed {PARTITIONS + 1}" in str(error)
            return False

        eventually(has_failed, "the further partition is found out")


@pytest.mark.soak
def test_it_follows_while_brokers_go_and_come(
    deployed: Deployed, kafka: LocalKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "LOOK_SECONDS", 0.5)
    with deployed.open() as queries:
        for number in range(4):
            kafka.stop(2)
            kafka.start(2)
            kafka.wait_until_ready()
            with ChangelogWriter(deployed.brokers.servers, PARTITIONS).transaction():
                pass
            with deployed.writer.transaction():
                for key in range(20):
                    deployed.count("totals", b"k%d" % key, number)
            eventually(
                lambda number=number: counts(queries) == {f"k{key}": number for key in range(20)},  # type: ignore[misc]
                "what was written after the return of the broker is seen",
            )
