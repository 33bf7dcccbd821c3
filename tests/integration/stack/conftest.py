"""Brokers and Airflow for the tests that trigger runs as a person does. They are down again before the others begin."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import pytest
from streamplan import processes
from streamplan.local.airflow import DEFAULT_PORTS as AIRFLOW_PORTS
from streamplan.local.brokers import DEFAULT_PORTS
from streamplan.local.stack import Stack
from streamplan.settings import PROJECT, Settings

DAG_FILE = """
from dataclasses import replace
from datetime import timedelta

from airflow.sdk import AsyncCallback
from streamplan.airflow import declare_dags, verification_deadline
from streamplan.pipelines.orders import PIPELINE as ORDERS

PIPELINE = replace(ORDERS, health_schedule="*/3 * * * *")
late = AsyncCallback("told.write", kwargs={{"file": {told!r}}})
globals().update(declare_dags(PIPELINE, deadlines=[verification_deadline(PIPELINE, timedelta(seconds=1), late)]))
"""

CALLBACK = """
import json


async def write(file, context):
    with open(file, "a") as told:
        told.write(json.dumps({"dag_id": context["dag_run"]["dag_id"], **context["verification"]}) + "\\n")
"""


@pytest.fixture(scope="package", autouse=True)
def registered() -> Iterator[None]:
    """Airflow parses the DAG file before each task, and it is short when one pipeline is registered."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STREAMPLAN_PIPELINES", "streamplan.pipelines.orders")
        yield


@pytest.fixture(scope="package")
def home(tmp_path_factory: pytest.TempPathFactory, registered: None) -> Iterator[Settings]:
    """Below a path with a space. Airflow's OpenLineage provider writes its events into ``lineage.jsonl`` there."""
    home = tmp_path_factory.mktemp("the stack")
    transport = {"type": "file", "log_file_path": str(home / "lineage.jsonl"), "append": True}
    (home / "openlineage.yml").write_text(json.dumps({"transport": transport}))
    base = random.randrange(15_000, 30_000, 10)
    names = sorted({**DEFAULT_PORTS, **AIRFLOW_PORTS})
    (home / "stack.json").write_text(json.dumps({name: base + offset for offset, name in enumerate(names)}))
    settings = Settings.from_environment({"STREAMPLAN_HOME": str(home)})
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OPENLINEAGE_CONFIG", str(home / "openlineage.yml"))
            yield settings
    finally:
        Stack(settings).down()
    assert processes.registered(home / "run") == []


@pytest.fixture(scope="package")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a user's repository has: DAGs with a deadline, and a plugins folder with the callback.

    The deadline is missed by every run of ``orders_health`` that takes a second. Its callback writes ``told.jsonl``.
    """
    repository = tmp_path_factory.mktemp("repository")
    (repository / "dags").mkdir()
    (repository / "dags" / "streamplan_dags.py").write_text(DAG_FILE.format(told=str(repository / "told.jsonl")))
    (repository / "plugins").mkdir()
    (repository / "plugins" / "told.py").write_text(CALLBACK)
    (repository / "plugins" / "streamplan_plugin.py").symlink_to(PROJECT / "plugins" / "streamplan_plugin.py")
    return repository


@pytest.fixture(scope="module")
def stack(home: Settings, repository: Path) -> Stack:
    """Secured brokers and Airflow's four processes, up when a module begins, whatever the one before has stopped."""
    with chdir(repository):
        whole = Stack(home, secure=True)
    whole.up()
    return whole
