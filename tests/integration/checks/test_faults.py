"""Every fault on real brokers: its check is red and names the thing, and every other check is green.

The outcomes make a matrix, fault by check. It stands in docs/checks.md, too, and a test holds the two together.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic, ResourceType
from streamplan.checks import CHECKS, compaction, lag, topics, totals
from streamplan.checks.discovery.discover import discover
from streamplan.checks.framework.application import application_of
from streamplan.checks.framework.check import Check, CheckResult, Outcome, run_checks, sentence
from streamplan.checks.framework.consistent_cut import Deadline
from streamplan.errors import BrokersUnavailable
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.local.brokers import LocalKafka
from streamplan.model.processor_topology import TaskId
from streamplan.model.status import AggregatorState, AggregatorStatus
from streamplan.model.topics import REPARTITION_CONFIGS
from streamplan.pipelines.orders import PIPELINE, order
from streamplan.settings import PROJECT

from tests.support.transactional_application import TransactionalApplication, Written
from tests.support.waiting import eventually

SET, DELETE = AlterConfigOpType.SET, AlterConfigOpType.DELETE
NAMES = [check.name for check in CHECKS]
MARKS = {Outcome.PASSED: "·", Outcome.FAILED: "RED", Outcome.COULD_NOT_LOOK: "?"}
PAGE = PROJECT / "docs" / "checks.md"

App = TransactionalApplication
SHORT = Deadline(seconds=3.0, interval=0.1)
DEADLINE_SECONDS = 60.0
"""Of a question to brokers that are there."""


def checks(status: AggregatorStatus | None) -> list[Check]:
    """All of them, with shorter deadlines: what is to be waited for here comes at once or not at all."""
    made = {
        "lag": lag.LagCheck(status, SHORT),
        "compaction": compaction.CompactionCheck(deadline=SHORT),
        "topics": topics.TopicsCheck(deadline=SHORT),
        "totals": totals.TotalsCheck(deadline=SHORT),
    }
    return [made.get(check.name, check) for check in CHECKS]


def looks(
    application: App,
    status: AggregatorStatus | None = None,
    *,
    patient: bool = False,
    deadline_seconds: float = DEADLINE_SECONDS,
) -> dict[str, CheckResult]:
    """The result of each check."""

    def connect() -> KafkaCluster:
        return KafkaCluster(Brokers(application.bootstrap_servers), deadline_seconds=deadline_seconds)

    results = run_checks(application_of(application.pipeline), CHECKS if patient else checks(status), connect)
    return dict(zip(NAMES, results, strict=True))


def told(result: CheckResult) -> str:
    """All that is said of it."""
    return "\n".join([result.reason, *(sentence(row) for row in result.observations if not row.agrees)])


def processed(
    bootstrap_servers: str, partitioner: str = "murmur2_random", otherwise: Callable[[App], NewTopic] | None = None
) -> App:
    """19 orders, all processed; one transaction was aborted on the way. One topic may be made ``otherwise``."""
    application = App(bootstrap_servers, partitioner=partitioner)
    application.create_topics(otherwise(application) if otherwise else None)
    application.order_many(0, 19)
    application.step(TaskId(0, 1), abort=True)
    application.drain()
    return application


@pytest.fixture
def application(bootstrap_servers: str) -> Iterator[App]:
    application = processed(bootstrap_servers)
    yield application
    application.close()


def expect(name: str, found: dict[str, CheckResult], names: str = "") -> None:
    """The row of the matrix is what was found, and the message of the check that failed matches ``names``."""
    seen = {check: f"{result.outcome}: {told(result)}" for check, result in found.items()}
    assert {check: result.outcome for check, result in found.items()} == MATRIX[name], seen
    for owner in [check for check, outcome in MATRIX[name].items() if outcome is Outcome.FAILED]:
        assert re.search(names, told(found[owner])), told(found[owner])


# -- what is done to it


def alter(application: App, topic: str, **configs: object) -> None:
    entries = [
        ConfigEntry(name.replace("_", "."), str(value), incremental_operation=SET) for name, value in configs.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    application.admin.incremental_alter_configs([resource])[resource].result(120)
    expected = {entry.name: entry.value for entry in entries}
    eventually(
        lambda: expected.items() <= dict(application.cluster.topics([topic])[topic].configs).items(), f"{topic} altered"
    )


def alter_brokers(application: App, entry: ConfigEntry) -> None:
    for broker in application.admin.list_topics(timeout=60).brokers:
        resource = ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=[entry])
        application.admin.incremental_alter_configs([resource])[resource].result(120)


def add_partition(application: App, topic: str) -> None:
    application.admin.create_partitions([NewPartitions(topic, 3)])[topic].result(120)
    eventually(
        lambda: (
            application.cluster.topics([topic])[topic].partitions == 3
            and sorted(KafkaCluster(Brokers(application.bootstrap_servers)).offsets(topic)) == [0, 1, 2]
        ),
        "three partitions",
    )


def delete(application: App, topic: str) -> None:
    application.admin.delete_topics([topic])[topic].result(120)
    eventually(lambda: topic not in application.cluster.topics([topic]), f"{topic} deleted")


def next_orders(application: App, alter: Callable[[list[Written]], list[Written]], subtopology: int = 0) -> None:
    """Two more orders, of which the tasks of one sub-topology write something else than they should."""
    for n in (20, 21):  # jackets and shirts
        key, value = order(n)
        application.produce(application.orders, key, value)
    source = (application.orders, application.repartition)
    for number in (0, 1):
        application._settle(source[0])
        application.step(TaskId(0, number), alter=alter if subtopology == 0 else None)
    application._settle(source[1])
    for number in (0, 1):
        application.step(TaskId(1, number), alter=alter if subtopology == 1 else None)
    application._settle(application.changelog)


def consume(application: App) -> None:
    """The positions pass all that is in the repartition topic, and nothing is written."""
    application._settle(application.repartition)
    for number, offsets in application.cluster.offsets(application.repartition).items():
        application.commit(application.repartition, number, offsets.high_watermark)


def repartition_record_twice(application: App) -> None:
    application.produce(application.repartition, b"0", b'{"ProductType": 0}')
    consume(application)


def repartition_record_with_another_key(application: App) -> None:
    """An order of each product comes; both are key 1 there, and the changelog is right."""
    for n in (20, 21):
        application.produce(application.orders, *order(n))
    for number in (0, 1):
        application.step(TaskId(0, number), alter=rekey_wrong)
    consume(application)
    for partition, (key, total) in enumerate(((b"0", 11), (b"1", 10))):
        application.produce(application.changelog, key, total.to_bytes(8, "big"), partition=partition)


def repartition_record_without_a_key(application: App) -> None:
    application.produce(application.repartition, None, b"no key", partition=0)
    application.drain()


def lose(written: list[Written]) -> list[Written]:
    return [one for one in written if one[1] != b"0"]


def double(written: list[Written]) -> list[Written]:
    return [one for one in written for _ in range(2 if one[1] == b"0" else 1)]


def misroute(written: list[Written]) -> list[Written]:
    """Into the other partition. Key 0 belongs into 0, key 1 into 1."""
    return [
        (topic, key, value, 1 if key == b"0" else partition, headers)
        for topic, key, value, partition, headers in written
    ]


def rekey_wrong(written: list[Written]) -> list[Written]:
    return [(topic, b"1" if key == b"0" else key, *rest) for topic, key, *rest in written]  # type: ignore[misc]


def one_short(written: list[Written]) -> list[Written]:
    return [
        (topic, key, (int.from_bytes(value or b"", "big") - (key == b"0")).to_bytes(8, "big"), *rest)  # type: ignore[misc]
        for topic, key, value, *rest in written
    ]


def no_letters(written: list[Written]) -> list[Written]:
    return [one for one in written if not one[0].endswith("dead-letter")]


def letters_twice(written: list[Written]) -> list[Written]:
    return [one for one in written for _ in range(1 + one[0].endswith("dead-letter"))]


def bad_record(application: App, alter: Callable[[list[Written]], list[Written]]) -> None:
    application.produce(application.orders, b"bad", b"not JSON", partition=0)
    application.step(TaskId(0, 0), alter=alter)
    application._settle(application.dead_letters)


def hot_key(application: App) -> None:
    for n in range(2000):
        application.plain.produce(application.orders, b'{"Id": "o", "ProductType": %d}' % (n % 8 == 0), b"order_%d" % n)
    assert application.plain.flush(120) == 0
    application.drain()


def stall(application: App) -> None:
    application.order_many(20, 30)


def position_beyond(application: App) -> None:
    application.commit(application.orders, 0, 1000)


def hanging_transaction(application: App) -> None:
    producer = Producer(
        {
            "bootstrap.servers": application.bootstrap_servers,
            "transactional.id": f"{application.group}-hanging",
            "transaction.timeout.ms": 600_000,
        }
    )
    producer.init_transactions(120)
    producer.begin_transaction()
    producer.produce(application.repartition, b"v", b"0", partition=0)
    assert producer.flush(120) == 0
    application.keep(producer)


@dataclass(frozen=True)
class Fault:
    """``names``: what its message must match, with the names of the application's topics in braces."""

    name: str
    owner: str
    names: str
    inject: Callable[[App], None]
    blind: tuple[str, ...] = ()


