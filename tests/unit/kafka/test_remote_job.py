"""What Kafka shows of a job elsewhere."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from streamplan.errors import BrokersUnavailable, StreamplanError
from streamplan.kafka import remote_job as module
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.remote_job import PRODUCER_SECONDS, RemoteAggregator, RemoteProducer, remote_job
from streamplan.model.generation import Generation
from streamplan.model.group_member import Member
from streamplan.model.pipeline import Pipeline

BROKERS = Brokers("127.0.0.1:1")
OLD, NEW = Member("streamplan:a:1:x", "/10.0.0.1", "m-1"), Member("streamplan:b:2:y", "/10.0.0.2", "m-2")
FOREIGN = Member("jvm", "/10.0.0.3", "m-3")


def aggregator(monkeypatch: pytest.MonkeyPatch, *looks: list[Member]) -> RemoteAggregator:
    answers = iter(looks)
    last: list[Member] = []

    def members(brokers: Brokers, group: str) -> list[Member]:
        nonlocal last
        assert group == "orders-aggregator"
        last = next(answers, last)
        return last

    monkeypatch.setattr(module, "members", members)
    job = remote_job("orders-aggregator", BROKERS)
    assert isinstance(job, RemoteAggregator)
    return job


def test_an_aggregator_lives_while_it_is_a_member(monkeypatch: pytest.MonkeyPatch) -> None:
    job = aggregator(monkeypatch, [], [NEW], [NEW, FOREIGN], [FOREIGN], [])
    assert [job.shows_life() for _ in range(5)] == [False, True, True, False, False]


def test_a_predecessor_that_was_killed_is_no_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays a member until its session is over, and its successor still starts."""
    job = aggregator(monkeypatch, [OLD], [OLD], [], [NEW])
    seen = [(job.shows_life(), job.has_begun) for _ in range(4)]
    assert seen == [(True, False), (True, False), (False, False), (True, True)]


def test_a_member_that_outlives_its_session_is_no_dead_predecessor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A triggerer that was restarted sees the aggregator at its first look."""
    now = iter([0.0, 14.0, 16.0])
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(now)))
    job = aggregator(monkeypatch, [NEW])
    assert [(job.shows_life(), job.has_begun) for _ in range(3)] == [(True, False), (True, False), (True, True)]


def test_a_stop_fences_the_aggregator_and_waits_until_it_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def stop_application(pipeline: Pipeline, brokers: Brokers) -> Generation:
        asked.append(pipeline.name)
        return Generation.of_this_process(None, stop=True)

    monkeypatch.setattr(module, "stop_application", stop_application)
    monkeypatch.setattr(module, "_POLL_SECONDS", 0.01)
    job = aggregator(monkeypatch, [OLD], [OLD], [FOREIGN])
    job.stop()
    assert asked == ["orders"]
    assert job.instances() == []


def test_a_stop_that_is_not_obeyed_names_who_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = Generation.of_this_process(None, stop=True)
    monkeypatch.setattr(module, "stop_application", lambda pipeline, brokers: stop)
    monkeypatch.setattr(module, "_POLL_SECONDS", 0.01)
    monkeypatch.setattr(module, "STOP_SECONDS", 0.1)
    with pytest.raises(StreamplanError, match="observed a:1:x in its consumer group"):
        aggregator(monkeypatch, [OLD]).stop()


def test_a_first_start_is_asked_as_soon_as_there_are_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its claim there is none that could hold the request."""
    answers = iter([None, None, Generation.of_this_process(None, stop=True)])
    monkeypatch.setattr(module, "stop_application", lambda pipeline, brokers: next(answers))
    monkeypatch.setattr(module, "_POLL_SECONDS", 0.01)
    aggregator(monkeypatch, [], [NEW], [NEW], []).stop()
    assert list(answers) == []
    monkeypatch.setattr(module, "stop_application", lambda pipeline, brokers: None)
    with pytest.raises(StreamplanError, match="a position that holds the request to stop"):
        aggregator(monkeypatch, []).stop(ask_seconds=0.1)


def test_a_request_that_the_brokers_did_not_take_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else would make it: the run of the aggregator has ended."""
    asked = []

    def stop_application(pipeline: Pipeline, brokers: Brokers) -> Generation:
        asked.append(pipeline.name)
        if len(asked) < 3:
            raise BrokersUnavailable("the transactions of orders-aggregator-claim")
        return Generation.of_this_process(None, stop=True)

    monkeypatch.setattr(module, "stop_application", stop_application)
    monkeypatch.setattr(module, "_POLL_SECONDS", 0.01)
    aggregator(monkeypatch, [OLD], []).stop()
    assert len(asked) == 3

    asked.clear()
    with pytest.raises(BrokersUnavailable):
        aggregator(monkeypatch, [OLD]).stop(ask_seconds=0.0)


def test_a_producer_lives_while_its_records_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = iter([5, 5, 7, 7, 19])
    monkeypatch.setattr(module, "next_number", lambda pipeline, brokers: next(numbers))
    job = remote_job("orders-producer", BROKERS, until=19)
    assert isinstance(job, RemoteProducer)
    seen = [(job.shows_life(), job.has_begun, job.patience_seconds) for _ in range(5)]
    assert seen == [
        (False, False, PRODUCER_SECONDS),
        (False, False, PRODUCER_SECONDS),
        (True, True, PRODUCER_SECONDS),
        (False, True, PRODUCER_SECONDS),
        (True, True, 0.0),
    ]


def test_a_producer_whose_records_are_there_is_done_at_the_first_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "next_number", lambda pipeline, brokers: 19)
    job = remote_job("orders-producer", BROKERS, until=19)
    assert not job.shows_life()
    assert job.has_begun
    assert job.patience_seconds == 0.0
