"""Brokers and Airflow for the tests that trigger runs as a person does. They are down again before the others begin."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import pytest
from streamplan import processes
from streamplan.local.airflow import DEFAULT_PORTS as AIRFLOW_PORTS
from streamplan.local.brokers import DEFAULT_PORTS
from streamplan.local.stack import Stack
from streamplan.settings import Settings


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


@pytest.fixture(scope="module")
def stack(home: Settings) -> Stack:
    """Secured brokers and Airflow's four processes, up when a module begins, whatever the one before has stopped."""
    whole = Stack(home, secure=True)
    whole.up()
    return whole