FAULTS = [
    Fault(
        "partitions added to the repartition topic",
        "copartitioning",
        r"{repartition}: partitions \(sub-topology 1\): expected 2, observed 3",
        lambda app: add_partition(app, app.repartition),
    ),
    Fault(
        "partitions added to the changelog",
        "copartitioning",
        r"{changelog}: partitions \(sub-topology 1\): expected 2, observed 3",
        lambda app: add_partition(app, app.changelog),
    ),
    Fault(
        "partitions added to the source",
        "topics",
        r"{orders}.*expected 2, observed 3",
        lambda app: add_partition(app, app.orders),
    ),
    Fault(
        "a record misrouted in the repartition topic: one key in two partitions",
        "copartitioning",
        r"{repartition}: key '0': expected partition 0, observed partition 1 \(1 records, first at offset \d+\)",
        lambda app: next_orders(app, misroute),
    ),
    Fault(
        "a record misrouted in the changelog",
        "copartitioning",
        r"{changelog}: key '1': expected partition 1, observed partition 0",
        lambda app: app.produce(app.changelog, b"1", None, partition=0),
    ),
    Fault(
        "repartition topic set to compact",
        "repartition",
        r"{repartition}: cleanup.policy: expected delete, observed compact",
        lambda app: alter(app, app.repartition, cleanup_policy="compact"),
    ),
    Fault(
        "repartition topic set to a finite retention",
        "repartition",
        r"{repartition}: retention.ms: expected -1, observed 3600000",
        lambda app: alter(app, app.repartition, retention_ms=3_600_000),
    ),
    Fault(
        "repartition topic limited in bytes",
        "repartition",
        r"{repartition}: retention.bytes: expected -1, observed 1000000",
        lambda app: alter(app, app.repartition, retention_bytes=1_000_000),
    ),
    Fault(
        "changelog set to delete",
        "compaction",
        r"{changelog}: cleanup.policy: expected compact, observed delete",
        lambda app: alter(app, app.changelog, cleanup_policy="delete"),
    ),
    Fault(
        "changelog that is never dirty enough to be compacted",
        "compaction",
        r"{changelog}: min.cleanable.dirty.ratio.*observed a ratio of 1 and a lag of 9223372036854775807",
        lambda app: alter(app, app.changelog, min_cleanable_dirty_ratio="1.0"),
    ),
    Fault(
        "changelog whose records are never old enough to be compacted",
        "compaction",
        r"{changelog}: min.compaction.lag.ms.*observed 9223372036854775807",
        lambda app: alter(app, app.changelog, min_compaction_lag_ms=2**63 - 1),
    ),
    Fault(
        "changelog value tampered",
        "totals",
        r"totals\[0\] Jackets: expected 10, observed 11, 1 too many \(.*{changelog}-0 offset \d+\)",
        lambda app: app.produce(app.changelog, b"0", (11).to_bytes(8, "big"), partition=0),
    ),
    Fault(
        "changelog value that is no count",
        "totals",
        r"{changelog}: values that are not a count of 8 bytes \(see {changelog}-0 offset \d+\)",
        lambda app: app.produce(app.changelog, b"2", b"eleven", partition=0),
    ),
    Fault(
        "a record lost on the way to the repartition topic",
        "totals",
        r"totals\[0\] Jackets: expected 11, observed 10, 1 too few \(in {orders}-\d offsets",
        lambda app: next_orders(app, lose),
    ),
    Fault(
        "a record doubled in the repartition topic",
        "totals",
        r"totals\[0\] Jackets: expected 11, observed 12, 1 too many",
        lambda app: next_orders(app, double),
    ),
    Fault(
        "a record re-keyed to the wrong product",
        "totals",
        r"(?s)Jackets: expected 11, observed 10.*Shirts: expected 10, observed 11",
        lambda app: next_orders(app, rekey_wrong),
    ),
    Fault(
        "a record twice in the repartition topic, consumed past",
        "totals",
        r"{repartition}: records of totals\[0\] Jackets: expected 10, observed 11, 1 too many",
        repartition_record_twice,
    ),
    Fault(
        "a record with another record's key in the repartition topic, consumed past",
        "totals",
        r"(?s){repartition}: records of totals.*Jackets: expected 11, observed 10.*Shirts: expected 10, observed 11",
        repartition_record_with_another_key,
    ),
    Fault(
        "a record without a key in the repartition topic",
        "copartitioning",
        r"{repartition}: records without a key: expected 0, observed 1 \(first at {repartition}-0 offset \d+\)",
        repartition_record_without_a_key,
    ),
    Fault(
        "a total short by one",
        "totals",
        r"totals\[0\] Jackets: expected 11, observed 10, 1 too few",
        lambda app: next_orders(app, one_short, subtopology=1),
    ),
    Fault(
        "a record that cannot be read, not dead-lettered",
        "totals",
        r"{orders}-0 offset \d+",
        lambda app: bad_record(app, no_letters),
    ),
    Fault(
        "a record dead-lettered twice",
        "totals",
        r"{dead_letters}: records more than once \(see {orders}-0 offset \d+\)",
        lambda app: bad_record(app, letters_twice),
    ),
    Fault("a stalled aggregator", "lag", r"0_[01].*{orders}-[01]", stall),
    Fault("positions deleted", "lag", r"{orders}-0", App.forget_positions, blind=("totals",)),
    Fault("a position beyond the end", "lag", r"{orders}-0", position_beyond, blind=("totals",)),
    Fault("a hanging transaction", "lag", r"{repartition}-0", hanging_transaction, blind=("totals",)),
    Fault("80% on one key", "skew", r"(?s){repartition}.*'0'", hot_key),
    Fault(
        "retention of the source",
        "topics",
        r"{orders}: retention.ms: expected -1, observed 3600000",
        lambda app: alter(app, app.orders, retention_ms=36_00_000),
    ),
    Fault(
        "timestamps of the changelog by the broker's clock",
        "topics",
        r"{changelog}: message.timestamp.type: expected CreateTime, observed LogAppendTime",
        lambda app: alter(app, app.changelog, message_timestamp_type="LogAppendTime"),
    ),
    Fault(
        "source missing",
        "topics",
        r"{orders}.*missing",
        lambda app: delete(app, app.orders),
        blind=("totals", "lag", "skew"),
    ),
    Fault(
        "repartition topic missing",
        "topics",
        r"{repartition}.*missing",
        lambda app: delete(app, app.repartition),
        blind=("copartitioning", "repartition", "totals", "lag", "skew"),
    ),
    Fault(
        "changelog missing",
        "topics",
        r"{changelog}.*missing",
        lambda app: delete(app, app.changelog),
        blind=("copartitioning", "compaction", "totals"),
    ),
    Fault(
        "dead-letter topic missing",
        "topics",
        r"{dead_letters}.*missing",
        lambda app: delete(app, app.dead_letters),
        blind=("totals",),
    ),
]


