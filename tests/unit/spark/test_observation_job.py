"""What a Spark job that observes leaves in its file, however it ends."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from streamplan.checks.framework.check import Observation
from streamplan.errors import BrokersUnavailable, Refused
from streamplan.reports.observations import RecordedObservations, reason_left
from streamplan.spark import observation_job
from streamplan.spark.observation_job import write_observations

NO_MEMORY = (
    "An error occurred while calling o42.collectToPython.\n: java.lang.OutOfMemoryError: Java heap space\n"
    "\tat java.base/java.util.Arrays.copyOf(Arrays.java:3537)\n\tat scala.collection\n"
)


@pytest.fixture(autouse=True)
def _session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observation_job, "open_session", lambda name: SimpleNamespace(stop=lambda: None))


def test_the_rows(tmp_path: Path) -> None:
    rows = (Observation("a total", 1, 1),)
    write_observations("a job", tmp_path / "out.json", lambda spark: RecordedObservations(rows))
    assert RecordedObservations.read(tmp_path / "out.json").rows == rows
    assert reason_left(tmp_path / "out.json", missing="killed") == ""


@pytest.mark.parametrize(
    ("error", "ends", "reason"),
    [
        (BrokersUnavailable("Kafka", observed="no answer"), False, "Kafka: observed no answer"),
        (
            RuntimeError(NO_MEMORY),
            True,
            "an unexpected error: RuntimeError: An error occurred while calling o42.collectToPython."
            " : java.lang.OutOfMemoryError: Java heap space. STREAMPLAN_DRIVER_MEMORY in the environment of Airflow's"
            " processes gives the driver more, as 2g",
        ),
        (Refused("pipeline 'a'"), True, "killed"),
    ],
)
def test_why_there_are_no_rows(tmp_path: Path, error: Exception, ends: bool, reason: str) -> None:
    """An error that nobody expected ends the job, too. What is refused stands in a file of its own."""

    def observe(spark: Any) -> RecordedObservations:
        raise error

    output = tmp_path / "out.json"
    if ends:
        with pytest.raises(type(error)):
            write_observations("a job", output, observe)
    else:
        write_observations("a job", output, observe)
    assert reason_left(output, missing="killed") == reason
