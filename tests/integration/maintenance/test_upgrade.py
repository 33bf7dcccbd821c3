"""A changed declaration that takes over from the old one, and back again, on real brokers and Spark.

The truth is a plain recount of what was produced, and what a plain consumer reads of the outputs.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from streamplan.errors import Refused, StreamplanError
from streamplan.files import ReportPaths
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.groups import set_positions
from streamplan.kafka.task_ownership import TaskOwnership, stop_application
from streamplan.kafka.topics import apply_topics, delete_records
from streamplan.maintenance import upgrade
from streamplan.maintenance.reset import Resetter
from streamplan.maintenance.upgrade import Upgrader
from streamplan.maintenance.upgrade_plan import Comparison, Stage, StoreComparison
from streamplan.model.committed_positions import latest_generation
from streamplan.model.generation import Generation, PositionMetadata
from streamplan.model.pipeline import Pipeline
from streamplan.model.topology import Topology
from streamplan.reports.sink_offsets import read_sink_offsets
from streamplan.serdes.json import Json
from streamplan.settings import PROJECT, Settings
from streamplan.spark import aggregator
from streamplan.spark.deployment import Deployment
from streamplan.spark.recount.recount import recount
from streamplan.spark.submit import LOCAL_MASTER, spark_submit_configs

from tests.support.draining import drain
from tests.support.records import read_committed
from tests.support.spark_cluster import EmbeddedSpark
from tests.support.waiting import DEADLINE_SECONDS, eventually

_numbers = itertools.count()

NOBODY: Any = None
"""In place of a Spark session: nothing is processed."""


class Killed(Exception):
    """The process ends here."""


def killed(*_: Any, **__: Any) -> None:
    raise Killed


class Shop:
    """Orders that are passed on, counted and summed up. The changed declaration has the greatest amount in place of the
    sum, and one store more."""

    def __init__(self, bootstrap_servers: str, home: Path) -> None:
        self.name = f"upgraded-{os.getpid()}-{next(_numbers)}"
        self.bootstrap_servers = bootstrap_servers
        self.brokers = Brokers(bootstrap_servers)
        self.settings = Settings.from_environment({"STREAMPLAN_HOME": str(home)})
        self.orders, self.paid, self.counts = (f"{self.name}-{topic}" for topic in ("orders", "paid", "counts"))
        self.old, self.new = f"{self.name}-v1", f"{self.name}-v2"
        self.produced: list[dict[str, Any]] = []
        self.said: list[str] = []

    def declare(self, *, changed: bool, upgrade_from: str | None = None) -> Pipeline:
        topology = Topology(self.new if changed else self.old)
        orders = topology.stream(self.orders, value=Json("id string, kind string, amount bigint"))
        orders.filter("amount > 2").to(self.paid)
        by_kind = orders.group_by("kind", name="by-kind")
        by_kind.count(store="totals").to_stream().to(self.counts)
        by_kind.aggregate({"amount": "max(amount)" if changed else "sum(amount)"}, store="amounts")
        if changed:
            by_kind.aggregate({"least": "min(amount)"}, store="least")
        counts = {self.orders: 2, self.paid: 2, self.counts: 2}
        return Pipeline(self.name, topology, "", counts, upgrade_from=upgrade_from)

    def produce(self, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap_servers})
        for number in range(len(self.produced), len(self.produced) + count):
            order = {"id": f"order {number}", "kind": f"kind {number % 3}", "amount": 7 * number % 11}
            producer.produce(self.orders, json.dumps(order), f"k{number}", partition=number % 2)
            self.produced.append(order)
        assert producer.flush(60) == 0

    @contextmanager
    def producing(self) -> Iterator[None]:
        """Produce an order now and then."""
        ended = threading.Event()

        def work() -> None:
            while not ended.wait(0.02):
                self.produce(1)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(DEADLINE_SECONDS)

    def upgrader(self, pipeline: Pipeline) -> Upgrader:
        return Upgrader(pipeline, self.brokers, self.settings, self.said.append, quiet_seconds=5.0)

    def held(self, application_id: str, store: str) -> dict[str, Any]:
        """The last value of each key of a changelog."""
        found = read_committed(self.bootstrap_servers, f"{application_id}-{store}-changelog")
        last = {message.key().decode(): message.value() for message in found}
        if store == "totals":
            return {key: int.from_bytes(value, "big") for key, value in last.items()}
        return {key: next(iter(json.loads(value).values())) for key, value in last.items()}

    def amounts(self) -> dict[str, list[int]]:
        """Plain Python: the amounts of all orders by kind."""
        found = defaultdict(list)
        for order in self.produced:
            found[order["kind"]].append(order["amount"])
        return found

    def require_state_of_all_orders(self, application_id: str) -> None:
        amounts = self.amounts()
        assert self.held(application_id, "totals") == {kind: len(each) for kind, each in amounts.items()}
        whole = max if application_id == self.new else sum
        assert self.held(application_id, "amounts") == {kind: whole(each) for kind, each in amounts.items()}
        if application_id == self.new:
            assert self.held(application_id, "least") == {kind: min(each) for kind, each in amounts.items()}

    def require_each_output_once(self) -> None:
        """Each paid order was passed on once. The counts of a kind grow up to the number of its orders."""
        paid = [json.loads(message.value())["id"] for message in read_committed(self.bootstrap_servers, self.paid)]
        assert sorted(paid) == sorted(order["id"] for order in self.produced if order["amount"] > 2)
        counts = defaultdict(list)
        for message in read_committed(self.bootstrap_servers, self.counts):
            counts[message.key().decode()].append(int.from_bytes(message.value(), "big"))
        assert all(each == sorted({*each}) for each in counts.values()), counts
        assert {kind: each[-1] for kind, each in counts.items()} == {k: len(each) for k, each in self.amounts().items()}

    def require_beside(self, pipeline: Pipeline) -> None:
        """No aggregator of the application starts."""
        with (
            TaskOwnership(pipeline, self.brokers) as ownership,
            pytest.raises(Refused, match="a candidate application"),
        ):
            ownership.claim({0: False, 1: False})

    def close(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        topics = [topic for topic in admin.list_topics(timeout=60).topics if topic.startswith(self.name)]
        for future in admin.delete_topics(topics).values():
            future.exception(120)


@pytest.fixture
def shop(bootstrap_servers: str, tmp_path: Path) -> Iterator[Shop]:
    made = Shop(bootstrap_servers, tmp_path)
    yield made
    made.close()


class Running:
    """An aggregator that goes on until it is asked to end, in a thread; a context manager that stops it."""

    def __init__(self, shop: Shop, pipeline: Pipeline, spark: SparkSession) -> None:
        self.said: list[str] = []
        self.errors: list[StreamplanError] = []
        self._stop = threading.Event()

        def work() -> None:
            try:
                aggregator.run(
                    spark,
                    Deployment(pipeline, shop.brokers, shop.settings.checkpoints),
                    available_now=False,
                    trigger_interval_ms=100,
                    stop=self._stop,
                    report=self.said.append,
                )
            except StreamplanError as error:
                self.errors.append(error)

        self._thread = threading.Thread(target=work, daemon=True)

    def __enter__(self) -> Running:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self.join()

    def join(self) -> None:
        """Wait until it has ended by itself, and not by an error."""
        self._thread.join(DEADLINE_SECONDS)
        assert not self._thread.is_alive()
        assert self.errors == []


def test_a_changed_declaration_takes_over_and_back_again(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def process(pipeline: Pipeline) -> None:
        drain(spark, pipeline, shop.brokers, shop.settings.checkpoints)

    old = shop.declare(changed=False)
    new = shop.declare(changed=True, upgrade_from=shop.old)
    upgrader = shop.upgrader(new)
    apply_topics(shop.brokers, old)
    shop.produce(16)

    with Running(shop, old, spark) as running:
        eventually(lambda: sum(shop.held(shop.old, "totals").values()) == 16, "the old application counts")

        # The changed declaration does not begin by itself.
        apply_topics(shop.brokers, new)
        shop.require_beside(new)
        plan = upgrader.observe()
        assert (plan.stage, plan.records) == (Stage.NOT_BEGUN, {shop.orders: 16})

        # A build that dies between two sub-topologies. The next one completes it.
        with monkeypatch.context() as patch:
            prepared, prepare = itertools.count(), aggregator.prepare_checkpoint
            patch.setattr(
                aggregator,
                "prepare_checkpoint",
                lambda *arguments: killed() if next(prepared) == 1 else prepare(*arguments),
            )
            with pytest.raises(Killed):
                upgrader.build(spark)
        built = upgrader.build(spark)
        assert built is not None
        totals, amounts, least = built.stores
        assert (totals.equal, totals.different, totals.is_same) == (3, 0, True)
        assert "sum(amount)" in amounts.left_out
        assert "max(amount)" in amounts.left_out
        assert "no store of this name" in least.left_out
        shop.require_state_of_all_orders(shop.new)

        # Somebody goes on producing while the old application is asked to end.
        with shop.producing():
            eventually(lambda: sum(shop.held(shop.old, "totals").values()) > 20, "the old application counts")
            # Differences are refused. The old application has ended by then, and could be started again.
            differing = StoreComparison("totals", "", True, 2, 0, 1, ("'a': it was 1, and is 2",))
            with monkeypatch.context() as patch:
                patch.setattr(Upgrader, "_compare", lambda *_, **__: Comparison((differing,), True))
                with pytest.raises(Refused, match=r"1 keys of totals differ, such as 'a': it was 1, and is 2.*accept"):
                    upgrader.switch(spark)
            running.join()
            with TaskOwnership(old, shop.brokers) as ownership:
                assert ownership.claim({0: False, 1: False})
            # A switch that dies before and between the two commits.
            for step in ("_retire", "_take_over"):
                with monkeypatch.context() as patch:
                    patch.setattr(Upgrader, step, killed)
                    with pytest.raises(Killed):
                        upgrader.switch(spark)
    assert upgrader.observe().stage is Stage.HALFWAY
    shop.require_beside(old)
    shop.require_beside(new)
    assert upgrader.switch(spark) is None
    assert upgrader.observe().stage is Stage.DONE
    assert upgrader.switch(spark) is None
    shop.require_beside(old)

    # The old one has not processed everything, and the new one has processed the same.
    assert shop.held(shop.new, "totals") == shop.held(shop.old, "totals")
    assert 20 < sum(shop.held(shop.new, "totals").values()) < len(shop.produced)
    process(new)
    shop.require_state_of_all_orders(shop.new)
    shop.require_each_output_once()
    # So the check of totals sees it: it reads what was staged, and then what was written since.
    sinks = read_sink_offsets(ReportPaths(shop.settings.reports, shop.name).sink_offsets, KafkaCluster(shop.brokers))
    assert sinks.staging == {topic: f"{shop.new}-staging-{topic}" for topic in (shop.paid, shop.counts)}
    rows = recount(spark, new, KafkaCluster(shop.brokers), shop.brokers, sinks)
    assert [row for row in rows if not row.agrees] == []
    assert {shop.paid, shop.counts} <= {row.subject.partition(":")[0] for row in rows}

    # Back: the old declaration names the application that runs now, and was killed.
    back = shop.declare(changed=False, upgrade_from=shop.new)
    assert shop.upgrader(back).observe().stage is Stage.BESIDE
    compared = shop.upgrader(back).switch(spark)
    assert compared is not None
    assert [(store.store, store.equal, store.different) for store in compared.stores if not store.left_out] == [
        ("totals", 3, 0)
    ]
    shop.require_state_of_all_orders(shop.old)
    shop.require_beside(new)
    shop.produce(5)
    process(old)
    shop.require_state_of_all_orders(shop.old)
    shop.require_each_output_once()


@pytest.fixture
def begun(shop: Shop) -> Pipeline:
    """The changed declaration of an application that has positions, and whose topics are empty."""
    old = shop.declare(changed=False)
    apply_topics(shop.brokers, old)
    with TaskOwnership(old, shop.brokers) as ownership:
        ownership.claim({0: False, 1: False})
    return shop.declare(changed=True, upgrade_from=shop.old)


def test_records_in_a_repartition_topic_must_be_processed_first(shop: Shop, begun: Pipeline) -> None:
    producer = Producer({"bootstrap.servers": shop.bootstrap_servers})
    producer.produce(f"{shop.old}-by-kind-repartition", b"{}", b"kind 0")
    assert producer.flush(60) == 0
    with pytest.raises(Refused, match=r"1 records of .*-v1-by-kind-repartition are not.*--available-now"):
        shop.upgrader(begun).switch(NOBODY)
    assert shop.upgrader(begun).observe().stage is Stage.NOT_BEGUN


def test_what_cannot_be_upgraded_is_refused(shop: Shop, begun: Pipeline) -> None:
    undeclared = shop.declare(changed=True)
    with pytest.raises(Refused, match=f"declares no upgrade.*upgrade_from='{shop.new}'"):
        shop.upgrader(undeclared).observe()
    with pytest.raises(Refused, match="expected positions that an aggregator committed, observed none"):
        shop.upgrader(shop.declare(changed=True, upgrade_from=f"{shop.name}-another")).observe()

    # What an application of this id has left would be taken for state.
    apply_topics(shop.brokers, begun)
    producer = Producer({"bootstrap.servers": shop.bootstrap_servers})
    producer.produce(f"{shop.new}-totals-changelog", bytes(8), b"kind 0")
    assert producer.flush(60) == 0
    with pytest.raises(Refused, match=f"expected empty.*observed records in {shop.new}-totals-changelog"):
        shop.upgrader(begun).build(NOBODY)

    # Both write.
    generation = Generation.of_this_process(None)
    set_positions(shop.brokers, shop.new, {(shop.orders, 0): 0}, metadata=PositionMetadata(generation).text)
    with pytest.raises(Refused, match="both of them write the outputs"):
        shop.upgrader(begun).observe()

    # The one that it names is a candidate application itself.
    generation = Generation.of_this_process(generation, beside=True)
    set_positions(shop.brokers, shop.new, {(shop.orders, 0): 0}, metadata=PositionMetadata(generation).text)
    third = shop.declare(changed=False, upgrade_from=shop.new)
    with TaskOwnership(third, shop.brokers) as ownership:
        assert ownership.claim({0: False, 1: False})
    topology = Topology(f"{shop.name}-v3")
    topology.stream(shop.orders, value=Json("id string")).to(shop.paid)
    another = Pipeline(shop.name, topology, "", {shop.orders: 2, shop.paid: 2}, upgrade_from=shop.new)
    with pytest.raises(Refused, match="Name that other application in upgrade_from"):
        shop.upgrader(another).observe()

    # Two of its sub-topologies read what each other writes.
    joined = f"{shop.name}-joined"
    registration = f"{joined}-by-carrier-subscription-registration-topic"
    admin = AdminClient({"bootstrap.servers": shop.bootstrap_servers})
    admin.create_topics([NewTopic(registration, 1)])[registration].result(60)
    set_positions(shop.brokers, joined, {(registration, 0): 0}, metadata=PositionMetadata(generation).text)
    with pytest.raises(Refused, match=f"no join of tables by a foreign key, observed {registration}"):
        shop.upgrader(shop.declare(changed=True, upgrade_from=joined)).observe()


def test_a_stop_keeps_an_application_beside(shop: Shop, begun: Pipeline) -> None:
    set_positions(
        shop.brokers,
        shop.new,
        dict.fromkeys(KafkaCluster(shop.brokers).committed_positions(shop.old), 0),
        metadata=PositionMetadata(Generation.of_this_process(None, beside=True)).text,
    )
    apply_topics(shop.brokers, begun)
    stop = stop_application(begun, shop.brokers)
    assert stop is not None
    assert (stop.is_stop, stop.is_beside) == (True, True)
    shop.require_beside(begun)


def test_input_that_was_deleted_is_told_and_must_be_accepted(shop: Shop, begun: Pipeline) -> None:
    """No checkpoint of the old application is here, so nothing says that its stores need nothing of what is gone."""
    shop.produce(6)
    positions = {(shop.orders, 0): 2, (shop.orders, 1): 0}
    with TaskOwnership(shop.declare(changed=False), shop.brokers) as ownership:
        metadata = PositionMetadata(ownership.claim({0: False, 1: False}).generation).text
    set_positions(shop.brokers, shop.old, positions, metadata=metadata)
    delete_records(shop.brokers, shop.orders, {0: 2})
    told = f"`{shop.orders}-0` begins at offset 2, and {shop.old} began at 0"
    assert shop.upgrader(begun).observe().missing == (told,)
    built = shop.upgrader(begun).build(NOBODY)
    assert built is not None
    assert [store.store for store in built.incomplete] == ["totals", "amounts", "least"]
    assert told in built.text
    assert "unless it is told to accept differences" in built.text
    assert shop.upgrader(begun).observe().missing == (told,)
    with pytest.raises(Refused, match=r"orders-0 begins at offset 2.*switch with accept_differences.*can go on"):
        shop.upgrader(begun).switch(NOBODY)
    with TaskOwnership(shop.declare(changed=False), shop.brokers) as ownership:
        assert ownership.claim({0: False, 1: False})
    assert shop.upgrader(begun).switch(NOBODY, accept_differences=True) is not None
    done = shop.upgrader(begun).observe()
    assert done.stage is Stage.DONE
    internal = ("amounts-changelog", "by-kind-repartition", "dead-letter", "totals-changelog")
    staging = (begun.staging_topics[topic] for topic in (shop.counts, shop.paid))
    topics = [*(f"{shop.old}-{topic}" for topic in internal), *staging]
    assert [*done.left_over] == [*(f"topic {topic}" for topic in topics), f"group {shop.old}"]
    assert f"- group {shop.old}" in done.text


def test_a_reset_of_what_was_built_leaves_the_application_that_runs_alone(shop: Shop, begun: Pipeline) -> None:
    """So an upgrade that nobody wants is taken back, and the checks of the old application go on."""
    assert shop.upgrader(begun).build(NOBODY) is not None
    staging = begun.staging_topics[shop.paid]
    producer = Producer({"bootstrap.servers": shop.bootstrap_servers})
    for topic in (shop.paid, staging):
        producer.produce(topic, b"{}", b"k")
    assert producer.flush(60) == 0
    paths = ReportPaths(shop.settings.reports, shop.name)
    paths.verified_store.parent.mkdir(parents=True)
    paths.verified_store.write_text("what was verified of the old application")
    before = KafkaCluster(shop.brokers).committed_positions(shop.old)

    reset = Resetter(begun, shop.brokers, shop.settings, shop.said.append)
    plan = reset.observe()
    assert f"topic `{staging}`: at most 1 records" in plan.text
    assert f"`{shop.old}` goes on" in plan.text
    reset.apply(plan.written())
    cluster = KafkaCluster(shop.brokers)
    assert cluster.committed_positions(shop.new) == {}
    assert cluster.topics([staging, shop.paid]).keys() == {shop.paid}
    assert cluster.committed_positions(shop.old) == before
    assert paths.verified_store.exists()
    # What is in the outputs counts for the old application from its first record on.
    assert read_sink_offsets(paths.sink_offsets, cluster).begins == {}
    assert shop.upgrader(begun).observe().stage is Stage.NOT_BEGUN


def test_a_reset_between_the_two_commits_of_a_switch_is_refused(shop: Shop, begun: Pipeline) -> None:
    """After it neither application could start."""
    apply_topics(shop.brokers, begun)
    committed = KafkaCluster(shop.brokers).committed_positions(shop.old)
    offsets = {place: position.offset for place, position in committed.items()}
    for application in (shop.old, shop.new):
        latest = latest_generation(KafkaCluster(shop.brokers).committed_positions(application).values())
        metadata = PositionMetadata(Generation.of_this_process(latest, beside=True)).text
        set_positions(shop.brokers, application, offsets, metadata=metadata)
    assert shop.upgrader(begun).observe().stage is Stage.HALFWAY
    with pytest.raises(Refused, match=f"that neither does, because a switch has stopped halfway.*{shop.name}_upgrade"):
        Resetter(begun, shop.brokers, shop.settings).observe()


STEPS = (
    "apply_topics",
    "delete_topics",
    "apply_specs",
    "set_positions",
    "compare_stores",
    "plan_waiting",
    "set_beside",
    "record_switch",
)


@pytest.mark.soak
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_switch_that_dies_anywhere_is_completed(
    shop: Shop, begun: Pipeline, monkeypatch: pytest.MonkeyPatch, step: str, after: bool
) -> None:
    """The process dies before or behind each call that changes something, whenever it comes."""
    deaths, calls = 0, itertools.count()
    while shop.upgrader(begun).observe().stage is not Stage.DONE:
        turn, passed = deaths, itertools.count()
        original: Any = getattr(upgrade, step)

        def dying(*arguments: Any, **named: Any) -> Any:
            is_the_one = next(passed) == turn  # noqa: B023
            if is_the_one and not after:
                raise Killed
            result = original(*arguments, **named)  # noqa: B023
            if is_the_one:
                raise Killed
            return result

        with monkeypatch.context() as patch:
            patch.setattr(upgrade, step, dying)
            try:
                shop.upgrader(begun).switch(NOBODY)
            except Killed:
                deaths += 1
        assert next(calls) < 10
    assert deaths
    sinks = read_sink_offsets(ReportPaths(shop.settings.reports, shop.name).sink_offsets, KafkaCluster(shop.brokers))
    assert (sinks.staging, sinks.in_turn) == (begun.staging_topics, frozenset())
    shop.require_beside(shop.declare(changed=False))
    with TaskOwnership(begun, shop.brokers) as ownership:
        assert ownership.claim({0: False, 1: False})


def test_a_run_that_is_stopped_says_so(shop: Shop, begun: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.produce(2)
    monkeypatch.setattr(upgrade, "_LOOK_SECONDS", 1.0)
    monkeypatch.setattr(aggregator, "run", lambda *_, **__: None)
    # The old application's positions are where it began, so nothing is left to do; a later one has more.
    assert shop.upgrader(begun).build(NOBODY) is not None
    old = shop.declare(changed=False)
    with TaskOwnership(old, shop.brokers) as ownership:
        generation = ownership.claim({0: False, 1: False}).generation
    metadata = PositionMetadata(generation).text
    set_positions(shop.brokers, shop.old, {(shop.orders, 0): 1, (shop.orders, 1): 1}, metadata=metadata)
    with pytest.raises(StreamplanError, match=f"{shop.orders}-0 at 0; {shop.orders}-1 at 0.*Run this again"):
        shop.upgrader(begun).build(NOBODY)


DECLARATION = """
from streamplan import Json, Pipeline, Topology

