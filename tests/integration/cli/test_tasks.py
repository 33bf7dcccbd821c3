"""The command ``tasks`` beside what a plain client sees of the group and the topics."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from streamplan.cli import main
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.task_ownership import TaskOwnership
from streamplan.kafka.topics import apply_topics
from streamplan.registry import pipeline_named

from tests.support.waiting import eventually


def test_tasks_shows_the_aggregator_and_the_lag_of_each_task(
    bootstrap_servers: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("STREAMPLAN_REPORTS", str(tmp_path))
    pipeline = pipeline_named("skewed")
    group = pipeline.topology.application_id
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    apply_topics(Brokers(bootstrap_servers), pipeline)
    try:
        with TaskOwnership(pipeline, Brokers(bootstrap_servers)) as ownership:
            ownership.claim({subtopology.id: False for subtopology in pipeline.topology.subtopologies})
            producer = Producer({"bootstrap.servers": bootstrap_servers})
            for _ in range(7):
                producer.produce("clicks", b"{}", partition=1)
            assert producer.flush(120) == 0
            heading, rows = shown(bootstrap_servers, capsys)
            assert f"the aggregator runs: streamplan:{socket.gethostname()}:{os.getpid()}:" in heading
            assert rows["0_1"] == "7"
            assert {lag for task, lag in rows.items() if task != "0_1"} == {"0"}
        eventually(
            lambda: not admin.describe_consumer_groups([group])[group].result(60).members,
            "the member has left the group",
        )
        heading, rows = shown(bootstrap_servers, capsys)
        assert f"no aggregator runs: group {group} has none as a member" in heading
        assert rows["0_1"] == "7"
    finally:
        for future in admin.delete_topics([spec.name for spec in pipeline.topics()]).values():
            future.exception(120)
        for future in admin.delete_consumer_groups([group]).values():
            future.exception(120)


def shown(bootstrap_servers: str, capsys: pytest.CaptureFixture[str]) -> tuple[str, dict[str, str]]:
    """The first paragraph of the command's output as one line, and the lag of each stream task."""
    assert main(["tasks", "skewed", "--bootstrap-servers", bootstrap_servers]) == 0
    told = capsys.readouterr().out
    heading, _, table = told.partition("Stream tasks")
    rows = [line.split() for line in table.splitlines() if line.strip()[:1].isdigit()]
    return " ".join(heading.split()), {row[0]: row[4] for row in rows}
