from __future__ import annotations

import json
import os
import re
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console
from streamplan.cli import tasks
from streamplan.errors import Refused
from streamplan.files import ReportPaths
from streamplan.model.generation import Generation
from streamplan.model.group_member import Member
from streamplan.model.processor_topology import TaskId
from streamplan.model.status import AggregatorState, AggregatorStatus, TaskPlacement
from streamplan.registry import pipeline_named
from streamplan.reports.status import append_migrations, migrations_file, read_migrations
from streamplan.settings import Settings
from streamplan.spark import status as spark_status
from streamplan.spark.sink.instance import Instance, this_instance
from streamplan.spark.status import Heartbeat, TaskPlacements, TaskReport

HOST = socket.gethostname()
LOG = "http://127.0.0.1:8081/logPage/?appId=app-20260101000000-0000&executorId=12&logType=stderr"


@pytest.mark.parametrize(
    ("environment", "instance"),
    [
        ({}, "driver"),
        ({"SPARK_EXECUTOR_ID": "7"}, "7"),
        ({"SPARK_LOG_URL_STDERR": LOG, "SPARK_EXECUTOR_DIRS": "/x"}, "12"),
        ({"SPARK_LOG_URL_STDOUT": LOG}, "12"),
        ({"SPARK_EXECUTOR_DIRS": "/x"}, f"{HOST}:{os.getppid()}"),
        ({"CONTAINER_ID": "container_1_1_01_000002"}, f"{HOST}:{os.getppid()}"),
    ],
)
def test_the_instance_of_an_environment(environment: dict[str, str], instance: str) -> None:
    assert this_instance(environment) == Instance(instance, HOST)


def test_placements_count_records_and_keep_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_status, "LOG_SECONDS", 0.0)
    kept = TaskPlacements()
    kept.record(1, [TaskReport(0, "2", "host-a", 10), TaskReport(1, "3", "host-a", 4)], "t1")
    assert kept.log_lines() == ["task 1_0: instance 2 on host-a", "task 1_1: instance 3 on host-a"]
    kept.record(1, [TaskReport(0, "2", "host-a", 10)], "t2")
    assert kept.log_lines() == []
    kept.record(1, [TaskReport(0, "3", "host-b", 5)], "t3")
    assert kept.log_lines() == ["task 1_0: instance 2 on host-a -> instance 3 on host-b"]
    current = kept.current()
    assert list(current) == ["1_0", "1_1"]
    assert (current["1_0"].instance, current["1_0"].host, current["1_0"].records, current["1_0"].at) == (
        "3",
        "host-b",
        25,
        "t3",
    )
    moves = kept.take_migrations()
    assert [(move.at, move.task, move.before, move.instance) for move in moves] == [
        ("t1", "1_0", "", "2 on host-a"),
        ("t1", "1_1", "", "3 on host-a"),
        ("t3", "1_0", "2 on host-a", "3 on host-b"),
    ]
    assert kept.take_migrations() == []


def test_the_log_tells_where_a_task_is_by_now_and_the_history_each_move() -> None:
    kept = TaskPlacements()
    kept.record(0, [TaskReport(0, "1", "host", 1)], "t1")
    assert len(kept.log_lines()) == 1
    kept.record(0, [TaskReport(0, "2", "host", 1)], "t2")
    assert kept.log_lines() == []  # too soon
    assert len(kept.take_migrations()) == 2


def test_the_heartbeat_keeps_tasks_and_their_history(tmp_path: Path) -> None:
    file = ReportPaths(tmp_path, "orders").aggregator_status
    said: list[str] = []
    with Heartbeat(file, report=said.append) as heart:
        heart.record(0, 1, [TaskReport(0, "1", "host", 3)])
        heart.beat()
    assert said == ["task 0_0: instance 1 on host"]
    status = json.loads(file.read_text())
    assert status["tasks"]["0_0"]["records"] == 3
    assert [(move.task, move.pid) for move in read_migrations(file, last=10)] == [("0_0", os.getpid())]


def test_the_history_is_bounded(tmp_path: Path) -> None:
    file = ReportPaths(tmp_path, "orders").aggregator_status
    assert read_migrations(file, last=5) == []
    kept = TaskPlacements()
    for number in range(100):
        kept.record(0, [TaskReport(0, str(number), "host", 1)], f"t{number}")
        append_migrations(file, kept.take_migrations(), limit=1_000)
    assert sum(path.stat().st_size for path in file.parent.iterdir()) < 2_600
    assert [move.at for move in read_migrations(file, last=12)] == [f"t{number}" for number in range(88, 100)]
    with migrations_file(file).open("a") as history:
        history.write('{"at": "cut sho')
    assert read_migrations(file, last=1)[0].at == "t99"


def test_the_setting() -> None:
    assert Settings.from_environment({}).instances is None
    assert Settings.from_environment({"STREAMPLAN_INSTANCES": ""}).instances is None
    assert Settings.from_environment({"STREAMPLAN_INSTANCES": "4"}).instances == 4
    for wrong in ("0", "-1", "four", "1.5"):
        with pytest.raises(Refused, match="STREAMPLAN_INSTANCES"):
            Settings.from_environment({"STREAMPLAN_INSTANCES": wrong})


def printed(status: AggregatorStatus | None, running: list[Member]) -> str:
    orders = pipeline_named("orders")
    lags = {TaskId(0, 0): 12_345, TaskId(0, 1): None}
    console = Console(width=250, markup=False)
    with console.capture() as capture:
        heading = tasks.heading(orders, running, Generation(1_790_000_000_000, "host-d:4711:x"))
        console.print(heading, tasks.tasks_table(orders, status, lags))
    return " ".join(capture.get().split())


def test_the_table_has_every_task_also_one_that_has_not_committed() -> None:
    now = datetime.now(UTC)
    placed = TaskPlacement("2", "host-a", 1_234, (now - timedelta(seconds=3)).isoformat())
    status = AggregatorStatus(AggregatorState.RUNNING, 4711, "host-d", now.isoformat(), tasks={"0_0": placed})
    text = printed(status, [Member("streamplan:host-d:4711:x", "/10.0.0.1", "m-1")])
    assert "the aggregator runs: streamplan:host-d:4711:x on /10.0.0.1 is in group orders-aggregator." in text
    assert "generation 1790000000000 (2026-09-21 14:13:20 UTC, host host-d, pid 4711)" in text
    assert re.search(r"0_0 2 host-a 1,234 12,345 \d+\.\d s ago", text)
    assert "0_1 - - - - -" in text
    assert "1_1 - - - - -" in text


def test_kafka_says_that_no_aggregator_runs_and_which_was_the_last() -> None:
    """Its lags are worth showing on a host that has no reports of it."""
    text = printed(None, [])
    assert "no aggregator runs: group orders-aggregator has none as a member." in text
    assert "host host-d, pid 4711" in text
    assert "0_0 - - - 12,345 -" in text
