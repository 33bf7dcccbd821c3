"""The aggregator begins again with its checkpoint gone, damaged, old or another's, and the totals are exact."""

from __future__ import annotations

import json
import re
import shutil
import threading
import time
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from pyspark.sql import SparkSession
from streamplan.errors import Refused, StreamplanError
from streamplan.kafka import task_ownership
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.task_ownership import TaskOwnership
from streamplan.serdes.json import Json
from streamplan.spark.aggregator import run
from streamplan.spark.deployment import Deployment
from streamplan.spark.state import restore
from streamplan.spark.state.hadoop_files import HadoopFiles
from streamplan.spark.state.state_store import read_state_stores
from streamplan.spark.status import Heartbeat

from tests.support.checkpoints import checkpoint_of, checkpoints_of, forget_last_commit, newest
from tests.support.draining import drain
from tests.support.orders_application import Application, numbered
from tests.support.records import recount
from tests.support.tried_topology import SALE, Tried, sale


def drained(
    application: Application,
    report: Callable[[str], object] = lambda line: None,
    heartbeat: Heartbeat | None = None,
) -> list[str]:
    """What the aggregator said; ``report`` is told at once."""
    lines: list[str] = []

    def said(line: str) -> None:
        lines.append(line)
        report(line)

    brokers = Brokers(application.bootstrap_servers)
    drain(
        application.spark, application.pipeline, brokers, application.checkpoints, 500, report=said, heartbeat=heartbeat
    )
    return lines


def checkpoint(application: Application) -> Path:
    """Of the counting query."""
    return checkpoint_of(*place(application), 1)


def place(application: Application) -> tuple[Path, str]:
    return application.checkpoints, application.topology.application_id


def purge(application: Application) -> None:
    """All that the repartition topic has."""
    admin = AdminClient({"bootstrap.servers": application.bootstrap_servers})
    ends = [TopicPartition(application.repartition, partition, -1) for partition in (0, 1)]
    for future in admin.delete_records(ends).values():
        future.result(120)


def leave_in_mid_batch(application: Application) -> None:
    for subtopology in (0, 1):
        for found in checkpoints_of(*place(application), subtopology)[-1:]:  # linked ones have one together
            forget_last_commit(found)


def delete_all(application: Application) -> None:
    shutil.rmtree(application.checkpoints)


def delete_all_and_purge(application: Application) -> None:
    delete_all(application)
    purge(application)


def purge_in_mid_batch(application: Application) -> None:
    leave_in_mid_batch(application)
    purge(application)


def cut_off_the_plan(application: Application) -> None:
    offsets = newest(checkpoint(application) / "offsets")
    (offsets.with_name(f".{offsets.name}.crc")).unlink(missing_ok=True)
    offsets.write_bytes(offsets.read_bytes()[:-7])


def make_it_anothers(application: Application) -> None:
    file = checkpoint(application) / "streamplan.json"
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    file.write_text(json.dumps({**json.loads(file.read_text()), "application": "another"}))


def forget_every_micro_batch(application: Application) -> None:
    """As a machine's that was outdone before the first record came, and gets the application back."""
    for name in ("offsets", "commits", "sources", "state"):
        shutil.rmtree(checkpoint(application) / name)


