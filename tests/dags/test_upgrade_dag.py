"""``<name>_upgrade``: which pipelines have it, what its tasks give the Spark job, and what a person is shown."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowSkipException
from streamplan.airflow import declare_dags
from streamplan.airflow.check_operators import CheckOperator, RecountOperator
from streamplan.airflow.dags import upgrade_dag
from streamplan.airflow.maintenance_operators import UpgradeOperator
from streamplan.maintenance.upgrade_plan import Stage
from streamplan.model.topology import Topology
from streamplan.pipelines.orders import ORDER, PIPELINE

from tests.support.fake_cluster import FakeApplication, FakeCluster

pytestmark = pytest.mark.usefixtures("home", "database")

UPGRADED = replace(PIPELINE, upgrade_from="orders-aggregator-before")


def test_a_pipeline_has_it_where_it_names_the_application_that_runs() -> None:
    assert {*declare_dags(UPGRADED)} - {*declare_dags(PIPELINE)} == {"orders_upgrade"}


def test_the_description_is_the_whole_first_sentence_also_where_an_application_id_has_a_dot() -> None:
    dag = upgrade_dag(replace(PIPELINE, upgrade_from="orders.v1"))
    assert dag.description == (
        "Compares the application `orders-aggregator` of orders with `orders.v1`, and lets it take over."
    )


def test_nothing_is_switched_before_a_person_has_seen_what_was_built() -> None:
    dag = upgrade_dag(UPGRADED)
    edges = {(task.task_id, downstream) for task in dag.tasks for downstream in task.downstream_task_ids}
    assert edges == {("build", "approval"), ("approval", "switch"), ("switch", "aggregator")}
    assert dag.get_task("aggregator").trigger_dag_id == "orders_aggregator"
    approval = dag.get_task("approval")
    assert isinstance(approval, ApprovalOperator)
    assert "ti.xcom_pull(task_ids='build')" in approval.body
    assert approval.defaults == ["Reject"]
    assert dag.max_active_runs == 1
    assert all(task.doc_md and task.owner == "streamplan" for task in dag.tasks)
    assert dag.get_task("build").execution_timeout
    assert dag.get_task("switch").execution_timeout
    assert dag.params.get_param("accept_differences").resolve() is False
    assert dag.params.get_param("max_offsets").resolve() is None


def run(
    monkeypatch: pytest.MonkeyPatch, step: str, *, stage: Stage = Stage.BESIDE, accept: bool = False, active: str = ""
) -> tuple[Any, list[str]]:
    """Execute a task whose job leaves a result; return what the task returns, and the arguments of the job."""
    task: Any = UpgradeOperator(task_id=step, pipeline="orders", step=step, dag=DAG("a_dag"))
    given: list[str] = []

    def job(name: str, output: Path, *arguments: str) -> None:
        assert name == "upgrade"
        given.extend(arguments)
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps({"stage": stage, "text": "what was found"}))

    monkeypatch.setattr(task, "_run", job)
    ti = SimpleNamespace(get_dr_count=lambda dag_id, states: int(dag_id == active))
    params = {"accept_differences": accept, "max_offsets": 100 if accept else None}
    return task.execute({"params": params, "ti": ti}), given


def test_the_aggregator_goes_on_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    returned, given = run(monkeypatch, "build", active="orders_aggregator")
    assert given == ["--bootstrap-servers", "127.0.0.1:1", "--step", "build"]
    assert returned["text"] == "what was found"


def test_a_step_is_told_of_a_run_that_works_on_the_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    _, given = run(monkeypatch, "switch", accept=True, active="orders_reset")
    assert given[2:] == [
        *("--step", "switch", "--accept-differences", "--max-offsets", "100"),
        *("--active-run", "orders_reset"),
    ]


def test_nobody_is_asked_where_it_has_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AirflowSkipException, match="what was found"):
        run(monkeypatch, "build", stage=Stage.DONE)


@pytest.mark.parametrize("kind", ["check", "recount"])
def test_until_the_switch_a_health_run_does_not_recount(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """The totals of the old application can be recounted by its own declaration alone."""
    cluster = FakeCluster()
    FakeApplication(cluster, PIPELINE)
    topology = Topology("orders-aggregator-2")
    topology.stream("orders", value=ORDER).group_by("ProductType", name="by-type").count(store="totals")
    changed = replace(PIPELINE, topology=topology, upgrade_from=FakeApplication.group)
    monkeypatch.setattr("streamplan.kafka.cluster.KafkaCluster", lambda brokers: cluster)
    monkeypatch.setattr("streamplan.airflow.check_operators.pipeline_named", lambda name: changed)
    task: Any = RecountOperator(task_id="recount", pipeline="orders", dag=DAG("a_dag"))
    if kind == "check":
        task = CheckOperator(task_id="totals", pipeline="orders", check="totals", dag=DAG("another_dag"))
    with pytest.raises(AirflowSkipException, match="orders-aggregator-2 has not taken over from orders-aggregator yet"):
        task.execute({"params": {"full": False}, "dag_run": SimpleNamespace(run_type="manual")})
