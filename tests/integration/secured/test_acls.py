"""Each role runs with the ACLs that ``streamplan acls`` lists for it, and cannot do its work without any of them."""

from __future__ import annotations

import itertools
import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AclOperation, ResourcePatternType, ResourceType
from pyspark.sql import SparkSession
from streamplan.checks import CHECKS, not_applicable
from streamplan.checks.discovery.running import running_application
from streamplan.checks.framework.check import Outcome, run_checks
from streamplan.errors import StreamplanError
from streamplan.files import ReportPaths
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.groups import delete_group
from streamplan.kafka.task_ownership import TaskOwnership, stop_application
from streamplan.kafka.test_data import produce
from streamplan.kafka.topics import apply_topics, delete_records, delete_topics
from streamplan.maintenance.evolution import observe_evolution
from streamplan.maintenance.reset import Resetter
from streamplan.maintenance.upgrade import Upgrader
from streamplan.model.acls import AclEntry, Role, required_acls
from streamplan.model.pipeline import Pipeline, TestData
from streamplan.model.topology import Topology
from streamplan.pipelines.orders import ORDER, order
from streamplan.queries import open_queries
from streamplan.reports.sink_offsets import read_sink_offsets
from streamplan.settings import Settings
from streamplan.spark.recount.recount import recount
from streamplan.testing import assert_healthy

from tests.support.draining import drain
from tests.support.records import read_committed
from tests.support.secured_brokers import SecuredBrokers

_numbers = itertools.count()

KINDS = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP, "transactional-id": ResourceType.TRANSACTIONAL_ID}
OPERATIONS = {
    "Read": AclOperation.READ,
    "Write": AclOperation.WRITE,
    "Create": AclOperation.CREATE,
    "Delete": AclOperation.DELETE,
    "Describe": AclOperation.DESCRIBE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
}


@dataclass
class Secured:
    """A pipeline on secured brokers, and a user for each role of it."""

    brokers: SecuredBrokers
    pipeline: Pipeline
    home: Path
    spark: SparkSession
    written: int = 0

    @property
    def settings(self) -> Settings:
        return Settings(self.home, str(self.home / "checkpoints"), self.home / "reports", None)

    def user(self, entries: Sequence[AclEntry]) -> Brokers:
        """A new user who may do what the entries say."""
        user = self.brokers.scram_user()
        name = user.properties["sasl.username"]
        for entry in entries:
            pattern = ResourcePatternType.PREFIXED if entry.prefixed else ResourcePatternType.LITERAL
            kind, operation = KINDS[entry.resource_type], OPERATIONS[entry.operation]
            self.brokers.allow(name, kind, entry.name, [operation], pattern)
        return user

    def write(self) -> None:
        """One order that is counted, and one record that is dead-lettered."""
        (topic,) = self.pipeline.topology.source_topics
        producer = Producer(
            {"bootstrap.servers": self.brokers.super_user.servers, **self.brokers.super_user.properties}
        )
        for key, value in (order(0), (b"k", b"no JSON")):
            producer.produce(topic, value, key, 0)
        assert producer.flush(120) == 0
        self.written += 1

    def aggregate(self, brokers: Brokers) -> None:
        """A start that restores its state, and processes all that is there."""
        shutil.rmtree(self.home / "checkpoints", ignore_errors=True)
        drain(self.spark, self.pipeline, brokers, self.settings.checkpoints)

    def produce(self, brokers: Brokers) -> None:
        made = produce(self.pipeline, brokers, records=10, stop=threading.Event(), progress=lambda *_: None)
        self.written += made.records

    def check(self, brokers: Brokers) -> None:
        assert_healthy(brokers, self.pipeline)

    def deploy(self, brokers: Brokers) -> None:
        """Plan, create the topics, let an aggregator claim its tasks, stop it, purge, and reset."""
        assert not observe_evolution(self.pipeline, KafkaCluster(brokers), self.settings.checkpoints).refused
        apply_topics(brokers, self.pipeline)
        with TaskOwnership(self.pipeline, self.brokers.super_user) as ownership:
            ownership.claim({0: False, 1: False})
        stop_application(self.pipeline, brokers)
        delete_records(brokers, self.pipeline.topology.decorate("quantities-repartition"), {0: 0})
        reset = Resetter(self.pipeline, brokers, self.settings)
        reset.apply(reset.observe().written())

    def ask(self, brokers: Brokers) -> None:
        with open_queries(self.pipeline, brokers) as queries:
            assert sum(count for _, count in queries.key_value_store("totals").all()) == self.counted()

    def delete_all(self) -> None:
        """As before the first deployment."""
        delete_group(self.brokers.super_user, self.pipeline.topology.application_id)
        delete_topics(self.brokers.super_user, [spec.name for spec in self.pipeline.topics()])
        shutil.rmtree(self.home / "checkpoints", ignore_errors=True)

    def counted(self) -> int:
        """The sum of the totals, as a consumer of the super user reads the changelog."""
        brokers = self.brokers.super_user
        changelog = self.pipeline.topology.changelog_topic("totals")
        records = read_committed(brokers.servers, changelog, brokers.properties)
        return sum({record.key(): int.from_bytes(record.value(), "big") for record in records}.values())


