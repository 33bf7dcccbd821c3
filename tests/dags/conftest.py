"""An Airflow of this test session: its own directory and SQLite, chosen before anything imports Airflow."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.airflow_home import DAGS, HOME, VARIABLES

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag

# A collected file may import Airflow before any fixture runs.
assert "airflow.settings" not in sys.modules, "Airflow was imported before its settings were made"
for name in [name for name in os.environ if name.startswith("AIRFLOW_")]:
    del os.environ[name]
os.environ.update(VARIABLES)


def pytest_unconfigure() -> None:
    shutil.rmtree(HOME, ignore_errors=True)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """``STREAMPLAN_HOME``, with a space, and the connections of a deployment whose brokers nobody reaches."""
    directory = tmp_path / "a deployment"
    monkeypatch.setenv("STREAMPLAN_HOME", str(directory))
    for name in ("STREAMPLAN_CHECKPOINTS", "STREAMPLAN_REPORTS", "STREAMPLAN_JARS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(
        "AIRFLOW_CONN_KAFKA_DEFAULT", '{"conn_type": "kafka", "extra": {"bootstrap.servers": "127.0.0.1:1"}}'
    )
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[2,4]"}')
    return directory


@pytest.fixture(scope="session")
def database() -> None:
    """Airflow's tables."""
    from airflow.utils.db import initdb

    initdb()


@pytest.fixture(scope="session")
def dagbag() -> DagBag:
    from airflow.dag_processing.dagbag import DagBag

    return DagBag(dag_folder=str(DAGS))
