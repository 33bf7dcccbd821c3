"""A JVM application hands its work over to the aggregator, and takes it back: same names, same bytes, exact totals."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from streamplan.checks import CHECKS
from streamplan.checks.framework.application import application_in
from streamplan.checks.framework.check import Outcome, run_check
from streamplan.errors import Refused
from streamplan.kafka import task_ownership
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.groups import committed_offsets, members
from streamplan.kafka.topics import apply_topics
from streamplan.maintenance.evolution import observe_evolution
from streamplan.maintenance.require_stopped import require_stopped
from streamplan.settings import Settings

from tests.support.draining import drain
from tests.support.orders_application import Application, numbered
from tests.support.records import recount
from tests.support.soak import soak
from tests.support.streams_library import Library, forget, java_with_callbacks, order_key, running
from tests.support.waiting import eventually

SHORT_SESSION = {"session_timeout_ms": "6000", "heartbeat_interval_ms": "2000"}
"""An application that is closed does not leave its group. The brokers forget its member when the session ends."""


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    with java_with_callbacks() as jvm:
        yield jvm


class HandedOver:
    """One application, run by Kafka Streams and by the aggregator in turn."""

    def __init__(self, jvm: Any, bootstrap_servers: str, home: Path, spark: SparkSession) -> None:
        self.jvm = jvm
        self.home = home
        self.ours = Application(bootstrap_servers, home / "checkpoints", spark)
        others = replace(self.ours.pipeline, topic_partitions={}, test_data=None)
        self.ours.pipeline = others.resolved({self.ours.orders: 2})
        self.id = self.ours.topology.application_id
        self.produced = 0

    def order_many(self, count: int) -> None:
        self.ours.produce(numbered(self.produced, self.produced + count))
        self.produced += count

    def expected(self) -> dict[bytes, int]:
        """All orders, counted by plain Python."""
        return recount(self.ours.committed(self.ours.orders))

    def declare(self) -> tuple[Library, Any]:
        """The topology with the real library. It runs once: each start needs a new one."""
        library = Library(self.jvm, self.id)
        stream = library.stream(self.ours.orders, Id=str, ProductType=int)
        library.grouped(stream, order_key, "quantities").count(library.stored("totals"))
        return library, library.builder.build()

    def run_jvm(self, count: int, *, is_forgotten: bool = True, **config: str) -> str:
        """Process ``count`` more orders with Kafka Streams, and close it. Returns its description.

        ``is_forgotten``: the brokers have forgotten its member then.
        """
        library, built = self.declare()
        description = str(built.describe().toString())
        self.order_many(count)
        more = {"processing_guarantee": "exactly_once_v2", **(config or SHORT_SESSION)}
        with running(library, built, self.ours.bootstrap_servers, self.home / "jvm", **more):
            eventually(
                lambda: self.ours.totals() == self.expected(), "the totals of Kafka Streams", evidence=self.evidence
            )
        if is_forgotten:
            eventually(lambda: not members(Brokers(self.ours.bootstrap_servers), self.id), "its member is forgotten")
        return description

    def evidence(self) -> str:
        return f"{self.ours.totals()} where {self.expected()} was expected"

    def run_ours(self, count: int) -> None:
        self.order_many(count)
        self.ours.drain()

    def verdicts(self) -> dict[str, str]:
        """What a plan says of the take-over."""
        plan = observe_evolution(
            self.ours.pipeline, KafkaCluster(Brokers(self.ours.bootstrap_servers)), str(self.ours.checkpoints)
        )
        return {f"{change.part} {change.name}": change.verdict.value for change in plan.changes}

    def positions(self) -> dict[tuple[str, int], str]:
        """The metadata of the positions that Kafka Streams has committed.

        librdkafka may leave other characters behind a text, so it is cut at the length that the library gives it: the
        version and the time of the partition, nine bytes in base64.
        """
        consumer = Consumer({"bootstrap.servers": self.ours.bootstrap_servers, "group.id": self.id})
        places = [(topic, n) for topic in (self.ours.orders, self.ours.repartition) for n in (0, 1)]
        found = committed_offsets(consumer, self.id, places, Brokers(self.ours.bootstrap_servers), 120)
        consumer.close()
        return {place: at.metadata[:12] for place, at in found.items()}


@pytest.fixture
def application(jvm: Any, bootstrap_servers: str, tmp_path: Path, spark: SparkSession) -> Iterator[HandedOver]:
    made = HandedOver(jvm, bootstrap_servers, tmp_path, spark)
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(made.ours.orders, 2, 2)])[made.ours.orders].result(120)
    yield made
    forget(made.id, bootstrap_servers)
    admin.delete_topics([made.ours.orders])[made.ours.orders].exception(120)


@pytest.mark.parametrize("counts", [(700,), *soak([(700, 300)])], ids=["once", "twice"])
def test_totals_are_exact_from_the_jvm_to_ours_and_back(application: HandedOver, counts: tuple[int, ...]) -> None:
    """The second time the aggregator finds a checkpoint of its own, which Kafka Streams has left behind."""
    ours = application.ours
    assert application.run_jvm(500) == ours.topology.describe()
    left = application.positions().values()
    assert left
    assert {base64.b64decode(metadata)[0] for metadata in left} == {2}
    assert application.verdicts() == {
        "sub-topology 0": "kept",
        "sub-topology 1": "rebuilt",
        "store totals": "not known",
        f"topic {ours.dead_letter}": "created",
    }

    ours.create_topics()
    for count in counts:
        application.run_ours(count)
        assert ours.totals() == application.expected()
        assert sum(ours.totals().values()) == application.produced
        cluster = KafkaCluster(Brokers(ours.bootstrap_servers))
        results = [run_check(application_in(ours.pipeline, cluster), check, cluster) for check in CHECKS]
        assert [f"{result.check}: {result.reason}" for result in results if result.outcome is not Outcome.PASSED] == []

        application.run_jvm(400)
        assert sum(ours.totals().values()) == application.produced


DEFAULT_SESSION = {"session_timeout_ms": "45000"}
KIP_1071 = {"group_protocol": "streams"}


@pytest.mark.soak
@pytest.mark.parametrize(
    "protocols",
    [(DEFAULT_SESSION, "classic"), (DEFAULT_SESSION, "consumer"), (KIP_1071, "classic"), (KIP_1071, "consumer")],
    ids=lambda both: f"{next(iter(both[0]))} and {both[1]}",
)
def test_each_goes_on_right_after_the_other_was_stopped(
    application: HandedOver, protocols: tuple[dict[str, str], str]
) -> None:
    """The member of a JVM application stays in the group until its session ends, but for the protocol of KIP-1071."""
    theirs, protocol = protocols
    ours = application.ours
    apply_topics(Brokers(ours.bootstrap_servers), ours.pipeline)
    brokers = Brokers(ours.bootstrap_servers, {"group.protocol": protocol})
    application.run_jvm(200, is_forgotten=False, **theirs)
    application.order_many(100)
    lines: list[str] = []
    drain(ours.spark, ours.pipeline, brokers, ours.checkpoints, report=lines.append)
    assert ours.totals() == application.expected()
    if theirs is DEFAULT_SESSION:
        (waited,) = (line for line in lines if "Waiting up to 60 s" in line)
        assert re.search(rf"{application.id}-.*-StreamThread-1-consumer on 127\.0\.0\.1", waited)
    application.run_jvm(200, **theirs)
    assert sum(ours.totals().values()) == application.produced


def test_a_jvm_application_that_runs_is_not_taken_over(
    application: HandedOver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_ownership, "FOREIGN_SECONDS", 3.0)
    ours = application.ours
    library, built = application.declare()
    application.order_many(50)
    with running(library, built, ours.bootstrap_servers, application.home / "jvm", **SHORT_SESSION):
        eventually(lambda: ours.totals() == application.expected(), "the totals of Kafka Streams")
        ours.create_topics()
        before = application.positions()
        assert application.verdicts()[f"application {application.id}"] == "refused"
        with pytest.raises(Refused, match=f"{application.id}.*session.timeout.ms"):
            ours.drain()
        assert application.positions() == before
        application.order_many(50)
        eventually(lambda: ours.totals() == application.expected(), "more totals of Kafka Streams")


@pytest.mark.soak
def test_a_jvm_application_whose_members_nobody_can_list_is_not_taken_over(
    application: HandedOver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group protocol of Kafka Streams (KIP-1071). The application leaves its group when it is closed."""
    monkeypatch.setattr(task_ownership, "FOREIGN_SECONDS", 3.0)
    ours, settings = application.ours, Settings.from_environment({"STREAMPLAN_HOME": str(tmp_path)})
    brokers = Brokers(ours.bootstrap_servers)
    stopped = partial(require_stopped, ours.pipeline, brokers, settings, action="the reset", report=lambda line: None)
    library, built = application.declare()
    application.order_many(50)
    with running(library, built, ours.bootstrap_servers, application.home / "jvm", **KIP_1071):
        eventually(lambda: ours.totals() == application.expected(), "the totals of Kafka Streams")
        ours.create_topics()
        before = application.positions()
        for refused in (stopped, ours.drain):
            with pytest.raises(Refused, match=r"members of another protocol, such as those of group\.protocol=streams"):
                refused()
        assert application.positions() == before
    stopped()
