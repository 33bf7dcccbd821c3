"""What is judged of what was looked at. The looks themselves are tried on real brokers, Spark and Airflow."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from importlib import metadata
from typing import Any

import pytest
from streamplan.doctor.airflow import brokers_of, judge_airflow
from streamplan.doctor.finding import Finding, State
from streamplan.doctor.spark import compare_executors
from streamplan.kafka.brokers import Brokers

PACKAGES = ("pyspark", "confluent-kafka", "pyarrow", "numpy")

OWN = {"python": platform.python_version(), **{package: metadata.version(package) for package in PACKAGES}}

EXECUTOR = {"host": "spark-1", "versions": OWN, "brokers": {"kafka-1:9092": ""}, "checkpoints": True, "skew": 0.0}

AIRFLOW: Mapping[str, Any] = {
    "version": "3.3.2",
    "executor": "LocalExecutor",
    "dags_folder": "/dags",
    "conn_ids": ("kafka_default", "spark_default"),
    "kafka": {"bootstrap.servers": "kafka-1:9092", "ssl.key.password": "a-secret", "security.protocol": "SSL"},
    "refused": None,
    "backend_failure": "",
    "spark": "local[3,4]",
    "plugin": True,
    "url": "http://localhost:8080",
    "health": {part: {"status": "healthy"} for part in ("scheduler", "dag_processor", "triggerer")},
}


def states(findings: Iterable[Finding]) -> dict[str, State]:
    return {finding.subject: finding.state for finding in findings if finding.state is not State.OK}


def test_executors_like_the_driver_are_all_right() -> None:
    assert states(compare_executors("spark://s:7077", [EXECUTOR, EXECUTOR], "/mnt/checkpoints")) == {}


@pytest.mark.parametrize(
    ("changed", "subject", "told"),
    [
        ({"versions": {**OWN, "python": "3.9.1"}}, "python on the executors", "3.9.1 on spark-2"),
        ({"versions": {"python": OWN["python"]}}, "confluent-kafka on the executors", "none on spark-2"),
        ({"brokers": {"kafka-1:9092": "timed out"}}, "brokers from the executors", "kafka-1:9092 from spark-2"),
        ({"checkpoints": False}, "checkpoints", "does not exist on spark-2"),
        ({"skew": -30.0}, "clocks", "30.0 s apart"),
    ],
)
def test_an_executor_that_differs_is_named(changed: Mapping[str, Any], subject: str, told: str) -> None:
    other = {**EXECUTOR, "host": "spark-2", **changed}
    found = {finding.subject: finding for finding in compare_executors("spark://s:7077", [EXECUTOR, other], "/mnt/c")}
    assert found[subject].state in (State.PROBLEM, State.WARNING)
    assert told in found[subject].observed
    assert found[subject].remedy


def test_a_path_on_several_hosts_may_be_several_directories() -> None:
    other = {**EXECUTOR, "host": "spark-2"}
    assert states(compare_executors("spark://s:7077", [EXECUTOR, other], "/mnt/c")) == {"checkpoints": State.WARNING}
    remote = [{**row, "checkpoints": None} for row in (EXECUTOR, other)]
    assert states(compare_executors("spark://s:7077", remote, "s3a://bucket/c")) == {}


def test_the_brokers_are_those_of_the_connection_with_its_properties() -> None:
    found = brokers_of(AIRFLOW)
    assert found is not None
    assert (found.servers, dict(found.properties)) == (
        "kafka-1:9092",
        {"ssl.key.password": "a-secret", "security.protocol": "SSL"},
    )
    assert brokers_of({**AIRFLOW, "kafka": None}) is None


def test_an_airflow_that_is_ready() -> None:
    found = list(judge_airflow(AIRFLOW, Brokers("kafka-1:9092")))
    assert states(found) == {}
    assert not [finding for finding in found if "a-secret" in finding.text]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (
            {"kafka": None, "spark": None},
            {"connection kafka_default": State.PROBLEM, "connection spark_default": State.PROBLEM},
        ),
        (
            {"kafka": {"bootstrap.servers": "kafka-9:9092"}, "spark": "yarn"},
            {"connection kafka_default": State.WARNING},
        ),
        ({"kafka": None, "refused": ["no addresses", "Name them."]}, {"connection kafka_default": State.PROBLEM}),
        (
            {"kafka": None, "backend_failure": "LocalFilesystemBackend: Permission denied: '/run/secrets/c.json'"},
            {"secrets backend": State.PROBLEM, "connection kafka_default": State.PROBLEM},
        ),
        ({"plugin": False}, {"plugin": State.PROBLEM}),
        ({"health": None}, {"Airflow's components": State.NOT_LOOKED}),
        (
            {"health": {"scheduler": {"status": "healthy"}, "dag_processor": {"status": "unhealthy"}}},
            {"dag_processor": State.PROBLEM, "triggerer": State.PROBLEM},
        ),
    ],
)
def test_what_is_missing_in_airflow_is_named(changed: Mapping[str, Any], expected: Mapping[str, State]) -> None:
    found = list(judge_airflow({**AIRFLOW, **changed}, Brokers("kafka-1:9092")))
    assert states(found) == expected
    assert changed.get("backend_failure", "") in "".join(finding.text for finding in found)
