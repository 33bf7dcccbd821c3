"""The task that draws the last seven days, and its DAG."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.serialization.serialized_objects import DagSerialization
from streamplan.airflow import check_operators, declare_dags
from streamplan.airflow.check_operators import SummaryOperator
from streamplan.airflow.data_docs import SummaryLink, page_file
from streamplan.pipelines.orders import PIPELINE
from streamplan.settings import Settings

from tests.support.fake_cluster import FakeApplication, FakeCluster


@pytest.fixture(autouse=True)
def application(home: Path, database: None, monkeypatch: pytest.MonkeyPatch) -> FakeApplication:
    cluster = FakeCluster()
    monkeypatch.setattr(check_operators, "brokers", lambda pipeline: "brokers")
    monkeypatch.setattr("streamplan.kafka.cluster.KafkaCluster", lambda brokers: cluster)
    return FakeApplication(cluster, PIPELINE)


def test_the_picture_is_served_and_told_of() -> None:
    told: list[Any] = []
    operator = SummaryOperator(task_id="draw", pipeline="orders", notifiers=[told.append])
    assert SummaryLink().get_link(operator, ti_key=None) == ""
    run = SimpleNamespace(run_after=datetime(2026, 3, 9, 6, tzinfo=UTC))
    address = operator.execute({"dag_run": run})  # type: ignore[typeddict-item]
    assert address == "/streamplan/orders/data_docs/summaries/2026-03-09T060000.svg"
    assert SummaryLink().get_link(operator, ti_key=None) == address
    file = page_file(Settings.from_environment().reports, address.removeprefix("/streamplan/"))
    assert file is not None
    assert file.read_text().startswith("<svg ")
    (context,) = told
    assert context["summary"]["picture"] == address
    assert context["summary"]["text"] == "0 offsets arrived, 0 offsets were dead-lettered, no check ran"


def test_a_summary_is_drawn_where_one_is_asked_for() -> None:
    assert "orders_summary" not in declare_dags(PIPELINE)
    dag = declare_dags(PIPELINE, summary="0 6 * * 1")["orders_summary"]
    assert dag.timetable.expression == "0 6 * * 1"
    assert [task.task_id for task in dag.tasks] == ["draw"]
    (task,) = DagSerialization.to_dict(dag)["dag"]["tasks"]
    assert task["__var"]["_operator_extra_links"] == {"Picture": "_link_SummaryLink"}