topology = Topology("{new}")
topology.stream("{orders}", value=Json("id string, kind string, amount bigint")).filter("amount > 2").to("{paid}")
PIPELINE = Pipeline("{name}", topology, "", {{"{orders}": 2, "{paid}": 2}}, upgrade_from="{old}")
"""


@pytest.mark.soak
@pytest.mark.parametrize("how", ["command", "job", "job on a cluster"])
def test_by_command_and_by_the_job_that_airflow_starts(
    shop: Shop,
    begun: Pipeline,
    tmp_path: Path,
    spark_environment: Mapping[str, str],
    spark_jars: Path,
    request: pytest.FixtureRequest,
    how: str,
) -> None:
    shop.produce(4)
    positions = {(shop.orders, 0): 1, (shop.orders, 1): 2}
    with TaskOwnership(shop.declare(changed=False), shop.brokers) as ownership:
        metadata = PositionMetadata(ownership.claim({0: False, 1: False}).generation).text
    set_positions(shop.brokers, shop.old, positions, metadata=metadata)
    (tmp_path / "changed.py").write_text(DECLARATION.format(**vars(shop)))
    environment = {
        **spark_environment,
        "STREAMPLAN_HOME": str(tmp_path),
        "STREAMPLAN_PIPELINES": "changed:PIPELINE",
        "PYTHONPATH": os.pathsep.join([str(tmp_path), spark_environment["PYTHONPATH"]]),
    }
    servers = ["--bootstrap-servers", shop.bootstrap_servers]
    command = [sys.executable, "-m", "streamplan", "upgrade", shop.name, "--yes", *servers]
    commands, found = [command], tmp_path / "found.json"
    if how != "command":
        master, options = LOCAL_MASTER, []
        if how == "job on a cluster":
            cluster: EmbeddedSpark = request.getfixturevalue("spark_cluster")
            cluster.start_workers(2)
            package = shutil.make_archive(str(tmp_path / "streamplan"), "zip", PROJECT / "plugins", "streamplan")
            master, options = cluster.url, ["--executor-memory", "512m", "--executor-cores", "1", "--py-files", package]
        submit = [
            *submitted(spark_jars, master),
            *options,
            str(PROJECT / "jobs" / "upgrade.py"),
            "--pipeline",
            shop.name,
            *servers,
        ]
        commands = [[*submit, "--output", str(found), "--step", step] for step in ("build", "switch")]
    for each in commands:
        done = subprocess.run(each, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert f"{shop.new} has taken over from {shop.old}" in done.stdout
    staged = read_committed(shop.bootstrap_servers, f"{shop.new}-staging-{shop.paid}")
    processed = [shop.produced[0], shop.produced[1], shop.produced[3]]
    assert sorted(json.loads(message.value())["id"] for message in staged) == sorted(
        order["id"] for order in processed if order["amount"] > 2
    )
    assert read_committed(shop.bootstrap_servers, shop.paid) == []
    shop.require_beside(shop.declare(changed=False))


def submitted(jars: Path, master: str) -> list[str]:
    """The call of spark-submit, without a program."""
    return [
        str(Path(sys.executable).with_name("spark-submit")),
        *("--master", master, "--driver-memory", "1g", "--conf", "spark.ui.enabled=false"),
        *(part for config in spark_submit_configs(master).items() for part in ("--conf", "=".join(config))),
        *("--jars", ",".join(map(str, sorted(jars.glob("*.jar"))))),
    ]
