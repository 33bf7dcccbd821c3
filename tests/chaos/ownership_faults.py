"""The mistakes of people with the consumer group and with a second aggregator, and a driver that slept through both."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from random import Random
from typing import TypeAlias

import psutil
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from streamplan import processes
from streamplan.errors import StreamplanError

from tests.chaos.jobs import AGGREGATOR_JOB
from tests.chaos.positions import TORN
from tests.chaos.system import AGGREGATOR, BACK_SECONDS, System
from tests.chaos.truth import PARTITIONS
from tests.chaos.verification import APPLICATION, ORDERS, REPARTITION
from tests.chaos.waiting import wait_for

SECOND_JOB = "second-aggregator"
_WRAPPER_WORDS = 4
"""``sh -c <wrapper> <status file>`` stand before the command of a supervised job."""

Positions: TypeAlias = Mapping[tuple[str, int], tuple[int, str]]
"""Offset and metadata by topic and partition."""


def second_aggregator(system: System, random: Random) -> str:
    """Either is fenced, says so and ends; then the second is stopped, and the first triggered where it has ended."""
    with _second(system, random, own_checkpoints=True) as second:
        _await_fencing(system, second)
        loser = SECOND_JOB if not processes.is_alive(second) else AGGREGATOR_JOB
    return f"{loser} was fenced"


def suspended_driver(system: System, random: Random) -> str:
    """An aggregator sleeps while another one takes over its checkpoints, and wakes up beside it."""
    wait_for("a process that writes", lambda: "" if system.jobs.writers() else "none", BACK_SECONDS)
    victims = system.jobs.family(AGGREGATOR_JOB)
    for process in victims:
        with suppress(psutil.NoSuchProcess):
            process.suspend()
    with _second(system, random, own_checkpoints=False) as second:
        before = _committed(system)
        try:
            wait_for(
                "the second aggregator commits",
                lambda: "" if _moved(before, _committed(system)) else "positions stand still",
                BACK_SECONDS,
            )
        finally:
            for process in victims:
                with suppress(psutil.NoSuchProcess):
                    process.resume()
        _await_fencing(system, second)
    return f"{len(victims)} processes woke up beside the second aggregator"


def _await_fencing(system: System, second: processes.ProcessRef) -> None:
    """Wait until one of two aggregators has ended. A first one that slept while it started claims last, and wins."""
    wait_for(
        "one of two aggregators is fenced",
        lambda: "both run" if processes.is_alive(second) and active(system) else "",
        BACK_SECONDS,
    )


def active(system: System) -> bool:
    """Whether a run of the aggregator's DAG goes on."""
    return any(run["state"] in ("queued", "running") for run in system.rest.runs(AGGREGATOR))


def foreign_commit(system: System, random: Random) -> str:
    """An offset tool, a commit by a consumer with this group id, and the deletion of the group: all are refused."""
    _await_member(system)
    topic, partition = random.choice([ORDERS, REPARTITION]), random.randrange(PARTITIONS)
    moved = TopicPartition(topic, partition, random.randrange(1_000))
    admin = AdminClient(_client(system))
    (answer,) = (
        admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(APPLICATION, [moved])])[APPLICATION]
        .result(60)
        .topic_partitions
    )
    _require_refused("an offset tool", answer.error)
    with closing(_consumer(system)) as consumer:
        _require_refused("a plain commit", _error(lambda: consumer.commit(offsets=[moved], asynchronous=False)))
    _require_refused(
        "the deletion of the group", _error(admin.delete_consumer_groups([APPLICATION])[APPLICATION].result)
    )
    return f"{topic}-{partition} to {moved.offset}, refused three times"


def foreign_member(system: System, random: Random) -> str:
    """A consumer of another program joins the group, takes a part of the partitions, and leaves."""
    _await_member(system)
    seconds = random.uniform(2, 12)
    ended = threading.Event()
    consumer = Consumer({**_client(system), "group.id": APPLICATION, "enable.auto.commit": False})
    with closing(consumer):
        consumer.subscribe([ORDERS, REPARTITION])
        threading.Timer(seconds, ended.set).start()
        while not ended.is_set():
            consumer.poll(0.1)
    return f"joined for {seconds:.1f} s"


def torn_history(system: System, random: Random) -> str:
    """The aggregator is stopped, its positions are changed, and its start is refused until they are put back."""
    for run in system.rest.runs(AGGREGATOR):
        if run["state"] in ("running", "queued"):
            system.rest.set_run_state(AGGREGATOR, run["dag_run_id"], "failed")
    wait_for("the aggregator is gone", lambda: str(system.jobs.family(AGGREGATOR_JOB) or ""), BACK_SECONDS)
    admin = AdminClient(_client(system))
    wait_for("the group is empty", lambda: ", ".join(_members(admin)), BACK_SECONDS)
    saved = _committed(system)
    log = system.settings.logs / f"{AGGREGATOR_JOB}.log"
    told = log.stat().st_size
    name, tear = random.choice(
        [("another program's", _tear_foreign), ("beyond the end", _tear_beyond), ("deleted", _tear_deleted)]
    )
    tear(system, saved, random)
    run = system.rest.trigger(AGGREGATOR)
    state = system.rest.wait(AGGREGATOR, run, deadline_seconds=BACK_SECONDS)
    said = log.read_text(errors="replace")[told:]
    if state != "failed" or "error: " not in said:
        raise StreamplanError(f"positions {name}", expected="a refused start", observed=f"{state}: {said[-1000:]}")
    _commit(system, saved)
    system.rest.trigger(AGGREGATOR)
    return f"positions {name}: refused, then put back"