def outcomes(owner: str = "", blind: Sequence[str] = ()) -> dict[str, Outcome]:
    """All checks pass, but for the one that owns the fault and those that cannot look."""
    passed = dict.fromkeys(NAMES, Outcome.PASSED) | dict.fromkeys(blind, Outcome.COULD_NOT_LOOK)
    return passed | ({owner: Outcome.FAILED} if owner else {})


MATRIX = {
    **{fault.name: outcomes(fault.owner, fault.blind) for fault in FAULTS},
    "keys placed by CRC32": outcomes("copartitioning"),
    "repartition topic made with another count": outcomes("copartitioning"),
    "too few replicas of the repartition": outcomes("repartition"),
    "too few replicas of the changelog": outcomes("topics"),
    "a name near the limit": outcomes("names"),
    "an aggregator that claims to run and does not": outcomes("lag"),
    "a foreign member in the group": outcomes("lag"),
    "compaction defeated by a default of the brokers": outcomes("compaction"),
    "compaction configured, never happening": outcomes("compaction"),
    "(healthy)": outcomes(),
    "(healthy: bad records, null keys, tombstones, purged, aborted)": outcomes(),
    "(healthy: repartition topic created again when all was counted)": outcomes(),
    "a broker down": outcomes("topics"),
    "a changelog partition without a leader": outcomes("topics", ("copartitioning", "compaction", "totals")),
    "both brokers down": outcomes(blind=NAMES),
}
"""What each test below sees, by fault and check."""


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault(application: App, fault: Fault) -> None:
    fault.inject(application)
    topics = {
        name: re.escape(getattr(application, name)) for name in ("orders", "repartition", "changelog", "dead_letters")
    }
    names = re.sub(r"\{(\w+)\}", lambda found: topics.get(found[1], found[0]), fault.names)
    expect(fault.name, looks(application), names)


