"""The doctor beside a stack that is up, secured as it is, and beside one that is down."""

from __future__ import annotations

import pytest
from streamplan.cli import main
from streamplan.local.stack import Stack
from streamplan.settings import Settings


@pytest.fixture
def doctor(home: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMPLAN_HOME", str(home.home))
    monkeypatch.delenv("AIRFLOW_HOME", raising=False)


def test_a_stack_that_is_up_has_no_problem(stack: Stack, doctor: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "orders"]) == 0
    lines = capsys.readouterr().out.splitlines()
    well = [" ".join(line.split()[1:]) for line in lines if line.startswith("ok ")]
    for begin in (
        "Java: ",
        "spark-submit: 4.",
        "Kafka connector of Spark: ",
        f"brokers {stack.kafka.brokers}: 2 brokers answer over SASL_SSL",
        "Airflow: 3.",
        f"connection kafka_default: {stack.kafka.brokers}",
        "connection spark_default: local",
        "plugin: Airflow finds it",
        "scheduler: healthy",
        "dag_processor: healthy",
        "triggerer: healthy",
    ):
        assert any(line.startswith(begin) for line in well), (begin, lines)
    assert lines[-1].startswith("0 problems")
    assert "sasl.password" not in "".join(lines)


@pytest.mark.soak
def test_what_does_not_run_is_a_problem_with_a_remedy(
    stack: Stack, doctor: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stack.kafka.stop(2)
    assert stack.kafka.stop(1)
    try:
        assert main(["doctor", "orders"]) == 1
    finally:
        stack.kafka.up()
    (told,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("problem")]
    assert "Connection refused" in told
    assert "Are the brokers up" in told
