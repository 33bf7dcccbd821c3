"""Who may read and describe an application, and nothing else, can check it; what is not permitted is named."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AclOperation, NewTopic, ResourceType
from streamplan.kafka.brokers import Brokers
from streamplan.model.partitioner import partition_for_key
from streamplan.settings import PROJECT

from tests.support.secured_brokers import SecuredBrokers

READ, DESCRIBE, DESCRIBE_CONFIGS = AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS


@dataclass
class Counted:
    """What an application left that counts the records of a topic by their key, and has processed all of them."""

    brokers: SecuredBrokers
    id: str

    @property
    def topics(self) -> dict[str, dict[str, str]]:
        return {
            f"{self.id}-source": {},
            f"{self.id}-by-key-repartition": {"cleanup.policy": "delete", "retention.ms": "-1"},
            f"{self.id}-totals-changelog": {"cleanup.policy": "compact"},
        }

    def make(self) -> None:
        source, repartition, changelog = self.topics
        admin = self.brokers.admin()
        for future in admin.create_topics(
            [NewTopic(name, 2, 2, config=configs) for name, configs in self.topics.items()]
        ).values():
            future.result(120)
        self.brokers.await_topics(*self.topics)
        super_user = self.brokers.super_user
        producer = Producer(super_user.client_configs())
        ends = dict.fromkeys([(topic, number) for topic in (source, repartition) for number in (0, 1)], 0)
        for n in range(20):
            key = b"key_%d" % (n % 10)
            partition = partition_for_key(key, 2)
            for topic, value in ((source, b"v"), (repartition, b"v"), (changelog, (n // 10 + 1).to_bytes(8, "big"))):
                producer.produce(topic, value, key, partition)
            for topic in (source, repartition):
                ends[topic, partition] += 1
        assert producer.flush(120) == 0
        consumer = Consumer(super_user.client_configs(group_id=self.id))
        consumer.commit(offsets=[TopicPartition(*at, offset) for at, offset in ends.items()], asynchronous=False)
        consumer.close()

    def check(self, user: Brokers, home: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
        file = home / "client.properties"
        file.write_text(json.dumps({"bootstrap.servers": user.servers, **user.properties}))
        command = [sys.executable, "-m", "streamplan", "check", "--application-id", self.id, "--json"]
        done = subprocess.run(
            [*command, "--command-config", str(file), "--count", f"{self.id}-source", "--store", "totals", *arguments],
            env={"PYTHONPATH": str(PROJECT / "plugins"), "STREAMPLAN_HOME": str(home), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    def user(self, topics: Sequence[AclOperation], group: Sequence[AclOperation] = (DESCRIBE,)) -> Brokers:
        user = self.brokers.scram_user()
        name = user.properties["sasl.username"]
        for topic in self.topics:
            self.brokers.allow(name, ResourceType.TOPIC, topic, topics)
        if group:
            self.brokers.allow(name, ResourceType.GROUP, self.id, group)
        self.brokers.allow(name, ResourceType.BROKER, "kafka-cluster", [DESCRIBE])
        self.brokers.allow(name, ResourceType.TRANSACTIONAL_ID, self.id, [DESCRIBE])
        return user


@pytest.fixture(scope="module")
def counted(secured_brokers: SecuredBrokers) -> Counted:
    application = Counted(secured_brokers, f"read-{uuid.uuid4().hex[:8]}")
    application.make()
    return application


def test_a_reader_of_the_application_can_run_every_check(counted: Counted, tmp_path: Path) -> None:
    status, found = counted.check(counted.user([READ, DESCRIBE, DESCRIBE_CONFIGS]), tmp_path)
    assert (status, found["reason"]) == (0, ""), found
    assert {check["outcome"] for check in found["checks"]} == {"passed"}


def test_without_describe_configs_the_checks_that_need_no_config_pass_and_the_others_name_it(
    counted: Counted, tmp_path: Path
) -> None:
    user = counted.user([READ, DESCRIBE])
    status, found = counted.check(user, tmp_path)
    assert status == 75, found
    outcomes = {check["check"]: check["outcome"] for check in found["checks"]}
    assert {name for name, outcome in outcomes.items() if outcome == "passed"} >= {"copartitioning", "lag"}, found
    name = user.properties["sasl.username"]
    for check in found["checks"]:
        if check["outcome"] != "passed":
            assert f"User:{name}" in check["reason"], check
            assert f"DescribeConfigs on topic {counted.id}-" in check["reason"], check


@pytest.mark.parametrize(
    ("topics", "group", "needed"),
    [
        ([READ, DESCRIBE, DESCRIBE_CONFIGS], [], "Describe on group {id}"),
        ([DESCRIBE, DESCRIBE_CONFIGS], [DESCRIBE], "Read on topic {id}-"),
    ],
)
def test_what_is_not_permitted_is_named_with_principal_operation_and_resource(
    counted: Counted, tmp_path: Path, topics: list[AclOperation], group: list[AclOperation], needed: str
) -> None:
    user = counted.user(topics, group)
    status, found = counted.check(user, tmp_path)
    assert status == 75, found
    said = " ".join([found["reason"], *(check["reason"] for check in found["checks"])])
    assert f"User:{user.properties['sasl.username']}" in said
    assert needed.format(id=counted.id) in said
