"""What `streamplan demo` says, without a stack."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console
from streamplan.cli import demo
from streamplan.errors import StreamplanError
from streamplan.local.airflow_rest import AirflowRest, StillRuns
from streamplan.local.stack import Stack
from streamplan.pipelines.orders import PIPELINE


def test_a_run_that_takes_too_long_goes_on_and_the_error_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    class Rest(AirflowRest):
        def wait(self, dag_id: str, run_id: str, **_: Any) -> str:
            raise StillRuns(
                f"Run {run_id} of {dag_id}",
                expected="finished within 300 s",
                observed="running after 300 s; not done yet: verify.recount (running)",
            )

    monkeypatch.setattr(demo, "KafkaCluster", lambda servers: None)
    stack = cast(
        "Stack", SimpleNamespace(kafka=SimpleNamespace(brokers=None), airflow=SimpleNamespace(password="secret"))
    )
    with pytest.raises(StreamplanError) as raised:
        demo._follow(stack, Rest("http://airflow", "", ""), PIPELINE, "manual__1", 0, Console(file=io.StringIO()))
    assert str(raised.value) == (
        "Run manual__1 of orders_deploy: expected finished within 300 s, observed running after 300 s; not done yet: "
        "verify.recount (running). The run goes on in Airflow. Follow it at "
        "http://airflow/dags/orders_deploy/runs/manual__1 (user admin, password secret). `python -m streamplan status` "
        "shows what runs. When the run has succeeded, the pipeline is deployed and verified."
    )


@pytest.mark.parametrize(
    ("running", "said"),
    [
        (["orders_aggregator", "orders_health"], None),
        (
            ["visits_aggregator", "orders_aggregator", "visits_health", "clicks_aggregator"],
            "Other pipelines go on, too: clicks, visits. "
            "To end one, mark the run of its DAG, such as clicks_aggregator, "
            "as failed in Airflow.",
        ),
    ],
)
def test_other_pipelines_that_go_on_are_told(running: list[str], said: str | None) -> None:
    class Rest(AirflowRest):
        def running_dags(self) -> list[str]:
            return running

    assert demo.others_that_run(Rest("http://airflow", "", ""), PIPELINE) == said