def _tear_foreign(system: System, saved: Positions, random: Random) -> None:
    place = random.choice(sorted(saved))
    _commit(system, {place: (random.randrange(saved[place][0] + 1), TORN)})


def _tear_beyond(system: System, saved: Positions, random: Random) -> None:
    """As after the brokers have lost the end of a topic."""
    place = random.choice([place for place in sorted(saved) if place[0] == REPARTITION])
    with closing(_consumer(system)) as consumer:
        _, end = consumer.get_watermark_offsets(TopicPartition(*place), 60)
    prefix, generation, *_ = saved[place][1].split(" ")
    _commit(system, {place: (end + random.randrange(1, 1_000), f"{prefix} {generation} {TORN}:0:0")})


def _tear_deleted(system: System, saved: Positions, random: Random) -> None:
    """The positions of one topic, as ``kafka-consumer-groups.sh --delete-offsets`` deletes them."""
    topic = random.choice([ORDERS, REPARTITION])
    admin = AdminClient(_client(system))  # it must live until the answer has come
    admin.delete_consumer_groups([APPLICATION])[APPLICATION].result(60)
    _commit(system, {place: position for place, position in saved.items() if place[0] != topic})


@contextmanager
def _second(system: System, random: Random, *, own_checkpoints: bool) -> Iterator[processes.ProcessRef]:
    """Start a second aggregator by hand. Afterwards stop it, and trigger the first again where it has ended.

    Raises:
        StreamplanError: One of the two ended and did not say why.
    """
    wait_for("the aggregator", lambda: "" if system.jobs.driver_jvm() else "none", BACK_SECONDS)
    entry = json.loads((system.settings.run / f"{AGGREGATOR_JOB}.json").read_text())
    command = list(entry["argv"][_WRAPPER_WORDS:])
    directory = system.home / f"second-{random.getrandbits(32):08x}"
    if own_checkpoints:
        command[command.index("--checkpoints") + 1] = str(directory)
    command[command.index("--heartbeat") + 1] = str(directory / "heartbeat.json")
    environment = system.stack.airflow.environment()
    logs = {job: system.settings.logs / f"{job}.log" for job in (SECOND_JOB, AGGREGATOR_JOB)}
    before = {job: log.stat().st_size if log.exists() else 0 for job, log in logs.items()}
    second = processes.start(
        SECOND_JOB, command, env=environment, log_file=logs[SECOND_JOB], cwd=system.home, run_dir=system.settings.run
    )
    try:
        yield second
        for job, alive in ((SECOND_JOB, processes.is_alive(second)), (AGGREGATOR_JOB, active(system))):
            said = logs[job].read_text(errors="replace")[before[job] :]
            if not alive and "a newer aggregator" not in said:
                raise StreamplanError(f"{job}, fenced", expected="to say so", observed=said[-1000:])
    finally:
        processes.stop(second)
    if not active(system):
        system.rest.trigger(AGGREGATOR)


def _await_member(system: System) -> None:
    """Wait until a driver that lives is a member of the group: one that was killed is forgotten at any moment."""
    admin = AdminClient(_client(system))

    def lacking() -> str:
        alive = {str(process.pid) for process in system.jobs.driver_python()}
        members = _members(admin)
        return "" if any(alive & set(member.split(":")) for member in members) else f"members {members}, pids {alive}"

    wait_for("the aggregator is a member of its group", lacking, BACK_SECONDS)


def _members(admin: AdminClient) -> list[str]:
    description = admin.describe_consumer_groups([APPLICATION])[APPLICATION].result(60)
    return [member.client_id for member in description.members]


def _committed(system: System) -> Positions:
    places = [TopicPartition(topic, number) for topic in (ORDERS, REPARTITION) for number in range(PARTITIONS)]
    with closing(_consumer(system)) as consumer:
        return {(at.topic, at.partition): (at.offset, at.metadata or "") for at in consumer.committed(places, 60)}


def _commit(system: System, positions: Positions) -> None:
    offsets = [TopicPartition(*place, offset, metadata) for place, (offset, metadata) in sorted(positions.items())]
    with closing(_consumer(system)) as consumer:
        consumer.commit(offsets=offsets, asynchronous=False)


def _moved(before: Positions, after: Positions) -> bool:
    return any(after[place][0] > offset for place, (offset, _) in before.items())


def _require_refused(what: str, error: KafkaError | None) -> None:
    refused = (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.NON_EMPTY_GROUP)
    if error is None or error.code() not in refused:
        raise StreamplanError(what, expected="refused by the brokers", observed=str(error or "accepted"))


def _error(call: Callable[[], object]) -> KafkaError | None:
    try:
        call()
    except KafkaException as error:
        raised: KafkaError = error.args[0]
        return raised
    return None


def _consumer(system: System) -> Consumer:
    return Consumer({**_client(system), "group.id": APPLICATION, "enable.auto.commit": False})


def _client(system: System) -> dict[str, str | int | float | bool | None]:
    return {"bootstrap.servers": system.servers, "client.id": "chaos", "log_level": 2}
