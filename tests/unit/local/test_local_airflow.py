"""What the stack of one machine tells Airflow, and what it refuses to start."""

from __future__ import annotations

from pathlib import Path

import pytest
from streamplan.errors import StreamplanError
from streamplan.local import airflow
from streamplan.local.airflow import DEFAULT_PORTS, LocalAirflow
from streamplan.local.ports import Ports
from streamplan.settings import Settings


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's repository, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(airflow, "local_spark_variables", lambda environment: {})
    return tmp_path


def local_airflow(repository: Path, **environment: str) -> LocalAirflow:
    settings = Settings.from_environment({"STREAMPLAN_HOME": str(repository / "home"), "STREAMPLAN_JARS": "/jars"})
    return LocalAirflow(settings, Ports(repository / "stack.json", DEFAULT_PORTS), environment=environment)


def test_dags_and_plugins_are_those_of_the_working_directory(repository: Path) -> None:
    variables = local_airflow(repository)._variables({})
    assert variables["AIRFLOW__CORE__DAGS_FOLDER"] == str(repository / "dags")
    assert variables["AIRFLOW__CORE__PLUGINS_FOLDER"] == str(repository / "plugins")


@pytest.mark.parametrize(
    ("before", "now", "registered"),
    [
        (None, None, ""),
        (None, "one", "one"),
        ("one", None, "one"),
        ("one", "two,one", "one,two"),
    ],
)
def test_a_pipeline_that_was_deployed_stays_registered(
    repository: Path, before: str | None, now: str | None, registered: str
) -> None:
    environment = {"STREAMPLAN_PIPELINES": now} if now else {}
    variables = local_airflow(repository, **environment)._variables({"STREAMPLAN_PIPELINES": before} if before else {})
    assert variables["STREAMPLAN_PIPELINES"] == registered


def test_a_directory_without_dags_is_refused(repository: Path) -> None:
    with pytest.raises(StreamplanError, match="Start Airflow from the directory of your repository"):
        local_airflow(repository).require_startable()
    (repository / "dags").mkdir()
    local_airflow(repository).require_startable()


def test_an_airflow_that_is_not_installed_is_named_with_its_extra(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(airflow, "find_spec", lambda name: None)
    with pytest.raises(StreamplanError, match=r"pip install 'streamplan\[airflow\]'"):
        local_airflow(repository).require_startable()