def test_keys_placed_by_crc32(bootstrap_servers: str) -> None:
    application = processed(bootstrap_servers, "consistent")
    try:
        expect("keys placed by CRC32", looks(application), r"CRC32, librdkafka's default partitioner")
    finally:
        application.close()


def test_repartition_topic_of_another_count(bootstrap_servers: str) -> None:
    configs = {**REPARTITION_CONFIGS, "min.insync.replicas": "1"}
    application = processed(bootstrap_servers, otherwise=lambda app: NewTopic(app.repartition, 1, 2, config=configs))
    try:
        names = rf"{application.repartition}: partitions \(sub-topology 1\): expected 2, observed 1"
        expect("repartition topic made with another count", looks(application), names)
    finally:
        application.close()


@pytest.mark.parametrize(
    ("role", "configs"),
    [
        ("repartition", {**REPARTITION_CONFIGS, "min.insync.replicas": "1"}),
        ("changelog", {"cleanup.policy": "compact", "min.insync.replicas": "1"}),
    ],
)
def test_too_few_replicas(bootstrap_servers: str, role: str, configs: dict[str, str]) -> None:
    application = processed(bootstrap_servers, otherwise=lambda app: NewTopic(getattr(app, role), 2, 1, config=configs))
    try:
        names = rf"{getattr(application, role)}: replication"
        expect(f"too few replicas of the {role}", looks(application), names)
    finally:
        application.close()


