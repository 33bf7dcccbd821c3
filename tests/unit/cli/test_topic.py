"""The command ``topic`` on a cluster in memory."""

from __future__ import annotations

import json

import pytest
from streamplan.cli import main, topic
from streamplan.observability.observed import Observed
from streamplan.pipelines.orders import PIPELINE

from tests.support.fake_cluster import FakeApplication, FakeCluster

ORDERS = ["topic", "orders", "--topic", "orders"]


@pytest.fixture(autouse=True)
def application(monkeypatch: pytest.MonkeyPatch) -> FakeApplication:
    """Nineteen orders are counted: ten jackets, nine shirts."""
    cluster = FakeCluster()
    application = FakeApplication(cluster, PIPELINE)
    for n in range(19):
        application.order(n)
    application.drain()
    monkeypatch.setattr(topic, "observed", lambda options: Observed("orders", cluster, PIPELINE))  # type: ignore[arg-type]
    return application


def test_records_from_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ORDERS, "--since", "earliest", "--last", "2", "--json"]) == 0
    assert {record["offset"] for record in json.loads(capsys.readouterr().out)} == {0, 1}


def test_a_time_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*ORDERS, "--since", "yesterday"])
    assert ended.value.code == 2
    assert "expected earliest, latest, by_duration:P7D" in " ".join(capsys.readouterr().err.split())


def test_a_topic_is_described(application: FakeApplication, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topic", "orders", "--topic", application.changelog, "--describe"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"{application.changelog}, changelog\n")
    rows = [line.split() for line in shown.splitlines()]
    assert ["cleanup.policy", "compact", "compact"] in rows
    assert "0: 10" in shown


def test_a_description_in_json(application: FakeApplication, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topic", "orders", "--topic", application.changelog, "--describe", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert sum(partition["live"] for partition in found["partitions"]) == 2
