"""A connection that cannot be read: the error says what Airflow's secrets backend said, which Airflow itself hides."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from airflow.sdk import BaseHook
from airflow.sdk.configuration import clear_secrets_backends_cache
from airflow.sdk.exceptions import AirflowNotFoundException
from streamplan.airflow.connections import brokers, brokers_in_trigger, connection
from streamplan.errors import Refused, StreamplanError

READABLE = {"kafka_default": {"conn_type": "kafka", "extra_dejson": {"bootstrap.servers": "kafka-1:9092"}}}


@pytest.fixture
def file(home: Path, database: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The connections file of docker-compose.yml, with Kafka's connection alone."""
    file = tmp_path / "connections.json"
    file.write_text(json.dumps(READABLE))
    monkeypatch.delenv("AIRFLOW_CONN_KAFKA_DEFAULT")
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT")
    monkeypatch.setenv("AIRFLOW__SECRETS__BACKEND", "airflow.secrets.local_filesystem.LocalFilesystemBackend")
    monkeypatch.setenv("AIRFLOW__SECRETS__BACKEND_KWARGS", json.dumps({"connections_file_path": str(file)}))
    clear_secrets_backends_cache()
    yield file
    clear_secrets_backends_cache()


def deny(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a user who may not read it. These tests may run as root, who may read everything."""

    def denied(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("airflow.secrets.local_filesystem.open", denied, raising=False)


def make_directory(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an engine mounts for a file that is not there."""
    file.unlink()
    file.mkdir()


UNREADABLE: dict[str, Callable[[Path, pytest.MonkeyPatch], object]] = {
    "no permission": deny,
    "no file": lambda file, monkeypatch: file.unlink(),
    "a directory": make_directory,
    "no JSON": lambda file, monkeypatch: file.write_text('{"kafka_default": '),
    "empty": lambda file, monkeypatch: file.write_text(""),
}


@pytest.mark.parametrize("break_it", UNREADABLE.values(), ids=UNREADABLE)
@pytest.mark.parametrize(
    "read",
    [
        lambda: brokers("orders"),
        lambda: connection("spark_default"),
        lambda: asyncio.run(brokers_in_trigger("kafka_default")),
    ],
    ids=["brokers in a task", "Spark in a task", "brokers in a trigger"],
)
def test_a_file_of_connections_that_cannot_be_read_is_named(
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    break_it: Callable[[Path, pytest.MonkeyPatch], object],
    read: Callable[[], object],
) -> None:
    break_it(file, monkeypatch)
    with pytest.raises(AirflowNotFoundException, match="isn't defined"):  # what Airflow says of it
        BaseHook.get_connection("kafka_default")
    with pytest.raises(StreamplanError, match=str(file)) as failure:
        read()
    assert not isinstance(failure.value, Refused), "another secrets backend may only be out of reach for a moment"


@pytest.mark.parametrize(
    "read",
    [lambda: connection("spark_default"), lambda: asyncio.run(brokers_in_trigger("spark_default"))],
    ids=["task", "trigger"],
)
def test_a_connection_that_a_readable_file_does_not_have_is_refused(file: Path, read: Callable[[], object]) -> None:
    with pytest.raises(Refused, match="connection spark_default: expected a connection with this id, observed none"):
        read()


def test_a_connection_of_a_readable_file_is_found(file: Path) -> None:
    assert brokers("orders").servers == "kafka-1:9092"
    assert asyncio.run(brokers_in_trigger("kafka_default")).servers == "kafka-1:9092"