def test_a_name_near_the_limit(bootstrap_servers: str) -> None:
    application = App(bootstrap_servers, longer=200)
    application.create_topics()
    application.order_many(0, 19)
    application.drain()
    try:
        expect("a name near the limit", looks(application), re.escape(application.repartition))
    finally:
        application.close()


def test_an_aggregator_that_claims_to_run(application: App) -> None:
    at = datetime.now(UTC) - timedelta(minutes=10)
    status = AggregatorStatus(AggregatorState.RUNNING, pid=4711, host="worker-1", at=at.isoformat())
    expect("an aggregator that claims to run and does not", looks(application, status), r"4711.*worker-1")


def test_a_foreign_member(application: App) -> None:
    configs = {"bootstrap.servers": application.bootstrap_servers, "group.id": application.group}
    foreign = Consumer({**configs, "client.id": "console", "enable.auto.commit": False, "log_level": 2})
    foreign.subscribe([application.orders])

    def has_joined() -> bool:
        foreign.poll(0.1)
        return bool(foreign.assignment())

    try:
        eventually(has_joined, "the foreign member has joined")
        names = rf"group {application.group}: 1 member.*observed a foreign member: console on 127\.0\.0\.1"
        expect("a foreign member in the group", looks(application), names)
    finally:
        foreign.close()


