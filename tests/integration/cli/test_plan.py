"""The command line against real brokers."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter

import pytest
from confluent_kafka.admin import AdminClient
from streamplan.cli import main
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.test_data import produce
from streamplan.kafka.topics import apply_topics
from streamplan.registry import pipeline_named

from tests.support.records import read_committed


def test_plan_measures_the_load_of_each_stream_task(bootstrap_servers: str, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline = pipeline_named("skewed")
    against_cluster = ["plan", "skewed", "--against-cluster", "--bootstrap-servers", bootstrap_servers]
    assert main([*against_cluster, "--json"]) == 0
    before = json.loads(capsys.readouterr().out)["changes"]
    assert {change["name"] for change in before if change["verdict"] == "created"} == {
        spec.name for spec in pipeline.topics()
    }
    apply_topics(Brokers(bootstrap_servers), pipeline)
    try:
        produce(
            pipeline,
            Brokers(bootstrap_servers),
            records=2000,
            stop=threading.Event(),
            progress=lambda number, until: None,
        )
        assert main(against_cluster) == 0
        assert "created" not in capsys.readouterr().out
        assert main(["plan", "skewed", "--instances", "8", "--bootstrap-servers", bootstrap_servers]) == 0
        told = capsys.readouterr().out
        records = Counter(message.partition() for message in read_committed(bootstrap_servers, "clicks"))
        for partition, count in records.items():
            (shown,) = re.findall(rf"% +([0-9,]+) +0_{partition}\n", told.split("if they were assigned by load")[0])
            assert 0 <= int(shown.replace(",", "")) - count <= 2  # a marker for each transaction
    finally:
        admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        for future in admin.delete_topics([spec.name for spec in pipeline.topics()]).values():
            future.exception(120)