@pytest.fixture(scope="module")
def secured(secured_brokers: SecuredBrokers, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Secured:
    number = next(_numbers)
    orders = f"allowed-orders-{number}"
    topology = Topology(f"allowed-{number}")
    topology.stream(orders, value=ORDER).group_by("ProductType", name="quantities").count(store="totals")
    test_data = TestData((orders,), lambda n: (orders, *order(n)), "Id")
    pipeline = Pipeline(f"allowed{number}", topology, "", {orders: 2}, test_data)
    apply_topics(secured_brokers.super_user, pipeline)
    secured_brokers.await_topics(*(spec.name for spec in pipeline.topics()))
    return Secured(secured_brokers, pipeline, tmp_path_factory.mktemp("secured"), spark)


ACTIONS: dict[Role, Callable[[Secured, Brokers], None]] = {
    Role.PRODUCER: Secured.produce,
    Role.AGGREGATOR: Secured.aggregate,
    Role.CHECKS: Secured.check,
    Role.DEPLOYER: Secured.deploy,
    Role.QUERIES: Secured.ask,
}


@pytest.mark.parametrize("role", list(ACTIONS))
def test_each_role_works_with_its_acls(secured: Secured, role: Role) -> None:
    if role is Role.DEPLOYER:
        secured.delete_all()
    elif role is Role.AGGREGATOR:
        secured.write()
    user = secured.user(required_acls(secured.pipeline, role))
    ACTIONS[role](secured, user)
    if role is Role.AGGREGATOR:
        secured.write()
        secured.aggregate(user)  # from the changelog
        assert secured.counted() == secured.written


@pytest.mark.soak
@pytest.mark.parametrize("role", list(ACTIONS))
def test_no_role_works_without_any_of_them(secured: Secured, role: Role) -> None:
    entries = required_acls(secured.pipeline, role)
    work = ACTIONS[role]
    if role is not Role.DEPLOYER:
        secured.write()
        secured.aggregate(secured.brokers.super_user)  # so that there is a state to restore, and nothing lags
    not_needed: list[str] = []
    for left_out in entries:
        if role is Role.DEPLOYER:
            secured.delete_all()
        elif role is not Role.CHECKS:
            secured.write()  # so that there is something to read, and a dead letter
        user = secured.user([entry for entry in entries if entry != left_out])
        try:
            work(secured, user)
        except (StreamplanError, KafkaException, AssertionError):
            continue
        not_needed.append(f"{left_out.operation} on {left_out.resource_type} {left_out.name}")
    assert not_needed == []


@pytest.mark.soak
def test_an_upgrade_works_with_its_acls(secured_brokers: SecuredBrokers, spark: SparkSession, tmp_path: Path) -> None:
    """The deployer, who has the entries of the aggregator, too, builds and switches. The checks look on."""
    name = f"allowed-upgrade-{next(_numbers)}"
    orders, paid, old_id = f"{name}-orders", f"{name}-paid", f"{name}-v1"

    def declare(application_id: str, upgrade_from: str | None = None) -> Pipeline:
        topology = Topology(application_id)
        stream = topology.stream(orders, value=ORDER)
        stream.to(paid)
        stream.group_by("ProductType", name="quantities").aggregate({"orders": "count(*)"}, store="totals")
        return Pipeline(name, topology, "", {orders: 2, paid: 2}, upgrade_from=upgrade_from)

    old, new = declare(old_id), declare(f"{name}-v2", old_id)
    before, after = (Secured(secured_brokers, pipeline, tmp_path, spark) for pipeline in (old, new))
    apply_topics(secured_brokers.super_user, old)
    secured_brokers.await_topics(*(spec.name for spec in old.topics()))
    before.write()
    drain(spark, old, secured_brokers.super_user, before.settings.checkpoints)
    deployer = after.user([*required_acls(new, Role.DEPLOYER), *required_acls(new, Role.AGGREGATOR)])
    checks = after.user(required_acls(new, Role.CHECKS))
    cluster = KafkaCluster(checks)
    looked_at = [running_application(new, cluster)]
    upgrader = Upgrader(new, deployer, after.settings)
    built = upgrader.build(spark)
    looked_at.append(running_application(new, cluster))
    before.write()
    drain(spark, old, secured_brokers.super_user, before.settings.checkpoints)
    switched = upgrader.switch(spark)
    looked_at.append(running_application(new, cluster))
    assert built is not None
    assert switched is not None
    assert [(store.equal, store.different, store.is_same) for store in switched.stores] == [(1, 0, True)]
    assert [each.application_id for each in looked_at] == [old_id, old_id, f"{name}-v2"]
    for application in looked_at:
        chosen = [check for check in CHECKS if check.name not in {"skew", *not_applicable(application)}]
        results = run_checks(application, chosen, lambda: KafkaCluster(checks))
        assert [result for result in results if result.outcome is not Outcome.PASSED] == []
    assert f"topic {old_id}-totals-changelog" in upgrader.observe().left_over
    before.write()
    drain(spark, new, after.user(required_acls(new, Role.AGGREGATOR)), after.settings.checkpoints)
    super_user = secured_brokers.super_user
    assert len(read_committed(super_user.servers, paid, super_user.properties)) == 3
    sinks = read_sink_offsets(ReportPaths(after.settings.reports, name).sink_offsets, cluster)
    rows = recount(spark, new, cluster, checks, sinks)
    assert [row for row in rows if not row.agrees] == []
    assert any(row.subject.startswith(paid) for row in rows)