def bring_an_old_one_back(application: Application) -> None:
    old = application.checkpoints.with_name("old")
    shutil.copytree(application.checkpoints, old)
    application.produce(numbered(2000, 2400))
    drained(application)
    shutil.rmtree(application.checkpoints)
    old.rename(application.checkpoints)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        pytest.param(delete_all, "it has no complete checkpoint [0-9a-f]{8}$", marks=pytest.mark.soak),
        (delete_all_and_purge, "it has no complete checkpoint"),
        pytest.param(
            purge_in_mid_batch,
            "its checkpoint does not fit: its unfinished micro-batch reads .* begins at",
            marks=pytest.mark.soak,
        ),
        pytest.param(cut_off_the_plan, "its checkpoint is damaged: offsets/[0-9]+ is cut off", marks=pytest.mark.soak),
        pytest.param(forget_every_micro_batch, "its checkpoint has no micro-batch", marks=pytest.mark.soak),
        pytest.param(
            make_it_anothers,
            "its checkpoint belongs to another query: application is another",
            marks=pytest.mark.soak,
        ),
        (bring_an_old_one_back, "its checkpoint does not fit: it is behind Kafka"),
    ],
)
def test_the_state_is_restored_and_the_totals_are_exact(
    application: Application, fault: Callable[[Application], None], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault is purge_in_mid_batch:  # linked sub-topologies do not read what is purged
        monkeypatch.setenv("STREAMPLAN_LINKED", "false")
    application.produce(numbered(0, 2000))
    drained(application)
    fault(application)
    application.produce(numbered(3000, 3101))
    heartbeat = Heartbeat()
    lines = drained(application, heartbeat=heartbeat)
    assert heartbeat.restorations[1].offsets == heartbeat.restorations[1].total > 0
    begun = [line for line in lines if line.startswith("sub-topology 1 begins with its changelog topics")]
    assert len(begun) == 1
    assert re.search(said, begun[0])
    assert any("restored 2 rows in" in line for line in lines)
    assert application.totals() == recount(application.committed(application.orders))
    store = read_state_stores(
        application.spark, application.pipeline, str(application.checkpoints), Brokers(application.bootstrap_servers)
    )
    assert {key.encode(): total for key, total in store.totals.items()} == application.totals()
    assert not any("begins with" in line for line in drained(application))  # from here on the checkpoint fits


@pytest.mark.soak
def test_a_sub_topology_that_is_added_in_front_moves_the_others_and_their_state_is_restored(
    bootstrap_servers: str, tmp_path: Path, spark: SparkSession
) -> None:
    tried = Tried(bootstrap_servers, tmp_path, spark, restoring=False)
    tried.topology.stream(tried.named("sales"), value=SALE).group_by_key().count(store="sold")
    tried.create_topics()
    tried.produce("sales", [("a", sale("x", 1), 0), ("a", sale("x", 1), 1)])
    tried.drain()
    changed = tried.declare_anew()
    changed.stream(tried.named("clicks"), value=SALE).group_by_key().count(store="clicked")
    changed.stream(tried.named("sales"), value=SALE).group_by_key().count(store="sold")
    tried.create_topics()
    tried.produce("clicks", [("a", sale("x", 1), 2)])
    tried.produce("sales", [("a", sale("x", 1), 3)])
    tried.drain()
    tried.drain()
    begun = [line for line in tried.lines if "begins with" in line]
    assert len(begun) == 1
    assert re.match("sub-topology 1 begins with its changelog topics, because it has no complete checkpoint", begun[0])
    totals = {
        store: [int.from_bytes(m.value(), "big") for m in tried.read(changed.changelog_topic(store))]
        for store in ("sold", "clicked")
    }
    assert totals == {"sold": [2, 3], "clicked": [1]}
    tried.delete_topics()


def test_a_join_finds_the_schemas_of_its_state_in_the_renamed_checkpoint(
    bootstrap_servers: str, tmp_path: Path, spark: SparkSession
) -> None:
    """Spark keeps their paths. Where it finds none it writes them anew, and makes the directory that it looked into."""
    tried = Tried(bootstrap_servers, tmp_path / "Prüfpunkte", spark, restoring=False)
    shops = tried.topology.table(tried.named("shops"), value=Json("city string"), key="shop")
    tried.topology.stream(tried.named("sales"), value=SALE).left_join(shops).to(tried.named("joined"))
    tried.create_topics()
    tried.produce("shops", [("k", {"city": "Lyon"}, 0)])
    for second in (1, 2, 3):
        tried.produce("sales", [("k", sale("x", second), second)])
        tried.drain()
    used = checkpoint_of(tried.checkpoints, tried.name, 0)
    assert [path.name for path in used.parent.iterdir()] == [used.name]
    assert len(list((used / "state/0/_stateSchema/default").glob("[0-9]*"))) == 1
    assert [(value["amount"], value["city"]) for _, value in tried.records("joined")] == [
        (second, "Lyon") for second in (1, 2, 3)
    ]
    assert not any("begins with" in line for line in tried.lines)
    tried.delete_topics()


@pytest.mark.soak
def test_without_a_checkpoint_what_was_processed_is_not_read_again(application: Application) -> None:
    application.produce(numbered(0, 2000))
    drained(application)
    delete_all(application)
    application.produce(numbered(2000, 2101))
    drained(application)
    first = newest(checkpoint(application) / "offsets")
    assert int(first.name) <= 1  # behind the restored one. All 2101 would be several micro-batches of 500
    assert application.totals() == recount(application.committed(application.orders))


@pytest.mark.soak
def test_an_aggregator_that_wakes_up_writes_where_nobody_reads(application: Application) -> None:
    """As a driver that was suspended, and uploads what it had in hand after its successor has taken the checkpoint."""
    application.produce(numbered(0, 2000))
    drained(application)
    known = checkpoint(application)
    drained(application)
    plan = newest(checkpoint(application) / "offsets").read_text()
    application.produce(numbered(2000, 2101))
    for name in ("offsets/99", "commits/99", "state/0/0/99.zip"):
        (known / name).parent.mkdir(parents=True, exist_ok=True)
        (known / name).write_text(plan)
    assert not any("begins with" in line for line in drained(application))
    assert application.totals() == recount(application.committed(application.orders))
    assert not known.exists()
    assert [path.name[0] for path in known.parent.iterdir()].count("1") == 1


@pytest.mark.soak
def test_positions_name_the_checkpoint_and_its_last_micro_batch(application: Application) -> None:
    application.produce(numbered(0, 2000))
    drained(application)
    used = checkpoint(application)
    group, partitions = application.topology.application_id, [(application.repartition, number) for number in (0, 1)]
    consumer = Consumer({"bootstrap.servers": application.bootstrap_servers, "group.id": group})
    committed = consumer.committed([TopicPartition(*partition) for partition in partitions], 120)
    consumer.close()
    words = [str(position.metadata).split(" ") for position in committed]
    assert {word[3] for word in words} == {used.name.split("-")[1]}
    assert max(int(word[4]) for word in words) == int(newest(used / "offsets").name)


def test_a_checkpoint_that_kafka_does_not_name_is_not_used(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of an aggregator that was killed before Kafka named it."""
    application.produce(numbered(0, 2000))
    drained(application)
    used = checkpoint(application).name.split("-")
    shutil.copytree(checkpoint(application), checkpoint(application).with_name(f"1-ffffffff-{int(used[2]) + 1}"))
    application.produce(numbered(2000, 2101))
    assert not any("begins with" in line for line in drained(application))
    assert [path.name.split("-")[1] for path in checkpoints_of(*place(application), 1)] == [used[1]]
    assert application.totals() == recount(application.committed(application.orders))

    def killed(*arguments: object) -> None:
        raise StreamplanError("killed")

    delete_all(application)
    with monkeypatch.context() as patched:
        patched.setattr(TaskOwnership, "name_checkpoint", killed)
        with pytest.raises(StreamplanError, match="killed"):
            drained(application)
    assert any("it has no complete checkpoint" in line for line in drained(application))
    assert application.totals() == recount(application.committed(application.orders))


@pytest.mark.soak
@pytest.mark.parametrize("renamed", [True, False])
def test_a_start_that_dies_while_it_takes_the_checkpoint_is_repeated(
    application: Application, monkeypatch: pytest.MonkeyPatch, renamed: bool
) -> None:
    application.produce(numbered(0, 2000))
    drained(application)
    rename = HadoopFiles.rename

    def dies(self: HadoopFiles, name: str, target: str) -> None:
        if renamed:
            rename(self, name, target)
        raise StreamplanError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(HadoopFiles, "rename", dies)
        with pytest.raises(StreamplanError, match="killed"):
            drained(application)
    application.produce(numbered(2000, 2101))
    lines = drained(application)
    assert any("begins with its changelog topics, because it has no complete checkpoint" in line for line in lines)
    assert application.totals() == recount(application.committed(application.orders))


def test_a_state_that_cannot_be_loaded_is_moved_away_and_restored(application: Application) -> None:
    application.produce(numbered(0, 2000))
    drained(application)
    for file in (checkpoint(application) / "state").rglob("*.changelog"):
        file.unlink()
    for file in (checkpoint(application) / "state").rglob("*.zip"):
        file.unlink()
    # As a new process, which has none loaded.
    states: Any = application.spark._jvm.org.apache.spark.sql.execution.streaming.state  # type: ignore[union-attr]
    getattr(getattr(states, "StateStore$"), "MODULE$").stop()
    application.produce(numbered(2000, 2010))
    with pytest.raises(StreamplanError, match=r"the state in its checkpoint cannot be read.* moved to"):
        drained(application)
    assert any("restored 2 rows" in line for line in drained(application))
    assert application.totals() == {b"0": 1005, b"1": 1005}


@pytest.mark.soak
def test_a_changelog_of_which_nothing_is_left_is_an_empty_state(application: Application) -> None:
    """As of windows that are all over."""
    application.produce(numbered(0, 10))
    drained(application)
    delete_all(application)
    admin = AdminClient({"bootstrap.servers": application.bootstrap_servers})
    changed = ConfigResource(
        ConfigResource.Type.TOPIC,
        application.changelog,
        incremental_configs=[
            ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET),
        ],
    )
    for altered in admin.incremental_alter_configs([changed]).values():
        altered.result(120)
    ends = [TopicPartition(application.changelog, partition, -1) for partition in (0, 1)]
    for deleted in admin.delete_records(ends).values():
        deleted.result(120)
    application.produce(numbered(10, 14))
    assert any("restored 0 rows" in line for line in drained(application))
    store = read_state_stores(
        application.spark, application.pipeline, str(application.checkpoints), Brokers(application.bootstrap_servers)
    )
    assert store.totals == {"0": 2, "1": 2}


def supersede(application: Application, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Another aggregator takes the tasks when the restoration begins, and restores in the same directory."""
    monkeypatch.setattr(task_ownership, "CHECK_SECONDS", 0.0)
    newer = copy(application)
    newer.spark = application.spark.newSession()

    def report(line: str) -> None:
        if "restoring from" in line:
            newer.drain()

    return report


def refuse_the_restoring_query(application: Application, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A newer aggregator is seen when the restoring query runs."""

    def require_latest(self: TaskOwnership, *, now: bool = False) -> None:
        if any(str(query.name).endswith("-restore") for query in application.spark.streams.active):
            raise Refused("a newer aggregator has taken over")

    monkeypatch.setattr(TaskOwnership, "require_latest", require_latest)
    monkeypatch.setattr(restore, "_WATCH_SECONDS", 0.01)
    return lambda line: None


@pytest.mark.soak
@pytest.mark.parametrize("superseded", [supersede, refuse_the_restoring_query])
def test_an_aggregator_that_is_superseded_stops_to_restore(
    application: Application,
    monkeypatch: pytest.MonkeyPatch,
    superseded: Callable[[Application, pytest.MonkeyPatch], Callable[[str], None]],
) -> None:
    application.produce(numbered(0, 10))
    drained(application)
    delete_all(application)
    lines: list[str] = []
    report = superseded(application, monkeypatch)

    def said(line: str) -> None:
        lines.append(line)
        report(line)

    with pytest.raises(Refused, match="a newer aggregator"):
        drained(application, said)
    assert any("restoring from" in line for line in lines)
    assert not any("restored" in line for line in lines)
    assert application.spark.streams.active == []
    monkeypatch.undo()
    application.produce(numbered(10, 20))
    drained(application)
    assert application.totals() == {b"0": 10, b"1": 10}


def test_a_changelog_of_something_else_is_refused(application: Application) -> None:
    application.produce(numbered(0, 10))
    drained(application)
    delete_all(application)
    producer = Producer({"bootstrap.servers": application.bootstrap_servers})
    producer.produce(application.changelog, b'{"sum": 1}', b"0", 0)
    assert producer.flush(120) == 0
    with pytest.raises(Refused, match=r"could not be restored.* a changelog value of a count has 8 bytes"):
        drained(application)


def test_the_older_of_two_aggregators_stops_and_says_so(application: Application, tmp_path: Path) -> None:
    application.produce(numbered(0, 1000))
    stop = threading.Event()
    ended: list[BaseException] = []

    def older() -> None:
        try:
            run(
                application.spark,
                Deployment(
                    application.pipeline, Brokers(application.bootstrap_servers), str(application.checkpoints), 500
                ),
                available_now=False,
                trigger_interval_ms=100,
                stop=stop,
                report=lambda line: None,
            )
        except StreamplanError as error:
            ended.append(error)

    thread = threading.Thread(target=older)
    thread.start()
    try:
        deadline = time.monotonic() + 600
        while application.totals() != {b"0": 500, b"1": 500}:
            assert time.monotonic() < deadline, f"{application.totals()} after 600 s"
            assert not ended, ended
            time.sleep(0.2)
        application.produce(numbered(1000, 1100))
        newer = copy(application)
        newer.checkpoints = tmp_path / "elsewhere"
        newer.spark = application.spark.newSession()  # a session has one query of a name, and the older one still runs
        newer.drain()
        thread.join(300)
    finally:
        stop.set()
        thread.join(300)
    assert [type(error) for error in ended] == [Refused]
    assert "a newer aggregator of" in str(ended[0])
    assert "pid" in str(ended[0])
    assert application.totals() == {b"0": 550, b"1": 550}
    assert len(application.committed(application.repartition)) == 1100