def test_compaction_that_a_default_of_the_brokers_defeats(application: App) -> None:
    def ratio() -> str:
        return application.cluster.topics([application.changelog])[application.changelog].configs[
            "min.cleanable.dirty.ratio"
        ]

    config = "log.cleaner.min.cleanable.ratio"
    alter_brokers(application, ConfigEntry(config, "1.0", incremental_operation=SET))
    try:
        eventually(lambda: all(ratio() == "1.0" for _ in range(10)), f"{config} on each broker")
        names = rf"{application.changelog}: min.cleanable.dirty.ratio.*brokers' default {config}"
        expect("compaction defeated by a default of the brokers", looks(application), names)
    finally:
        alter_brokers(application, ConfigEntry(config, None, incremental_operation=DELETE))
    eventually(lambda: all(ratio() == "0.5" for _ in range(10)), f"{config} taken back")


def test_compaction_that_never_happens(application: App) -> None:
    topic = application.changelog
    # Between two passes the cleaner sleeps: an hour is as good as stopped.
    alter_brokers(application, ConfigEntry("log.cleaner.backoff.ms", "3600000", incremental_operation=SET))
    try:
        alter(application, topic, segment_ms=1000, max_message_bytes=500, compression_type="uncompressed")
        time.sleep(1.0)  # the sleeping cleaner has no sign
        now = int(time.time() * 1000)
        for n in range(200):  # 20 seconds
            value = (10).to_bytes(8, "big")
            application.produce(topic, b"0", value, partition=0, timestamp=now + 100 * n)
        names = rf"{topic}-0: superseded records overdue for compaction.*observed 1\d\d"
        expect("compaction configured, never happening", looks(application), names)
    finally:
        alter_brokers(application, ConfigEntry("log.cleaner.backoff.ms", None, incremental_operation=DELETE))

    def overdue() -> bool:
        return looks(application)["compaction"].outcome is Outcome.PASSED

    eventually(overdue, "compaction")


def test_healthy(application: App) -> None:
    assert application.totals == {b"0": 10, b"1": 9}
    expect("(healthy)", looks(application))


def test_healthy_oddities(application: App) -> None:
    """Bad records, null keys, tombstones, records on their way, consumed records purged, markers at the end."""
    for value in (None, b"", b"not JSON", b"{}", b'{"ProductType": 7}'):
        application.produce(application.orders, b"bad", value)
    application.produce(application.orders, None, b'{"Id": "order_99", "ProductType": 1}')
    application.produce(application.changelog, b"unheard", None)
    application.drain()
    assert application.totals[b"1"] == 10
    at = [TopicPartition(application.repartition, number, 5) for number in (0, 1)]
    for future in application.admin.delete_records(at).values():
        future.result(120)
    application.step(TaskId(0, 0), abort=True)
    expect("(healthy: bad records, null keys, tombstones, purged, aborted)", looks(application))


def test_a_repartition_topic_that_was_created_again(application: App) -> None:
    """When all was counted. One task has a position in the new topic, and the other none."""
    spec = next(spec for spec in application.pipeline.topics() if spec.name == application.repartition)
    delete(application, spec.name)
    configs = {**spec.configs, "min.insync.replicas": "1"}
    application.admin.create_topics([NewTopic(spec.name, 2, 2, config=configs)])[spec.name].result(120)
    cluster = KafkaCluster(Brokers(application.bootstrap_servers))

    def is_served() -> bool:
        try:
            return spec.name in cluster.topics([spec.name]) and len(cluster.offsets(spec.name)) == 2
        except BrokersUnavailable:  # one broker knows the topic sooner than the other one
            return False

    eventually(is_served, "the topic is there again")
    application._settle(spec.name)
    application.commit(spec.name, 0, 0)
    expect("(healthy: repartition topic created again when all was counted)", looks(application))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_brokers_away(check: Check) -> None:
    away = KafkaCluster(Brokers("127.0.0.1:1"), deadline_seconds=0.5)
    with pytest.raises(BrokersUnavailable, match=r"127\.0\.0\.1:1.*Connection refused"):
        list(check.observe(application_of(PIPELINE), away))


