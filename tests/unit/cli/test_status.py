"""`streamplan status`: what runs here is shown, and a stack that was never started here is not."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from streamplan import processes
from streamplan.cli import main

STACK = ("kafka-1", "kafka-2", "airflow-api-server", "airflow-scheduler", "airflow-dag-processor", "airflow-triggerer")

IN_A_CONTAINER = {
    "AIRFLOW_CONN_KAFKA_DEFAULT": '{"conn_type": "kafka", "extra": {"bootstrap.servers": "kafka-1:9092"}}',
    "AIRFLOW__API__BASE_URL": "http://localhost:8080",
}
"""Brokers and an Airflow that this environment names, and that no command of ours has started."""


@pytest.fixture(params=[{}, IN_A_CONTAINER], ids=["nothing configured", "in a container"])
def home(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name, value in request.param.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("STREAMPLAN_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def job(home: Path) -> Iterator[processes.ProcessRef]:
    ref = processes.start(
        "orders-aggregator",
        [sys.executable, "-c", "import time; time.sleep(600)"],
        env={},
        log_file=home / "logs" / "orders-aggregator.log",
        run_dir=home / "run",
    )
    yield ref
    processes.stop(ref)


def test_a_stack_that_was_never_started_here_is_not_shown(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status"]) == 1
    shown = capsys.readouterr().out
    assert not any(name in shown for name in STACK)
    assert f"no stack was started in {home}" in shown
    assert "streamplan up" in shown
    assert "streamplan doctor" in shown


def test_jobs_are_shown_where_no_stack_was_started(
    job: processes.ProcessRef, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status"]) == 0
    shown = capsys.readouterr().out
    assert not any(name in shown for name in STACK)
    [line] = [line for line in shown.splitlines() if "orders-aggregator" in line]
    assert str(job.pid) in line
    assert "healthy" in line


def test_a_job_of_another_pid_namespace_is_named_and_not_judged(
    job: processes.ProcessRef, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = home / "run" / "orders-aggregator.json"
    entry = json.loads(file.read_text())
    elsewhere = entry | {
        "name": "orders-producer",
        "namespace": entry["namespace"] | {"inode": "pid:[1]", "host": "w-2"},
    }
    (home / "run" / "orders-producer.json").write_text(json.dumps(elsewhere))
    assert main(["status"]) == 0
    [line] = [line for line in capsys.readouterr().out.splitlines() if "orders-producer" in line]
    assert "host w-2" in line
    assert "healthy" not in line


def test_a_stack_that_was_started_here_is_shown_also_when_it_is_down(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "stack.json").write_text(json.dumps({"kafka-1": 9092}))
    assert main(["status"]) == 1
    lines = capsys.readouterr().out.splitlines()
    for name in STACK:
        assert any(name in line and "not running" in line for line in lines), name