def test_nothing_to_look_at_is_not_green(bootstrap_servers: str) -> None:
    """Topics without a record, then no topics at all."""
    application = App(bootstrap_servers)
    application.create_topics()
    found = looks(application)
    for spec in application.pipeline.topics():
        delete(application, spec.name)
    missing = looks(application)
    application.close()
    of_records = ("copartitioning", "compaction", "totals", "lag", "skew")
    assert [name for name in NAMES if found[name].outcome is Outcome.COULD_NOT_LOOK] == list(of_records)
    assert missing["topics"].outcome is Outcome.FAILED
    assert all(result.outcome is Outcome.COULD_NOT_LOOK for name, result in missing.items() if name in of_records)


def test_no_false_alarm_while_the_stream_runs(application: App) -> None:
    """Four tasks commit transaction after transaction, each in a thread of its own, and orders keep coming."""
    stop = threading.Event()
    failed: list[Exception] = []

    def run(act: Callable[[], None]) -> None:
        try:
            while not stop.is_set():
                act()
                stop.wait(0.02)
        except Exception as error:  # noqa: BLE001  # a thread's errors, of whatever kind, would be lost
            failed.append(error)

    numbers = iter(range(100, 1_000_000, 20))

    def orders() -> None:
        first = next(numbers)
        application.order_many(first, first + 20)

    def aggregate() -> None:
        application.step(TaskId(1, 0))
        application.step(TaskId(1, 1))

    acts = [orders, lambda: application.step(TaskId(0, 0)), lambda: application.step(TaskId(0, 1)), aggregate]
    threads = [threading.Thread(target=run, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    try:
        before = sum(application.totals.values())
        for _ in range(5):
            red = {
                name: told(found)
                for name, found in looks(application, patient=True).items()
                if found.outcome != Outcome.PASSED
            }
            assert red == {}
        assert sum(application.totals.values()) > before
    finally:
        stop.set()
        for thread in threads:
            thread.join(300)
    assert not failed


def test_brokers_down(application: App, bootstrap_servers: str, kafka: LocalKafka) -> None:
    """One, then both. The other broker leads all partitions then, and answers for all groups.

    Another application has a changelog of which each partition has one replica. The other checks say which partition
    they could not see.
    """
    configs = {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime", "min.insync.replicas": "1"}

    def otherwise(app: App) -> NewTopic:
        return NewTopic(app.changelog, 2, replica_assignment=[[1], [2]], config=configs)

    another = processed(bootstrap_servers, otherwise=otherwise)
    names = rf"{another.changelog}-1: leader: expected a broker, observed none"
    kafka.stop(2)
    try:
        eventually(lambda: len(application.admin.list_topics(timeout=60).brokers) == 1, "one broker is left")
        expect("a broker down", looks(application), r"broker 2")
        found = looks(another, deadline_seconds=6.0)
        expect("a changelog partition without a leader", found, names)
        for check in ("copartitioning", "compaction", "totals"):
            assert f"{another.changelog}-1" in found[check].reason, found[check]
            assert "leader" in found[check].reason
        cluster = KafkaCluster(Brokers(bootstrap_servers), deadline_seconds=6.0)
        discovered = discover(cluster, another.group)
        assert any(another.changelog in note for note in discovered.notes)
        results = run_checks(discovered, [topics.TopicsCheck(deadline=SHORT)], lambda: cluster)
        assert results[0].outcome is Outcome.FAILED
        assert re.search(names, told(results[0])), told(results[0])
        kafka.stop(1)
        expect("both brokers down", looks(application, deadline_seconds=5.0))
    finally:
        kafka.start_missing()
        kafka.wait_until_ready(deadline_seconds=300.0)
        another.close()
    eventually(lambda: all(r.outcome is Outcome.PASSED for r in looks(application).values()), "green again")


def test_the_matrix_of_these_tests_is_the_one_in_the_docs() -> None:
    head = ["fault", *NAMES]
    rows = [[name, *(MARKS[outcomes[check]] for check in NAMES)] for name, outcomes in MATRIX.items()]
    lines = [head, ["---", *(":-:" for _ in NAMES)], *rows]
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    in_docs = re.search(r"<!-- matrix -->\n(.*?)<!-- /matrix -->", PAGE.read_text(), re.DOTALL)
    assert in_docs is not None
    assert in_docs[1] == table, f"write this table into {PAGE}:\n{table}"
